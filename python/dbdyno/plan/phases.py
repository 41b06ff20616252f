"""Phases: one measurement whose rate changes from part to part.

Each phase is a cell with its own window. Tables have its name in the column of the variant.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.phases import PhaseSpec
from dbdyno.model.plan.plan import LEAST_WINDOW_NS, Cell, Experiment, Goal, Variant
from dbdyno.model.units import FACTORS_NS, LONGEST_DAYS, NS_PER_S, format_given, format_ns, parse_duration_ns
from dbdyno.plan.adaptive_search import parse_goal
from dbdyno.plan.rates import parse_rate, renumbered

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,39}\Z")
_SAID = "rate = 500, or from = 100 and to = 500"


class Fault(NamedTuple):
    """A fault in the definition of a phase. ``key`` is None if a key is missing."""

    number: int
    key: str | None
    message: str
    cure: str


def faults(phases: Sequence[PhaseSpec]) -> Iterator[Fault]:
    """Yields all faults of the phases, of each one alone and of all together."""
    names = Counter(p.name for p in phases)
    seen: set[str] = set()
    for number, phase in enumerate(phases):
        who = f"phase {phase.name or number + 1}"
        if not phase.name:
            yield Fault(number, None, f"{who} has no name", 'name = "spike"')
        elif not _NAME.match(phase.name):
            cure = "letters, digits and . _ + - only, at most 40"
            yield Fault(number, "name", f"{who}: not a name of a phase", cure)
        elif names[phase.name] > 1 and phase.name in seen:
            cure = "each needs a name of its own, such as hold-2"
            yield Fault(number, "name", f"two phases are named {phase.name}", cure)
        seen.add(phase.name)
        yield from _duration(number, who, phase)
        yield from _rates(number, who, phase)


def _duration(number: int, who: str, phase: PhaseSpec) -> Iterator[Fault]:
    if not phase.duration:
        yield Fault(number, None, f"{who} has no duration", 'duration = "60s"')
        return
    try:
        if parse_duration_ns(phase.duration, "duration") < LEAST_WINDOW_NS:
            yield Fault(
                number,
                "duration",
                f"{who}: {phase.duration} is too short",
                f"at least {LEAST_WINDOW_NS // NS_PER_S}s",
            )
    except UsageError as error:
        yield Fault(number, "duration", f"{who}: {error.message}", error.cure or "write 60s or 2min")


def _rates(number: int, who: str, phase: PhaseSpec) -> Iterator[Fault]:
    ramp = phase.from_ is not None or phase.to is not None
    if phase.rate is not None and ramp:
        yield Fault(number, "rate", f"{who} has both rate and from or to", f"give one of them: {_SAID}")
    elif phase.rate is None and not ramp:
        yield Fault(number, None, f"{who} has no rate", _SAID)
    elif ramp and (phase.from_ is None or phase.to is None):
        missing = "from" if phase.from_ is None else "to"
        yield Fault(number, None, f"{who} has no {missing}", "from = 100 and to = 500 change the rate evenly")
    for key, rate in (("rate", phase.rate), ("from", phase.from_), ("to", phase.to)):
        try:
            if rate is not None:
                _rate(rate)
        except UsageError as error:
            yield Fault(number, key, f"{who}: {key} = {rate}: not a rate", error.cure or _SAID)


def _rate(rate: float | str) -> float:
    return parse_rate(f"{rate:.10g}" if isinstance(rate, float) else rate)


def check(experiment: Experiment) -> None:
    """Raises :class:`UsageError` for invalid phases, and for options that have no meaning with phases."""
    for fault in faults(experiment.phases):
        raise UsageError(fault.message, fault.cure)
    if sum(parse_duration_ns(p.duration) for p in experiment.phases) > LONGEST_DAYS * FACTORS_NS["d"]:
        raise UsageError(f"all phases together: longer than {LONGEST_DAYS} days", "write shorter times")
    for key, cure in (
        ("rate", "each phase says its own rate"),
        ("rates", "each phase says its own rate"),
        ("measure", "each phase has a duration of its own"),
        ("rungs", "phases are no ladder: leave it out"),
        ("until", "give repeats: each is one measurement of all phases"),
        ("log_calls", "leave it out: single calls are not kept over phases"),
    ):
        if getattr(experiment, key) != Experiment.model_fields[key].default:
            raise UsageError(f"{key} with phases", cure)
    if experiment.variants:
        cure = "a recipe for each variant; then dbdyno compare pairs phases by their names"
        raise UsageError("variants with phases", cure)
    if experiment.sessions is not None and not experiment.sessions.strip().isdecimal():
        raise UsageError(
            f"sessions {experiment.sessions} with phases: a ladder of both at once",
            'one number: sessions = "32"; or leave it out',
        )


def cells(experiment: Experiment, measurements: Sequence[Cell]) -> tuple[Cell, ...]:
    """Returns the cells with each measurement replaced by its phases."""
    replaced: list[Cell] = []
    for cell in measurements:
        for phase in experiment.phases:
            begin = _rate(phase.rate if phase.rate is not None else phase.from_ or 0.0)
            end = None if phase.to is None else _rate(phase.to)
            assert cell.pacing is not None
            first = phase is experiment.phases[0]
            one = cell.model_copy(
                update={
                    "variant": phase.name,
                    "phase": True,
                    "settle_ns": cell.settle_ns if first else 0,
                    "measure_ns": parse_duration_ns(phase.duration),
                    "pacing": cell.pacing.model_copy(update={"rate_per_s": begin, "to_per_s": end}),
                    "seed": experiment.seed,
                }
            )
            replaced.append(renumbered(one, len(replaced) + 1, cell.repeat, len(replaced) + 1))
    return tuple(replaced)


def goal(experiment: Experiment) -> Goal | None:
    """Returns the goal of every phase; None if there is none. Raises :class:`UsageError`."""
    text = experiment.target if experiment.phases else None
    return None if text is None else parse_goal(text)


def variants(experiment: Experiment, base: Variant) -> tuple[Variant, ...]:
    """Returns a variant for each phase, all with the settings of ``base``."""
    return tuple(base.model_copy(update={"name": p.name, "doc": words(p)}) for p in experiment.phases)


def words(phase: PhaseSpec) -> str:
    """Returns ``500/s for 60 s`` or ``100/s to 500/s in 60 s``."""
    lasts = format_ns(parse_duration_ns(phase.duration))
    if phase.to is not None and phase.from_ is not None:
        return f"{format_given(_rate(phase.from_))}/s to {format_given(_rate(phase.to))}/s in {lasts}"
    return f"{format_given(_rate(phase.rate or 0.0))}/s for {lasts}"


def whole(parts: Sequence[Cell]) -> Cell:
    """Returns the single measurement, as the driver runs it, that consists of these phases."""
    first = parts[0]
    assert first.pacing is not None
    pieces = [
        (c.measure_ns, c.pacing.rate_per_s, c.pacing.to_per_s or c.pacing.rate_per_s)
        for c in parts
        if c.pacing is not None
    ]
    return first.model_copy(
        update={
            "measure_ns": sum(c.measure_ns for c in parts),
            "pacing": first.pacing.model_copy(update={"pieces": tuple(pieces)}),
        }
    )
