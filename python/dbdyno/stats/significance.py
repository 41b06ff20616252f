"""Significance: tests of means, of values with errors, of ranks, of signs; combined p.

The exact distribution of the rank sum under ties is built by dynamic programming over doubled midranks,
which are integers (Mann and Whitney 1947; ties: Klotz 1966). A two-sided p is twice the smaller tail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, combinations, permutations, takewhile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dbdyno.stats.estimates import (
    Z95,
    Mean,
    chi_square_tail,
    students_quantile,
    students_tail,
    welch_degrees,
)

FALSE_ALARMS = 0.01
"""Probability of a false alarm, shared by all tests of one kind."""

MOST_EXACT = 200
"""Largest number of values in both samples for the exact distribution; above, the normal approximation."""
MOST_SIGNS = 20
"""Largest number of pairs for the exact distribution; above, random signs."""
DRAWS = 100_000
SEED = 1

EXACT = "exact"
NORMAL = "normal approximation, corrected for ties and continuity"
MONTE_CARLO = f"Monte Carlo, {DRAWS:,} draws, seed {SEED}"
_SAME = 1e-9  # relative difference below which sums count as equal
CONFIDENCE = 0.95
_MOST_PAIRED = 2_000
_MOST_COUNTED = 30
_MOST_OUTLIERS = 20
_MOST_CHOICES, _MOST_STUDENTISED = 10_000, 2_000
MOST_ORDERED = 1000
"""Largest number of values for exact ranks around the median; above, the normal approximation."""

Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]
_MOST_ORDERS = 9_999
_MOST_ENUMERATED = 5_040


class Change(NamedTuple):
    """Means of a first and a second half, and the p of their difference."""

    first: float
    second: float
    p: float  # two-sided

    @property
    def relative(self) -> float:
        return self.second / self.first - 1 if self.first else math.inf


def welch(first: Sequence[float], second: Sequence[float], least_variance: float = 0.0) -> Change | None:
    """Tests whether two halves of a series differ, by Welch's t (1947). The variance of a half's mean is
    at least ``least_variance``, as counts of events have at least that. None for fewer than 3 values in
    one half."""
    a, b = Mean.of(first), Mean.of(second)
    if min(a.n, b.n) < 3:
        return None
    errors = [max(m.m2 / (m.n - 1) / m.n, least_variance) for m in (a, b)]
    if sum(errors) == 0:
        return Change(a.value, b.value, 1.0 if a.value == b.value else 0.0)
    degrees = max(1, math.floor(welch_degrees((errors[0], a.n - 1), (errors[1], b.n - 1))))
    return Change(a.value, b.value, students_tail((b.value - a.value) / math.sqrt(sum(errors)), degrees))


def unequal(values: Sequence[float], variances: Sequence[float]) -> float:
    """Tests whether these values are equal, each with its own variance. Returns the p of Cochran's Q
    (1937)."""
    weights = [1 / v for v in variances]
    middle = sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)
    q = sum(w * (x - middle) ** 2 for w, x in zip(weights, values, strict=True))
    return chi_square_tail(q, len(values) - 1)


class Test(NamedTuple):
    """Result of a test."""

    p: float
    how: str
    least: float
    """The smallest possible p for samples of this size (without ties)."""


def rank_sum(baseline: Sequence[float], variant: Sequence[float]) -> Test | None:
    """Tests whether two samples come from one population; None if one is empty, or all values are equal."""
    both = np.asarray([*baseline, *variant], dtype=float)
    n, m = len(baseline), len(variant)
    if not n or not m or both.min() == both.max():
        return None
    _, place, ties = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    least = min(1.0, 2 / math.comb(n + m, n)) if n + m <= MOST_EXACT else 0.0
    if n + m > MOST_EXACT:
        return Test(_normal(ranks, n), NORMAL, least)
    doubled = np.rint(2 * ranks).astype(np.int64)
    return Test(_exact(doubled, n), EXACT, least)


def _exact(doubled: npt.NDArray[np.int64], n: int) -> float:
    """Returns p of the sum of the first ``n`` doubled midranks among all choices of ``n``."""
    observed = int(doubled[:n].sum())
    few = min(n, len(doubled) - n)  # the sum of the others is equivalent
    if few != n:
        observed = int(doubled.sum()) - observed
    ways = np.zeros((few + 1, int(np.sort(doubled)[-few:].sum()) + 1))
    ways[0, 0] = 1.0
    # ways[k, s] is the number of choices of k of the ranks so far with sum s.
    for nth, rank in enumerate(doubled.tolist()):
        top = min(few, nth + 1)
        ways[1 : top + 1, rank:] += ways[0:top, : ways.shape[1] - rank].copy()
    counts = ways[few]
    lower, upper = counts[: observed + 1].sum(), counts[observed:].sum()
    return min(1.0, float(2 * min(lower, upper) / counts.sum()))


def _normal(ranks: Floats, n: int) -> float:
    """Returns p by the normal approximation (Lehmann 1975, Nonparametrics, 1.3). Ties lower the variance
    of the ranks."""
    m = len(ranks) - n
    spread = math.sqrt(n * m / len(ranks) * float(np.var(ranks, ddof=1)))
    away = abs(float(ranks[:n].sum()) - n * (len(ranks) + 1) / 2) - 0.5
    return min(1.0, math.erfc(max(0.0, away) / spread / math.sqrt(2)))


class Shift(NamedTuple):
    """The shift of one sample against another, with its 95 % interval."""

    value: float
    low: float | None  # None if there are too few values for a 95 % interval
    high: float | None


def shift(baseline: Sequence[float], variant: Sequence[float]) -> Shift:
    """Returns the median of all pairwise differences (Hodges, Lehmann 1963, Ann. Math. Statist. 34,
    598-611) and the 95 % interval that belongs to the rank sum test (Hollander, Wolfe 1999, Nonparametric
    Statistical Methods, 4.3). For large samples evenly spaced quantiles stand in for the values."""
    sides = [np.sort(np.asarray(s, dtype=float)) for s in (baseline, variant)]
    outside = _outside(len(baseline), len(variant))
    a, b = (s[np.linspace(0, len(s) - 1, min(len(s), _MOST_PAIRED)).round().astype(int)] for s in sides)
    gaps = np.sort((b[None, :] - a[:, None]).ravel())
    if outside is None:
        return Shift(float(np.median(gaps)), None, None)
    cut = round(outside * len(gaps))
    return Shift(float(np.median(gaps)), float(gaps[cut]), float(gaps[len(gaps) - 1 - cut]))


def _outside(n: int, m: int) -> float | None:
    """Returns the share of all differences below the interval; as many are above. None if there is no 95 %
    interval."""
    if max(n, m) > _MOST_COUNTED:
        below = n * m / 2 - Z95 * math.sqrt(n * m * (n + m + 1) / 12)
        return max(0, math.floor(below)) / (n * m)
    # Exact: the largest number of orders whose probability is at most 2.5 %, that is 1 / 40.
    orders = accumulate(_orders_of(n, m))
    below = sum(1 for _ in takewhile(lambda ways: 40 * ways <= math.comb(n + m, n), orders))
    return (below - 1) / (n * m) if below else None


def _orders_of(n: int, m: int) -> list[int]:
    """Returns the number of orders of n and m values with 0, 1, 2, ... pairs in which the second is below
    the first: coefficients of the Gaussian binomial, the product of (1 - q^(m + i)) / (1 - q^i)."""
    ways = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):
            ways[u] -= ways[u - m - i]
        for u in range(i, n * m + 1):
            ways[u] += ways[u - i]
    return ways


def outliers(values: Sequence[float], alpha: float = FALSE_ALARMS) -> list[int]:
    """Returns the places of outliers, the farthest first: generalised extreme Studentised deviate (Rosner
    1983, Technometrics 25, 165-172), on logarithms if all values are above zero. At most three of ten, and
    at most 20: more are not outliers."""
    scaled = np.asarray(values, dtype=float)
    scaled = np.log(scaled) if len(scaled) and scaled.min() > 0 else scaled
    left = list(range(len(scaled)))
    removed: list[int] = []
    count = 0
    for _ in range(min(3 * len(scaled) // 10, _MOST_OUTLIERS)):
        rest = scaled[left]
        n, middle, spread = len(rest), float(rest.mean()), float(rest.std(ddof=1))
        if spread <= _SAME * max(1.0, abs(middle)):
            break
        farthest = int(np.argmax(np.abs(rest - middle)))
        away = abs(float(rest[farthest]) - middle) / spread
        removed.append(left.pop(farthest))
        t = students_quantile(n - 2, alpha / n)
        # Rosner's critical value. The last deviate above its own counts, with all farther values.
        if away > (n - 1) * t / math.sqrt((n - 2 + t * t) * n):
            count = len(removed)
    return removed[:count]


def signs(differences: Sequence[float]) -> Test | None:
    """Tests whether the mean of paired differences is 0, by all or random changes of sign. None if all
    differences are 0."""
    values = np.asarray(differences, dtype=float)
    if not len(values) or not values.any():
        return None
    observed = abs(float(values.sum()))
    limit = observed - _SAME * float(np.abs(values).sum())
    n = len(values)
    if n <= MOST_SIGNS:
        sums = np.array([values[0]])  # the other half of the patterns is the mirror image
        for value in values[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return Test(float(np.mean(np.abs(sums) >= limit)), EXACT, 2.0 ** (1 - n))
    random = np.random.default_rng(SEED)
    hits = sum(
        int((np.abs(random.choice((-1.0, 1.0), size=(DRAWS // 10, n)) @ values) >= limit).sum())
        for _ in range(10)
    )
    return Test((hits + 1) / (DRAWS + 1), MONTE_CARLO, 1 / (DRAWS + 1))  # Phipson and Smyth (2010)


def studentised(baseline: Sequence[float], variant: Sequence[float]) -> Test | None:
    """Tests whether two means are equal: Welch's t among those of other choices of as many values. Exact
    if samples come from one population, however skewed; for large samples also if only their means are
    equal (Janssen 1997, Statist. Probab. Lett. 36, 9-21). None if a side has a single value, or there are
    too many values."""
    pool = np.sort(np.asarray([*baseline, *variant], dtype=float))  # the result does not depend on the order
    few = min(baseline, variant, key=len)
    if len(few) < 2 or len(pool) > _MOST_STUDENTISED:
        return None
    middle = float(pool.mean())
    pool -= middle
    ways = math.comb(len(pool), len(few))
    least = 2 / ways
    observed = float(_squared_t((np.asarray(few) - middle)[None, :], pool)[0]) * (1 - _SAME)
    if ways <= _MOST_CHOICES:
        chosen = np.array(list(combinations(range(len(pool)), len(few))))
        return Test(float(np.mean(_squared_t(pool[chosen], pool) >= observed)), EXACT, least)
    random = np.random.default_rng(SEED)
    drawn = (random.random((1_000, len(pool))).argsort(axis=1)[:, : len(few)] for _ in range(10))
    hits = sum(int((_squared_t(pool[choice], pool) >= observed).sum()) for choice in drawn)
    return Test((hits + 1) / 10_001, "Monte Carlo, 10,000 draws", least)


def _squared_t(rows: Floats, pool: Floats) -> Floats:
    """Returns the squared t of each row against the rest of the ``pool``, whose mean is 0."""
    n, m = rows.shape[1], len(pool) - rows.shape[1]
    sums, squares, whole = rows.sum(axis=1), (rows**2).sum(axis=1), float(pool @ pool)
    spread = (squares - sums**2 / n) / (n - 1) / n + (whole - squares - sums**2 / m) / (m - 1) / m
    return np.asarray((sums / n + sums / m) ** 2 / np.maximum(spread, 1e-14 * whole + 1e-300))


def coincidence(first: Marks, second: Marks) -> float | None:
    """Returns the p that marks of ``first`` and ``second`` coincide this often if both are independent; None
    if all or none are marked.

    Both have shape (rounds, members). Members are permuted as a whole, over all rounds, so that persistent
    properties of a member stay together. Uses all orders of few members, else random ones.
    """
    if not first.any() or not second.any() or second.all():
        return None
    n = first.shape[1]
    both = first.T.astype(np.int64) @ second.astype(np.int64)  # [i, j]: rounds of i in one, j in the other
    orders = _orders(n)
    coinciding = both[np.arange(n), orders].sum(axis=1)
    observed = int(np.trace(both))
    if math.factorial(n) <= _MOST_ENUMERATED:
        return float(np.count_nonzero(coinciding >= observed) / coinciding.size)
    return float((1 + np.count_nonzero(coinciding >= observed)) / (1 + coinciding.size))


def _orders(n: int) -> npt.NDArray[np.int64]:
    """Returns all permutations of n, or random ones."""
    if math.factorial(n) <= _MOST_ENUMERATED:
        return np.array(list(permutations(range(n))), dtype=np.int64)
    draws = max(999, min(_MOST_ORDERS, 2_000_000 // n))
    return np.random.default_rng(n).permuted(np.tile(np.arange(n), (draws, 1)), axis=1).astype(np.int64)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Returns p adjusted so that all claims hold together (Holm 1979, Scand. J. Statist. 6, 65-70), in the
    given order. An unknown p makes no claim and stays None."""
    known = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    adjusted: list[float | None] = [None] * len(ps)
    highest = 0.0
    for rank, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        adjusted[i] = highest
    return adjusted


def fisher(ps: Sequence[float]) -> float:
    """Combines independent p (Fisher 1932): -2 ln of their product is chi-square."""
    return chi_square_tail(-2 * sum(math.log(max(p, 1e-300)) for p in ps), 2 * len(ps))


def order_interval(n: int) -> tuple[int, int, float]:
    """Returns the ranks (from 1) of the two values that enclose the median, and the confidence. Ranks 0 and n
    + 1: there is no such value.

    As benchstat: the gaps between ordered values, each with its binomial probability to contain the
    median, are added from the middle outwards, the lower of two equal ones first, until they reach 95 %.
    Above 1,000 values by the normal approximation (Conover 1999, Practical Nonparametric Statistics, 3.2).
    """
    if n > MOST_ORDERED:
        low = math.floor((n - Z95 * math.sqrt(n)) / 2)
        return low, n + 1 - low, CONFIDENCE
    covered, low, high = 0, n, 0
    for gap in sorted(range(n + 1), key=lambda k: (abs(2 * k - n), k)):
        covered += math.comb(n, gap)
        low, high = min(low, gap), max(high, gap)
        if covered >= CONFIDENCE * 2**n:
            break
    return low, high + 1, covered / 2**n
