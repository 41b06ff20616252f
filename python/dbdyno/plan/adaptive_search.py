"""The measurements of an auto ladder so far, and its next rung on the way to the knee or to a target."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_args

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Adaptive, Goal
from dbdyno.model.schema import quantiles
from dbdyno.model.units import NS_PER_S, format_ns, format_rate
from dbdyno.stats.estimates import Mean
from dbdyno.stats.knee import END, KNEE, SIGMAS, bend, noise_of

_NOTHING = 1e-9  # calls per second


CLIENT_LIMITED = "it was limited by the client"
"""The fault of a cell in which the driver, not the server, was the limit."""


@dataclass(frozen=True)
class Seen:
    """One measured cell."""

    load: int  # sessions, or calls per second that become due
    throughput: float | None  # calls per second that ended well
    figure: float | None = None  # what the goal is about: ns, or calls per second
    failed: float = 0.0  # share of the calls that ended in an error
    fault: str | None = None  # why it cannot be used; None: it can
    calls: int = 0  # that the figure is of
    window_s: float = 0.0
    above: int = 0  # of these calls, those that took longer than the goal's limit

    @property
    def good(self) -> bool:
        return self.fault is None and self.throughput is not None and self.throughput > _NOTHING


@dataclass(frozen=True)
class Findings:
    """All cells of one ladder in the order of running, and the rule by which it grows."""

    rule: Adaptive
    seen: tuple[Seen, ...] = ()

    @property
    def tried(self) -> set[int]:
        """Rungs that were measured, with or without success."""
        return {s.load for s in self.seen}

    def throughputs(self) -> dict[int, Mean]:
        """Returns the mean throughput of each usable rung over its repeats, ascending by rung."""
        means: dict[int, Mean] = {}
        for s in sorted(self.seen, key=lambda s: s.load):
            if s.good and s.throughput is not None:
                means[s.load] = means.get(s.load, Mean()).merge(Mean(1, s.throughput))
        return means

    def blocked(self) -> tuple[int, str] | None:
        """Returns the lowest unusable rung above all usable ones, with the reason; None if there is none."""
        top = max(self.throughputs(), default=0)
        above = [(s.load, s.fault or "no call ended well") for s in self.seen if s.load > top]
        return min(above, default=None)


@dataclass(frozen=True)
class Next:
    """Asks to measure this rung, again if it was measured before."""

    load: int


@dataclass(frozen=True)
class Done:
    """The ladder is complete. ``at`` is the knee or the rung that meets the target; ``None`` if there is
    none.

    ``id``, ``case`` and ``parts`` identify the entry of the claims' catalogue, whose placeholders have the
    values ``slots``.
    """

    id: str
    case: str
    slots: Mapping[str, Any]
    parts: tuple[str, ...] = ()
    at: int | None = None
    low: int | None = None
    high: int | None = None
    found: bool = False


def higher(findings: Findings, last: int) -> int | None:
    """Returns the next rung above ``last``; ``None`` if there is none. The sequence is the cores, the CPUs,
    and then doubling up to the maximum. Below an unusable rung it is half-way to that rung, until the
    distance is a quarter of ``last``."""
    rule, blocked = findings.rule, findings.blocked()
    if blocked is not None and last > 0:
        return None if blocked[0] - last <= max(1, last // 4) else (last + blocked[0]) // 2
    rung = min((n for n in (*rule.marks, rule.near) if n > last), default=rule.factor * last)
    rung = min(max(rung, 1), rule.top)
    return rung if rung > last and rung not in findings.tried else None


def unmeasured(findings: Findings) -> Next | None:
    """Returns the lowest rung that has not been measured yet, among those that are always measured and lie
    below an unusable rung."""
    blocked = findings.blocked()
    left = [n for n in findings.rule.marks if n not in findings.tried and (blocked is None or n < blocked[0])]
    return Next(min(left)) if left else None


def free_near(target: float, low: int, high: int, tried: set[int], share: float = 0.0) -> int | None:
    """Returns the untried rung nearest to ``target``, strictly between ``low`` and ``high`` and at least
    ``share`` away from both."""
    first, last = math.floor(low * (1 + share)) + 1, math.ceil(high / (1 + share))
    untried = [n for n in range(first, last) if n not in tried]
    return min(untried, key=lambda n: abs(n - target), default=None)


# -- the knee (:mod:`dbdyno.stats.knee`) --

TIGHT = {KNEE: 0.1, END: 0.25}
"""Maximum distance of the rungs on both sides, relative to the rung between them. A distance of one session
is always permitted."""
LEAST_RUNGS = 8
"""Minimum number of rungs, needed by a fit of growth with two knees (cores, then threads)."""
_FAR = 1.5  # high end over low end of an interval in which lines are drawn to cross


def next_for_knee(findings: Findings) -> Next | None:
    """Returns the next rung on the way to the knee: upwards while throughput grows, then towards the knee,
    towards the end of growth, and into wide gaps."""
    throughputs = findings.throughputs()
    if not throughputs:
        return _first(findings)
    last, ended = max(throughputs), bend(throughputs, END)
    if ended.at == last and (n := higher(findings, last)) is not None:
        return Next(n)
    if (mark := unmeasured(findings)) is not None:
        return mark
    for share in (KNEE, END):
        if (n := _nearer(findings, throughputs, share)) is not None:
            return Next(n)
    n = _between(findings, throughputs)
    return None if n is None else Next(n)


def _first(findings: Findings) -> Next | None:
    """Returns one session, or if that was unusable, the next rung above it."""
    rule = findings.rule
    wishes = [n for n in (rule.first, rule.near, 2 * rule.near) if n <= rule.top and n not in findings.tried]
    return Next(wishes[0]) if wishes else None


def _nearer(findings: Findings, throughputs: Mapping[int, Mean], share: float) -> int | None:
    """Returns a rung nearer to the bend; ``None`` if both neighbours are near enough."""
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
    came_by_steps = findings.seen[-1].load == at
    if above and (
        rung := free_near(_target(at, high, step_up, came_by_steps and not below), at, high, tried)
    ):
        return rung
    if below and (
        rung := free_near(_target(at, low, -step_down, came_by_steps and not above), low, at, tried)
    ):
        return rung
    return None


def _step(at: int, share: float, noise: float, slope: float) -> int:
    """Returns the distance to a neighbour in sessions. It is small, but large enough that noise does not
    hide the difference when the surplus falls by ``slope`` of what one session contributes."""
    distinguishable = 1.1 * SIGMAS * math.sqrt(2) * noise / slope
    return max(1, math.ceil(max(TIGHT[share], distinguishable) * at))


def _target(at: int, end: int, step: int, halve: bool) -> float:
    """Returns a step from ``at``. If steps led to ``at`` and would continue, returns the geometric mean of
    ``at`` and ``end`` instead."""
    return math.sqrt(at * max(1, end)) if halve else at + step


def _crossing(throughputs: Mapping[int, Mean], low: int, high: int) -> int | None:
    """Returns the intersection of the line through the rungs below ``low`` and the line through those above
    ``high``; ``None`` if it is not between the two."""
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
    """Returns the rung in the middle of the gap that is widest by ratio; ``None`` if there are enough
    rungs."""
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


# -- a target: doubling, bisection, then both sides again --

QUANTILES = {"p90": 0.90, **{one.name: one.q for one in quantiles.QUANTILES}}
METRICS: tuple[str, ...] = get_args(Goal.model_fields["metric"].annotation)
MOST_FAILED = 0.01
"""A rung with a larger share of failed calls does not meet a goal, however short the calls were."""
_TEXT = re.compile(r"\s*([a-z0-9_.]+)\s*(<=|>=|<|>)\s*([0-9]{1,15}(?:\.[0-9]+)?)\s*([a-zA-Z/]*)\s*\Z")
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": float(NS_PER_S)}
_PER_S = {"": 1.0, "/s": 1.0, "calls/s": 1.0, "k": 1e3, "k/s": 1e3}
_FORMS = (
    "write p95<20ms (p50, p90, p95, p99, p99.9, p99.99, mean, max; us, ms, s) or throughput>1000, in quotes "
    "for the shell"
)


def parse_goal(text: str) -> Goal:
    """Returns the goal in ``p95<20ms`` | ``mean <= 1.5s`` | ``throughput>1000``. Raises
    :class:`UsageError`."""
    match = _TEXT.match(text)
    if match is None:
        raise UsageError(f"--target {text}: not a target", _FORMS)
    metric, relation, number, unit = match.groups()
    if metric not in METRICS:
        raise UsageError(f"--target {text}: {metric!r} is not measured", _FORMS)
    rate = metric == "throughput"
    if (relation[0] == ">") != rate:
        raise UsageError(f"--target {text}: {metric} needs {'>' if rate else '<'}", _FORMS)
    units = _PER_S if rate else _NS
    if unit not in units:
        what = "calls per second" if rate else "a unit of time"
        instead = f", not {unit!r}" if unit else ""
        raise UsageError(f"--target {text}: {metric} needs {what}{instead}", _FORMS)
    limit = float(number) * units[unit]
    if limit <= 0:
        raise UsageError(f"--target {text}: the limit must be above 0", _FORMS)
    shown = f"{format_rate(limit)} calls/s" if rate else format_ns(limit)
    return Goal.model_validate(
        {
            "metric": metric,
            "relation": relation,
            "limit": limit,
            "text": f"{metric} {relation} {_plain(shown)}",
        }
    )


def _plain(text: str) -> str:
    """Returns a figure without trailing zeros: ``20.0 ms`` -> ``20 ms``."""
    return re.sub(r"(\.\d*?)0+(?=\s|$)", r"\1", text).replace(". ", " ")


SURE = 0.05
"""Probability of so many calls above a limit, if the goal's quantile were at it, below which it is missed."""


def missed(seen: Seen, goal: Goal) -> bool:
    """Returns whether more calls took longer than the goal's limit than by chance if its quantile were at the
    limit. That can be known of fewer calls than the quantile itself."""
    q = QUANTILES.get(goal.metric)
    return q is not None and q > 0.5 and seen.above > 0 and _at_least(seen.above, seen.calls, 1 - q) < SURE


def _at_least(hits: int, n: int, p: float) -> float:
    """Returns the binomial probability of at least ``hits`` of ``n``."""
    fewer = (
        math.exp(
            math.lgamma(n + 1)
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            + k * math.log(p)
            + (n - k) * math.log1p(-p)
        )
        for k in range(hits)
    )
    return 1 - math.fsum(fewer)


class Sides:
    """Rungs on both sides of the boundary. Before it a response time meets the goal, and a throughput does
    not."""

    def __init__(self, findings: Findings, goal: Goal) -> None:
        self.findings, self.goal = findings, goal
        self.rate = goal.metric == "throughput"
        self.of: dict[int, list[Seen]] = {}
        for s in sorted(findings.seen, key=lambda s: s.load):
            if s.good and (s.figure is not None or missed(s, goal)):
                self.of.setdefault(s.load, []).append(s)
        self.unknown = {s.load: s for s in findings.seen if s.good and s.load not in self.of}
        """Rungs with too few calls for the goal's quantile, with their last measurement."""

    def met(self, rung: int) -> int:
        """Returns the number of repeats in which a rung meets the goal."""
        return sum(
            s.figure is not None and self.goal.met(s.figure) and s.failed <= MOST_FAILED
            for s in self.of[rung]
        )

    def meets(self, rung: int) -> bool:
        """Returns whether a rung meets the goal in more than half of its repeats."""
        return 2 * self.met(rung) > len(self.of[rung])

    @property
    def after(self) -> int | None:
        """The lowest rung beyond the boundary."""
        return next((n for n in self.of if self.meets(n) == self.rate), None)

    @property
    def before(self) -> int | None:
        """The highest rung before the boundary."""
        after = self.after
        return max((n for n in self.of if after is None or n < after), default=None)

    def stray(self) -> list[int]:
        """Returns the rungs beyond the boundary whose verdict is that of the rungs before it."""
        return [
            n for n in self.of if self.after is not None and n > self.after and self.meets(n) != self.rate
        ]


def next_for_goal(findings: Findings, goal: Goal) -> Next | None:
    """Returns the next rung on the way to a goal: doubling until the boundary is crossed, bisection, repeats
    on both sides, and one measurement well beyond."""
    sides = Sides(findings, goal)
    before, after = sides.before, sides.after
    if not sides.of:
        return _with_more_calls(findings) if sides.unknown else next_for_knee(findings)
    few = len(findings.tried) < findings.rule.most_rungs
    if after is None:
        n = higher(findings, max(sides.of))
        if n is not None and few:
            return Next(n)
        if sides.rate and few:
            return next_for_knee(findings)
        return _again(sides, [max(sides.of)]) or (unmeasured(findings) if few else None)
    low = max([before or 0, *(n for n in sides.unknown if n < after)])  # below it are fewer calls still
    share = findings.rule.share
    n = free_near((low + after) / 2, low, after, findings.tried, share) if few else None
    if n is not None:
        return Next(n)
    if (again := _again(sides, [rung for rung in (before, after) if rung is not None])) is not None:
        return again
    beyond = min(2 * after, findings.rule.top)
    last = max(findings.tried)
    if few and not sides.rate and last < 1.5 * after and beyond > last:
        return Next(beyond)
    return unmeasured(findings) if few else None


def _with_more_calls(findings: Findings) -> Next | None:
    """Returns a higher rung while throughput grows, because no rung so far has enough calls for the goal's
    quantile."""
    throughputs = findings.throughputs()
    last = max(throughputs)
    n = higher(findings, last) if bend(throughputs, END).at == last else None
    return None if n is None else Next(n)


def _again(sides: Sides, rungs: Sequence[int]) -> Next | None:
    """Returns the rung with the fewest repeats; None if it has enough."""
    fewest = min(rungs, key=lambda n: len(sides.of[n]))
    repeats, tries = sides.findings.rule.repeats, sum(s.load == fewest for s in sides.findings.seen)
    if len(sides.of[fewest]) >= repeats or tries >= 2 * repeats:  # some of them cannot be used
        return None
    return Next(fewest)
