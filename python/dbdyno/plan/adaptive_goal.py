"""The rung at which a goal begins or ceases to be met: doubling, bisection, then both sides again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

from dbdyno.model.errors import UsageError
from dbdyno.model.plan import Goal
from dbdyno.model.units import NS_PER_S, format_ns, format_rate
from dbdyno.plan.adaptive_findings import Findings, Next, Seen, free_near, higher
from dbdyno.plan.adaptive_knee import next_for_knee

METRICS: tuple[str, ...] = get_args(Goal.model_fields["metric"].annotation)
MOST_FAILED = 0.01
"""A rung with more calls that ended in an error does not meet a goal, however short they were."""
_TEXT = re.compile(r"\s*([a-z0-9_]+)\s*(<=|>=|<|>)\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z/]*)\s*\Z")
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": float(NS_PER_S)}
_PER_S = {"": 1.0, "/s": 1.0, "calls/s": 1.0, "k": 1e3, "k/s": 1e3}
_FORMS = (
    "write p95<20ms (p50, p90, p95, p99, mean, max; us, ms, s) or throughput>1000, in quotes for the shell"
)


def parse_goal(text: str) -> Goal:
    """``p95<20ms`` | ``mean <= 1.5s`` | ``throughput>1000``. Raises :class:`UsageError`."""
    match = _TEXT.match(text)
    if match is None:
        raise UsageError(f"--target {text}: not a target", _FORMS)
    metric, relation, number, unit = match.groups()
    if metric not in METRICS:
        raise UsageError(f"--target {text}: {metric!r} is not measured", _FORMS)
    rate = metric == "throughput"
    if (relation[0] == ">") != rate:
        way = "above" if rate else "below"
        raise UsageError(f"--target {text}: {metric} is looked for {way} a limit", _FORMS)
    units = _PER_S if rate else _NS
    if unit not in units:
        what = "calls per second" if rate else "a unit of time"
        raise UsageError(f"--target {text}: {metric} needs {what}, not {unit or 'a bare number'!r}", _FORMS)
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
    """``20.0 ms`` -> ``20 ms``."""
    return re.sub(r"(\.\d*?)0+(?=\s|$)", r"\1", text).replace(". ", " ")


class Sides:
    """Rungs before and after the boundary: before it a response time meets the goal, a throughput fails."""

    def __init__(self, findings: Findings, goal: Goal) -> None:
        self.findings, self.goal = findings, goal
        self.rate = goal.metric == "throughput"
        self.of: dict[int, list[Seen]] = {}
        for s in sorted(findings.seen, key=lambda s: s.sessions):
            if s.good and s.figure is not None:
                self.of.setdefault(s.sessions, []).append(s)

    def met(self, rung: int) -> int:
        """In how many repeats."""
        return sum(
            s.figure is not None and self.goal.met(s.figure) and s.failed <= MOST_FAILED
            for s in self.of[rung]
        )

    def meets(self, rung: int) -> bool:
        """In more than half of them."""
        return 2 * self.met(rung) > len(self.of[rung])

    @property
    def after(self) -> int | None:
        """The lowest rung beyond the boundary."""
        return next((n for n in self.of if self.meets(n) == self.rate), None)

    @property
    def before(self) -> int | None:
        """The highest rung on this side of it."""
        after = self.after
        return max((n for n in self.of if after is None or n < after), default=None)

    def stray(self) -> list[int]:
        """Rungs beyond the boundary that are as those before it."""
        return [
            n for n in self.of if self.after is not None and n > self.after and self.meets(n) != self.rate
        ]


def next_for_goal(findings: Findings, goal: Goal) -> Next | None:
    """Doubling until the boundary is crossed, bisection, repeats on both sides, one look beyond."""
    sides = Sides(findings, goal)
    before, after = sides.before, sides.after
    if not sides.of:
        return next_for_knee(findings)
    few = len(findings.tried) < findings.rule.most_rungs
    if after is None:
        n = higher(findings, max(sides.of))
        if n is not None and few:
            return Next(n)
        return next_for_knee(findings) if sides.rate and few else _again(sides, [max(sides.of)])
    low = before or 0
    n = free_near((low + after) / 2, low, after, findings.tried) if few else None
    if n is not None:
        return Next(n)
    if (again := _again(sides, [rung for rung in (before, after) if rung is not None])) is not None:
        return again
    beyond = min(2 * after, findings.rule.top)
    if few and not sides.rate and max(findings.tried) < 1.5 * after and beyond > after:
        return Next(beyond)
    return None


def _again(sides: Sides, rungs: Sequence[int]) -> Next | None:
    """The one with the fewest repeats."""
    fewest = min(rungs, key=lambda n: len(sides.of[n]))
    if len(sides.of[fewest]) >= sides.findings.rule.repeats:
        return None
    return Next(fewest)
