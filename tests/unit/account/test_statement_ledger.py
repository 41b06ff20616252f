"""Statements in the scheduler trace, by hand: growth by statement, durations, whose CPU time it was."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.fakery import S, made_cell, session_row

from dbdyno.account.statement_ledger import TICKS, _asleep, _measured_part, _slices
from dbdyno.account.wait_durations import wait_durations, wait_histogram
from dbdyno.account.window import cut_statement_waits, cut_wait_times, cut_waits, windows
from dbdyno.model.results.session_time import NO_EVENT
from dbdyno.model.sources.source import TRACE

ME = {"pid": 100, "tid": 100, "start_ticks": 7, "role": "session", "session": 0, "status": "ok"}
SLEEPS = {"wait_class": "Timeout", "wait_event": "PgSleep", "query_status": "ok"}


def _row_at(at: float, **figures: Any) -> dict[str, Any]:
    return ME | {"before_ns": round(at * S), "after_ns": round(at * S)} | figures


def _traced_row(at: float, run: float, sleep: float) -> dict[str, Any]:
    return _row_at(at, run_ns=round(run * S), runq_ns=0, sleep_ns=round(sleep * S))


def _wait(at: float, query_id: int, run: float, sleep: float, sleeps: int) -> dict[str, Any]:
    times = {"run_ns": round(run * S), "sleep_ns": round(sleep * S), "runq_ns": 0, "came_ns": 0, "left_ns": 0}
    return _row_at(at, **SLEEPS, query_id=query_id, sleeps=sleeps, preempted=0, **times)


def _duration(at: float, query_id: int, low_ns: int | None, count: int) -> dict[str, Any]:
    return _row_at(at, **SLEEPS, query_id=query_id, part="sleep", from_ns=low_ns, count=count)


CELL = made_cell(
    {
        "sessions": [session_row()],
        "traced": [_traced_row(10, 1, 9), _traced_row(20, 3, 17)],
        "waits": [_wait(10, 1, 1, 9, 100), _wait(20, 1, 2, 13, 500), _wait(20, 2, 1, 4, 400)],
        "wait_times": [
            _duration(10, 1, 8 << 20, 99),
            _duration(10, 1, None, 1),
            _duration(20, 1, 8 << 20, 499),
            _duration(20, 1, 10 << 20, 1),
            _duration(20, 2, 8 << 20, 400),
        ],
    }
)


def test_statements_of_one_wait_event_have_rows_that_add_up() -> None:
    by = cut_statement_waits([CELL]).sort("query_id")
    assert by.select("query_id", "sleeps").rows() == [(1, 400), (2, 400)]
    assert by["sleep"].to_list() == pytest.approx([0.4, 0.4])
    assert by["run"].sum() == pytest.approx(0.2)
    (whole,) = cut_waits([CELL]).select("sleep_ns", "sleeps").rows()
    assert whole == (8 * S, 800)


def test_durations_count_what_ended() -> None:
    cut = {"cut_wait_times": cut_wait_times([CELL]), "cut_statement_waits": cut_statement_waits([CELL])}
    assert cut["cut_wait_times"]["count"].to_list() == [400, 1, 400], "not the one that was under way"
    cut |= {"windows": windows([CELL]), "wait_histogram": wait_histogram(cut)}
    result = wait_durations(cut)
    (every,) = result.filter((pl.col("query_status") == "all") & (pl.col("part") == "sleep")).to_dicts()
    assert (every["count"], every["begun"]) == (801, 800)
    assert every["mean_ns"] == pytest.approx(8 * S / 800)
    assert (every["p50_ns"], every["p99_ns"], every["max_ns"]) == (10 << 20, None, 12 << 20), (
        "801 are too few"
    )
    assert result.filter(query_id=2)["count"].to_list() == [400]


def _durations(figures: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    cell = made_cell({"sessions": [session_row()], **figures})
    cut = {"cut_wait_times": cut_wait_times([cell]), "cut_statement_waits": cut_statement_waits([cell])}
    cut |= {"windows": windows([cell]), "wait_histogram": wait_histogram(cut)}
    rows = wait_durations(cut).filter((pl.col("query_status") == "all") & (pl.col("part") == "sleep"))
    (row,) = rows.to_dicts()
    return row


def test_a_mean_is_none_where_waits_under_way_outlast_all_that_ended() -> None:
    """Three waits of 8 to 10 ms ended; the fourth began in the window and lasts on: no mean of 2 s."""
    row = _durations(
        {
            "traced": [_traced_row(10, 0, 0), _traced_row(20, 2, 8)],
            "waits": [_wait(10, 1, 0, 0, 0), _wait(20, 1, 2, 8, 4)],
            "wait_times": [_duration(10, 1, None, 0), _duration(20, 1, 8 << 20, 3)],
        }
    )
    assert (row["begun"], row["count"], row["max_ns"], row["mean_ns"]) == (4, 3, 10 << 20, None)
    assert row["seconds"] == pytest.approx(8)


def test_counts_of_waits_are_whole_where_the_reads_lie_beside_the_windows_ends() -> None:
    """The reads are 10.1 s apart, the window is 10 s long."""
    row = _durations(
        {
            "traced": [_traced_row(9.95, 0, 0), _traced_row(20.05, 2, 8)],
            "waits": [_wait(9.95, 1, 0, 0, 0), _wait(20.05, 1, 2, 8, 203)],
            "wait_times": [_duration(9.95, 1, None, 0), _duration(20.05, 1, 64 << 20, 203)],
        }
    )
    assert row["begun"] == round(row["begun"]) and 200 <= row["begun"] <= 203
    assert row["mean_ns"] == pytest.approx(8 * S / 203)


def _run(query_id: int, run: float, came: float, left: float, ticks: int) -> dict[str, Any]:
    times = {"run": run, "came": came, "left": left, "run_samples": ticks}
    return {"query_id": query_id, "query_status": "ok", "worker": False} | times


def test_a_slice_belongs_to_the_statement_at_its_end_within_the_slices_that_changed() -> None:
    result = _slices(pl.DataFrame([_run(1, 0.6, 0.1, 0.05, 118), _run(2, 0.4, 0.05, 0.1, 81)])).to_dicts()
    assert [(r["value"], r["source"]) for r in result] == [(0.6, TRACE), (0.4, TRACE)]
    assert (result[0]["low"], result[0]["high"]) == pytest.approx((0.5, 0.65))


def test_ticks_that_contradict_the_slices_divide_cpu_time() -> None:
    result = _slices(pl.DataFrame([_run(1, 0.9, 0, 0, 100), _run(2, 0.1, 0, 0, 100)])).to_dicts()
    assert [r["source"] for r in result] == [TICKS, TICKS]
    assert [r["value"] for r in result] == pytest.approx([0.5, 0.5])
    assert result[0]["low"] < 0.5 < result[0]["high"]


def test_calls_of_a_statement_are_the_measured_part_of_the_drivers_and_not_of_its_time() -> None:
    """Two sessions make 500 calls each from the first one on; 799 are measured, one of them fails."""
    rows = [("session", "executions", 500.0)] * 2 + [("rung", "calls", 799.0), ("rung", "errors", 1.0)]
    rates = pl.DataFrame(rows, schema=["scope", "name", "value"], orient="row")
    assert _measured_part(rates) == pytest.approx(0.8)
    assert _measured_part(rates.clear()) is None, "of an observation"


def test_sampled_sleep_adds_up_to_the_ledger_of_another_source() -> None:
    """The samples of statements and those of the ledger differ: a statement had more of a wait than all."""
    waits = pl.DataFrame(
        {
            "query_id": [1, 2, 1],
            "seconds": [6.0, 3.0, 2.0],
            "samples": [6, 3, 2],
            "wait_class": ["Lock", "Lock", None],
            "wait_event": ["tuple", "tuple", None],
        }
    )
    details = ["Lock/tuple", "IO/Read", NO_EVENT]
    ledger = pl.DataFrame({"account": "sleep", "scope": "rung", "detail": details, "aas": [0.6, 0.1, 0.2]})
    for name in ("parent", "label"):
        ledger = ledger.with_columns(pl.lit(None, pl.String).alias(name))
    rows = _asleep(waits, ledger, 10.0)
    sums = dict(rows.group_by("detail").agg(pl.col("value").sum()).iter_rows())
    assert sums == pytest.approx({"Lock/tuple": 0.6, "IO/Read": 0.1, "": 0.2})
    by_query = dict(rows.filter(pl.col("detail") == "Lock/tuple").select("query_id", "value").iter_rows())
    assert by_query == pytest.approx({1: 0.4, 2: 0.2})
    assert rows.filter(pl.col("detail") == "IO/Read")["query_status"].to_list() == ["lost"]
    unknown = _asleep(waits, ledger.clear(), 10.0)
    assert unknown["value"].sum() == pytest.approx(1.1)
