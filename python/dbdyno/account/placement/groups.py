"""Two groups among sessions that were started together, or none."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats.gaps import LEAST_RATIO, Floats, gap
from dbdyno.stats.valley import halves, valley

LEVEL = 0.05
"""Of runs of one population at most this share is told to have groups (benchmarks/placement.py)."""
_DRAWS, _FEWEST = 2_000, 5


class Groups(NamedTuple):
    """Of one rung."""

    p: float | None  # None: too few sessions and rounds
    slow: NDArray[np.bool_]  # (rounds, N): in the slower group of its round
    ratios: Floats  # slower over faster, of each round that has two groups

    @property
    def found(self) -> bool:
        return self.p is not None and self.p < LEVEL and self.ratios.size > 0


def groups(durations_ns: Floats) -> Groups:
    """Of calls, shape (rounds, N). Two questions, each at half the level: are some sessions always slower
    (the gap between the sessions' medians), and are some calls, whosever they are (the valley)?"""
    logs = np.log(durations_ns)
    level = logs - logs.mean(axis=1, keepdims=True)  # not the median: that makes one session zero, exactly
    asked = [p for p in (gap(np.median(level, axis=0)), valley(logs)) if p is not None]
    none = np.zeros(logs.shape, dtype=bool)
    if not asked:
        return Groups(None, none, np.array([]))
    best = min(asked, key=lambda a: a.p)
    p = min(1.0, 2 * best.p)
    if p >= LEVEL:
        return Groups(p, none, np.array([]))
    least = max(best.apart / 2, float(np.log(LEAST_RATIO)))
    marked = [_mark(row, least) for row in logs]
    ratios = [r for _, r in marked if r is not None]
    return Groups(p, np.array([slow for slow, _ in marked]), np.array(ratios))


def _mark(logs: Floats, least: float) -> tuple[NDArray[np.bool_], float | None]:
    """The slower of a round's two halves, if they are at least so far apart, and their ratio."""
    order = np.argsort(logs, kind="stable")
    cut = halves(logs[order])
    slow = np.zeros(logs.size, dtype=bool)
    slow[order[cut:]] = True
    apart = float(np.median(logs[slow]) - np.median(logs[~slow]))
    if apart < least:
        return np.zeros(logs.size, dtype=bool), None
    return slow, float(np.exp(apart))


def interval(ratios: Floats) -> tuple[float | None, float | None]:
    """Of their median, 95 %, by bootstrap of the rounds; not to be had from under 5."""
    if ratios.size < _FEWEST:
        return None, None
    drawn = np.random.default_rng(1).choice(ratios, size=(_DRAWS, ratios.size))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)
