"""Runs of hand-written figures for the tests of answers: no clock, no server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from tests.fake_engine import FakeServer, wait_families
from tests.fakery import environment_of, info_of

from dbdyno.model.engine.environment import Environment
from dbdyno.model.engine.protocols import Target
from dbdyno.model.plan.plan import Experiment, LimitSpec, Observation, Plan, Variant
from dbdyno.model.results.analyses import POINTS, Estimate, Fitted, Ladder, Machine, Scaling
from dbdyno.model.results.ledger_rows import with_parents
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import DERIVED, rows

S = 1_000_000_000


@dataclass(frozen=True)
class Rung:
    """One cell: sessions, calls a second, and where the sessions' time went (seconds per second)."""

    sessions: int
    rate: float
    run: float | None = None
    runq: float | None = 0.0
    sleeps: Mapping[str, float] = field(default_factory=dict)
    client: float = 0.0
    throttled: float = 0.0
    starved: float = 0.0
    repeat: int = 1
    status: str = "ok"
    slack: float = 0.01
    """Half the ledger's own interval of run and run queue."""

    @property
    def cell(self) -> str:
        return f"s{self.sessions}-r{self.repeat}"

    def head(self) -> dict[str, Any]:
        names = ("cell", "workload", "variant", "sessions", "repeat")
        return dict(zip(names, (self.cell, "lio", "base", self.sessions, self.repeat), strict=True))


def results(
    rungs: Sequence[Rung],
    *,
    siblings: Sequence[Sequence[int]] | None = None,
    cpus: float = 4,
    limits: LimitSpec | None = None,
    here: bool = True,
    cores: Sequence[Mapping[str, Any]] = (),
    sources: Sequence[Mapping[str, Any]] = (),
) -> Results:
    """Results of one workload and variant. ``siblings``: CPUs of each core; ``cores``, ``sources``: rows of
    those tables. Rungs of 0 sessions make it an observation."""
    observed = any(r.sessions == 0 for r in rungs)
    experiment = Experiment(workload="lio", engine="fake", observation=Observation() if observed else None)
    plan = Plan(
        experiment=experiment,
        cpus=cpus,
        call_target_ns=None,
        variants=(Variant(name="base", limits=limits or LimitSpec()),),
        cells=(),
        expected_ns=1,
    )
    derived = {
        "windows": [
            r.head() | {"t0_ns": 0, "t1_ns": 10 * S, "wall_s": 10.0, "status": r.status} for r in rungs
        ],
        "rates": [row for r in rungs for row in _rates(r)],
        "ledger": [row for r in rungs for row in _ledger(r)],
        "cores": [dict(row) for row in cores],
        "data_sources": [dict(row) for row in sources],
    }
    tables = {name: rows(name, derived.get(name, ())) for name in DERIVED}
    tables["ledger"] = with_parents(tables["ledger"])
    tables["wait_families"] = wait_families().table()
    return Results(info_of(), plan, _environment(siblings, int(cpus), here=here), tables, ())


def _rates(r: Rung) -> list[dict[str, Any]]:
    values = {
        "calls_per_s": r.rate or None,
        "work_per_s": 100 * r.rate if r.rate else None,
        "work_per_call": 100.0,
        "response_mean_ns": S * r.sessions / r.rate if r.rate else None,
        "response_p95_ns": 2 * S * r.sessions / r.rate if r.rate else None,
        "driver_starved": r.starved,
        "client_limits": 0.0,
    }
    common = r.head() | {"scope": "rung", "unit": "", "status": "ok", "source": "driver"}
    return [common | {"name": name, "value": value} for name, value in values.items()]


def _ledger(r: Rung) -> list[dict[str, Any]]:
    if r.run is None:
        return []
    accounts: list[tuple[str, str | None, float | None, float | None]] = [
        ("run.user", None, 0.75 * r.run, None),
        ("run.system", None, 0.25 * r.run, None),
        ("run", None, r.run, None),
        ("runq", None, r.runq, None),
        *(("sleep", detail, aas, None) for detail, aas in r.sleeps.items()),
        ("client", None, r.client, None),
        ("runq.throttled_bracket", None, None, r.throttled),
    ]
    common = r.head() | {"scope": "rung", "who": "rung", "status": "ok", "source": "os tasks"}
    ledger = []
    for account, detail, aas, low in accounts:
        ends = {"low": low} if aas is None else {"low": max(0.0, aas - r.slack), "high": aas + r.slack}
        ledger.append(common | {"account": account, "detail": detail, "aas": aas, **ends})
    return ledger


def _environment(siblings: Sequence[Sequence[int]] | None, cpus: int, *, here: bool) -> Environment:
    bare = environment_of(FakeServer(Target(dsn=f"fake:cpus={cpus}")))
    known = None if siblings is None else tuple(tuple(core) for core in siblings)
    every = range(cpus) if siblings is None else (cpu for core in siblings for cpu in core)
    limits = bare.host.limits.model_copy(update={"affinity": tuple(every)})
    host = bare.host.model_copy(update={"siblings": known, "limits": limits})
    server = bare.server.model_copy(update={"own_cpus": None, "here": here})
    return bare.model_copy(update={"host": host, "server": server})


def points(*columns: Mapping[str, float | None]) -> pl.DataFrame:
    """Points as read from a CSV: rows with load, throughput and further columns."""
    return pl.DataFrame([{"repeat": 1} | dict(c) for c in columns], schema=POINTS)


def scaling_with_knee(
    ladder: Ladder, rate: float, knee: float, ratio: float, spread: float = 0.05, weight: float = 0.9
) -> Scaling:
    """A fit with one knee: slopes ``rate`` and ``rate ratio``, each with an interval."""
    top = int(ladder.points["load"].max() or 0)  # type: ignore[arg-type]
    loads = [float(n) for n in range(1, top + 1)]
    curve = [rate * (min(n, knee) + ratio * max(n - knee, 0.0)) for n in loads]
    knee_estimate = Estimate("knee", knee, "sessions", knee - 0.3, knee + 0.3, "profile likelihood")
    slope = Estimate("yield", ratio, "", ratio - spread, ratio + spread, "profile likelihood")
    fit = Fitted(
        "one-knee",
        "growth with one knee",
        "",
        "",
        (Estimate("rate", rate), knee_estimate, slope),
        0.0,
        3,
        1.0,
        0.0,
        0.0,
        0.0,
        weight,
        weight,
        knees=(knee_estimate,),
    )
    band = {"low": [0.99 * x for x in curve], "high": [1.01 * x for x in curve]}
    frame = pl.DataFrame({"load": loads, "throughput": curve, **band})
    return Scaling(ladder, (fit,), frame, pl.DataFrame())


SMT8 = Machine(cpus=16, cores=8, threads_per_core=2, model="Example CPU")
