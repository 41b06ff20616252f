"""The ladders of a run: the machine, the points, and the measured or fitted values at each load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl

from dbdyno.conclude.catalogue import advice, sentence
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.catalogue.number_format import load
from dbdyno.conclude.ladder.rungs import Rungs
from dbdyno.model.plan.kinds import kind_of
from dbdyno.model.results.analyses import POINTS, Estimate, Ladder, Machine, Scaling
from dbdyno.model.results.claim import disturbed_cells
from dbdyno.model.results.ledger_rows import WORKERS, account_rows
from dbdyno.model.results.session_time import is_limit
from dbdyno.model.schema.tables import ByCell
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import NS_PER_S
from dbdyno.stats.knee import KNEE
from dbdyno.stats.knee import bend as bent

if TYPE_CHECKING:
    from dbdyno.model.engine.environment import Environment
    from dbdyno.model.plan.plan import Plan, Workload
    from dbdyno.model.results.claim import Claim


class Measured(Protocol):
    """The part of a run that its ladders need."""

    @property
    def plan(self) -> Plan: ...
    @property
    def environment(self) -> Environment: ...
    @property
    def tables(self) -> Mapping[str, pl.DataFrame]: ...
    @property
    def workloads(self) -> Mapping[str, Workload]: ...


def source(ladder: Ladder, account: str) -> str:
    """Returns the source of the ladder's CPU times: the ledger of a run, or columns of a file."""
    return "CPU columns" if ladder.workload is None else f"ledger: {account}"


def machine_of(results: Measured, variant: str) -> tuple[Machine, tuple[str, ...]]:
    """Returns the machine under a variant's limits, and notes on unknown properties with the reason."""
    host, server = results.environment.host, results.environment.server_of(variant)
    from dbdyno.model.results.server_cpus import server_cpus  # a ladder of a file needs no run's models

    usable = server_cpus(results.plan, variant, results.environment)
    if usable is None:
        return Machine(), (sentence("ladder-note", case="elsewhere"),)
    cpus, quota = usable.cpus, usable.quota
    if server.own_cpus is not None:
        return Machine(cpus=cpus, quota=quota), ()
    cores = cores_for(results, variant)
    if cores is None and host.cpu.cores is not None and cpus == host.cpu.logical:
        return Machine(cpus, host.cpu.cores, host.cpu.threads_per_core, host.cpu.model, quota), ()
    if cores is None:
        note = sentence("ladder-note", case="no-cores")
        return Machine(cpus=cpus, model=host.cpu.model, quota=quota), (note,)
    return Machine(
        cpus=cpus,
        cores=min(float(len(cores)), cpus),
        threads_per_core=max(len(core) for core in cores),
        model=host.cpu.model,
        quota=quota,
    ), ()


_RAISE = "raise the quota of the group that /proc/PID/cgroup names (cpu.max; v1: cpu.cfs_quota_us)"


def quota_cure(results: Measured, variant: str) -> str:
    """Returns how to raise the quota that throttles the server under a variant."""
    from dbdyno.model.results.server_cpus import server_cpus

    usable = server_cpus(results.plan, variant, results.environment)
    return usable.cure if usable is not None and usable.quota else _RAISE


def cores_for(results: Measured, variant: str) -> tuple[tuple[int, ...], ...] | None:
    """Returns the CPUs of each core that the server may use under a variant. None if unknown or if the server
    is on another host."""
    host, server = results.environment.host, results.environment.server_of(variant)
    if not server.here or server.own_cpus is not None:
        return None
    from dbdyno.model.plan.plan import cores_under

    return cores_under(results.plan.variant(variant).limits, host.siblings, host.limits.affinity)


# -- points of a run --

_ACCOUNTS = {"cpu": "run", "cpu_user": "run.user", "cpu_system": "run.system", "cpu_wait": "runq"}

Figures = Mapping[str, float | None]
Row = dict[str, Any]


def ladders_of(results: Measured) -> tuple[Ladder, ...]:
    """Returns one :class:`Ladder` per workload and variant, in the order of the plan; none for an
    observation.

    Throughput is in the workload's units of work if every usable cell counted them, else in calls; times are
    per the same unit. CPU and CPU WAIT come from the ledger, in seconds per second, NULL if unknown. Cells
    that are invalid or limited by the driver are left out, with a note.
    """
    windows = results.tables["windows"].filter(pl.col("sessions") > 0)
    if windows.is_empty() or not windows["rate_per_s"].is_null().all():
        return ()  # at a set rate throughput is that rate and says nothing of scaling: rate_ladders_of
    parts = ByCell({name: results.tables[name] for name in ("rates", "ledger")})
    groups = list(windows.group_by("workload", "variant", maintain_order=True))
    many = len(groups) > 1
    return tuple(_ladder(results, parts, str(k[0]), str(k[1]), cells, many=many) for k, cells in groups)


def rate_ladders_of(results: Measured) -> tuple[Ladder, ...]:
    """Returns one :class:`Ladder` per workload and variant that was measured at two or more rates over a
    fixed number of sessions. Load is the number of calls that become due per second, throughput the calls
    delivered per second. Phases form one measurement and have no ladder. Cells are left out as in
    :func:`ladders_of`."""
    if not results.plan.by_rate or results.plan.experiment.phases:
        return ()
    windows = results.tables["windows"].filter((pl.col("sessions") > 0) & pl.col("rate_per_s").is_not_null())
    parts = ByCell({name: results.tables[name] for name in ("rates", "ledger")})
    groups = list(windows.group_by("workload", "variant", maintain_order=True))
    return tuple(
        _rate_ladder(parts, str(k[0]), str(k[1]), cells, many=len(groups) > 1)
        for k, cells in groups
        if cells["rate_per_s"].n_unique() > 1
    )


def _rate_ladder(parts: ByCell, workload: str, variant: str, cells: pl.DataFrame, *, many: bool) -> Ladder:
    figures, usable, notes = _usable_cells(parts, cells)
    points = [
        _point(r, figures[r["cell"]], parts, by_work=False, constant=True) | {"load": float(r["rate_per_s"])}
        for r in usable
    ]
    return Ladder(
        name=f"{workload}, variant {variant}" if many else workload,
        points=pl.DataFrame(points, schema=POINTS).sort("load", "repeat"),
        load_unit="calls/s due",
        notes=notes,
        workload=workload,
        variant=variant,
        by_rate=True,
    )


def _ladder(
    results: Measured, parts: ByCell, workload: str, variant: str, cells: pl.DataFrame, *, many: bool
) -> Ladder:
    figures, usable, notes = _usable_cells(parts, cells)
    known = results.workloads.get(workload)
    by_work = bool(usable) and all((figures[r["cell"]].get("work_per_s") or 0) > 0 for r in usable)
    constant = known is not None and known.work_constant
    points = [_point(r, figures[r["cell"]], parts, by_work=by_work, constant=constant) for r in usable]
    ledgers = [parts.table("ledger", r["cell"]) for r in usable]
    points = [
        p | {"tasks": tasks_of(ledger)} if results.plan.jobs or ledger.filter(WORKERS).height else p
        for p, ledger in zip(points, ledgers, strict=True)
    ]
    machine, about = machine_of(results, variant)
    kind = kind_of(results.plan)
    unit = known.work_short if by_work and known is not None else kind.noun("calls")
    return Ladder(
        name=f"{workload}, variant {variant}" if many else workload,
        points=pl.DataFrame(points, schema=POINTS).sort("load", "repeat"),
        load_unit=kind.noun("load_unit"),
        throughput_unit=f"{unit}/s",
        of_work=fmt.one_of(unit) if unit != kind.noun("calls") else "",
        machine=machine,
        think_s=_think_s(results, workload, variant),
        notes=(*notes, *about),
        workload=workload,
        variant=variant,
    )


def _usable_cells(
    parts: ByCell, cells: pl.DataFrame
) -> tuple[dict[str, Figures], list[Row], tuple[str, ...]]:
    """Returns the figures by cell, the usable windows, and notes on windows that are left out or were cut
    short."""
    rows = cells.to_dicts()
    figures = {r["cell"]: figures_of(parts.table("rates", r["cell"])) for r in rows}
    why = {r["cell"]: _exclusion(r, figures[r["cell"]]) for r in rows}
    usable = [r for r in rows if why[r["cell"]] is None]
    notes = [_note(r, case) for r in rows if (case := why[r["cell"]])]
    return figures, usable, (*notes, *(_note(r, "short") for r in usable if r["status"] == "short"))


def with_disturbed(ladder: Ladder, windows: pl.DataFrame, claims: Iterable[Claim]) -> Ladder:
    """Returns ``ladder`` with the loads of its cells that the claim ``disturbed`` names. Along an axis of
    threads, which joins variants, these are all loads if there is such a cell."""
    disturbed = windows.filter(pl.col("cell").is_in(disturbed_cells(claims)))
    if ladder.variant is None:
        return replace(ladder, disturbed=tuple(loads(ladder)) if disturbed.height else ())
    own = (pl.col("workload") == ladder.workload) & (pl.col("variant") == ladder.variant)
    numbers = disturbed.filter(own)["rate_per_s" if ladder.by_rate else "sessions"].unique().sort()
    return replace(ladder, disturbed=tuple(map(float, numbers)))


_NAMED = 4
"""Most disturbed loads that a sentence names."""


def disturbed_place(ladder: Ladder) -> str:
    """Returns the disturbed loads in words, with a space before them: `` at 1 and 2 sessions``; "" if they
    are all loads, or none."""
    every = loads(ladder)
    if not ladder.disturbed or {*every} <= {*ladder.disturbed}:
        return ""
    if len(ladder.disturbed) > _NAMED:
        return f" at {len(ladder.disturbed)} of {len(every)} loads"
    return f" {noun('at')} {fmt.loads_joined(ladder.disturbed, ladder.load_unit)}"


ABOUT_COMMANDS = ("commands-compared", "speed-up", "orders")
"""Claims that compare commands."""
ABOUT_LADDERS = (
    *("one-session", "one-core", "one-cpu", "knee", "second-knee", "third-knee", "throughput-step"),
    *("superlinear", "throughput-drop", "at-cpus", "one-more-session", "reason", "smt-yield"),
    *("prediction", "response-target", "throughput-target", "auto-ladder", "target", "paced-capacity"),
    *("auto-rates", "rate-target", "rate-capacity", "rank", *ABOUT_COMMANDS),
)
"""Claims that compare loads, variants or commands. Those of the peak and of good scaling have sentences of
their own."""


_MAY_BE_UNKNOWN = ("smt-yield", "one-session")
"""Claims that state without a value that it is unknown."""


def in_doubt(claim: Claim, place: str) -> Claim:
    """Returns ``claim`` with a sentence that it is uncertain, because the machine was not quiet ``place``,
    and with a quiet machine as its only advice; a claim that compares no loads unchanged."""
    if claim.id not in ABOUT_LADDERS or (claim.value is None and claim.id in _MAY_BE_UNKNOWN):
        return claim
    tail = sentence("disturbed", {"place": place}, case="uncertain")
    severity = "note" if claim.severity == "good" else claim.severity
    changed = {"text": claim.text + tail, "pieces": (*claim.pieces, ("", tail)), "severity": severity}
    changed["advice"] = advice("disturbed", "measured") if claim.advice else ""
    return claim.model_copy(update=changed)


def figures_of(rates: pl.DataFrame) -> Figures:
    """Returns the rung's rates by name, from a cell's rows of table ``rates``."""
    return dict(rates.filter(pl.col("scope") == "rung").select("name", "value").rows())


def tasks_of(ledger: pl.DataFrame) -> float | None:
    """Returns the mean number of tasks that the sessions of a cell had: their wall time per second. None if
    it is 0."""
    wall = ledger.filter((pl.col("scope") == "memo") & (pl.col("account") == "wall"))["aas"]
    return float(wall.sum()) or None


def account(ledger: pl.DataFrame, name: str) -> float | None:
    """Returns the sum over the account's rows of a cell's rung. None if there is no row or one of them is
    unknown."""
    values = account_rows(ledger, name)["aas"]
    return float(values.sum()) if len(values) and not values.null_count() else None


def _exclusion(window: Row, figures: Figures) -> str | None:
    """Returns the reason why a window is not used, as a case of the catalogue's entry. None if it is used."""
    if window["status"] == "invalid":
        return "left-out"
    if is_limit(figures):
        return "client"
    return None if (figures.get("calls_per_s") or 0) > 0 else "no-calls"


def _point(window: Row, figures: Figures, parts: ByCell, *, by_work: bool, constant: bool) -> Row:
    ledger = parts.table("ledger", window["cell"])
    per_call = (figures.get("work_per_call") or 1.0) if by_work else 1.0
    mean, p95 = figures.get("response_mean_ns"), figures.get("response_p95_ns")
    whole = (
        not by_work or constant
    )  # a percentile over calls holds per unit only if all calls have equal work
    return {
        "load": float(window["sessions"]),
        "repeat": window["repeat"],
        "throughput": figures["work_per_s" if by_work else "calls_per_s"],
        "response_s": None if mean is None else mean / NS_PER_S / per_call,
        "response_p95_s": None if p95 is None or not whole else p95 / NS_PER_S / per_call,
        **{column: account(ledger, name) for column, name in _ACCOUNTS.items()},
    }


def _think_s(results: Measured, workload: str, variant: str) -> float | None:
    paused = {c.think_ns for c in results.plan.cells if c.workload == workload and c.variant == variant}
    return paused.pop() / NS_PER_S if len(paused) == 1 else None


def _note(window: Row, case: str) -> str:
    rate = window["rate_per_s"]
    place = load(window["sessions"]) if rate is None else fmt.rate_of_load(rate)
    values = {"load": place, "repeat": window["repeat"]}
    return sentence("ladder-note", values | {"reason": window["reason"] or "invalid"}, case=case)


def cells_of(results: Measured, ladder: Ladder) -> Iterator[tuple[Row, dict[str, pl.DataFrame]]]:
    """Yields the usable windows of a ladder of a run with their rates, ledger and cores, by load and
    repeat."""
    names = ("rates", "ledger", "cores", "data_sources")
    parts = ByCell({name: results.tables[name] for name in names if name in results.tables})
    of_ladder = (pl.col("workload") == ladder.workload) & (pl.col("variant") == ladder.variant)
    for window in results.tables["windows"].filter(of_ladder).sort("sessions", "repeat").to_dicts():
        if _exclusion(window, figures_of(parts.table("rates", window["cell"]))) is None:
            yield window, parts.of(window["cell"])


# -- what was measured at each load, and what the best fit says between them --


def loads(ladder: Ladder) -> list[float]:
    """Returns the measured loads, ascending."""
    return sorted(set(ladder.points["load"].to_list()))


def at(ladder: Ladder, load: float, column: str = "throughput", over: str | None = None) -> Estimate | None:
    """Returns the mean over the repeats of a rung of ``column``, or of its ratio to ``over``. None if
    unknown. The column ``whole`` is the number that shares of time refer to: sessions, or the tasks of
    commands."""
    rung = ladder.points.filter(pl.col("load") == load).with_columns(whole=pl.coalesce("tasks", "load"))
    value = pl.col(column) if over is None else pl.col(column) / pl.col(over)
    return fmt.estimate(column, rung.select(value.alias("v"))["v"].to_list())


def response_s(ladder: Ladder, load: float) -> float | None:
    """Returns the mean response time of all calls at a measured load; None if unknown. Repeats of higher
    throughput have more calls."""
    known = ladder.points.filter(pl.col("load") == load).drop_nulls("response_s")
    done = float(known["throughput"].sum())
    return float((known["throughput"] * known["response_s"]).sum()) / done if done > 0 else None


def throughput(ladder: Ladder, load: float) -> float:
    """Returns the mean over the repeats of a measured load."""
    mean = at(ladder, load)
    assert mean is not None
    return mean.value


def best_rung(ladder: Ladder) -> float:
    """Returns the load with the largest mean throughput, the lowest of equal ones."""
    return Rungs.of(ladder).best


def fitted_at(scaling: Scaling, load: float) -> Estimate | None:
    """Returns the best fit's throughput and band at a load within the range of its curve. None without a fit,
    or if the fit is rejected or outside the band over all models."""
    curve = scaling.curve.sort("load") if scaling.curve.height else scaling.curve
    if scaling.best is None or curve.height < 2:
        return None

    def interpolated(column: str) -> float | None:
        known = curve.drop_nulls(column) if column in curve.columns else curve.clear()
        if known.is_empty() or not known["load"][0] <= load <= known["load"][-1]:
            return None
        return float(np.interp(load, known["load"].to_numpy(), known[column].to_numpy()))

    value = interpolated("throughput")
    if value is None:
        return None
    low, high = interpolated("low"), interpolated("high")
    if low is None or high is None or not low < value < high:
        return None
    return Estimate("throughput", value, scaling.ladder.throughput_unit, low, high, "band of the fit")


WIDE = 3.0
"""Ratio of the ends of a fitted figure's interval above which the figure is called unknown."""


def alone(scaling: Scaling) -> tuple[Estimate, bool] | None:
    """Returns the throughput of one session and whether it was measured; if it was not, the best fit's. None
    if the fit's interval is wider than a factor of :data:`WIDE`."""
    if (measured := at(scaling.ladder, 1.0)) is not None:
        return measured, True
    fitted = fitted_at(scaling, 1.0)
    if fitted is None or fitted.low is None or fitted.high is None or fitted.high > WIDE * fitted.low:
        return None
    return fitted, False


def knee(ladder: Ladder) -> Estimate | None:
    """Returns the load beyond which one more unit of load adds less than half of the best gain. The interval
    is given by the nearest loads that are surely below and above. None if it is not sure that growth ends
    within the measured loads."""
    rungs = Rungs.of(ladder)
    bent_at = bent(rungs.means, KNEE, rungs.noise.share)
    if bent_at.high is None:
        return None
    return Estimate("knee", bent_at.at, ladder.load_unit, bent_at.low, bent_at.high, "neighbouring loads")


def bend(ladder: Ladder) -> Estimate | None:
    """Returns the load from which on growth is weaker: the knee, else the last load before efficiency falls
    below :data:`~dbdyno.model.results.claim.GOOD_SCALING` beyond noise. None if neither was measured."""
    if (at_knee := knee(ladder)) is not None:
        return at_knee
    rungs = Rungs.of(ladder)
    reach = rungs.reach()
    if reach is None or reach.high is None:
        return None
    return Estimate("scales to", reach.value, ladder.load_unit, reach.low, reach.high, rungs.method)
