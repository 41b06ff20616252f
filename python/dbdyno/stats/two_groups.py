"""Two groups among members that did the same in several rounds, or none.

Values are positive, of shape (rounds, members). Two questions, each at half the level:

- Are some members always larger? The largest gap between their medians, against the spread on both sides.
  How large that gets by chance is simulated with a population of long tails (Student's t of 3 degrees): times
  of real machines have them, and against the normal law every hiccup would be a group.
- Are some values larger, whosever they are? A valley between two hills. A density of one hill is nowhere
  lower than at both of two places around. So of three windows of one width, in the middle and at the middles
  of the two halves, the middle one holds no fewer values than the emptier of the others, but by chance: a
  sign test, whatever the population is.
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
"""Share of populations without groups in which some may be found (benchmarks/placement.py)."""
LEAST_RATIO = 1.10
"""A gap narrower than this is no group, however sharp it is."""
FEWEST_ROUNDS = 8
"""Rounds from which on a valley is looked for."""
RESOLUTION = 0.002
"""Spread within a group is taken to be at least this part: clocks and prints have a resolution."""
_DRAWS, _FEWEST_DRAWS, _NUMBERS = 9_999, 1_999, 1_000_000
_RESAMPLES, _FEWEST_RESAMPLED = 2_000, 5


class Groups(NamedTuple):
    """How likely one population looks so, and who is in which group."""

    p: float | None  # None: too few members and rounds
    slow: NDArray[np.bool_]  # (rounds, members): in the group of the larger values of its round
    ratios: Floats  # larger over smaller, of each round that has two groups

    @property
    def found(self) -> bool:
        return self.p is not None and self.p < LEVEL and self.ratios.size > 0


def groups(values: Floats) -> Groups:
    """Both questions (see the module), on logarithms."""
    logs = np.log(values)
    level = logs - logs.mean(axis=1, keepdims=True)  # not the median: that makes one member zero, exactly
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
    """The larger of a round's two halves, if they are at least so far apart, and their ratio."""
    order = np.argsort(logs, kind="stable")
    cut = halves(logs[order])
    slow = np.zeros(logs.size, dtype=bool)
    slow[order[cut:]] = True
    apart = float(np.median(logs[slow]) - np.median(logs[~slow]))
    if apart < least:
        return np.zeros(logs.size, dtype=bool), None
    return slow, float(np.exp(apart))


class Parted(NamedTuple):
    """Two groups, and how likely one population looks so."""

    apart: float  # of their middles, in logarithms
    p: float


def gap(logs: Floats) -> Parted | None:
    """Between members, shape (members,); ``None``: fewer than 3."""
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
    """For sorted rows (draws, N) each gap, and the standard deviation within its two parts (pooled)."""
    centred = logs - logs.mean(axis=1, keepdims=True)
    n = centred.shape[1]
    left_n = np.arange(1, n)
    sums, squares = centred.cumsum(axis=1)[:, :-1], (centred**2).cumsum(axis=1)
    total = squares[:, -1:]
    # the sum of all is zero: that of the right part is minus that of the left
    within = total - sums**2 / left_n - sums**2 / (n - left_n)
    return np.diff(centred, axis=1), np.sqrt(np.maximum(within, 0.0) / (n - 2))


@lru_cache(maxsize=64)
def _null(n: int) -> Floats:
    """The largest scores of rounds of one population."""
    draws = int(np.clip(_NUMBERS // n, _FEWEST_DRAWS, _DRAWS))
    rows = np.sort(np.random.default_rng(n).standard_t(3, size=(draws, n)), axis=1)
    gaps, spreads = _gaps(rows)
    return np.asarray((gaps / np.maximum(spreads, 1e-9)).max(axis=1))


def valley(logs: Floats) -> Parted | None:
    """Among values of shape (rounds, members), at least 2 members; ``None``: fewer than 8 rounds.

    What a member always is and what a round is (their means) are taken off first: neither makes a group.
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
    # values of a round add up to zero: one less of each is free
    free = 1 - 1 / logs.shape[1]
    few, many = math.ceil(near[1] * free), math.floor(min(near[0], near[2]) * free)
    return Parted(apart, sign_tail(few, many) if few < many else 1.0)


def _middles(ordered: Floats) -> tuple[float, float]:
    """Medians of the two parts that differ least within (k-means of two, exact in one dimension)."""
    cut = halves(ordered)
    return float(np.median(ordered[:cut])), float(np.median(ordered[cut:]))


def halves(ordered: Floats) -> int:
    """Where the sum of squares between the two parts is largest: the first of the upper part."""
    n = ordered.size
    left_n = np.arange(1, n)
    sums = (ordered - ordered.mean()).cumsum()[:-1]
    return int(np.argmax(sums**2 * (1 / left_n + 1 / (n - left_n)))) + 1


def median_interval(values: Floats) -> tuple[float | None, float | None]:
    """95 % interval of the median, by the bootstrap; not from fewer than 5 values."""
    if values.size < _FEWEST_RESAMPLED:
        return None, None
    drawn = np.random.default_rng(1).choice(values, size=(_RESAMPLES, values.size))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)


# The ratio of two means, on the scale of logarithms: its variance by the delta method (Oehlert 1992, Am.
# Stat. 46, 27-29), Student's t. An interval is above zero however large the effect or the spread is, and that
# of the inverse ratio is its inverse.


@dataclass(frozen=True, slots=True)
class Moments:
    """Means of baseline and variant, (co)variances of these means, degrees of freedom of the variances."""

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
        """Variance of ``y - rho x``."""
        return max(0.0, self.vyy - 2 * rho * self.vxy + rho * rho * self.vxx)

    def floored(self, wxx: float, wyy: float) -> Moments:
        """With these variances of (independent) means instead, where they are the larger ones."""
        other = replace(self, vxx=wxx, vyy=wyy, vxy=0.0)
        return other if other.variance(self.ratio) > self.variance(self.ratio) else self

    @property
    def log_std_err(self) -> float:
        """Standard error of the ratio's logarithm."""
        return math.sqrt(self.variance(self.ratio)) / abs(self.y)

    def p(self, ratio: float = 1.0) -> float:
        """Two-sided: that the means' true ratio is ``ratio``."""
        away = math.log(self.ratio / ratio)
        if self.log_std_err == 0:
            return 1.0 if away == 0 else 0.0
        return students_tail(away / self.log_std_err, self.degrees)

    def interval(self, alpha: float = 0.05) -> tuple[float, float] | None:
        """Both ends of the ratio's, both above zero; ``None``: too wide to say anything."""
        return positive_interval(self.ratio, self.ratio * self.log_std_err, self.degrees, alpha)
