"""Lock waits and statements that a role may not see are unknown, not absent."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from tests.unit import report_results

from dbdyno.model.schema.data_sources.blocking import LOCK_WAITS
from dbdyno.present.document.document import Paragraph
from dbdyno.present.figures import selection
from dbdyno.present.run import chains, waiting
from dbdyno.present.run.statements import NO_QUERY_ID


@pytest.mark.parametrize(
    ("status", "detail", "begins"),
    [
        (
            "not permitted",
            "without pg_monitor states are hidden",
            "Lock waits unknown at 4 sessions: without",
        ),
        ("ok", "", "No lock waits at 4 sessions: no sample met"),
    ],
)
def test_lock_waits_that_are_hidden_are_unknown(status: str, detail: str, begins: str) -> None:
    results = report_results.results(report_results.World(rungs=(4,)))
    one = results.tables["sources"].head(1)
    sources = one.with_columns(name=pl.lit(LOCK_WAITS), status=pl.lit(status), detail=pl.lit(detail))
    pick = selection.pick_of(results)
    assert pick is not None
    (shown,) = chains.wait_chains(replace(results, tables={**results.tables, "sources": sources}), pick)
    assert isinstance(shown, Paragraph)
    assert shown.text.startswith(begins)


def test_time_without_a_query_id_has_one_name() -> None:
    assert waiting._statement({"query_id": None, "query_status": "ok"}).text == NO_QUERY_ID
