"""Ladders climbed on the fake server by hand, without conduct, and cells made of hand-written rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from dbdyno.conduct.derive.polars_thread import on_polars_thread
from dbdyno.model.engine.environment import Cpu, Environment, Host, Limits
from dbdyno.model.engine.protocols import Target, Undo, Watch
from dbdyno.model.plan.plan import Calibration, Cell, Experiment, Plan, Workload
from dbdyno.model.results.raw import CellMeta, RawCell
from dbdyno.model.results.results import RunInfo
from dbdyno.model.schema.tables import RAW, empty, from_core, raw, rows
from dbdyno.store import Run, RunStore
from tests.fake_engine import FakeServer, wait_families
from tests.fake_engine.watch import FakeWatch

ROOT = Path(__file__).parents[1]
WITH_ENGINES = f"{ROOT}:{ROOT / 'tests' / 'entry_points'}"
"""PYTHONPATH of a program that shall find the engines of the tests."""
S = 1_000_000_000
MS = 1_000_000

LIO = Workload(
    name="lio",
    title="logical I/O",
    doc="",
    work_unit="logical reads",
    work_short="LIO",
    work_constant=True,
    calibrated=True,
)


def plan_cell(sessions: int, repeat: int = 1, number: int = 1, measure_ns: int = 10 * S) -> Cell:
    return Cell(
        id=f"{number:04}-lio-base-s{sessions}-r{repeat}",
        workload="lio",
        variant="base",
        sessions=sessions,
        repeat=repeat,
        params={},
        settle_ns=2 * S,
        measure_ns=measure_ns,
    )


def climb_one(
    server: FakeServer,
    cell: Cell,
    calibration: Calibration | None = None,
    *,
    hz: float = 10.0,
    os: bool = True,
    log_calls: bool = False,
    seed: int = 1,
    max_calls: int | None = None,
    memory_hz: float = 0.0,
    trace: bool = False,
    syscalls: bool = False,
) -> RawCell:
    """Returns one cell, driven through the protocols Load and Watch as conduct does it.

    The default is the lower tier, activity samples alone. ``memory_hz`` adds samples of the wait event
    word, and ``trace`` the scheduler trace, with ``syscalls`` or without.
    """
    load = server.load(LIO, cell, calibration, log_calls, max_calls)
    load.connect()
    assert load.wait(1)
    how = {"sample_hz": hz, "os": os, "host": os, "seed": seed, "memory_hz": memory_hz, "syscalls": syscalls}
    watch = server.watch({**server.watch_spec(load), **how, "trace": "auto" if trace else "off"})
    assert watch is not None
    start = load.now_ns() + 5 * MS
    t0 = start + cell.settle_ns
    t1 = t0 + cell.measure_ns
    watch.start(t0, t1)
    load.start(start, t0, t1)
    assert load.wait(1)
    end = load.now_ns()
    watch.stop()
    load.finish()
    assert load.wait(1)
    tables = {name: from_core(name, t) for name, t in (*load.tables().items(), *watch.tables().items())}
    tables["counters"] = pl.concat([tables["counters"], server.counters("t0"), server.counters("t1")])
    tables["backends"] = server.backends()
    tables["sources"] = rows("sources", _source_rows(server, watch))
    meta = CellMeta(
        cell=cell,
        workload=LIO,
        calibration=calibration,
        start_ns=start,
        t0_ns=t0,
        t1_ns=min(t1, end),
        end_ns=end,
        driver_threads=1,
        usable_cpus=server.law.cpus,
        status="ok" if end >= t1 else "short",
        reason=None if end >= t1 else "all sessions were lost",
        wait_families=server.wait_families,
    )
    return RawCell(meta, {name: tables.get(name, empty(raw(name))) for name in RAW})


def _source_rows(server: FakeServer, watch: Watch) -> list[dict[str, str]]:
    """Returns the engine's own sources, and the watch's statuses of those that may be refused."""
    own = [source.model_dump() for source in server.sources()]
    refused = [
        {"name": name, "provenance": "the fake world's timelines", "status": status, "detail": detail}
        for name, (status, detail) in watch.source_status().items()
    ]
    return [*own, *refused]


def sampled_again(server: FakeServer, cell: RawCell, seed: int, memory_hz: float = 0.0) -> RawCell:
    """Returns the server's latest cell with another series of samples, and all else the same."""
    watch = server.watch({"seed": seed, "memory_hz": memory_hz})
    assert isinstance(watch, FakeWatch)
    watch.start(cell.meta.t0_ns, cell.meta.t1_ns)
    again = {name: rows(name, columns) for name, columns in watch.samples().items()}
    return RawCell(cell.meta, {**cell.tables, **again})


@dataclass
class Climb:
    server: FakeServer
    info: RunInfo
    plan: Plan
    environment: Environment
    cells: list[RawCell]


@on_polars_thread
def climb(dsn: str, ladder: Sequence[int], *, repeats: int = 1, **options: Any) -> Climb:
    """Climbs a ladder on a fresh fake server. ``options`` as for :func:`climb_one`."""
    server = FakeServer(Target(dsn=dsn))
    measure_ns = options.pop("measure_ns", 10 * S)
    planned = [
        plan_cell(n, r, number, measure_ns)
        for number, (r, n) in enumerate(((r, n) for r in range(1, repeats + 1) for n in ladder), 1)
    ]
    cells = [climb_one(server, cell, **options) for cell in planned]
    plan = Plan(
        experiment=Experiment(workload="lio", engine="fake", repeats=repeats),
        cpus=server.law.cpus,
        call_target_ns=None,
        cells=tuple(planned),
        expected_ns=1,
    ).sealed()
    return Climb(server, info_of(), plan, environment_of(server), cells)


def info_of() -> RunInfo:
    return RunInfo(
        schema_version=1,
        id="20261121-104501-lio-3f9a",
        dbdyno="0",
        started=datetime(2026, 11, 21, tzinfo=UTC),
        started_monotonic_ns=0,
        workloads={"lio": LIO},
    )


def environment_of(server: FakeServer) -> Environment:
    limits = Limits(
        affinity=tuple(range(server.law.cpus)),
        quota_cpus=None,
        quota_where=None,
        cgroup_version=None,
        usable_cpus=server.law.cpus,
        memory_bytes=None,
        open_files=1024,
    )
    cpu = Cpu(
        model=None, logical=server.law.cpus, cores=None, sockets=None, numa_nodes=None, threads_per_core=None
    )
    host = Host(
        kernel="virtual",
        distribution=None,
        virtualisation=None,
        clock_ticks_per_s=100,
        cpu=cpu,
        limits=limits,
        memory_bytes=None,
    )
    return Environment(dbdyno="0", host=host, server=server.facts(), sources=tuple(server.sources()))


# -- cells of hand-written rows -------------------------------------------------------------------


def made_cell(
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    t0: int = 10 * S,
    t1: int = 20 * S,
    sessions: int = 1,
) -> RawCell:
    """Returns a cell of lio with the window [t0, t1) and these rows; all other tables are empty."""
    meta = CellMeta(
        cell=plan_cell(sessions),
        workload=LIO,
        calibration=None,
        start_ns=t0 - 2 * S,
        t0_ns=t0,
        t1_ns=t1,
        end_ns=t1,
        driver_threads=1,
        usable_cpus=4,
        status="ok",
        wait_families=wait_families(),
    )
    return RawCell(meta, {name: rows(raw(name), tables.get(name, ())) for name in RAW})


def session_row(session: int = 0, **changes: Any) -> dict[str, Any]:
    """Returns a session of 10 calls of 1 s, from 10 s to 20 s."""
    return {
        "session": session,
        "backend_pid": 100 + session,
        "first_start_ns": 10 * S,
        "last_end_ns": 20 * S,
        "calls": 10,
        "errors": 0,
        "calls_total": 12,
        "errors_total": 0,
        "straddle_in": 0,
        "straddle_out": 0,
        "in_call_ns": 10 * S,
        "min_ns": S,
        "max_ns": S,
        "sum_sq_ns2": 10.0 * S * S,
        "end_reason": "deadline",
    } | changes


def task_row(at_ns: int, run_ns: int | None, runq_ns: int | None, **changes: Any) -> dict[str, Any]:
    """Returns a read of session 0's task with a bracket of 2 us around ``at_ns``."""
    return {
        "before_ns": at_ns - 1000,
        "after_ns": at_ns + 1000,
        "pid": 100,
        "tid": 100,
        "start_ticks": 7,
        "role": "session",
        "session": 0,
        "run_ns": run_ns,
        "runq_ns": runq_ns,
        "user_ns": 0,
        "system_ns": 0,
        "status": "ok",
    } | changes


def sampler_row(sample: int, at_ns: int, status: str = "ok") -> dict[str, Any]:
    return {
        "sample": sample,
        "due_ns": at_ns,
        "start_ns": at_ns - 1000,
        "end_ns": at_ns + 1000,
        "status": status,
    }


def sample_row(
    sample: int, at_ns: int, task_state: str | None, wait: str | None = None, **changes: Any
) -> dict[str, Any]:
    """Returns session 0 in one sample; ``wait`` as ``Class/Event``."""
    wait_class, _, event = (wait or "").partition("/")
    return {
        "sample": sample,
        "sql_before_ns": at_ns - 1000,
        "sql_after_ns": at_ns,
        "task_ns": at_ns,
        "pid": 100,
        "role": "session",
        "session": 0,
        "state": "active",
        "wait_class": wait_class or None,
        "wait_event": event or None,
        "task_state": task_state,
        "status": "ok" if task_state else "not here",
    } | changes


def recorded(store: RunStore, climbed: Climb) -> Run:
    """Returns a run of ``store`` with the climb's raw data, no derived data, and status running."""
    run = store.create(climbed.plan, workloads=climbed.info.workloads)
    run.write_environment(climbed.environment)
    for cell in climbed.cells:
        run.write_cell(cell)
    return run


class Notes:
    """A journal in memory; the first entry of a key counts."""

    def __init__(self) -> None:
        self.undos: dict[str, Undo] = {}

    def note(self, undo: Undo) -> None:
        self.undos.setdefault(undo.key, undo)

    def forget(self, key: str) -> None:
        self.undos.pop(key, None)
