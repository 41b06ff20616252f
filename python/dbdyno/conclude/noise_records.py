"""Says what a planned comparison can see, by records of earlier noise measurements. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.compare.table import ALPHA, ALPHA_STOPPED
from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.kinds import PACED, kind_of
from dbdyno.model.plan.plan import Plan, Value
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import LEAST_REPEATS
from dbdyno.model.results.results import Results
from dbdyno.model.units import NS_PER_S, counted, fine_percent, format_given, parse_duration_ns
from dbdyno.stats.noise_budget import Budget

OLD_DAYS = 30
"""Age in days beyond which a record is not applied: kernels, neighbours and data change."""


class NoiseRecord(BaseModel):
    """The noise of a load on a server, as later comparisons use it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: str
    measured: datetime
    machine: str
    server: str
    settings: dict[str, str]
    workload: str
    params: dict[str, Value]
    sessions: int
    budget: dict[str, float | None]
    """A row of table ``noise_budget``."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Machine and load: a later record with the same key replaces this one."""
        return self.machine, self.workload, tuple(sorted(self.params.items())), self.sessions


def machine_of(environment: Environment) -> str:
    """Returns the machine in words: its CPUs, those that may be used, its kernel; of a server elsewhere its
    place."""
    host, server = environment.host, environment.server
    if not server.here:
        return server.where.split(", database")[0]
    cpus = f"{host.limits.usable_cpus:g} of {counted(host.cpu.logical, 'CPU')}"
    return f"{host.cpu.model or 'unknown CPU'}, {cpus}, Linux {host.kernel}"


def server_of(environment: Environment) -> str:
    return f"{environment.server.product or environment.server.engine} {environment.server.version}"


def settings_of(environment: Environment) -> dict[str, str]:
    """Returns the server's settings without places, which differ from start to start."""
    return {k: v for k, v in environment.server.settings.items() if "/" not in v}


def records_of(results: Results) -> Iterator[NoiseRecord]:
    """Yields a record for each load of a noise measurement; none if too little was measured."""
    for row in results.tables["noise_budget"].to_dicts():
        workload, sessions = row.pop("workload"), row.pop("sessions")
        yield NoiseRecord(
            run=results.info.id,
            measured=results.info.started,
            machine=machine_of(results.environment),
            server=server_of(results.environment),
            settings=settings_of(results.environment),
            workload=workload,
            params=results.plan.variants[0].params,
            sessions=sessions,
            budget=row,
        )


def sees(
    plan: Plan,
    environment: Environment | None,
    records: Sequence[NoiseRecord],
    now: datetime,
    *,
    restarts: bool = False,
) -> Claim | None:
    """Returns what a comparison of the plan's variants can see; None if it compares none, or its rate is set.

    ``environment`` is None before the server is known: it is then taken to be that of the record.
    ``restarts``: whether variants restart the server.
    """
    paced = kind_of(plan).among((PACED,))
    loads = sorted({c.sessions for c in plan.cells})
    if len(plan.variants) < 2 or plan.jobs or paced or not loads or plan.adaptive is not None:
        return None
    repeats = max(c.repeat for c in plan.cells)
    if repeats < LEAST_REPEATS:
        return claim("comparison-sees", {"repeats": repeats, "least": LEAST_REPEATS}, case="few")
    first = plan.cells[0]
    of_load = [r for r in records if (r.workload, r.params) == (first.workload, plan.variants[0].params)]
    newest = {r.sessions: r for r in sorted(of_load, key=lambda r: r.measured)}
    known = [newest[n] for n in loads if n in newest]
    command = f"dbdyno noise {_words(plan)} --sessions {loads[-1]}"
    if not known:
        return claim("comparison-sees", {"command": command}, case="none")
    oldest = min(known, key=lambda r: r.measured)
    date = f"{oldest.measured.astimezone():%-d %b}"
    if now - oldest.measured > timedelta(days=OLD_DAYS):
        values = {"date": date, "days": OLD_DAYS, "command": command}
        return claim("comparison-sees", values, case="old")
    if environment is not None:
        for record in known:
            if what := _difference(record, environment):
                values = {"date": date, "what": what, "command": command}
                return claim("comparison-sees", values, case="differs")
    return _seen(plan, known, loads, repeats, date, restarts=restarts)


def _seen(
    plan: Plan, known: Sequence[NoiseRecord], loads: Sequence[int], repeats: int, date: str, *, restarts: bool
) -> Claim:
    # Holm's first step: the level is divided by all claims of the table, with neighbours in the ranking.
    claims = len(loads) * (2 * len(plan.variants) - 3)
    alpha = (ALPHA if plan.experiment.until is None else ALPHA_STOPPED) / claims
    measure_s = parse_duration_ns(plan.experiment.measure) / NS_PER_S
    differences = {
        r.sessions: Budget.of_row(r.budget).least_difference(repeats, measure_s, alpha, restarts=restarts)
        for r in known
    }
    sessions, difference = max(differences.items(), key=lambda item: item[1])
    where = f" at {counted(sessions, 'session')}" if len(loads) > 1 else ""
    parts = []
    if restarts:
        measured = all(r.budget["start_variance"] is not None for r in known)
        parts = ["restarts" if measured else "no-restarts"]
    values = {
        "repeats": repeats,
        "measure": f"{format_given(measure_s)} s",
        "difference": fine_percent(difference),
        "where": where,
        "date": date,
    }
    return claim("comparison-sees", values, difference, case="sees", parts=parts)


def _difference(record: NoiseRecord, environment: Environment) -> str:
    """Returns what differs from the machine and server of a record; empty if nothing does."""
    if record.machine != machine_of(environment):
        return f"another machine ({record.machine})"
    if record.server != server_of(environment):
        return record.server
    now = settings_of(environment)
    for name in sorted({*now, *record.settings}):
        if record.settings.get(name) != now.get(name):
            return f"{name} = {record.settings.get(name, 'its default')}"
    return ""


def _words(plan: Plan) -> str:
    """Returns the arguments of ``dbdyno noise`` for the plan's first variant."""
    experiment = plan.experiment
    files = [f"-f {s.file}" for s in experiment.mix if s.file]
    given: Mapping[str, Value] = experiment.params
    return " ".join([*(files or [experiment.workload or ""]), *(f"{k}={v}" for k, v in given.items())])
