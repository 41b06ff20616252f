"""Costs of a call: the law of the simulated server, and tables worked out by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.fakery import MS, S, climb, made_cell, session_row, task_row

from dbdyno.account import costs as costs_of_cells
from dbdyno.conduct.derive.derive import derive, part_of
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.data_sources.costs import WARM_UP
from dbdyno.model.schema.tables import empty

LAW = (
    "fake:cpus=4,cpu=10ms,system=0.25,wait=IO/DataFileRead:5ms,commit=IO/WalSync:2ms,think=5ms,driver=20us,"
    "helper=checkpointer:0.1"
)
CALL_MS = 10 + 5 + 2
"""A session alone on the server waits for no one."""


def _figures(costs: pl.DataFrame, cell: str, per: str = "call") -> dict[str, dict[str, Any]]:
    return {r["figure"]: r for r in costs.filter(cell=cell, per=per).to_dicts()}


@pytest.fixture(scope="module")
def lawful() -> pl.DataFrame:
    run = climb(LAW, [1], repeats=2, trace=True)
    return derive(run.info, run.plan, run.environment, run.cells).tables["costs"]


def test_the_costs_of_a_call_are_those_of_the_law(lawful: pl.DataFrame) -> None:
    costs = _figures(lawful, "all")
    # One of the 454 calls of a window may be cut at its ends.
    assert costs["cpu_ns"]["value"] == pytest.approx(10 * MS, rel=5e-3)
    assert costs["cpu_user_ns"]["value"] == pytest.approx(7.5 * MS, rel=1e-2)
    assert costs["cpu_system_ns"]["value"] == pytest.approx(2.5 * MS, rel=3e-2)
    assert costs["cpu_user_ns"]["low"] <= 7.5 * MS <= costs["cpu_user_ns"]["high"]
    assert costs["client_cpu_ns"]["value"] == pytest.approx(20_000, rel=2e-2)
    assert costs["switches_voluntary"]["value"] == pytest.approx(4, rel=1e-2)  # read, commit, think, driver
    assert costs["switches_involuntary"]["value"] == pytest.approx(0, abs=0.01)
    assert costs["wal_bytes"]["value"] == pytest.approx(1_000, rel=1e-2)


def test_the_background_is_its_cpu_over_the_calls(lawful: pl.DataFrame) -> None:
    costs = _figures(lawful, "all")
    calls_per_s = 1e3 / (CALL_MS + 5)
    assert costs["cpu_ns"]["background"] == pytest.approx(0.1 * S / calls_per_s, rel=2e-2)
    assert costs["wal_bytes"]["background"] is None
    assert costs["wal_bytes"]["background_status"] == "included in the sessions' share"
    assert costs["wal_bytes"]["source"].endswith("server-wide")


def test_repeats_together_are_sums_over_sums(lawful: pl.DataFrame) -> None:
    for per in ("call", "work unit"):
        together = _figures(lawful, "all", per)
        single = lawful.filter(pl.col("per") == per, pl.col("cell") != "all")
        for figure, row in together.items():
            cells = single.filter(figure=figure)
            assert cells.height == 2
            if row["value"] is None:
                assert cells["value"].null_count() == 2
                assert row["status"] != "ok"
                continue
            assert row["value"] == pytest.approx(cells["total"].sum() / cells["units"].sum())
            assert row["low"] is None or row["low"] <= row["value"] <= row["high"]


def test_parts_of_cpu_time_are_of_the_same_windows_as_the_whole(lawful: pl.DataFrame) -> None:
    single = lawful.filter(pl.col("cell") != "all")
    first = single["cell"][0]
    halves = pl.col("figure").is_in(["cpu_user_ns", "cpu_system_ns"]) & (pl.col("cell") == first)
    lacking = single.with_columns(
        background_total=pl.when(~halves).then("background_total"),
        background_status=pl.when(halves).then(pl.lit("no tick seen")).otherwise("background_status"),
    )
    windows = single.unique("cell", maintain_order=True).with_columns(status=pl.lit("ok"), rate_per_s=None)
    costs = _figures(costs_of_cells.costs_total(windows, lacking), "all")
    assert costs["cpu_ns"]["background"] is not None
    for half in ("cpu_user_ns", "cpu_system_ns"):
        assert costs[half]["background"] is None
        assert costs[half]["background_status"] == "no tick seen"
        assert costs[half]["value"] is not None


def test_what_was_not_measured_is_unknown_with_a_reason(lawful: pl.DataFrame) -> None:
    costs = _figures(lawful, "all")
    unknown = {n: r["status"] for n, r in costs.items() if r["value"] is None}
    assert unknown["system_calls"] == "off"
    assert unknown["network_bytes"] == "not supported"
    assert unknown["wal_records"] == "not supported"
    assert "ok" not in unknown.values()


def _level(name: str, growth: float) -> list[dict[str, Any]]:
    head = {"scope": "server", "name": name, "kind": "counter", "unit": "count", "status": "ok"}
    return [
        head | {"phase": phase, "before_ns": at, "after_ns": at, "value": value}
        for phase, at, value in (("t0", 10 * S, 7.0), ("t1", 20 * S, 7.0 + growth))
    ]


def _probes(name: str, work: float, probe: float = 3.0) -> list[dict[str, Any]]:
    """Returns four probes of session 0, each of which adds ``probe``."""
    values = (100.0, 100 + probe, 100 + 2 * probe + work, 100 + 3 * probe + work)
    head = {"scope": "session", "session": 0, "name": name, "kind": "counter", "unit": "count"}
    return [
        head | {"phase": phase, "value": value, "before_ns": n, "after_ns": n, "status": "ok"}
        for n, (phase, value) in enumerate(
            zip(("before1", "before2", "after1", "after2"), values, strict=True)
        )
    ]


def _costs_of(cell: RawCell) -> dict[str, dict[str, Any]]:
    run = climb("fake:cpu=10ms", [1], measure_ns=S)  # for its plan and environment
    return _figures(part_of([cell], run.plan, run.environment).tables["costs"], cell.id)


def test_bytes_of_the_network_are_over_all_calls_of_sessions_that_were_not_lost() -> None:
    sessions = [
        session_row(0, sent_bytes=1_200, received_bytes=3_600, calls_total=10, errors_total=2),
        session_row(1, sent_bytes=300, received_bytes=0, calls_total=3),
        session_row(2, sent_bytes=9_999, received_bytes=9_999, calls_total=1, end_reason="lost"),
    ]
    costs = _costs_of(made_cell({"sessions": sessions}, sessions=3))
    assert costs["network_sent_bytes"]["value"] == pytest.approx(1_500 / 15)
    assert costs["network_received_bytes"]["value"] == pytest.approx(3_600 / 15)
    assert costs["network_bytes"]["value"] == pytest.approx(5_100 / 15)


def test_an_unknown_number_of_bytes_is_not_zero() -> None:
    costs = _costs_of(made_cell({"sessions": [session_row(sent_bytes=5, received_bytes=None)]}))
    assert costs["network_sent_bytes"]["value"] == pytest.approx(5 / 12)
    assert costs["network_bytes"]["value"] is costs["network_received_bytes"]["value"] is None


def test_counters_that_tell_the_processes_apart_give_both_shares() -> None:
    counters = [*_level("sessions_writes", 20), *_level("background_writes", 50), *_level("block_writes", 70)]
    costs = _costs_of(made_cell({"sessions": [session_row()], "counters": counters}))
    assert costs["writes"]["value"] == pytest.approx(20 / 10)
    assert costs["writes"]["background"] == pytest.approx(50 / 10)


def test_a_counter_of_the_sessions_own_leaves_the_rest_of_the_server_to_the_background() -> None:
    counters = [*_probes("wal_records", 24), *_level("wal_records", 35)]
    costs = _costs_of(made_cell({"sessions": [session_row()], "counters": counters}))
    assert costs["wal_records"]["value"] == pytest.approx(24 / 12)  # of all its calls
    assert costs["wal_records"]["background"] == pytest.approx(35 / 10 - 24 / 12)
    assert costs["wal_records"]["background_source"].endswith("less the sessions'")


@pytest.mark.parametrize(("in_window", "warm_up"), [(0, True), (20, False)])
def test_reads_that_only_first_calls_made_are_marked(in_window: int, warm_up: bool) -> None:
    """Ten of the twelve calls are in the window."""
    counters = [*_probes("read_requests", 24), *_level("sessions_reads", in_window)]
    reads = _costs_of(made_cell({"sessions": [session_row()], "counters": counters}))["reads"]
    assert (reads["value"], reads["source"].endswith(WARM_UP)) == (pytest.approx(24 / 12), warm_up)


def test_a_counter_of_the_sessions_own_is_not_used_where_parallel_workers_count_for_themselves() -> None:
    counters = [*_probes("writes", 24), *_level("sessions_writes", 40), *_level("background_writes", 0)]
    worker = {"pid": 200, "tid": 200, "start_ticks": 9, "role": "helper:parallel worker", "session": None}
    tables = {
        "sessions": [session_row()],
        "counters": counters,
        "tasks": [
            task_row(at, run, 0, **who) for who in ({}, worker) for at, run in ((10 * S, 0), (20 * S, S))
        ],
        "backends": [
            {"at_ns": 11 * S, "pid": 200, "kind": "parallel worker", "leader_pid": 100, "status": "ok"}
        ],
    }
    assert _costs_of(made_cell(tables))["writes"]["value"] == pytest.approx(40 / 10)
    tables["backends"] = []
    tables["tasks"] = tables["tasks"][:2]
    assert _costs_of(made_cell(tables))["writes"]["value"] == pytest.approx(24 / 12)


def test_switches_are_those_of_the_sessions_and_of_the_servers_processes() -> None:
    helper = {"pid": 300, "tid": 300, "role": "helper:checkpointer", "session": None}
    tasks = [
        task_row(at, run, 0, voluntary=v, involuntary=i, **who)
        for who, growth in (({}, (30, 20)), (helper, (5, 0)))
        for at, run, v, i in ((10 * S, 0, 1, 1), (20 * S, S, 1 + growth[0], 1 + growth[1]))
    ]
    costs = _costs_of(made_cell({"sessions": [session_row()], "tasks": tasks}))
    assert costs["switches_voluntary"]["value"] == pytest.approx(3)
    assert costs["switches_involuntary"]["value"] == pytest.approx(2)
    assert costs["switches_voluntary"]["background"] == pytest.approx(0.5)
    assert costs["switches_involuntary"]["background"] == 0
    assert costs["switches_voluntary"]["source"] == "os tasks"


def _helper(pid: int, kind: str) -> dict[str, Any]:
    return {"pid": pid, "tid": pid, "role": f"helper:{kind}", "session": None}


GONE = {"status": "vanished", "user_ns": None, "system_ns": None}
MISSED = "an autovacuum worker ended in the window: what it used after its last reading is missing"


def test_a_background_process_that_ended_unread_leaves_a_lower_bound_that_names_it() -> None:
    writer = [
        task_row(at, run, 0, voluntary=v, involuntary=0, user_ns=run, **_helper(300, "checkpointer"))
        for at, run, v in ((10 * S, 0, 1), (20 * S, S, 6))
    ]
    gone = task_row(15 * S, None, None, **_helper(301, "autovacuum worker"), **GONE)
    own = [task_row(at, run, 0, voluntary=1, involuntary=0) for at, run in ((10 * S, 0), (20 * S, S))]
    cell = made_cell({"sessions": [session_row()], "tasks": [*own, *writer, gone]})
    costs = _costs_of(cell)
    for figure, at_least in (("cpu_ns", S / 10), ("cpu_user_ns", S / 10), ("switches_voluntary", 0.5)):
        assert costs[figure]["background"] == pytest.approx(at_least)
        assert costs[figure]["background_status"] == f"at least: {MISSED}"
    run = climb("fake:cpu=10ms", [1], measure_ns=S)
    both = part_of([cell], run.plan, run.environment).tables
    total = costs_of_cells.costs_total(both["windows"], both["costs"])
    assert _figures(total, "all")["cpu_ns"]["background_status"] == f"at least: {MISSED}"


def test_a_background_that_nobody_read_is_unknown() -> None:
    gone = task_row(15 * S, None, None, **_helper(301, "autovacuum worker"), **GONE)
    own = [task_row(at, run, 0) for at, run in ((10 * S, 0), (20 * S, S))]
    costs = _costs_of(made_cell({"sessions": [session_row()], "tasks": [*own, gone]}))
    assert costs["cpu_ns"]["background"] is None
    assert costs["cpu_ns"]["background_status"] == "vanished"


def test_devices_are_summed_once_each_and_an_unknown_one_is_not_left_out() -> None:
    """A volume lies on a disk: the I/O of the disk has that of the volume in it."""
    rate = {"scope": "rung", "name": "calls_per_s", "value": 50.0, "status": "ok", "source": "driver"}
    device = {"device": "sda", "counted": True, "reads_per_s": 100.0, "flushes_per_s": None, "status": "ok"}
    devices = pl.DataFrame([device, device | {"device": "dm-0", "counted": False, "reads_per_s": 90.0}])
    needed = ("execution_rates", "cut_levels", "cut_tasks", "cut_work", "cell_sessions")
    tables = {n: empty(n) for n in needed}
    cell = costs_of_cells._Cell(tables | {"rates": pl.DataFrame([rate]), "device_io": devices})
    reads, flushes = cell._of_devices("reads_per_s"), cell._of_devices("flushes_per_s")
    assert reads.of_sessions.value == 100 / 50
    assert reads.background.reason == "included in the sessions' share"
    assert "sda" in reads.of_sessions.source
    assert (flushes.of_sessions.value, flushes.of_sessions.reason) == (None, "not supported")
