"""Load profile and top events: on the fake server, whose law says every figure, and by hand."""

import polars as pl
import pytest
from tests.fakery import Climb, S, climb, made_cell, sample_row, sampler_row, session_row, task_row

from dbdyno import analyze
from dbdyno.conduct.derive import derive
from dbdyno.ledger import ledger
from dbdyno.model.raw import RawCell
from dbdyno.window import cut


def _rows(made: Climb, table: str, cell: str) -> dict[str, dict]:
    found = derive(made.info, made.plan, made.environment, made.cells).tables[table]
    return {r["name"]: r for r in found.filter(pl.col("cell") == cell).to_dicts()}


def _by_hand(*cells: RawCell, table: str = "profile") -> dict[str, dict]:
    tables = cut(cells)
    tables["ledger"] = ledger(tables)
    made = {"profile": analyze.profile, "top": analyze.top_events, "total": analyze.profile_total}[table]
    return {r["name"]: r for r in made(tables).to_dicts()}


def _counter(name: str, before: float, after: float | None, status: str = "ok", **changes) -> list[dict]:
    """Read half a second late at either end: the growth is of 10 s all the same."""
    head = {"scope": "server", "name": name, "kind": "counter", "unit": "count", "status": status} | changes
    ends = (("t0", 10.5, before), ("t1", 20.5, after))
    return [
        head | {"phase": phase, "before_ns": int(at * S), "after_ns": int(at * S), "value": value}
        for phase, at, value in ends
    ]


def test_a_driven_cell_at_known_figures():
    """Eight sessions on two CPUs, 20 ms of CPU and 10 ms of I/O a call: 100 calls/s, 2 CPUs, 1 asleep, 5 wait."""
    made = climb("fake:cpus=2,cpu=20ms,wait=IO/DataFileRead:10ms", [8])
    rows = _rows(made, "profile", made.cells[0].id)
    assert rows["DB time"]["per_s"] == pytest.approx(8.0, rel=0.01)
    assert rows["DB time"]["source"] == "driver"
    assert rows["DB CPU"]["per_s"] == pytest.approx(2.0, rel=0.01)
    assert rows["CPU WAIT"]["per_s"] == pytest.approx(5.0, rel=0.02)
    assert rows["calls"]["per_s"] == pytest.approx(100, rel=0.01)
    assert rows["DB CPU"]["per_call"] == pytest.approx(0.020, rel=0.01)
    assert rows["DB CPU"]["per_transaction"] == pytest.approx(0.020, rel=0.01), "a call is a transaction"
    assert rows["logical reads"]["per_call"] == pytest.approx(132, rel=0.01)
    assert rows["physical reads"]["per_execution"] == pytest.approx(1, rel=0.01)
    assert rows["cache hit ratio"]["total"] == pytest.approx(131 / 132)
    assert rows["deadlocks"]["total"] == 0
    assert rows["calls"]["total"] == pytest.approx(10 * rows["calls"]["per_s"])


def test_think_time_is_no_db_time():
    """5 ms of CPU, 15 ms of thinking: a quarter of each of two sessions."""
    made = climb("fake:cpus=8,cpu=5ms,think=15ms", [2])
    assert _rows(made, "profile", made.cells[0].id)["DB time"]["per_s"] == pytest.approx(0.5, rel=0.02)


def test_repeats_together_are_sums_over_wall_time():
    made = climb("fake:cpus=2,cpu=20ms", [2], repeats=3)
    one, all_ = (_rows(made, "profile", c) for c in (made.cells[0].id, "all"))
    for name in ("DB time", "DB CPU", "calls", "commits"):
        assert all_[name]["total"] == pytest.approx(3 * one[name]["total"], rel=0.01)
        assert all_[name]["per_s"] == pytest.approx(one[name]["per_s"], rel=0.01)
    assert all_["DB CPU"]["per_call"] == pytest.approx(one["DB CPU"]["per_call"], rel=0.01)


def test_what_is_unknown_says_what_would_make_it_known():
    counters = [
        *_counter("executions", 0, None, "not supported"),
        *_counter("transactions_committed", 100, 300),
        *_counter("transactions_rolled_back", 0, 0),
    ]
    rows = _by_hand(made_cell({"sessions": [session_row()], "counters": counters}))
    assert rows["executions"]["total"] is None
    assert rows["executions"]["status"].startswith("not supported: needs")
    assert rows["commits"]["total"] == pytest.approx(200)
    assert rows["commits"]["per_execution"] is None
    assert rows["DB time"]["total"] == pytest.approx(10), "ten calls of a second in 10 s"
    assert rows["DB time"]["per_transaction"] == pytest.approx(0.05)
    assert rows["DB CPU"]["total"] is None
    assert rows["WAL"]["status"].startswith("off: ")
    assert rows["cache hit ratio"]["total"] is None


def test_growth_is_scaled_from_the_reads_to_the_window():
    """Read 8 s apart: 160 in 8 s are 200 in the window of 10 s."""
    late = _counter("transactions_committed", 100, 260)
    late[0] |= {"before_ns": 12 * S, "after_ns": 12 * S}
    late[1] |= {"before_ns": 20 * S, "after_ns": 20 * S}
    rows = _by_hand(made_cell({"sessions": [session_row()], "counters": late}))
    assert rows["commits"]["total"] == pytest.approx(200)


def test_a_reset_leaves_the_counters_unknown():
    """Even those that have outgrown their old value."""
    made = climb("fake:cpus=2,cpu=20ms,reset=4s", [2])
    rows = _rows(made, "profile", made.cells[0].id)
    assert rows["commits"]["total"] is None
    assert rows["commits"]["status"] == "reset"
    assert rows["DB CPU"]["per_s"] == pytest.approx(2.0, rel=0.01)


def test_a_lost_session_counts_as_long_as_it_lived():
    """It ended at 15 s: half of the window in calls."""
    gone = session_row(
        1, last_end_ns=15 * S, calls=5, in_call_ns=5 * S, end_reason="lost", end_detail="broke"
    )
    rows = _by_hand(made_cell({"sessions": [session_row(0), gone]}, sessions=2))
    assert rows["DB time"]["total"] == pytest.approx(15)
    assert rows["calls"]["total"] == pytest.approx(15)


def _observed() -> RawCell:
    """CPU 1 s, queue 1 s; of ten samples three asleep in I/O, one sending, four at the client, two runnable."""
    labels = ["IO/DataFileRead"] * 3 + ["Client/ClientWrite"] + ["Client/ClientRead"] * 4 + [None] * 2
    samples = [sample_row(n, (10 + n) * S, "R" if w is None else "S", w) for n, w in enumerate(labels)]
    return made_cell(
        {
            "tasks": [task_row(10 * S, 0, 0), task_row(20 * S, S, S)],
            "sampler": [sampler_row(n, (10 + n) * S) for n in range(10)],
            "samples": samples,
            "sessions": [session_row(calls=0, first_start_ns=None, last_end_ns=None, in_call_ns=0)],
        },
        sessions=0,
    )


def test_db_time_of_an_observed_load_is_all_but_sleep_at_the_client():
    rows = _by_hand(_observed())
    assert rows["DB time"]["total"] == pytest.approx(5.5, abs=0.6), "2 s, 3 s in I/O, 1 s sending"
    assert "Client" in rows["DB time"]["source"]
    assert "calls" not in rows
    assert rows["DB CPU"]["per_call"] is None


def test_top_events_rank_cpu_and_waits_and_share_db_time():
    made = climb("fake:cpus=2,cpu=20ms,wait=IO/DataFileRead:10ms+IPC/x:1ms", [8])
    rows = _rows(made, "top_events", made.cells[0].id)
    assert [r["rank"] for r in rows.values()] == list(range(1, len(rows) + 1))
    assert list(rows)[:2] == ["CPU WAIT", "DB CPU"]
    assert rows["DB CPU"]["seconds"] == pytest.approx(20, rel=0.01)
    assert rows["CPU WAIT"]["share"] == pytest.approx(rows["CPU WAIT"]["seconds"] / 80, rel=0.02)
    assert rows["IO/DataFileRead"]["low"] <= 10 <= rows["IO/DataFileRead"]["high"]
    assert sum(r["share"] for r in rows.values()) <= 1.0 + 1e-9
    assert "Client/ClientRead" not in rows


def test_waits_are_counted_where_they_were_traced():
    made = climb("fake:cpus=2,cpu=20ms,wait=IO/DataFileRead:10ms", [4], trace=True)
    row = _rows(made, "top_events", made.cells[0].id).get("IO/DataFileRead")
    assert row is not None
    if row["waits"] is not None:  # filled by the ledger's table events
        assert row["waits"] == pytest.approx(1000, rel=0.05)
        assert row["mean_ns"] == pytest.approx(10e6, rel=0.05)


def test_top_events_of_repeats_together():
    made = climb("fake:cpus=2,cpu=20ms", [4], repeats=2)
    one, all_ = (_rows(made, "top_events", c) for c in (made.cells[0].id, "all"))
    assert all_["DB CPU"]["seconds"] == pytest.approx(2 * one["DB CPU"]["seconds"], rel=0.01)
    assert all_["DB CPU"]["share"] == pytest.approx(one["DB CPU"]["share"], rel=0.01)
    width = [r["DB CPU"]["high"] - r["DB CPU"]["low"] for r in (one, all_)]
    assert width[1] == pytest.approx(2**0.5 * width[0], rel=0.05), "independent errors add as squares"


def test_nothing_measured_gives_empty_tables():
    assert analyze.profile(cut([]) | {"ledger": ledger(cut([]))}).is_empty()
