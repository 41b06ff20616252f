"""Texts of statements that only a lock wait has named."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import polars as pl
import pytest

from dbdyno.engines.postgres.statements import Statements
from dbdyno.model.schema.tables import empty


def test_the_text_of_a_blockers_last_statement_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended long before the window, so no counter of it grew between the two reads."""
    asked: list[set[int]] = []

    def texts(_: Statements, _connection: Any, ids: Collection[int]) -> pl.DataFrame:
        asked.append(set(ids))
        return empty("statement_texts")

    monkeypatch.setattr(Statements, "texts", texts)
    reader, none = Statements(), empty("statement_reads")
    for _ in range(2):
        reader.executed(cast("Any", None), none, none, [9])
    assert asked == [{9}, set()]
