"""What an auto ladder has found so far, and what it may say next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dbdyno.model.plan import Adaptive
from dbdyno.stats.mean import Mean

_NOTHING = 1e-9  # calls per second


@dataclass(frozen=True)
class Seen:
    """One measured cell."""

    sessions: int
    throughput: float | None  # calls per second that ended well
    figure: float | None = None  # what the goal is about: ns, or calls per second
    failed: float = 0.0  # share of the calls that ended in an error
    fault: str | None = None  # why it cannot be used; None: it can

    @property
    def good(self) -> bool:
        return self.fault is None and self.throughput is not None and self.throughput > _NOTHING


@dataclass(frozen=True)
class Findings:
    """All cells of one ladder, in the order of running, and the rule that it grows by."""

    rule: Adaptive
    seen: tuple[Seen, ...] = ()

    @property
    def tried(self) -> set[int]:
        """Rungs that were measured, with or without success."""
        return {s.sessions for s in self.seen}

    def throughputs(self) -> dict[int, Mean]:
        """Of each usable rung, over its repeats; ascending."""
        found: dict[int, Mean] = {}
        for s in sorted(self.seen, key=lambda s: s.sessions):
            if s.good and s.throughput is not None:
                found[s.sessions] = found.get(s.sessions, Mean()).merge(Mean(1, s.throughput))
        return found

    def blocked(self) -> tuple[int, str] | None:
        """The lowest rung above all usable ones that could not be used, and why."""
        top = max(self.throughputs(), default=0)
        above = [(s.sessions, s.fault or "no call ended well") for s in self.seen if s.sessions > top]
        return min(above, default=None)


@dataclass(frozen=True)
class Next:
    """Measure this rung; again, where it was measured before."""

    sessions: int


@dataclass(frozen=True)
class Done:
    """The ladder shows enough. ``at``: the knee, or the rung sought; ``None``: there is none.

    ``id``, ``case`` and ``parts``: the entry of the claims' catalogue that says it with the values ``said``.
    """

    id: str
    case: str
    said: Mapping[str, Any]
    parts: tuple[str, ...] = ()
    at: int | None = None
    low: int | None = None
    high: int | None = None
    found: bool = False


def higher(findings: Findings, last: int) -> int | None:
    """The next rung above ``last``: the CPUs, then twice as many each time, up to the cap. Below a rung that
    could not be used, half-way to it, until a quarter of ``last`` is left. ``None``: there is none."""
    rule, blocked = findings.rule, findings.blocked()
    if blocked is not None and last > 0:
        return None if blocked[0] - last <= max(1, last // 4) else (last + blocked[0]) // 2
    wish = rule.near if last < rule.near else 2 * last
    wish = min(max(wish, 1), rule.top)
    return wish if wish > last and wish not in findings.tried else None


def free_near(wish: float, low: int, high: int, tried: set[int]) -> int | None:
    """The untried rung nearest to ``wish`` strictly between ``low`` and ``high``."""
    untried = [n for n in range(low + 1, high) if n not in tried]
    return min(untried, key=lambda n: abs(n - wish), default=None)
