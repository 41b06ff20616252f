"""Captions name the repeats whose figures stand below them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.fakery import climb

from dbdyno.conduct.derive.derive import derive
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.statements import EVERY_STATEMENT
from dbdyno.model.schema.tables import rows
from dbdyno.present.document.document import Table
from dbdyno.present.figures import selection
from dbdyno.present.run import waiting


@pytest.fixture(scope="module")
def twice() -> Results:
    run = climb("fake:cpus=2,cpu=4ms,wait=IO/DataFileRead:5ms", (2,), repeats=2, trace=True)
    results = derive(run.info, run.plan, run.environment, run.cells)
    head = {"workload": run.plan.cells[0].workload, "variant": run.plan.cells[0].variant, "sessions": 2}
    stay = {
        "part": "sleep",
        "wait_class": "IO",
        "wait_event": "DataFileRead",
        "begun": 1,
        "count": 1,
        "status": "ok",
    }
    durations = [
        head | stay | {"cell": cell, "repeat": repeat, "query_status": EVERY_STATEMENT, "seconds": seconds}
        for cell, repeat, seconds in (("all", 0, 7.0), *((c.id, 1, 3.5) for c in run.cells))
    ]
    return replace(results, tables={**results.tables, "wait_durations": rows("wait_durations", durations)})


def _durations(results: Results, pick: selection.Pick) -> Table:
    return next(b for b in waiting.durations(results, pick) if isinstance(b, Table))


def test_durations_of_waits_are_of_all_repeats_and_say_so(twice: Results) -> None:
    pick = selection.loads(twice)[0]
    table = _durations(twice, pick)
    assert table.title == "How long waits lasted at 2 sessions, all 2 repeats together"
    single = _durations(twice, selection.pick_of(twice, pick.cell))
    assert "repeats" not in single.title
    time = next(n for n, c in enumerate(table.columns) if c.head == "time")
    assert [t.rows[0].cells[time].text for t in (table, single)] == ["7.00 s", "3.50 s"]


def test_without_rows_of_all_repeats_the_first_is_named(twice: Results) -> None:
    pick = selection.loads(twice)[0]
    assert pick.repeats_of(twice.tables["events"]) == "; the first good one of 2 repeats"
