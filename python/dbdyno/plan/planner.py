"""Experiment -> Plan: every default filled in with its reason, every cell listed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dbdyno.model.comparison import LEAST_REPEATS
from dbdyno.model.data_sources import options
from dbdyno.model.errors import UsageError
from dbdyno.model.plan import (
    Adaptive,
    Cell,
    Choice,
    Experiment,
    LimitSpec,
    Observation,
    Plan,
    Variant,
    VariantSpec,
    Workload,
    cpus_under,
)
from dbdyno.model.units import NS_PER_S, format_ns, parse_duration_ns
from dbdyno.plan.adaptive import CALLS_PER_LIMIT, adaptive_of
from dbdyno.plan.ladder import Place, chosen_order, default_ladder, marks, parse_ladder, places
from dbdyno.plan.variants import think_ns, variants_of

MIN_MEASURE_NS = NS_PER_S  # the ledger's figures of foreign tasks move only at ticks and switches
MAX_TARGET_NS = 300_000_000  # the articles' call
MIN_TARGET_NS = 1_000_000
CALLS_IN_WINDOW = 20  # at the ladder's top a window should hold about that many calls a session
_SNAPSHOT_NS = 250_000_000
_CELL_OVERHEAD_NS = 700_000_000  # open and close, the server's counters, save, what the ladder asks
_CONNECT_NS = 20_000_000  # a session: connect, prepare, probes
_DERIVE_NS = 80_000_000  # a cell, when all is over
_REPORT_NS = 2 * NS_PER_S
_CALIBRATION_NS = 3 * NS_PER_S
_RELOAD_NS, _GROUP_NS, _POOL_NS = NS_PER_S // 2, NS_PER_S // 10, NS_PER_S // 2
MOST_REPEATS = 20  # of a run that may stop early, unless it says otherwise


def resolve(
    experiment: Experiment,
    workload: Workload,
    cpus: float,
    cpus_reason: str,
    script_text: str | None = None,
    allowed: Sequence[int] = (),
    siblings: Sequence[Sequence[int]] | None = None,
) -> Plan:
    """The plan of ``experiment`` on a machine where ``cpus`` CPUs may really be used, of those ``allowed``;
    ``siblings``: the CPUs of each core, where they are known.

    Raises :class:`UsageError`.
    """
    choices = [Choice(name="CPUs", value=f"{cpus:g}", reason=cpus_reason)]
    times = _times(experiment)
    sampled_for(experiment)
    variants = variants_of(experiment, workload, allowed, choices)
    tightest = min(cpus_under(v.limits, cpus) for v in variants)
    counts = [
        marks(limits, cpus, siblings, allowed) for limits in (LimitSpec(), *(v.limits for v in variants))
    ]
    repeats = _repeats(experiment, choices)
    adaptive = adaptive_of(experiment, tightest, repeats, choices, {n for m in counts[1:] for n in m})
    ladder = _ladder(experiment, cpus, counts, choices) if adaptive is None else (1,)
    order = chosen_order(experiment, len(variants), choices)
    if adaptive is not None and order == "ladder" and len(variants) > 1:
        raise UsageError(
            "--order ladder: an auto ladder measures each load under every variant before the next",
            "--order interleaved, or --sessions with every load level",
        )
    top = ladder[-1] if adaptive is None else adaptive.top
    target_ns = _call_target(experiment, workload, tightest, top, times[1], adaptive, choices)
    known = repeats if adaptive is None else 1
    found = list(places(order, [v.name for v in variants], ladder, known, experiment.seed))
    cells = _cells(experiment, workload, {v.name: v for v in variants}, found, times)
    plan = Plan(
        experiment=experiment,
        script_text=script_text,
        cpus=cpus,
        call_target_ns=target_ns,
        variants=variants,
        order=order,
        cells=cells,
        adaptive=adaptive,
        choices=tuple(choices),
        expected_ns=0,
    )
    expected_ns = _expected_ns(cells, plan) if adaptive is None else _at_most_ns(plan, adaptive)
    return _within_budget(plan.model_copy(update={"expected_ns": expected_ns})).sealed()


def without(plan: Plan, refused: Mapping[str, str]) -> Plan:
    """Without these variants (name -> why); the first that is left takes the place of a missing baseline."""
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
    rule = left.adaptive
    expected_ns = _expected_ns(left.cells, left) if rule is None else _at_most_ns(left, rule)
    return left.model_copy(update={"expected_ns": min(plan.expected_ns, expected_ns)}).sealed()


def _at_most_ns(plan: Plan, rule: Adaptive) -> int:
    """For an auto ladder: all rungs it may have, in every repeat; of a goal's, the repeats of two."""
    blocks = rule.most_rungs * rule.repeats if rule.goal is None else rule.most_rungs + 2 * (rule.repeats - 1)
    return _expected_ns([c.model_copy(update={"sessions": rule.top}) for c in plan.cells] * blocks, plan)


def _within_budget(plan: Plan) -> Plan:
    """Raises :class:`UsageError` where not even one repeat fits."""
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
    expected_ns = min(plan.expected_ns, budget_ns)
    return plan.model_copy(update={"expected_ns": expected_ns, "choices": (*plan.choices, choice)})


def _ladder(
    experiment: Experiment, cpus: float, counts: Sequence[Sequence[int]], choices: list[Choice]
) -> tuple[int, ...]:
    """``counts``: sessions for each core and each CPU of the machine, then of each variant."""
    if experiment.sessions is not None:
        cores = counts[0][0] if len(counts[0]) > 1 else None
        return parse_ladder(experiment.sessions, cpus, cores)
    ladder = default_ladder(cpus, {n for m in counts[1:] for n in m})
    why = "from 1 to four times the CPUs, at the cores and the CPUs; --sessions chooses otherwise"
    choices.append(Choice(name="sessions", value=",".join(map(str, ladder)), reason=why))
    return ladder


def _times(experiment: Experiment) -> tuple[int, int]:
    settle_ns = parse_duration_ns(experiment.settle, "--settle")
    measure_ns = parse_duration_ns(experiment.measure, "--measure")
    if measure_ns < MIN_MEASURE_NS:
        raise UsageError(
            f"--measure {experiment.measure}: a window must last at least 1s",
            "the scheduler's figures of other tasks move only at ticks and switches: shorter means nothing",
        )
    return settle_ns, measure_ns


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
            f"1/{CALLS_PER_LIMIT} of the {format_ns(goal.limit)} of the target, so that one session meets it "
            "and many do not: the answer depends on it; --call-target chooses otherwise"
        )
        choices.append(Choice(name="call target", value=format_ns(target_ns), reason=reason))
        return target_ns
    stretch = max(1.0, top / cpus)  # a CPU-bound call at the top lasts that many times longer
    target_ns = int(min(MAX_TARGET_NS, max(MIN_TARGET_NS, measure_ns / CALLS_IN_WINDOW / stretch)))
    reason = (
        f"at {top} session{_s(top)} on {cpus:g} CPU{_s(cpus)} "
        f"a call lasts about {stretch:.3g} times as long, "
        f"and {CALLS_IN_WINDOW} should fit into the window; --call-target chooses otherwise"
    )
    choices.append(Choice(name="call target", value=format_ns(target_ns), reason=reason))
    return target_ns


def _s(n: float) -> str:
    return "" if n == 1 else "s"


def _cells(
    experiment: Experiment,
    workload: Workload,
    variants: Mapping[str, Variant],
    found: Sequence[Place],
    times: tuple[int, int],
) -> tuple[Cell, ...]:
    specs = experiment.variants or {"base": VariantSpec()}
    thinks = {name: think_ns(experiment, spec) for name, spec in specs.items()}
    return tuple(
        Cell(
            id=f"{number:04}-{workload.name}-{place.variant}-s{place.sessions}-r{place.repeat}",
            workload=workload.name,
            variant=place.variant,
            sessions=place.sessions,
            repeat=place.repeat,
            params=variants[place.variant].params,
            settle_ns=times[0],
            measure_ns=times[1],
            think_ns=thinks[place.variant],
            driver=variants[place.variant].driver,
            block=place.block,
        )
        for number, place in enumerate(found, start=1)
    )


def cell_expected_ns(cell: Cell, target_ns: int | None, cpus: float) -> int:
    """Settle, measure, the last call of a CPU-bound session, connecting and closing."""
    last_call_ns = (target_ns or 0) * max(1.0, cell.sessions / cpus)
    overhead_ns = _CELL_OVERHEAD_NS + cell.sessions * _CONNECT_NS
    return overhead_ns + cell.settle_ns + cell.measure_ns + int(last_call_ns)


def deriving_ns(cells: int) -> int:
    """From the last cell to the report."""
    return _REPORT_NS + cells * _DERIVE_NS


def _expected_ns(cells: Sequence[Cell], plan: Plan) -> int:
    """Set-up and calibration for each set of parameters, then the cells, with what lies between them and
    follows the last."""
    variants = {v.name: v for v in plan.variants}
    kinds = len({tuple(v.params.items()) for v in plan.variants})
    total = kinds * _CALIBRATION_NS if plan.call_target_ns is not None else NS_PER_S
    total += deriving_ns(len(cells))
    cool_down_ns = parse_duration_ns(plan.experiment.cool_down, "--cool-down")
    if plan.experiment.snapshots is not False:
        total += 2 * len(cells) * _SNAPSHOT_NS
    for before, cell in zip((None, *cells), cells, strict=False):
        last = None if before is None else variants[before.variant]
        total += switch_ns(last, variants[cell.variant]) + cool_down_ns
        total += cell_expected_ns(
            cell, plan.call_target_ns, cpus_under(variants[cell.variant].limits, plan.cpus)
        )
    return total


def switch_ns(before: Variant | None, after: Variant) -> int:
    """What it takes to go from one variant to another, as far as the plan can tell: not the restarts."""
    if before is not None and before.name == after.name:
        return 0
    nothing = Variant(name="")
    before = before or nothing
    total = _RELOAD_NS if before.settings != after.settings else 0
    total += _GROUP_NS if before.limits != after.limits else 0
    return total + (_POOL_NS if after.limits.pool is not None else 0)


def until_share(experiment: Experiment) -> float | None:
    """``until`` as a share: ``2%`` -> 0.02. Raises :class:`UsageError`."""
    if experiment.until is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", experiment.until)
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share < 1:
        raise UsageError(f"--until {experiment.until}: not a share", "write 2%: half-width of every interval")
    return share


def _repeats(experiment: Experiment, choices: list[Choice]) -> int:
    """How often to climb; with ``until`` at most."""
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


# -- the plan of an observation: no cells yet; its windows are cells as they come --

OBSERVED = Workload(
    name="observed",
    title="an existing workload",
    doc="whatever the chosen sessions do; dbdyno drives nothing",
    work_unit="calls",
    work_short="calls",
    work_constant=False,
    calibrated=False,
)


def resolve_observation(experiment: Experiment, cpus: float, cpus_reason: str) -> Plan:
    """The plan of ``experiment.observation``. Raises :class:`UsageError` for times or pids that cannot be."""
    chosen = experiment.observation or Observation()
    window_ns, duration_ns = window_of(chosen), duration_of(chosen)
    sampled_for(experiment)
    if wrong := [pid for pid in chosen.pids if pid <= 0]:
        raise UsageError(
            f"--only-pid {wrong[0]}: not a process id", "the server's view of sessions lists them"
        )
    whole = "until Ctrl-C" if duration_ns is None else f"for {format_ns(duration_ns)}"
    choices = (
        Choice(name="CPUs", value=f"{cpus:g}", reason=cpus_reason),
        Choice(
            name="window", value=format_ns(window_ns), reason=f"one after the other {whole}; each is saved"
        ),
    )
    plan = Plan(
        experiment=experiment,
        cpus=cpus,
        call_target_ns=None,
        cells=(),
        choices=choices,
        expected_ns=duration_ns or 0,
    )
    return plan.sealed()


def sampled_for(experiment: Experiment) -> dict[str, int]:
    """Sources that are sampled for a time only, in ns. Raises :class:`UsageError` where that cannot be."""
    times = {o: getattr(experiment, o.key) for o in options()}
    found = {o.key: _at_least(o.flag, time) for o, time in times.items() if isinstance(time, str)}
    for o, time in times.items():
        if o.key in found and experiment.observation is None:
            raise UsageError(
                f"{o.flag}={time}: a time is for an observation (dbdyno observe)",
                f"{o.flag} samples every measurement; {o.flag}=99 sets the samples a second",
            )
    return found


def window_of(chosen: Observation) -> int:
    """Length of a window in ns. Raises :class:`UsageError`."""
    return _at_least("--window", chosen.window)


def duration_of(chosen: Observation) -> int | None:
    """Length of the whole in ns; ``None``: until stopped. Raises :class:`UsageError`."""
    return None if chosen.duration is None else _at_least("--for", chosen.duration)


def observed_cell(number: int, window_ns: int) -> Cell:
    """Window ``number`` (from 1) as a cell; how many sessions it holds is not known beforehand."""
    return Cell(
        id=f"{number:04}-{OBSERVED.name}-base-s0-r{number}",
        workload=OBSERVED.name,
        variant="base",
        sessions=0,
        repeat=number,
        params={},
        settle_ns=0,
        measure_ns=window_ns,
    )


def _at_least(option: str, text: str) -> int:
    value_ns = parse_duration_ns(text, option)
    if value_ns < MIN_MEASURE_NS:
        raise UsageError(
            f"{option} {text}: a window must last at least 1s",
            "the scheduler's figures of other tasks move only at ticks and switches: shorter means nothing",
        )
    return value_ns
