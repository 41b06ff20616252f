"""The registry of makers: the order follows from what they read, whatever the order of registration."""

from __future__ import annotations

import random

import polars as pl
import pytest
from tests.fakery import climb

from dbdyno.account import making
from dbdyno.account.making import UndeclaredRead, in_order, make, makes
from dbdyno.conduct.derive.derive import part_of
from dbdyno.model.schema.tables import REGISTERED


def test_the_order_of_registration_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = climb("fake:cpus=2,cpu=4ms,wait=IO/DataFileRead:5ms", (1, 3))
    whole = part_of(cells.cells, cells.plan, cells.environment).tables
    for seed in range(3):
        shuffled = [*making._REGISTERED]
        random.Random(seed).shuffle(shuffled)
        monkeypatch.setattr(making, "_REGISTERED", shuffled)
        again = part_of(cells.cells, cells.plan, cells.environment).tables
        assert again.keys() == whole.keys()
        assert [name for name in whole if not again[name].equals(whole[name])] == []


def test_every_table_that_is_shown_has_a_maker_or_comes_from_triggers() -> None:
    with_maker = frozenset().union(*(making.made_at(stage) for stage in ("cut", "cells", "run")))
    assert {n for n, t in REGISTERED.items() if t.shown} - with_maker == {"triggers_fired", "captured"}


def test_tables_that_need_each_other_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "_REGISTERED", [])
    makes("ledger", reads=("events",))(pl.DataFrame)
    makes("events", reads=("rates",))(pl.DataFrame)
    makes("rates", reads=("ledger",))(pl.DataFrame)
    with pytest.raises(ValueError, match=r"need each other: .* reads .* reads ") as error:
        in_order("cells")
    assert all(name in str(error.value) for name in ("ledger", "events", "rates"))


def test_a_table_that_a_maker_does_not_name_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "_REGISTERED", [])
    makes("rates")(lambda: pl.DataFrame())
    makes("profile")(lambda tables: tables.get("rates"))
    with pytest.raises(UndeclaredRead, match="profile reads rates"):
        dict(make("cells", {"windows": pl.DataFrame()}, {}))


@pytest.mark.parametrize(
    ("names", "stage", "message"),
    [
        (("no_table",), "cells", "no record of a table no_table"),
        (("windows",), "total", "windows says it has no totals"),
        (("profile", "profile"), "cells", "two makers"),
    ],
)
def test_a_maker_without_a_place_is_refused(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], stage: making.Stage, message: str
) -> None:
    monkeypatch.setattr(making, "_REGISTERED", [])
    with pytest.raises(ValueError, match=message):
        for name in names:
            makes(name, stage=stage)(pl.DataFrame)
