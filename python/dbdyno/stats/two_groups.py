"""Two groups among members that repeat the same task in several rounds, or none.

Values are positive, of shape (rounds, members). There are two tests, each at half the level:

- Are some members always larger? The largest gap between their medians is compared with the spread on both
sides. Its null distribution is simulated with a long-tailed population (Student's t of 3 degrees): times of
real machines have long tails, and against the normal law every hiccup would be a group.

- Are some values larger, of whichever member? That is a valley between two hills. A density with one hill
is nowhere lower than at both of two places around. So of three windows of one width, one in the middle and
two at the middles of both halves, the middle one contains no fewer values than the emptier of the others,
but for chance: a sign test, whatever the population.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats.estimates import positive_interval, sign_tail, students_tail

Floats = NDArray[np.float64]

LEVEL = 0.05
"""Probability of groups in a population without any (benchmarks/placement.py)."""
LEAST_RATIO = 1.10
"""Least ratio of two groups, however sharp the gap."""
FEWEST_ROUNDS = 8
"""Least number of rounds for the search of a valley."""
RESOLUTION = 0.002
"""Least spread within a group, in logarithms: clocks have a resolution."""
_DRAWS, _FEWEST_DRAWS, _NUMBERS = 9_999, 1_999, 1_000_000
_RESAMPLES, _FEWEST_RESAMPLED = 2_000, 5


class Groups(NamedTuple):
    """The p of one population, and the group of each value."""

    p: float | None  # None for too few members and rounds
    slow: NDArray[np.bool_]  # (rounds, members): in the group of the larger values of its round
    ratios: Floats  # larger over smaller, of each round that has two groups

    @property
    def significant(self) -> bool:
        """Whether there are two groups."""
        return self.p is not None and self.p < LEVEL and self.ratios.size > 0


def groups(values: Floats) -> Groups:
    """Applies both tests of the module to logarithms."""
    logs = np.log(values)
    level = logs - logs.mean(axis=1, keepdims=True)  # not the median: it would make one member exactly 0
    tests = [p for p in (gap(np.median(level, axis=0)), valley(logs)) if p is not None]
    none = np.zeros(logs.shape, dtype=bool)
    if not tests:
        return Groups(None, none, np.array([]))
    best = min(tests, key=lambda a: a.p)
    p = min(1.0, 2 * best.p)
    if p >= LEVEL:
        return Groups(p, none, np.array([]))
    least = max(best.apart / 2, float(np.log(LEAST_RATIO)))
    marked = [_mark(row, least) for row in logs]
    ratios = [r for _, r in marked if r is not None]
    return Groups(p, np.array([slow for slow, _ in marked]), np.array(ratios))


def _mark(logs: Floats, least: float) -> tuple[NDArray[np.bool_], float | None]:
    """Returns the larger of a round's two halves and their ratio, if they are at least this far apart."""
    order = np.argsort(logs, kind="stable")
    cut = halves(logs[order])
    slow = np.zeros(logs.size, dtype=bool)
    slow[order[cut:]] = True
    apart = float(np.median(logs[slow]) - np.median(logs[~slow]))
    if apart < least:
        return np.zeros(logs.size, dtype=bool), None
    return slow, float(np.exp(apart))


class Parted(NamedTuple):
    """The distance of two groups, and the p of one population."""

    apart: float  # of their middles, in logarithms
    p: float


def gap(logs: Floats) -> Parted | None:
    """Tests for a gap between members, shape (members,); None for fewer than 3."""
    n = logs.size
    if n < 3:
        return None
    ordered = np.sort(logs)
    gaps, spreads = _gaps(ordered[None, :])
    score = gaps[0] / np.maximum(spreads[0], RESOLUTION)
    cut = int(np.argmax(score)) + 1
    apart = float(np.median(ordered[cut:]) - np.median(ordered[:cut]))
    if gaps[0, cut - 1] < np.log(LEAST_RATIO):
        return Parted(apart, 1.0)
    null = _null(n)
    return Parted(apart, float((1 + np.count_nonzero(null >= score[cut - 1])) / (1 + null.size)))


def _gaps(logs: Floats) -> tuple[Floats, Floats]:
    """Returns for sorted rows (draws, N) each gap, and the pooled standard deviation within its two parts."""
    centred = logs - logs.mean(axis=1, keepdims=True)
    n = centred.shape[1]
    left_n = np.arange(1, n)
    sums, squares = centred.cumsum(axis=1)[:, :-1], (centred**2).cumsum(axis=1)
    total = squares[:, -1:]
    # The sum of a row is 0, so that of the right part is minus that of the left.
    within = total - sums**2 / left_n - sums**2 / (n - left_n)
    return np.diff(centred, axis=1), np.sqrt(np.maximum(within, 0.0) / (n - 2))


@lru_cache(maxsize=64)
def _null(n: int) -> Floats:
    """Returns the largest scores of rounds of one population."""
    draws = int(np.clip(_NUMBERS // n, _FEWEST_DRAWS, _DRAWS))
    rows = np.sort(np.random.default_rng(n).standard_t(3, size=(draws, n)), axis=1)
    gaps, spreads = _gaps(rows)
    return np.asarray((gaps / np.maximum(spreads, 1e-9)).max(axis=1))


def valley(logs: Floats) -> Parted | None:
    """Tests for a valley among values of shape (rounds, members), at least 2 members; None for fewer than 8
    rounds.

    The means of members and of rounds are subtracted first, as neither makes a group.
    """
    if logs.shape[0] < FEWEST_ROUNDS or logs.shape[1] < 2:
        return None
    own = logs - logs.mean(axis=0, keepdims=True)
    centred = (own - own.mean(axis=1, keepdims=True)).ravel()
    low, high = _middles(np.sort(centred))
    apart = high - low
    if apart < math.log(LEAST_RATIO):
        return Parted(apart, 1.0)
    near = [int(np.count_nonzero(np.abs(centred - at) <= apart / 6)) for at in (low, (low + high) / 2, high)]
    # Values of a round add up to 0: one per round is not free.
    free = 1 - 1 / logs.shape[1]
    few, many = math.ceil(near[1] * free), math.floor(min(near[0], near[2]) * free)
    return Parted(apart, sign_tail(few, many) if few < many else 1.0)


def _middles(ordered: Floats) -> tuple[float, float]:
    """Returns the medians of the two parts with the least variance within (k-means of two, exact in one
    dimension)."""
    cut = halves(ordered)
    return float(np.median(ordered[:cut])), float(np.median(ordered[cut:]))


def halves(ordered: Floats) -> int:
    """Returns the split with the largest sum of squares between the two parts, as the first index of the
    upper part."""
    n = ordered.size
    left_n = np.arange(1, n)
    sums = (ordered - ordered.mean()).cumsum()[:-1]
    return int(np.argmax(sums**2 * (1 / left_n + 1 / (n - left_n)))) + 1


def median_interval(values: Floats) -> tuple[float | None, float | None]:
    """Returns the 95 % interval of the median by the bootstrap; (None, None) for fewer than 5 values."""
    if values.size < _FEWEST_RESAMPLED:
        return None, None
    drawn = np.random.default_rng(1).choice(values, size=(_RESAMPLES, values.size))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)


# The ratio of two means on a logarithmic scale, its variance by the delta method (Oehlert 1992, Am. Stat. 46,
# 27-29), with Student's t. The interval is above zero however large the effect or the spread, and that of the
# inverse ratio is its inverse.


@dataclass(frozen=True, slots=True)
class Moments:
    """Means of baseline and variant, (co)variances of these means, and their degrees of freedom."""

    x: float
    y: float
    vxx: float
    vyy: float
    vxy: float
    degrees: float

    @property
    def ratio(self) -> float:
        return self.y / self.x

    def variance(self, rho: float) -> float:
        """Returns the variance of ``y - rho x``."""
        return max(0.0, self.vyy - 2 * rho * self.vxy + rho * rho * self.vxx)

    def shrunk(self, factor: float) -> Moments:
        """Returns the moments of means that are this factor of these."""
        x, y = factor * self.x, factor * self.y
        return replace(
            self, x=x, y=y, vxx=self.vxx * factor**2, vyy=self.vyy * factor**2, vxy=self.vxy * factor**2
        )

    def floored(self, wxx: float, wyy: float) -> Moments:
        """Returns the moments with these variances of (independent) means, if they are larger."""
        other = replace(self, vxx=wxx, vyy=wyy, vxy=0.0)
        return other if other.variance(self.ratio) > self.variance(self.ratio) else self

    @property
    def log_std_err(self) -> float:
        """Standard error of the ratio's logarithm."""
        return math.sqrt(self.variance(self.ratio)) / abs(self.y)

    def p(self, ratio: float = 1.0) -> float:
        """Returns the two-sided p that the true ratio of the means is ``ratio``."""
        away = math.log(self.ratio / ratio)
        if self.log_std_err == 0:
            return 1.0 if away == 0 else 0.0
        return students_tail(away / self.log_std_err, self.degrees)

    def interval(self, alpha: float = 0.05) -> tuple[float, float] | None:
        """Returns both ends of the ratio's interval, above zero; None if it is too wide."""
        return positive_interval(self.ratio, self.ratio * self.log_std_err, self.degrees, alpha)
