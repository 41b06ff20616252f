"""Made cells of executions of known law: durations by threads and jobs at once, failures, makespans."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.unit import report_machine

from dbdyno.conduct.derive.derive import concluded, derive
from dbdyno.model.plan.jobs import PlannedJob
from dbdyno.model.plan.plan import Cell, Experiment, Plan, Variant, Workload
from dbdyno.model.results.raw import CellMeta, RawCell
from dbdyno.model.results.results import Results, RunInfo
from dbdyno.model.schema.tables import RAW, empty, rows
from dbdyno.model.schema.tables import raw as raw_table
from dbdyno.model.units import NS_PER_S

WORKLOAD = Workload(
    name="commands",
    title="Commands",
    doc="Commands.",
    work_unit="executions",
    work_short="executions",
    work_constant=False,
    calibrated=False,
)
CPUS = 8
T0 = 1_000 * NS_PER_S
Law = Callable[[Variant, int, str], float]
"""Seconds of an execution, by variant, number of jobs at once, and job."""


def amdahl(serial: float, one_s: float = 2.0) -> Law:
    """Amdahl's law by ``threads``; more than :data:`CPUS` tasks share the CPUs."""

    def seconds(variant: Variant, sessions: int, _job: str) -> float:
        n = float(variant.params.get("threads", 1))
        each = min(n, max(1.0, CPUS / sessions))
        crowd = max(1.0, sessions / CPUS)
        return one_s * (serial + (1 - serial) / each) * crowd

    return seconds


def job(name: str, shell_ns: int = 0) -> PlannedJob:
    return PlannedJob(name=name, argv=(name,), shown=name, shell_ns=shell_ns)


def threads(*counts: int, jobs: Sequence[str] = ("xz",)) -> tuple[Variant, ...]:
    named = tuple(map(job, jobs))
    return tuple(Variant(name=f"threads={n}", params={"threads": n}, jobs=named) for n in counts)


def run_of_jobs(
    variants: Sequence[Variant],
    law: Law,
    *,
    ladder: Sequence[int] = (1,),
    repeats: int = 3,
    each: int = 5,
    once: bool = False,
    noise: float = 0.01,
    seed: int = 1,
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda row: row,
) -> Results:
    """A derived run. ``each``: executions a session; with ``once`` each job is run once by all sessions."""
    rng = random.Random(seed)
    grid = [(r, v, s) for r in range(1, repeats + 1) for v in variants for s in ladder]
    cells = [
        Cell(
            id=f"{i:04d}-commands-{v.name}-s{s}-r{r}",
            workload="commands",
            variant=v.name,
            sessions=s,
            repeat=r,
            params=v.params,
            settle_ns=0,
            measure_ns=100 * NS_PER_S,
            once=once,
        )
        for i, (r, v, s) in enumerate(grid)
    ]
    plan = Plan(
        experiment=Experiment(engine="command", workload="commands", repeats=repeats),
        cpus=CPUS,
        call_target_ns=None,
        variants=tuple(variants),
        cells=tuple(cells),
        expected_ns=1,
    ).sealed()
    raw = [_raw(c, v, law, each, rng, noise, change) for c, (_, v, _) in zip(cells, grid, strict=True)]
    environment = report_machine.environment(CPUS, True)
    server = environment.server.model_copy(
        update={"engine": "command", "product": "commands", "version": "", "settings": {}}
    )
    environment = environment.model_copy(update={"server": server, "sources": ()})
    started = datetime(2026, 11, 24, 1, 0, tzinfo=UTC)
    info = RunInfo(
        schema_version=1,
        id="20261124-010000-commands-1a2b",
        dbdyno="0.1.0",
        started=started,
        started_monotonic_ns=1,
        ended=started,
        status="complete",
        workloads={"commands": WORKLOAD},
    )
    return concluded(derive(info, plan, environment, raw))


def _raw(
    cell: Cell,
    variant: Variant,
    law: Law,
    each: int,
    rng: random.Random,
    noise: float,
    change: Callable[[dict[str, Any]], dict[str, Any]],
) -> RawCell:
    executions = [change(r) for r in _executions(cell, variant, law, each, rng, noise)]
    last = max(r["end_ns"] for r in executions)
    frames = {name: empty(raw_table(name)) for name in RAW}
    frames["executions"] = rows("executions", executions)
    frames["sessions"] = rows("sessions", [_session(n, executions) for n in range(cell.sessions)])
    took = [r["end_ns"] - r["start_ns"] for r in executions]
    frames["histogram"] = rows("histogram", [{"low_ns": t, "high_ns": t, "count": 1} for t in sorted(took)])
    frames["samples"] = rows("samples", list(_samples(last)))
    meta = CellMeta(
        cell=cell,
        workload=WORKLOAD,
        calibration=None,
        start_ns=T0,
        t0_ns=T0,
        t1_ns=last,
        end_ns=last,
        driver_threads=1,
        usable_cpus=CPUS,
        status="ok",
    )
    return RawCell(meta, frames)


def _executions(
    cell: Cell, variant: Variant, law: Law, each: int, rng: random.Random, noise: float
) -> list[dict[str, Any]]:
    names = [j.name for j in variant.jobs]
    todo = [(n % cell.sessions, n // cell.sessions, name) for n, name in enumerate(names)]
    if not cell.once:
        todo = [(s, n, names[n % len(names)]) for s in range(cell.sessions) for n in range(each)]
    ends = dict.fromkeys(range(cell.sessions), T0)
    off = rng.gauss(0, noise)  # of the whole measurement
    executions = []
    for session, number, name in todo:
        took = law(variant, min(cell.sessions, len(todo)), name) * (1 + off + rng.gauss(0, noise))
        start, end = ends[session], ends[session] + round(took * NS_PER_S)
        ends[session] = end
        cpu = law(variant, 1, name)
        executions.append(
            {
                "session": session,
                "number": number,
                "job": name,
                "pid": 4000 + number,
                "start_ns": start,
                "exec_ns": start + 500_000,
                "end_ns": end,
                "measured": True,
                "outcome": "ok",
                "exit_code": 0,
                "user_ns": round(1.5 * cpu * NS_PER_S),
                "system_ns": round(0.1 * cpu * NS_PER_S),
                "max_rss_bytes": 50 << 20,
                "minor_faults": 1_000,
                "major_faults": 0,
                "voluntary": 10,
                "involuntary": 5,
                "work": 1.0,
            }
        )
    return executions


def _session(session: int, executions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    of_session = [r for r in executions if r["session"] == session]
    good = [r for r in of_session if r["outcome"] == "ok"]
    took = [r["end_ns"] - r["start_ns"] for r in good]
    return {
        "session": session,
        "calls": len(good),
        "errors": len(of_session) - len(good),
        "calls_total": len(good),
        "errors_total": len(of_session) - len(good),
        "straddle_in": 0,
        "straddle_out": 0,
        "in_call_ns": sum(took),
        "sum_sq_ns2": float(sum(t * t for t in took)),
        "min_ns": min(took, default=None),
        "max_ns": max(took, default=None),
        "end_reason": "limit",
        "first_start_ns": min((r["start_ns"] for r in of_session), default=None),
        "last_end_ns": max((r["end_ns"] for r in of_session), default=None),
    }


def _samples(last_ns: int) -> Iterator[dict[str, Any]]:
    """Two tasks, 200 times: for a quarter of the time one is runnable, then both are."""
    for n in range(200):
        at = T0 + (last_ns - T0) * n // 200
        for tid in (4000, 4001):
            yield {
                "sample": n,
                "sql_before_ns": at,
                "sql_after_ns": at,
                "task_ns": at,
                "pid": 4000,
                "tid": tid,
                "start_ticks": 1,
                "role": "session",
                "session": 0,
                "via": "sql",
                "state": "active",
                "task_state": "R" if tid == 4000 or n >= 50 else "S",
                "status": "ok",
            }
