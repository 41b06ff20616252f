"""Says what a comparison can see, by records of earlier noise measurements. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.compare.effects import RANKING
from dbdyno.conclude.compare.table import ALPHA, ALPHA_STOPPED
from dbdyno.conclude.noise_words import COARSE, noise_command, size
from dbdyno.model.engine.environment import Environment, ServerFacts
from dbdyno.model.plan.kinds import PACED, kind_of
from dbdyno.model.plan.plan import Plan, Value
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import LEAST_REPEATS, Comparison, Effect
from dbdyno.model.results.results import Results
from dbdyno.model.units import NS_PER_S, counted, format_given, parse_duration_ns
from dbdyno.stats.estimates import students_quantile
from dbdyno.stats.noise_budget import POWER, Budget
from dbdyno.stats.power import least_shift

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
    scripts: str = ""
    """Digest of the scripts' texts; empty without scripts."""
    sessions: int
    budget: dict[str, float | None]
    """A row of table ``noise_budget``."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Machine, server and load: a later record with the same key replaces this one."""
        settings, params = (tuple(sorted(d.items())) for d in (self.settings, self.params))
        return self.machine, self.server, settings, self.workload, params, self.scripts, self.sessions

    @property
    def date(self) -> str:
        return f"{self.measured.astimezone():%-d %b}"

    @property
    def floor(self) -> float | None:
        """The difference of two runs, each on one start of the server, that starts alone exceed in 5 % of
        cases; None if the server was not restarted."""
        return self.budget.get("floor")


class Reading(NamedTuple):
    """The records that apply to loads of a workload; if there are none, why."""

    applying: Sequence[NoiseRecord] = ()
    """The newest of each number of sessions and server: only at loads where each server has one."""
    newest: NoiseRecord | None = None
    """Where none applies: the newest of the loads, on whichever machine."""
    differs: str = ""
    """How machine, server or settings of the newest differ; empty if it is only old."""
    variant: str = ""
    """The first variant whose server it does not fit; empty if none names a server."""
    fits_others: bool = False
    """Whether it fits another server of the run."""


def machine_of(environment: Environment, server: ServerFacts | None = None) -> str:
    """Returns the machine of the server, by default the run's, in words: its CPUs, those that may be used,
    its kernel; of a server elsewhere its place."""
    host, server = environment.host, server or environment.server
    if not server.here:
        return server.where.split(", database")[0]
    cpus = f"{host.limits.usable_cpus:g} of {counted(host.cpu.logical, 'CPU')}"
    return f"{host.cpu.model or 'unknown CPU'}, {cpus}, {host.kernel}"


def settings_of(server: ServerFacts) -> dict[str, str]:
    """Returns the server's settings without places, which differ from start to start."""
    return {k: v for k, v in server.settings.items() if "/" not in v}


def scripts_of(plan: Plan) -> str:
    """Returns a digest of what the scripts of the first variant do; empty if it has none."""
    scripts = plan.variants[0].scripts
    texts = repr([(s.text, s.weight) for s in scripts])
    return hashlib.sha256(texts.encode()).hexdigest() if scripts else ""


def records_of(results: Results) -> Iterator[NoiseRecord]:
    """Yields a record for each load of a noise measurement; none if too little was measured."""
    for row in results.tables["noise_budget"].to_dicts():
        workload, sessions = row.pop("workload"), row.pop("sessions")
        yield NoiseRecord(
            run=results.info.id,
            measured=results.info.started,
            machine=machine_of(results.environment),
            server=results.environment.server.name,
            settings=settings_of(results.environment.server),
            workload=workload,
            params=results.plan.variants[0].params,
            scripts=scripts_of(results.plan),
            sessions=sessions,
            budget=row,
        )


def read(
    records: Sequence[NoiseRecord],
    plan: Plan,
    environment: Environment | None,
    at: datetime,
    sessions: Collection[int] | None = None,
) -> Reading:
    """Returns the records that apply to the load of a plan's first variant, on all servers that its variants
    name.

    ``environment`` is None before the server is known: it is then taken to be that of a record. ``at``: when
    the plan is, or was, measured. ``sessions``: only at these of its numbers of sessions.
    """
    loads = {c.sessions for c in plan.cells} if sessions is None else sessions
    load = (plan.cells[0].workload, plan.variants[0].params, scripts_of(plan)) if plan.cells else None
    of_load = [r for r in records if (r.workload, r.params, r.scripts) == load and r.sessions in loads]
    of_load.sort(key=lambda r: r.measured)
    servers: dict[str, ServerFacts | None] = {"": None}
    if environment is not None:
        servers = {**environment.servers} or {"": environment.server}
    young = [r for r in of_load if abs(at - r.measured) <= timedelta(days=OLD_DAYS)]
    newest = [{r.sessions: r for r in young if not _why_not(r, environment, s)} for s in servers.values()]
    common = sorted(set(newest[0]).intersection(*newest[1:]))
    if common:
        return Reading([*{of[n].key: of[n] for n in common for of in newest}.values()])
    if not of_load:
        return Reading(variant=next(iter(servers)))
    reasons = {variant: _why_not(of_load[-1], environment, s) for variant, s in servers.items()}
    variant = next((v for v, why in reasons.items() if why), next(iter(servers)))
    return Reading((), of_load[-1], reasons[variant], variant, not all(reasons.values()))


def _why_not(record: NoiseRecord, environment: Environment | None, server: ServerFacts | None) -> str:
    return "" if environment is None or server is None else difference(record, environment, server)


def fits(record: NoiseRecord, environment: Environment) -> bool:
    """Returns whether a record is of the machine, the version and the settings of all servers of a run."""
    return not any(difference(record, environment, server) for server in environment.all_servers)


def difference(record: NoiseRecord, environment: Environment, server: ServerFacts) -> str:
    """Returns what differs from the machine, server and settings of a record; empty if nothing does."""
    if record.machine != (machine := machine_of(environment, server)):
        parts, now = record.machine.split(", "), machine.split(", ")
        others = [f"{a} (now {b})" for a, b in zip(parts, now, strict=False) if a != b]
        same_form = len(parts) == len(now) > 1
        return " and ".join(others) if same_form else f"another machine ({record.machine})"
    if record.server != server.name:
        return f"{record.server} (now {server.name})"
    settings = settings_of(server)
    for name in sorted({*settings, *record.settings}):
        before, now_set = (d.get(name, "its default") for d in (record.settings, settings))
        if before != now_set:
            return f"{name} = {before} (now {now_set})"
    return ""


def sees(
    plan: Plan,
    environment: Environment | None,
    records: Sequence[NoiseRecord],
    now: datetime,
    *,
    restarts: bool = False,
    elsewhere: bool = False,
) -> Claim | None:
    """Returns what a comparison of the plan's variants can see; None if it compares none, its rate is set, or
    its variants name servers that are not known yet.

    ``environment`` is None before the server is known: it is then taken to be that of the record.
    ``restarts``: whether variants restart the server. ``elsewhere``: whether the user named one.
    """
    paced = kind_of(plan).among((PACED,))
    loads = sorted({c.sessions for c in plan.cells})
    if len(plan.variants) < 2 or plan.jobs or paced or not loads or plan.adaptive is not None:
        return None
    repeats = max(c.repeat for c in plan.cells)
    # Holm's first step: the level is divided by all claims of the table, with neighbours in the ranking.
    claims = len(loads) * (2 * len(plan.variants) - 3)
    alpha = (ALPHA if plan.experiment.until is None else ALPHA_STOPPED) / claims
    if repeats < (least := least_repeats(alpha)):
        return claim("comparison-sees", {"repeats": repeats, "least": least}, case="few")
    if environment is None and plan.servers:
        return None
    reading = read(records, plan, environment, now)
    command = noise_command(plan, loads[-1], environment, reading.variant, elsewhere=elsewhere)
    values: dict[str, Any] = {"command": command, "variant": reading.variant}
    parts = ["each"] if environment is not None and len(environment.all_servers) > 1 else []
    if reading.applying:
        again = restarts or plan.starts_servers
        return _seen("sees", plan, reading.applying, repeats, alpha, loads, restarts=again)
    if reading.newest is None:
        return claim("comparison-sees", values, case="none", parts=parts)
    values["date"] = reading.newest.date
    if reading.fits_others and environment is not None:
        missing = environment.server_of(reading.variant).name
        if missing != (measured := reading.newest.server):
            return claim("comparison-sees", values | {"server": measured, "missing": missing}, case="servers")
    if reading.differs:
        return claim("comparison-sees", values | {"what": reading.differs}, case="differs", parts=parts)
    return claim("comparison-sees", values | {"days": OLD_DAYS}, case="old", parts=parts)


def could_see(comparison: Comparison, results: Results, records: Sequence[NoiseRecord]) -> Comparison:
    """Returns the comparison of a run's variants with what it could see, if it leaves throughput undecided or
    finds no difference, and a record applies."""
    others = tuple(c for c in comparison.conclusions if c.id != "comparison-sees")
    comparison = comparison.model_copy(update={"conclusions": others})
    table = comparison.metrics[0]
    open_claims = [c for c in table.claims if c.verdict in ("undecided", "no difference")]
    repeats = min((min(c.effect.n_baseline, c.effect.n_variant) for c in table.claims), default=0)
    alpha = comparison.alpha / max(1, len(table.claims))
    if table.metric not in RANKING or not open_claims or repeats < least_repeats(alpha):
        return comparison
    loads = {c.sessions for c in open_claims}
    reading = read(records, results.plan, results.environment, results.info.started, loads)
    if not reading.applying:
        return comparison
    restarts = results.plan.starts_servers or any(a.restarts for a in results.info.applied.values())
    compared = sorted({c.sessions for c in table.claims})
    own: dict[int, float] = {}
    for c in open_claims:
        own[c.sessions] = max(own.get(c.sessions, 0.0), _least_of(c.effect, alpha))
    seen = _seen("saw", results.plan, reading.applying, repeats, alpha, compared, restarts=restarts, own=own)
    ranks = [c for c in others if c.id == "rank"]
    rest = [c for c in others if c.id != "rank"]
    return comparison.model_copy(update={"conclusions": (*ranks, seen, *rest)})


def least_repeats(alpha: float) -> int:
    """Returns the fewest repeats that can decide at this level: p is no lower than the chance that two modes
    of a machine look like an effect (:func:`dbdyno.conclude.compare.table.careful_p`)."""
    return max(LEAST_REPEATS, math.floor((1 - math.log2(alpha)) / 2) + 1)


def _least_of(effect: Effect, alpha: float) -> float:
    """Returns the least difference that the repeats of an effect find with probability :data:`POWER`, by
    their own spread; 0 if the effect has no interval over pairs."""
    if effect.basis != "pairs" or not effect.low or not effect.high or not effect.degrees:
        return 0.0
    half, repeats = math.log(effect.high / effect.low) / 2, min(effect.n_baseline, effect.n_variant)
    deviation = half / students_quantile(effect.degrees) * math.sqrt(repeats)
    return math.expm1(least_shift(repeats, alpha, POWER) * deviation)


def _seen(
    case: str,
    plan: Plan,
    applying: Sequence[NoiseRecord],
    repeats: int,
    alpha: float,
    loads: Sequence[int],
    *,
    restarts: bool,
    own: Mapping[int, float] = MappingProxyType({}),
) -> Claim:
    """Returns the claim of the load with the largest of the least differences.

    ``loads``: all that are compared. ``own``: the least differences of a finished comparison by its own
    spread, by load. It replaces the record where it is larger: nothing then contradicts the intervals.
    """
    measure_s = parse_duration_ns(plan.experiment.measure) / NS_PER_S
    seen = [
        (Budget.of_row(r.budget).least_difference(repeats, measure_s, alpha, restarts=restarts), r)
        for r in applying
    ]
    recorded, record = max(seen, key=lambda one: max(one[0], own.get(one[1].sessions, 0.0)))
    least = max(recorded, own.get(record.sessions, 0.0))
    if least > recorded and size(least) != size(recorded):
        case = "louder"
    others = sorted({*loads} - {r.sessions for r in applying})
    parts = ["others"] if others else []
    if restarts:
        measured = all(r.budget["start_variance"] is not None for r in applying)
        parts.append("restarts" if measured else "no-restarts")
    if least >= COARSE:
        parts.append("coarse")
    values = {
        "repeats": repeats,
        "measure": f"{format_given(measure_s)} s",
        "difference": size(least),
        "recorded": size(recorded),
        "where": f" at {counted(record.sessions, 'session')}" if len(loads) > 1 else "",
        "others": fmt.loads_joined(others) if others else "",
        "date": record.date,
    }
    return claim("comparison-sees", values, least, case=case, parts=parts)
