"""An auto ladder: its rule, its next step, and the figures of its result, for which the catalogue has
sentences."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Adaptive, Cell, Choice, Experiment, Goal, Plan, Value
from dbdyno.model.schema.quantiles import fewest_calls
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import format_ns, format_rate
from dbdyno.plan.adaptive_search import (
    CLIENT_LIMITED,
    QUANTILES,
    TIGHT,
    Done,
    Findings,
    Next,
    Seen,
    Sides,
    next_for_goal,
    next_for_knee,
    parse_goal,
)
from dbdyno.plan.ladder import MAX_SESSIONS, parse_ladder
from dbdyno.plan.rates import MAX_RATE, at_load, auto_top, is_paced, renumbered
from dbdyno.stats.estimates import Mean, wilson_of
from dbdyno.stats.knee import END, KNEE, NOISE, Bend, bend, level_with_best, noise_of, noise_or_scatter

_ID = {"sessions": "auto-ladder", "rate": "auto-rates"}
_TARGET = {"sessions": "target", "rate": "rate-target"}
_FALLS = 0.95  # below this share of the peak, and beyond noise, throughput counts as falling


def knee_found(findings: Findings, *, cut: bool = False) -> Done:
    """Returns the knee that the ladder shows. ``cut``: the ladder needs a further rung, but has reached the
    maximum number."""
    throughputs = findings.throughputs()
    if not throughputs:
        fault = next((s.fault for s in findings.seen if s.fault), "no call ended well")
        return Done(_ID[findings.rule.by], "unusable", {"fault": fault})
    knee, end, last = bend(throughputs, KNEE), bend(throughputs, END), max(throughputs)
    noise = noise_of(throughputs)
    values: dict[str, Any] = {"levels": len(throughputs), "noise": noise.share, "source": noise.source}
    values |= {"at": knee.at, "low": knee.low or 1, "high": knee.high, "last": last}
    tail = [*(_above(findings, values) if end.at == last else _growth_ends(throughputs, end, values))]
    limit = _limit(findings, values) if cut else []
    if knee.at == last:
        return Done(
            _ID[findings.rule.by],
            "none",
            values,
            (*_efficiency(throughputs, values), *tail, *limit),
            low=last,
        )
    noisy = ["noisy"] if noise.share > 2 * NOISE else []
    parts = (*_range(knee, "knee"), *tail, *limit, *noisy)
    return Done(
        _ID[findings.rule.by], "knee", values, parts, knee.at, knee.low, knee.high, knee.high is not None
    )


def _growth_ends(throughputs: dict[int, Mean], end: Bend[int], values: dict[str, Any]) -> Iterator[str]:
    peak = max(m.value for m in throughputs.values())
    values |= {"end": end.at, "end_low": end.low or 1, "end_high": end.high}
    values["share"] = throughputs[max(throughputs)].value / peak
    yield from _range(end, "ends") or ["ends"]
    level = level_with_best(throughputs, noise_or_scatter(throughputs).share)
    if values["share"] < _FALLS and max(throughputs) not in level:
        yield "falls"


def _above(findings: Findings, values: dict[str, Any]) -> list[str]:
    """Returns the parts of the claim that explain why the ladder ends although throughput still grows."""
    if (blocked := findings.blocked()) is not None:
        values |= {"blocked": blocked[0], "why": blocked[1]}
        return ["blocked"]
    most = MAX_RATE if findings.rule.by == "rate" else MAX_SESSIONS
    values["higher"] = min(most, 8 * values["last"])
    return ["grows-to-the-limit" if values["last"] >= findings.rule.top else "grows"]


def _efficiency(throughputs: dict[int, Mean], values: dict[str, Any]) -> list[str]:
    first, last = min(throughputs), values["last"]
    if first == last:
        return []
    share = throughputs[last].value / last / (throughputs[first].value / first)
    values |= {"efficiency": share, "first": first}
    return ["efficiency"]


def _range(interval: Bend[int], what: str) -> list[str]:
    if interval.low is None and interval.high is None:
        return []
    return [f"{what}-above" if interval.high is None else f"{what}-between"]


def _limit(findings: Findings, values: dict[str, Any]) -> list[str]:
    values["limit"] = len(findings.tried)
    return ["limit"]


def goal_found(findings: Findings, goal: Goal, *, cut: bool = False) -> Done:
    """Returns the boundary of the goal that the ladder shows. ``cut`` is that of :func:`knee_found`."""
    sides = Sides(findings, goal)
    if not sides.of:
        return _unknown(sides) if sides.unknown else knee_found(findings, cut=cut)
    before, after = sides.before, sides.after
    sought, other = (after, before) if sides.rate else (before, after)
    if sought is None:
        return _not_met(sides, cut=cut)
    values = _values(sides, sought)
    parts = [
        *_failed(values),
        *_other_side(sides, values, other),
        *_too_few(sides, values),
        *_strays(sides, values),
    ]
    if cut and "limit" not in parts:
        parts += _limit(findings, values)
    ends = sorted(n for n in (before, after) if n is not None)
    low, high = (ends[0], ends[-1]) if len(ends) == 2 else (ends[0], None)
    case = "lowest" if sides.rate else "at-least" if values.get("why") == CLIENT_LIMITED else "highest"
    return Done(_TARGET[sides.findings.rule.by], case, values, tuple(parts), sought, low, high, found=True)


def _not_met(sides: Sides, *, cut: bool) -> Done:
    rung = max(sides.of, key=lambda n: _mean(sides, n).value) if sides.rate else min(sides.of)
    values = _values(sides, rung) | {"top": max(sides.of)}
    few = [] if sides.rate else _too_few(sides, values)
    parts = (
        *_failed(values),
        *few,
        *_strays(sides, values),
        *(_limit(sides.findings, values) if cut else []),
    )
    lowest = "not-met-above" if any(n < rung for n in sides.unknown) else "not-met"
    return Done(
        _TARGET[sides.findings.rule.by], "too-slow" if sides.rate else lowest, values, parts, high=rung
    )


def _unknown(sides: Sides) -> Done:
    """Returns the result of a ladder in which no rung has enough calls for the goal's quantile."""
    values = {"goal": sides.goal.text, "top": max(sides.unknown)}
    values |= {"most": max(s.calls for s in sides.unknown.values())}
    values |= _calls(sides, _slowest(sides.unknown.values()))
    return Done(_TARGET[sides.findings.rule.by], "unknown", values)


def _too_few(sides: Sides, values: dict[str, Any]) -> list[str]:
    """Returns the part of the claim about rungs between both sides that have too few calls for the goal's
    quantile: the boundary may lie there. It names the one with the fewest calls per second, as a measurement
    that is long enough for it is so for all."""
    low, high = sides.before or 0, sides.after or math.inf
    between = [seen for n, seen in sides.unknown.items() if low < n < high]
    if not between:
        return []
    values |= _calls(sides, _slowest(between))
    return ["few"]


def _slowest(seen: Iterable[Seen]) -> Seen:
    return min(seen, key=lambda s: s.calls / s.window_s)


def _calls(sides: Sides, seen: Seen) -> dict[str, Any]:
    """Returns the load, its number of calls, the number needed, and the time to measure, with a margin of a
    fifth."""
    needed = fewest_calls(QUANTILES[sides.goal.metric])
    longer_s = math.ceil(1.2 * seen.window_s * needed / max(1, seen.calls))
    values = {"metric": sides.goal.metric, "calls": seen.calls, "needed": needed, "longer": f"{longer_s}s"}
    return values | {"few_at": seen.load}


def _values(sides: Sides, rung: int) -> dict[str, Any]:
    met, repeats = sides.met(rung), len(sides.of[rung])
    low, high = wilson_of(met, repeats)
    return {
        "goal": sides.goal.text,
        "at": rung,
        "figure": _figure(sides, rung),
        "met": met,
        "repeats": repeats,
        "low": low,
        "high": high,
        "failed": max(s.failed for s in sides.of[rung]),
    }


def _failed(values: dict[str, Any]) -> list[str]:
    return ["failed"] if values["failed"] > 0 else []


def _other_side(sides: Sides, values: dict[str, Any], other: int | None) -> Iterator[str]:
    """Yields the parts of the claim about the rung next to the result, on the other side of the goal."""
    rule, findings = sides.findings.rule, sides.findings
    if other is not None:
        values |= {"other": other, "other_figure": _figure(sides, other)}
        values |= {"other_met": sides.met(other), "other_repeats": len(sides.of[other])}
        values["other_failed"] = max(s.failed for s in sides.of[other])
        yield from ["other", "other-failed"] if values["other_failed"] > 0 else ["other"]
        if abs(other - values["at"]) <= 1 or rule.by == "rate":
            return
        yield "gap"
    elif sides.rate or any(n > values["at"] for n in sides.unknown):
        return
    elif (blocked := findings.blocked()) is not None:
        values |= {"blocked": blocked[0], "why": blocked[1]}
        if blocked[1] != CLIENT_LIMITED:  # else the sentence has it
            yield "blocked"
        return
    else:
        yield "none-higher"
    if len(findings.tried) >= rule.most_rungs:
        yield from _limit(findings, values)
    elif other is None:
        values["allowed"] = rule.top
        yield "top"


def _strays(sides: Sides, values: dict[str, Any]) -> list[str]:
    """Returns the part of the claim about rungs beyond the boundary whose verdict is that of the rungs
    before it."""
    strays = sides.stray()
    values["strays"] = ", ".join(f"{n} ({_figure(sides, n)})" for n in strays)
    return ["fails-again" if sides.rate else "meets-again"] if strays else []


def _figure(sides: Sides, rung: int) -> str:
    """Returns the mean over repeats with Student's interval: ``18.2 ms (17.1 ms to 19.3 ms)``."""
    mean = _mean(sides, rung)
    if not mean.n:
        calls, above = (sum(getattr(s, name) for s in sides.of[rung]) for name in ("calls", "above"))
        return f"{above:,} of {calls:,} {noun('calls')} ({100 * above / calls:.2g} %) took longer"
    shape = (lambda v: f"{format_rate(v)} calls/s") if sides.rate else format_ns
    ends = mean.positive95
    between = f" ({shape(ends[0])} to {shape(ends[1])})" if ends is not None else ""
    return shape(mean.value) + between


def _mean(sides: Sides, rung: int) -> Mean:
    return Mean.of(s.figure for s in sides.of[rung] if s.figure is not None)


# -- the rule, and the plan as it grows --

AUTO = "auto"
MOST_RUNGS = 16
FIRST_RATE, FACTOR, RATE_SHARE = 10, 4, 0.03
"""A search for a rate begins with the first number of calls per second and multiplies it by the second at
each step. It treats rates that differ by less than the third, a share, as equal."""
PER_CPU, PER_CPU_GOAL = 8, 32
"""The default highest rung, in sessions per CPU, without and with a goal."""
GOAL_REPEATS = 3
CALLS_PER_LIMIT = 4
"""A calibrated call takes this fraction of a response time's limit, so that one session meets the limit and
a higher rung exceeds it."""


def next_rung(findings: Findings) -> Next | Done:
    """Returns the next step of an auto ladder. It is called again after each cell.

    Without a goal it searches the knee. It climbs (one session, the cores, the CPUs, then doubling) until
    throughput no longer grows. Next it measures the intersection of the lines through the growing and the
    flat part. Last it measures neighbours of the knee, until there are rungs within 10 % of it, or one
    session, on both sides. With a goal it doubles, bisects down to neighbouring session counts, and repeats
    both.
    """
    goal = findings.rule.goal
    wanted = next_for_knee(findings) if goal is None else next_for_goal(findings, goal)
    spent = wanted is not None and _spent(findings, wanted.load)
    if wanted is not None and not spent:
        return wanted
    return so_far(findings, cut=spent)


def so_far(findings: Findings, *, cut: bool = False) -> Done:
    """Returns the result of the present measurements. ``cut``: the ladder needs a further rung, but has
    reached the maximum number."""
    goal = findings.rule.goal
    return knee_found(findings, cut=cut) if goal is None else goal_found(findings, goal, cut=cut)


def _spent(findings: Findings, sessions: int) -> bool:
    return len(findings.tried | {sessions}) > max(findings.rule.most_rungs, len(findings.tried))


def is_auto(experiment: Experiment) -> bool:
    sessions = experiment.sessions
    return (
        sessions.strip().partition(":")[0] == AUTO if sessions is not None else experiment.target is not None
    )


def adaptive_of(
    experiment: Experiment, cpus: float, repeats: int, choices: list[Choice], marked: Iterable[int] = ()
) -> Adaptive | None:
    """Returns the rule of the experiment's ladder, with ``marked`` always among its rungs; ``None`` if the
    experiment lists its rungs.

    Raises :class:`UsageError` if a target or a number of rungs is given for a ladder that is not auto.
    """
    if is_paced(experiment):
        return _of_rates(experiment, repeats, choices)
    if not is_auto(experiment):
        for name, value in (("--target", experiment.target), ("--rungs", experiment.rungs)):
            if value is not None:
                raise UsageError(
                    f"{name} {value}: --sessions {experiment.sessions} already lists every load level",
                    "--ladder auto, or leave one of them out",
                )
        return None
    goal = None if experiment.target is None else parse_goal(experiment.target)
    if goal is not None and experiment.until is not None:
        raise UsageError(
            "--until with --target: only the loads next to the target are repeated", "use --repeats"
        )
    top = _top(experiment.sessions or AUTO, cpus, PER_CPU if goal is None else PER_CPU_GOAL)
    again = GOAL_REPEATS if goal is not None and repeats == 1 else repeats
    rule = Adaptive(
        top=top,
        most_rungs=experiment.rungs or MOST_RUNGS,
        near=min(top, max(2, math.floor(cpus))),
        repeats=again,
        goal=goal,
        marks=tuple(sorted(n for n in marked if n <= top)),
    )
    choices.append(_rule(rule))
    return rule


def _top(text: str, cpus: float, per_cpu: int) -> int:
    """Returns the highest rung in ``auto`` | ``auto:64`` | ``auto:4cpus``."""
    _, colon, top = text.strip().partition(":")
    if not colon:
        return min(MAX_SESSIONS, per_cpu * max(1, math.ceil(cpus)))
    tops = parse_ladder(top, cpus)
    if len(tops) != 1:
        raise UsageError(f"--sessions {text}: {top!r} is not one session count", "auto, or auto:64: up to 64")
    return tops[0]


def _rule(rule: Adaptive) -> Choice:
    """Returns the line of the plan that describes which loads will be measured."""
    values: dict[str, Value] = {"most": rule.most_rungs, "top": rule.top}
    if rule.goal is None:
        first = ", ".join(map(str, sorted({1, rule.near, *rule.marks})))
        case, values = "knee", values | {"first": first, "within": TIGHT[KNEE]}
    else:
        case = "lowest" if rule.goal.metric == "throughput" else "highest"
        values |= {"near": rule.near, "goal": rule.goal.text, "repeats": rule.repeats}
    if rule.by == "rate":
        case, values = f"rate-{case}", values | {"from": rule.first, "factor": rule.factor}
    name = "rates" if rule.by == "rate" else "sessions"
    return Choice(name=name, value=AUTO, says="auto-ladder-rule", case=case, slots=values)


def _of_rates(experiment: Experiment, repeats: int, choices: list[Choice]) -> Adaptive | None:
    """Returns the rule of a search for a rate; ``None`` if all rates are listed."""
    top = auto_top(experiment)
    if top is None:
        return None
    goal = None if experiment.target is None else parse_goal(experiment.target)
    if goal is not None and goal.metric == "throughput":
        raise UsageError(
            f"--target {experiment.target}: with rates, throughput is what was asked for",
            "a response time, such as 'p99<20ms'; or leave out the rates",
        )
    if goal is not None and experiment.until is not None:
        raise UsageError("--until with --target: only the rates next to it are repeated", "use --repeats")
    first = min(top, FIRST_RATE if top > 16 * FIRST_RATE else max(1, top // 16))
    rule = Adaptive(
        top=top,
        most_rungs=experiment.rungs or MOST_RUNGS,
        near=min(top, FACTOR * first),
        repeats=GOAL_REPEATS if goal is not None and repeats == 1 else repeats,
        goal=goal,
        by="rate",
        first=first,
        factor=FACTOR,
        share=RATE_SHARE,
    )
    choices.append(_rule(rule))
    return rule


def grown(plan: Plan, load: int, repeat: int) -> tuple[Plan, Sequence[Cell]]:
    """Returns ``plan`` with one more block, and its cells: this rung under every variant, starting with
    another variant each time."""
    first = [next(c for c in plan.cells if c.variant == v.name) for v in plan.variants]
    block = max(c.block for c in plan.cells) + 1
    turn = (block - 1) % len(first)
    number = len(plan.cells)
    added = [
        renumbered(at_load(cell, load), number + n, repeat, block)
        for n, cell in enumerate([*first[turn:], *first[:turn]], start=1)
    ]
    return plan.model_copy(update={"cells": (*plan.cells, *added)}).sealed(), added


def repeated(plan: Plan, repeat: int) -> tuple[Plan, Sequence[Cell]]:
    """Returns ``plan`` with one more repeat of every rung measured so far, and its cells. Rungs are
    ascending, or random if the plan's order is."""
    by = "sessions" if plan.adaptive is None else plan.adaptive.by
    rungs = sorted({round(c.load_by(by)) for c in plan.cells})
    if plan.order == "shuffled":
        random.Random(f"{plan.experiment.seed}/{repeat}").shuffle(rungs)
    added: list[Cell] = []
    for load in rungs:
        plan, cells = grown(plan, load, repeat)
        added += cells
    return plan, added


def capped(plan: Plan, top: int, reason: str) -> Plan:
    """Returns ``plan`` without rungs above ``top``, the number of sessions that the server has room for."""
    assert plan.adaptive is not None
    marks = tuple(n for n in plan.adaptive.marks if n <= top)
    rule = plan.adaptive.model_copy(update={"top": top, "near": min(top, plan.adaptive.near), "marks": marks})
    choice = Choice(name="most sessions", value=str(top), reason=reason)
    return plan.model_copy(update={"adaptive": rule, "choices": (*plan.choices, choice)}).sealed()
