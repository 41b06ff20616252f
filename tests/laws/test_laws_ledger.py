"""Laws of the ledger: it closes for any raw tables, and unknown stays unknown."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakery import Climb, S, climb, made_cell, sample_row, sampler_row, session_row, task_row

from dbdyno.conduct.derive import derive
from dbdyno.ledger import ledger
from dbdyno.model.raw import RawCell
from dbdyno.model.tables import empty
from dbdyno.window import cut

STATES = st.sampled_from(["R", "S", "D", "Z", None])
WAITS = st.sampled_from([None, "Client/ClientRead", "IO/DataFileRead", "LWLock/WALWrite", "Lock/tuple"])
STATUSES = st.sampled_from(["ok", "ok", "ok", "not here", "not permitted", "vanished"])
SUMMED = ("run", "runq", "sleep", "client", "active without wait event", "unaccounted")


@st.composite
def task_reads(draw: st.DrawFn, session: int) -> list[dict[str, Any]]:
    """Any reads at all: too few, going down, failed."""
    pid = 100 + session
    who = {"pid": pid, "tid": pid, "session": session}
    times = sorted(draw(st.lists(st.integers(8 * S, 22 * S), max_size=5, unique=True)))
    rows = []
    for at in times:
        status = draw(STATUSES)
        figures = [draw(st.integers(0, 5 * S)) if status == "ok" else None for _ in range(4)]
        start = draw(st.sampled_from([7, 7, 7, 9])) if status == "ok" else None
        more = {"user_ns": figures[2], "system_ns": figures[3], "start_ticks": start, "status": status}
        rows.append(task_row(at, figures[0], figures[1], **who, **more))
    return rows


@st.composite
def any_cells(draw: st.DrawFn) -> RawCell:
    sessions = draw(st.integers(1, 4))
    sampled = sorted(draw(st.lists(st.integers(9 * S, 21 * S), max_size=8, unique=True)))
    samples = []
    for number, at in enumerate(sampled):
        for s in range(sessions):
            if draw(st.booleans()):
                state = draw(STATES)
                row = sample_row(number, at, state, draw(WAITS), pid=100 + s, session=s)
                samples.append(row | {"status": "ok" if state else draw(STATUSES)})
    tables = {
        "sessions": [session_row(s) for s in range(sessions)],
        "tasks": [row for s in range(sessions) for row in draw(task_reads(s))],
        "sampler": [sampler_row(n, at) for n, at in enumerate(sampled)],
        "samples": samples,
    }
    return made_cell(tables, sessions=sessions)


@settings(deadline=None, max_examples=60)
@given(any_cells())
def test_the_ledger_closes_for_any_raw_tables(cell: RawCell):
    """run + runq + sleep + client + unaccounted = W for every session and the rung, which is their sum."""
    found = ledger(cut([cell]))
    added = found.filter(pl.col("account").is_in(SUMMED))
    walls = found.filter((pl.col("scope") == "memo") & (pl.col("account") == "wall"))
    by_session = added.filter(scope="session").group_by("session").agg(pl.col("aas").sum())
    assert by_session.height == cell.meta.cell.sessions
    for session, total in by_session.rows():
        wall = walls.filter(who="session", session=session)["aas"].item()
        assert total == pytest.approx(wall, abs=1e-9)
    rung = added.filter(scope="rung")
    assert rung["aas"].sum() == pytest.approx(walls.filter(who="rung")["aas"].item(), abs=1e-9)
    for (account, detail), rows in rung.group_by("account", "detail"):
        parts = added.filter(pl.col("scope") == "session", account=account)
        parts = parts.filter(pl.col("detail").eq_missing(pl.lit(detail, dtype=pl.String)))["aas"].drop_nulls()
        whole = rows["aas"].item()
        if whole is None:
            assert len(parts) == 0, "known parts make a known sum"
        elif whole != 0:
            assert whole == pytest.approx(parts.sum(), abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(any_cells())
def test_intervals_hold_their_value_and_unknowns_say_why(cell: RawCell):
    found = ledger(cut([cell]))
    assert found.filter(pl.col("low") > pl.col("aas") + 1e-9).is_empty()
    assert found.filter(pl.col("high") < pl.col("aas") - 1e-9).is_empty()
    assert found.filter(pl.col("aas").is_null() & (pl.col("status") == "ok")).is_empty()


SOURCES = ("tasks", "samples", "cgroup", "host", "counters", "histogram", "errors", "sources")
NEEDS = {
    "run_aas": "tasks",
    "runq_aas": "tasks",
    "helpers_aas": "tasks",
    "cpu_per_call_ns": "tasks",
    "cpu_per_work_ns": "tasks",
    "driver_cpus": "tasks",
    "driver_starved": "tasks",
    "sleep_aas": "samples",
    "client_aas": "samples",
    "top_wait": "samples",
    "work_per_call": "counters",
    "work_per_s": "counters",
    "response_p50_ns": "histogram",
}


@pytest.fixture(scope="module")
def made() -> Climb:
    return climb("fake:cpus=2,cpu=50ms,wait=IO/Read:20ms,think=9ms,helper=checkpointer:0.1,driver=1ms", [3])


@settings(deadline=None, max_examples=20)
@given(gone=st.sets(st.sampled_from(SOURCES)))
def test_unknown_stays_unknown(made: Climb, gone: set[str]):
    """Whatever sources are missing: what needs them is NULL, never 0; all else is as it was."""
    whole = derive(made.info, made.plan, made.environment, made.cells).tables["rungs"].row(0, named=True)
    (cell,) = made.cells
    taken = {*gone, "sampler"} if "samples" in gone else gone
    tables = {n: empty(n) if n in taken else t for n, t in cell.tables.items()}
    results = derive(made.info, made.plan, made.environment, [RawCell(cell.meta, tables)])
    row = results.tables["rungs"].row(0, named=True)
    for column, source in NEEDS.items():
        if source in gone:
            assert row[column] is None, column
        elif source != "tasks" and column not in ("sleep_aas", "client_aas", "work_per_s", "cpu_per_work_ns"):
            assert row[column] == whole[column], column
    assert row["calls_per_s"] == whole["calls_per_s"]
    unknown = results.tables["rates"].filter(pl.col("value").is_null())
    assert unknown.filter(pl.col("status") == "ok").is_empty()
    witnesses = results.tables["witnesses"].filter(pl.col("value").is_null())
    assert witnesses.filter((pl.col("status") == "ok") | (pl.col("verdict") != "unknown")).is_empty()


def test_a_server_elsewhere_has_no_cpu_figures_and_nothing_breaks():
    made = climb("fake:cpus=2,cpu=50ms,wait=IO/Read:20ms,helper=checkpointer:0.1", [2], os=False)
    results = derive(made.info, made.plan, made.environment, made.cells)
    row = results.tables["rungs"].row(0, named=True)
    assert [row[c] for c in ("run_aas", "runq_aas", "helpers_aas", "cpu_per_call_ns")] == [None] * 4
    assert row["sleep_aas"] > 0
    assert row["driver_cpus"] is not None, "our own tasks are here"
    found = results.tables["ledger"].filter(scope="rung", account="run")
    assert found["status"].to_list() == ["not here"]
