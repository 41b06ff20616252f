"""Turns an experiment into a plan: fills in every default with its reason, and lists every cell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.model.plan.plan import (
    Adaptive,
    Cell,
    Choice,
    Experiment,
    LimitSpec,
    Plan,
    PlannedScript,
    ScriptSpec,
    Variant,
    VariantSpec,
    Workload,
    cpus_under,
)
from dbdyno.model.plan.servers import is_started
from dbdyno.model.results.comparison import LEAST_REPEATS
from dbdyno.model.units import NS_PER_S, counted, format_ns, parse_duration_ns
from dbdyno.plan import job_rules, jobs, phases, rates
from dbdyno.plan.adaptive import CALLS_PER_LIMIT, adaptive_of
from dbdyno.plan.ladder import Place, chosen_order, default_ladder, has_started, marks, parse_ladder, places
from dbdyno.plan.memory_shares import sized
from dbdyno.plan.observing import parse_window_ns, sampled_for
from dbdyno.plan.triggers import trigger_choices
from dbdyno.plan.variants import variants_of

MAX_TARGET_NS = 300_000_000  # the articles' call
MIN_TARGET_NS = 1_000_000
CALLS_IN_WINDOW = 20  # at the ladder's top a window should hold about that many calls a session
_SNAPSHOT_NS = 250_000_000
_MEMORY_NS = 100_000_000  # a read of it; at most 0.5 s
_CELL_OVERHEAD_NS = 700_000_000  # open and close, the server's counters, save, what the ladder asks
_CONNECT_NS = 20_000_000  # a session: connect, prepare, probes
_DERIVE_NS = 80_000_000  # a cell, when all is over
_REPORT_NS = 2 * NS_PER_S
_CALIBRATION_NS = 3 * NS_PER_S
RESTART_NS = NS_PER_S
"""Expected time of a restart of the server between two measurements."""
SERVER_NS = 2 * NS_PER_S
"""Expected time to stop a server and to start and warm another one, without data."""
_RELOAD_NS, _GROUP_NS, _POOL_NS = NS_PER_S // 2, NS_PER_S // 10, NS_PER_S // 2
MOST_CELLS = 20_000  # of a plan: each lasts a second at least, and is a folder of its own
MOST_REPEATS = 20  # of a run that may stop early, unless it says otherwise


def resolve(
    experiment: Experiment,
    workload: Workload,
    cpus: float,
    cpus_reason: str,
    scripts: Mapping[ScriptSpec, PlannedScript] = MappingProxyType({}),
    allowed: Sequence[int] = (),
    siblings: Sequence[Sequence[int]] | None = None,
    memory_bytes: int | None = None,
    commands: Mapping[str, jobs.Commands] = MappingProxyType({}),
    programs: Mapping[str | None, str] = MappingProxyType({}),
) -> Plan:
    """Returns the plan of ``experiment`` on a machine.

    ``cpus`` is the number of usable CPUs, ``allowed`` lists them, and ``siblings`` has the CPUs of each core
    if known. ``memory_bytes`` is the usable memory. ``scripts`` has the text of each script, ``commands``
    the commands of each variant, ``programs`` the directory of the programs of a server that variants name.
    Raises :class:`UsageError`.
    """
    choices = [Choice(name="CPUs", value=f"{cpus:g}", reason=cpus_reason)]
    experiment = jobs.with_defaults(experiment, choices)
    times = _times(experiment)
    sampled_for(experiment)
    rates.check(experiment)
    if experiment.phases:
        phases.check(experiment)
    asked = sized(experiment, workload, memory_bytes, choices)
    variants = variants_of(asked, workload, allowed, choices, scripts, commands, programs)
    tightest = min(cpus_under(v.limits, cpus) for v in variants)
    counts = [
        marks(limits, cpus, siblings, allowed) for limits in (LimitSpec(), *(v.limits for v in variants))
    ]
    repeats = _repeats(experiment, choices)
    adaptive = adaptive_of(experiment, tightest, repeats, choices, {n for m in counts[1:] for n in m})
    searched = adaptive is not None and adaptive.by == "sessions"
    ladder = (1,) if searched else _ladder(experiment, cpus, counts, choices)
    order = chosen_order(experiment, len(variants), choices, searched=adaptive is not None)
    if adaptive is not None and order == "ladder" and len(variants) > 1:
        raise UsageError(
            "--order ladder: an auto ladder measures each load under every variant before the next",
            "--order interleaved, or --sessions with every load level",
        )
    top = adaptive.top if adaptive is not None and searched else ladder[-1]
    target_ns = _call_target(experiment, workload, tightest, top, times[1], adaptive, choices)
    known = repeats if adaptive is None else 1
    paces = [float(adaptive.first)] if adaptive is not None and not searched else rates.listed(experiment)
    _check_cells(len(ladder), len(variants), known, len(experiment.phases) or len(paces))
    names, rotated = [v.name for v in variants], has_started(experiment)
    cell_places = list(places(order, names, ladder, known, experiment.seed, rotated=rotated))
    cell_places = jobs.wanted(experiment, cell_places, {v.name: v for v in variants})
    job_rules.check_sessions(experiment, top)
    cells = _cells(experiment, workload, {v.name: v for v in variants}, cell_places, paces, times)
    if experiment.phases:
        cells, variants = phases.cells(experiment, cells), phases.variants(experiment, variants[0])
    choices += trigger_choices(experiment)
    plan = Plan(
        experiment=experiment,
        cpus=cpus,
        call_target_ns=target_ns,
        variants=variants,
        order=order,
        cells=cells,
        adaptive=adaptive,
        goal=phases.goal(experiment),
        choices=tuple(choices),
        expected_ns=0,
    )
    return estimated(plan)


def _check_cells(rungs: int, variants: int, repeats: int, paces: int) -> None:
    """Raises :class:`UsageError` if there are more measurements than a run may have."""
    count = rungs * variants * repeats * paces
    if count > MOST_CELLS:
        factors = (
            counted(rungs, "load level"), counted(variants, "variant"), counted(repeats, "repeat"),
            counted(paces, "rate or phase"),
        )  # fmt: skip
        raise UsageError(
            f"{count:,} measurements ({' x '.join(factors)}) are too many",
            f"at most {MOST_CELLS:,}: fewer load levels, variants or repeats, or several runs",
        )


def check_comparable(plan: Plan, refused: Mapping[str, DbdynoError], *, all_variants: bool) -> None:
    """Raises the first of the refused variants' errors if fewer than two variants remain to compare, and with
    ``all_variants`` if any is refused."""
    if refused and (all_variants or len(plan.variants) - len(refused) < 2):
        name, error = next(iter(refused.items()))
        raise error.of_variant(name) if len(plan.variants) > 1 else error


def without(plan: Plan, refused: Mapping[str, str]) -> Plan:
    """Returns ``plan`` without the refused variants (name -> reason). The first remaining variant replaces a
    missing baseline."""
    experiment, choices = plan.experiment, list(plan.choices)
    for name, why in refused.items():
        choices.append(Choice(name=f"variant {name}", value="left out", reason=why))
    variants = tuple(v for v in plan.variants if v.name not in refused)
    if experiment.baseline in refused:
        why = f"variant {experiment.baseline} is left out"
        choices.append(Choice(name="baseline", value=variants[0].name, reason=why))
        experiment = experiment.model_copy(update={"baseline": None})
    left = plan.model_copy(
        update={
            "experiment": experiment,
            "variants": variants,
            "cells": tuple(c for c in plan.cells if c.variant not in refused),
            "choices": tuple(choices),
        }
    )
    return left.model_copy(update={"expected_ns": min(plan.expected_ns, _whole_ns(left))}).sealed()


def estimated(plan: Plan) -> Plan:
    """Returns ``plan`` with its expected duration computed again. Raises :class:`UsageError` if the budget
    is too small."""
    return _within_budget(plan.model_copy(update={"expected_ns": _whole_ns(plan)})).sealed()


def _whole_ns(plan: Plan) -> int:
    rule = plan.adaptive
    return _expected_ns(plan.cells, plan) if rule is None else _at_most_ns(plan, rule)


def _at_most_ns(plan: Plan, rule: Adaptive) -> int:
    """Returns the maximum duration of an auto ladder: all permitted rungs in every repeat, or with a goal,
    repeats of two rungs only."""
    blocks = rule.most_rungs * rule.repeats if rule.goal is None else rule.most_rungs + 2 * (rule.repeats - 1)
    at_most = [rates.at_load(c, rule.top) for c in plan.cells] * blocks
    return _expected_ns(at_most, plan)


def _within_budget(plan: Plan) -> Plan:
    """Returns the plan limited to its budget. Raises :class:`UsageError` if not even one repeat fits."""
    if plan.experiment.budget is None:
        return plan
    budget_ns = parse_duration_ns(plan.experiment.budget, "--budget")
    one_ns = _expected_ns([c for c in plan.cells if c.repeat == 1], plan)
    if one_ns > budget_ns:
        raise UsageError(
            f"--budget {plan.experiment.budget}: one repeat alone takes about {format_ns(one_ns)}",
            "fewer load levels or variants, a shorter --measure, or a larger budget",
        )
    why = f"all repeats would take about {format_ns(plan.expected_ns)}; none begins that would end later"
    choice = Choice(name="budget", value=format_ns(budget_ns), reason=why)
    choices = (*(c for c in plan.choices if c.name != "budget"), choice)
    return plan.model_copy(update={"expected_ns": min(plan.expected_ns, budget_ns), "choices": choices})


def _ladder(
    experiment: Experiment, cpus: float, counts: Sequence[Sequence[int]], choices: list[Choice]
) -> tuple[int, ...]:
    """Returns the ladder. ``counts`` has the numbers of cores and of CPUs, first of the machine, then of
    each variant."""
    if rates.is_paced(experiment):
        return parse_ladder(rates.sessions_for(experiment, cpus, choices), cpus)
    if experiment.sessions is not None:
        cores = counts[0][0] if len(counts[0]) > 1 else None
        return parse_ladder(experiment.sessions, cpus, cores)
    ladder = default_ladder(cpus, {n for m in counts[1:] for n in m})
    why = "from 1 to four times the CPUs, at the cores and the CPUs; --sessions chooses otherwise"
    choices.append(Choice(name="sessions", value=",".join(map(str, ladder)), reason=why))
    return ladder


def _times(experiment: Experiment) -> tuple[int, int]:
    if job_rules.exactly(experiment):
        return 0, jobs.ONCE_NS
    settle_ns = parse_duration_ns(experiment.settle, "--settle")
    return settle_ns, parse_window_ns("--measure", experiment.measure)


def _call_target(
    experiment: Experiment,
    workload: Workload,
    cpus: float,
    top: int,
    measure_ns: int,
    adaptive: Adaptive | None,
    choices: list[Choice],
) -> int | None:
    if not workload.calibrated:
        if experiment.call_target is not None:
            raise UsageError(f"workload {workload.name} is not calibrated", "leave out --call-target")
        return None
    if experiment.call_target is not None:
        target_ns = parse_duration_ns(experiment.call_target, "--call-target")
        if not 10_000 <= target_ns <= measure_ns:
            raise UsageError(
                f"--call-target {experiment.call_target}: outside 10us..{format_ns(measure_ns)} (the window)",
                "a call must fit into the window several times",
            )
        return target_ns
    goal = None if adaptive is None else adaptive.goal
    if goal is not None and goal.metric != "throughput":
        target_ns = int(min(MAX_TARGET_NS, max(10_000, goal.limit / CALLS_PER_LIMIT)))
        reason = (
            f"1/{CALLS_PER_LIMIT} of the target's {format_ns(goal.limit)}, so that one session meets it and "
            "many do not; the answer depends on it"
        )
        choices.append(Choice(name="call target", value=format_ns(target_ns), reason=reason))
        return target_ns
    if (of_rates := rates.call_target(experiment, cpus, MAX_TARGET_NS)) is not None:
        choices.append(of_rates[1])
        return of_rates[0]
    stretch = max(1.0, top / cpus)  # a CPU-bound call at the top lasts that many times longer
    target_ns = int(min(MAX_TARGET_NS, max(MIN_TARGET_NS, measure_ns / CALLS_IN_WINDOW / stretch)))
    enough = target_ns * stretch * CALLS_IN_WINDOW <= measure_ns * 1.01
    reason = (
        f"so that each session makes {CALLS_IN_WINDOW} or more per window"
        if enough
        else f"the least; sessions make fewer than {CALLS_IN_WINDOW} per window at {top:,}"
    )
    choices.append(Choice(name="call target", value=format_ns(target_ns), reason=reason))
    return target_ns


def _cells(
    experiment: Experiment,
    workload: Workload,
    variants: Mapping[str, Variant],
    cell_places: Sequence[Place],
    paces: Sequence[float | None],
    times: tuple[int, int],
) -> tuple[Cell, ...]:
    """Returns a cell for each place at each rate, repeat by repeat."""
    specs = experiment.variants or {"base": VariantSpec()}
    thinks = {name: rates.think_of(experiment, spec) for name, spec in specs.items()}
    cells: list[Cell] = []
    for place, rate in ((p, r) for p in cell_places for r in paces):
        think_ns, think = thinks[place.variant]
        block = place.block if len(paces) == 1 else len(cells) + 1
        cell = Cell(
            id="",
            workload=workload.name,
            variant=place.variant,
            sessions=place.sessions,
            repeat=place.repeat,
            params=variants[place.variant].params,
            settle_ns=times[0],
            measure_ns=times[1],
            think_ns=think_ns,
            think=think,
            pacing=rates.pacing_of(experiment, rate),
            driver=variants[place.variant].driver,
            seed=experiment.seed,
            once=job_rules.exactly(experiment),
            runs=experiment.runs or 1,
        )
        cells.append(rates.renumbered(cell, len(cells) + 1, place.repeat, block))
    return tuple(cells)


def cell_expected_ns(cell: Cell, target_ns: int | None, cpus: float) -> int:
    """Returns the expected duration of a cell: settling, measuring, the last call of a CPU-bound session,
    connecting and closing."""
    last_call_ns = (target_ns or 0) * max(1.0, cell.sessions / cpus)
    overhead_ns = _CELL_OVERHEAD_NS + cell.sessions * _CONNECT_NS
    if cell.once:  # how long its jobs take is not known before
        return overhead_ns
    return overhead_ns + cell.settle_ns + cell.measure_ns + int(last_call_ns)


def deriving_ns(cells: int) -> int:
    """Returns the expected time from the last cell to the report."""
    return _REPORT_NS + cells * _DERIVE_NS


def _expected_ns(cells: Sequence[Cell], plan: Plan) -> int:
    """Returns the expected duration of these cells. It includes set-up and calibration for each set of
    parameters, the time between cells, and the time after the last."""
    variants = {v.name: v for v in plan.variants}
    kinds = len({tuple(v.params.items()) for v in plan.variants})
    total = kinds * _CALIBRATION_NS if plan.call_target_ns is not None else NS_PER_S
    total += deriving_ns(len(cells))
    cool_down_ns = parse_duration_ns(plan.experiment.cool_down, "--cool-down")
    if plan.experiment.noise is not None:
        total += plan.experiment.noise.restarts * RESTART_NS
    if plan.experiment.snapshots is not False:
        total += 2 * len(cells) * _SNAPSHOT_NS
    if plan.experiment.memory is not False and plan.experiment.observe:
        total += 2 * len(cells) * _MEMORY_NS
    for before, cell in zip((None, *cells), cells, strict=False):
        last = None if before is None else variants[before.variant]
        total += switch_ns(last, variants[cell.variant]) + cool_down_ns
        total += plan.reset.each_ns if begins(plan, before, cell) else 0
        total += cell_expected_ns(
            cell, plan.call_target_ns, cpus_under(variants[cell.variant].limits, plan.cpus)
        )
    return total


def begins(plan: Plan, before: Cell | None, cell: Cell) -> bool:
    """Returns whether the data are restored before ``cell``, which follows ``before``."""
    if plan.reset.when == "never" or before is None:
        return plan.reset.when != "never"
    if cell.phase and before.repeat == cell.repeat:
        return False  # phases of one measurement
    if plan.reset.when == "each" or before.params != cell.params:
        return True
    if plan.variant(before.variant).server != plan.variant(cell.variant).server:
        return True
    if plan.order == "ladder":
        return (before.repeat, before.variant) != (cell.repeat, cell.variant)
    return before.block != cell.block


def switch_ns(before: Variant | None, after: Variant) -> int:
    """Returns the expected time to switch from one variant to another, without restarts, which the plan
    cannot foresee."""
    if before is not None and before.name == after.name:
        return 0
    nothing = Variant(name="")
    before = before or nothing
    total = _RELOAD_NS if before.settings != after.settings else 0
    total += SERVER_NS if is_started(after.server) else 0
    total += _GROUP_NS if before.limits != after.limits else 0
    return total + (_POOL_NS if after.limits.pool is not None else 0)


def until_share(experiment: Experiment) -> float | None:
    """Returns ``until`` as a share: ``2%`` -> 0.02. Raises :class:`UsageError`."""
    if experiment.until is None:
        return None
    match = re.fullmatch(r"\s*(\d{1,3}(?:\.\d+)?)\s*%\s*", experiment.until)
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share < 1:
        raise UsageError(f"--until {experiment.until}: not a share", "write 2%: half-width of every interval")
    return share


def _repeats(experiment: Experiment, choices: list[Choice]) -> int:
    """Returns the number of climbs, which with ``until`` is the maximum."""
    share = until_share(experiment)
    if share is None:
        return experiment.repeats
    repeats = MOST_REPEATS if experiment.repeats == 1 else experiment.repeats
    if repeats < LEAST_REPEATS:
        raise UsageError(
            f"--until {experiment.until} with {repeats} repeats",
            f"the rule needs {LEAST_REPEATS} at least; --repeats sets the maximum",
        )
    what = "ratio to the baseline" if len(experiment.variants) > 1 else "mean rate"
    why = (
        f"after each repeat from the {LEAST_REPEATS}th: stop when the 95 % interval of every {what} "
        f"is within {share:.3g} of it; {repeats} repeats at most"
    )
    choices.append(Choice(name="until", value=experiment.until or "", reason=why))
    return repeats
