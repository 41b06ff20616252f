"""Which rung of an auto ladder comes next, on the way to its knee (:mod:`dbdyno.stats.knee`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from dbdyno.plan.adaptive_findings import Findings, Next, free_near, higher
from dbdyno.stats.knee import END, KNEE, SIGMAS, bend, noise_of
from dbdyno.stats.mean import Mean

TIGHT = {KNEE: 0.1, END: 0.25}
"""Distance of the rungs on both sides, relative to the rung between them; one session is always allowed."""
LEAST_RUNGS = 8
"""So many a fit of growth with two knees (cores, then threads) wants, at least."""
_FAR = 1.5  # high end over low end of an interval in which lines are drawn to cross


def next_for_knee(findings: Findings) -> Next | None:
    """Upwards as long as throughput grows, then to the knee, to the end of growth, and into wide gaps."""
    throughputs = findings.throughputs()
    if not throughputs:
        return _first(findings)
    last, ended = max(throughputs), bend(throughputs, END)
    if ended.at == last and (n := higher(findings, last)) is not None:
        return Next(n)
    for share in (KNEE, END):
        if (n := _nearer(findings, throughputs, share)) is not None:
            return Next(n)
    n = _between(findings, throughputs)
    return None if n is None else Next(n)


def _first(findings: Findings) -> Next | None:
    """One session; where that could not be used, the next rungs above it."""
    rule = findings.rule
    wishes = [n for n in (1, rule.near, 2 * rule.near) if n <= rule.top and n not in findings.tried]
    return Next(wishes[0]) if wishes else None


def _nearer(findings: Findings, throughputs: Mapping[int, Mean], share: float) -> int | None:
    """A rung nearer to the bend; ``None`` where both its neighbours are near enough."""
    rungs, at, tried = list(throughputs), bend(throughputs, share).at, findings.tried
    noise = noise_of(throughputs).share
    step_down, step_up = _step(at, share, noise, 1 - share), _step(at, share, noise, share)
    place = rungs.index(at)
    if place + 1 == len(rungs) > 1:
        return None  # it does not bend; what could be measured above, was
    low = rungs[place - 1] if place else 0
    high = rungs[place + 1] if place + 1 < len(rungs) else at
    below, above = at - low > step_down and at > 1, high - at > step_up
    if not (below or above):
        return None
    crossing = _crossing(throughputs, low, high) if high > max(1, low) * _FAR else None
    if crossing is not None and crossing not in tried and 2 * abs(crossing - at) >= step_down:
        return crossing
    came_by_steps = findings.seen[-1].sessions == at
    if above and (found := free_near(_wish(at, high, step_up, came_by_steps and not below), at, high, tried)):
        return found
    if below and (
        found := free_near(_wish(at, low, -step_down, came_by_steps and not above), low, at, tried)
    ):
        return found
    return None


def _step(at: int, share: float, noise: float, slope: float) -> int:
    """Sessions to a neighbour: near, but no nearer than noise allows to tell the two apart where the surplus
    falls by ``slope`` of what one session brings."""
    told_apart = 1.1 * SIGMAS * math.sqrt(2) * noise / slope
    return max(1, math.ceil(max(TIGHT[share], told_apart) * at))


def _wish(at: int, end: int, step: int, halve: bool) -> float:
    """A step from ``at``, or, where steps have led here and would lead on, half-way to ``end``."""
    return math.sqrt(at * max(1, end)) if halve else at + step


def _crossing(throughputs: Mapping[int, Mean], low: int, high: int) -> int | None:
    """Where the line below ``low`` and the one above ``high`` meet, if that is between them."""
    rungs = list(throughputs)
    x = {0: 0.0} | {n: m.value for n, m in throughputs.items()}
    before = max((n for n in rungs if n < low), default=0)
    after = min((n for n in rungs if n > high), default=high)
    if low == 0:
        before, low = 0, rungs[0]
    growing = (x[low] - x[before]) / (low - before)
    flat = (x[after] - x[high]) / (after - high) if after > high else 0.0
    if growing <= flat:
        return None
    n = round((x[high] - flat * high - x[low] + growing * low) / (growing - flat))
    return n if low < n < high else None


def _between(findings: Findings, throughputs: Mapping[int, Mean]) -> int | None:
    """Into the widest gap by ratio, until there are enough rungs."""
    rungs, tried = list(throughputs), findings.tried
    if len(rungs) >= LEAST_RUNGS:
        return None
    above, blocked = min(2 * rungs[-1], findings.rule.top), findings.blocked()
    if rungs[-1] < 2 * bend(throughputs, KNEE).at and above > rungs[-1] and blocked is None:
        return above
    can_rise = above > rungs[-1] and blocked is None and above not in tried
    for low, high in sorted(pairwise(rungs), key=lambda gap: gap[0] / gap[1]):
        if can_rise and high < _FAR * low:
            break
        if (n := free_near(math.sqrt(low * high), low, high, tried)) is not None:
            return n
    return above if can_rise else None
