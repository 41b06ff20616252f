"""Sessions too brief to be sampled: what the main process's children and the trace say of them."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.fake_engine import wait_families

from dbdyno.model.results.brief import children, logons, unmet
from dbdyno.model.results.session_time import too_brief
from dbdyno.model.schema.tables import empty, rows
from dbdyno.observe import glance_parts
from dbdyno.observe.glance_parts import Brief, brief

S, MS, TICK = 1_000_000_000, 1_000_000, 10_000_000
MAIN, BOOT = 10, 100  # pid; start, in ticks


def read(pid: int, at: int, role: str, run: int | None = 0, start: int = BOOT, **more: Any) -> dict[str, Any]:
    gone = run is None
    return {
        "before_ns": at - MS,
        "after_ns": at + MS,
        "pid": pid,
        "tid": pid,
        "role": role,
        "start_ticks": None if gone else start,
        "run_ns": run,
        "runq_ns": None if gone else 0,
        "status": "vanished" if gone else "ok",
        **more,
    }


def main(at: int, children_ns: int) -> dict[str, Any]:
    return read(MAIN, at, "helper:main", children_ns=children_ns)


def test_children_that_nobody_read_are_all_brief():
    result = children(rows("tasks", [main(10 * S, 7 * S), main(20 * S, 12 * S)]), 10 * S, 20 * S)
    assert result is not None
    assert (result.cpu_ns, result.tail_ns, result.wall_ns, result.any) == (5 * S, 0, 10 * S, True)


def test_what_was_read_of_a_child_that_ended_is_taken_off_its_life_before_the_window_included():
    tasks = rows(
        "tasks",
        [
            *(main(t * S, reported * S) for t, reported in ((10, 0), (15, 900), (20, 900))),
            *(read(5, t * S, "session", 890 * S + (t - 10) * S // 2) for t in range(10, 15)),
            read(5, 15 * S, "session", None),
        ],
    )
    result = children(tasks, 10 * S, 20 * S)
    assert result is not None
    assert result.cpu_ns == 900 * S - 892 * S
    assert result.tail_ns == S  # at most all the time from its last read to its end


def test_a_session_that_was_read_once_and_ended_is_brief():
    birth = 12 * S
    tasks = rows(
        "tasks",
        [
            *(main(t * S, reported * S) for t, reported in ((10, 0), (20, 3))),
            read(5, birth + 50 * MS, "session", 40 * MS, start=birth // TICK),
            read(5, 13 * S, "session", None),
        ],
    )
    result = children(tasks, 10 * S, 20 * S)
    assert result is not None
    assert result.cpu_ns == 3 * S


def test_a_child_that_ended_before_the_window_is_not_taken_off():
    tasks = rows(
        "tasks",
        [
            *(main(t * S, reported * S) for t, reported in ((8, 0), (9, 2), (10, 2), (20, 5))),
            read(5, 8 * S, "session", 2 * S),
            read(5, 9 * S, "session", None),
        ],
    )
    result = children(tasks, 10 * S, 20 * S)
    assert result is not None
    assert result.cpu_ns == 3 * S


def test_the_rounding_of_ticks_is_no_session():
    result = children(rows("tasks", [main(10 * S, 0), main(20 * S, 2 * TICK)]), 10 * S, 20 * S)
    assert result is not None
    assert not result.any


@pytest.mark.parametrize("reads", [[], [read(MAIN, 10 * S, "helper:main")], [main(10 * S, 0)]])
def test_without_figures_of_the_main_process_brief_time_is_unknown(reads: list[dict[str, Any]]):
    assert children(rows("tasks", reads), 10 * S, 20 * S) is None


def test_sessions_that_only_the_trace_met_are_brief():
    key = {"pid": [5, 6, 7], "start_ticks": [1, 1, 1]}
    traced = pl.DataFrame({**key, "role": ["other", "other", "session"]})
    tasks = pl.DataFrame({"pid": [6, 5], "start_ticks": [1, 2]})  # 5: a number that was used again
    assert unmet(traced, tasks).rows() == [(5, 1)]


def test_a_session_that_a_sample_met_as_it_ended_is_not_among_the_brief_ones():
    traced = pl.DataFrame({"pid": [5, 5, 6], "start_ticks": [1, 1, 1], "role": ["other", "session", "other"]})
    tasks = pl.DataFrame({"pid": [5], "start_ticks": [None]}, schema_overrides={"start_ticks": pl.Int64})
    assert unmet(traced, tasks).rows() == [(6, 1)]


def test_connections_that_are_not_counted_are_unknown():
    assert logons(empty("counters"), 0) is None


def test_a_glance_adds_the_main_processs_time_of_its_children():
    recent = {"traced": empty("traced"), "tasks": rows("tasks", [main(10 * S, 0), main(20 * S, 6 * S)])}
    result = brief(recent, (), wait_families())
    assert result is not None
    assert result.run == pytest.approx(0.6, rel=1e-3)
    assert result.runq is None and result.db_time is None


def test_a_small_part_leaves_the_sums_known_and_a_large_one_does_not():
    assert not Brief(0.01).matters(1.0)
    assert Brief(0.5).matters(1.0)
    assert Brief(0.5).matters(0.0)


def ledger(**brief: float | None) -> pl.DataFrame:
    rung = {"run": 0.3, "runq": 1.1, "sleep": 0.0, "client": 0.2}
    accounts = [("rung", n, v) for n, v in rung.items()] + [("brief", n, v) for n, v in brief.items()]
    keys = {"status": "ok", "source": "scheduler trace", "low": None, "high": None, "detail": None}
    keys |= {"parent": None}
    return pl.DataFrame([{"scope": s, "account": n, "aas": v} | keys for s, n, v in accounts])


@pytest.mark.parametrize(
    ("brief", "unknown"),
    [
        ({"run": 0.2, "runq": 0.8, "sleep": None, "unaccounted": 0.4}, True),
        ({"run": 0.2, "runq": 0.8, "sleep": None, "unaccounted": 0.02}, False),
        ({"run": 0.2, "runq": 0.8, "sleep": 0.4, "unaccounted": 0.4}, False),
        ({}, False),
    ],
)
def test_waits_that_the_trace_could_not_read_make_sums_unknown_where_they_matter(
    brief: dict[str, float | None], unknown: bool
):
    assert too_brief(ledger(**brief)) is unknown


@pytest.mark.parametrize("status", ["ok", "lost"])
def test_a_glance_does_not_call_sleep_what_the_trace_could_not_name(status: str):
    wait_class = "Client" if status == "ok" else None
    row = {"pid": 7, "start_ticks": 1_050, "after_ns": S, "wait_class": wait_class, "sleep_ns": S}
    waits = pl.DataFrame([row | {"status": status}])
    result = glance_parts._client_share(waits, waits.select("pid", "start_ticks"), wait_families())
    assert result == (1.0 if status == "ok" else None)
