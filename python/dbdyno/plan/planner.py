"""Experiment -> Plan: every default filled in with its reason, every cell listed."""

from __future__ import annotations

import random
from collections.abc import Mapping

from dbdyno.model.errors import UsageError
from dbdyno.model.plan import Cell, Choice, Experiment, Plan
from dbdyno.model.units import NS_PER_S, format_ns, parse_duration_ns
from dbdyno.model.variant import VariantSpec
from dbdyno.model.workload import Workload
from dbdyno.plan.ladder import default_ladder, parse_ladder
from dbdyno.plan.params import typed

MIN_MEASURE_NS = (
    NS_PER_S  # the ledger's figures of foreign tasks move only at ticks and switches (DESIGN 3.1)
)
MAX_TARGET_NS = 300_000_000  # the articles' call
MIN_TARGET_NS = 1_000_000
CALLS_IN_WINDOW = 20  # at the ladder's top a window should hold about that many calls a session
_CELL_OVERHEAD_NS = 500_000_000  # connect, prepare, probes, close
_CALIBRATION_NS = 3 * NS_PER_S


def resolve(
    experiment: Experiment, workload: Workload, cpus: float, cpus_reason: str, script_text: str | None = None
) -> Plan:
    """The plan of ``experiment`` on a machine where ``cpus`` CPUs may really be used. Raises UsageError."""
    choices = [Choice(name="CPUs", value=f"{cpus:g}", reason=cpus_reason)]
    ladder = _ladder(experiment, cpus, choices)
    settle_ns, measure_ns = _times(experiment)
    target_ns = _call_target(experiment, workload, cpus, ladder[-1], measure_ns, choices)
    cells = _cells(experiment, workload, ladder, settle_ns, measure_ns)
    plan = Plan(
        experiment=experiment,
        script_text=script_text,
        cpus=cpus,
        call_target_ns=target_ns,
        cells=cells,
        choices=tuple(choices),
        expected_ns=_expected_ns(cells, target_ns, cpus, variants=max(1, len(experiment.variants))),
    )
    return plan.sealed()


def _ladder(experiment: Experiment, cpus: float, choices: list[Choice]) -> tuple[int, ...]:
    if experiment.sessions is not None:
        return parse_ladder(experiment.sessions)
    ladder = default_ladder(cpus)
    choices.append(
        Choice(
            name="sessions",
            value=",".join(map(str, ladder)),
            reason="from 1 to four times the CPUs; --sessions chooses otherwise",
        )
    )
    return ladder


def _times(experiment: Experiment) -> tuple[int, int]:
    settle_ns, measure_ns = parse_duration_ns(experiment.settle), parse_duration_ns(experiment.measure)
    if measure_ns < MIN_MEASURE_NS:
        raise UsageError(
            f"--measure {experiment.measure}: a window must last at least 1s",
            "the scheduler's figures of other tasks move only at ticks and switches: shorter means nothing",
        )
    return settle_ns, measure_ns


def _call_target(
    experiment: Experiment, workload: Workload, cpus: float, top: int, measure_ns: int, choices: list[Choice]
) -> int | None:
    if not workload.calibrated:
        if experiment.call_target is not None:
            raise UsageError(f"workload {workload.name} is not calibrated", "leave out --call-target")
        return None
    if experiment.call_target is not None:
        target_ns = parse_duration_ns(experiment.call_target)
        if not 10_000 <= target_ns <= measure_ns:
            raise UsageError(
                f"--call-target {experiment.call_target}: outside 10us..{format_ns(measure_ns)} (the window)",
                "a call must fit into the window several times",
            )
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
    experiment: Experiment, workload: Workload, ladder: tuple[int, ...], settle_ns: int, measure_ns: int
) -> tuple[Cell, ...]:
    variants: Mapping[str, VariantSpec] = experiment.variants or {"base": VariantSpec()}
    params = {n: typed(workload, {**experiment.params, **v.params}) for n, v in variants.items()}
    order = [
        (repeat, variant, rung)
        for repeat in range(1, experiment.repeats + 1)
        for group in [[(v, r) for v in variants for r in ladder]]
        for variant, rung in _ordered(group, experiment, repeat)
    ]
    return tuple(
        Cell(
            id=f"{number:04}-{workload.name}-{variant}-s{rung}-r{repeat}",
            workload=workload.name,
            variant=variant,
            sessions=rung,
            repeat=repeat,
            params=params[variant],
            settle_ns=settle_ns,
            measure_ns=measure_ns,
            think_ns=parse_duration_ns(experiment.think) if experiment.think else 0,
        )
        for number, (repeat, variant, rung) in enumerate(order, start=1)
    )


def _ordered(group: list[tuple[str, int]], experiment: Experiment, repeat: int) -> list[tuple[str, int]]:
    if experiment.order == "shuffled":
        return random.Random(f"{experiment.seed}/{repeat}").sample(group, len(group))
    return group


def cell_expected_ns(cell: Cell, target_ns: int | None, cpus: float) -> int:
    """Settle, measure, the last call of a CPU-bound session, half a second of connecting and closing."""
    last_call_ns = (target_ns or 0) * max(1.0, cell.sessions / cpus)
    return _CELL_OVERHEAD_NS + cell.settle_ns + cell.measure_ns + int(last_call_ns)


def _expected_ns(cells: tuple[Cell, ...], target_ns: int | None, cpus: float, variants: int) -> int:
    """Set-up and calibration a variant, then the cells."""
    total = variants * _CALIBRATION_NS if target_ns is not None else NS_PER_S
    return total + sum(cell_expected_ns(cell, target_ns, cpus) for cell in cells)
