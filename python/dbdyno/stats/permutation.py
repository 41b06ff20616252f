"""Permutation tests: of the rank sum (two independent samples), of the signs of differences (pairs).

The rank sum's exact distribution under ties is built by dynamic programming over doubled midranks, which are
whole numbers: as Mann and Whitney (1947), ties as Klotz (1966). Two-sided p: twice the smaller tail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MOST_EXACT = 200
"""Values in both samples together: beyond, the normal approximation."""
MOST_SIGNS = 20
"""Pairs: beyond, random signs."""
DRAWS = 100_000
SEED = 1

EXACT = "exact"
NORMAL = "normal approximation, corrected for ties and continuity"
MONTE_CARLO = f"Monte Carlo, {DRAWS:,} draws, seed {SEED}"
_SAME = 1e-9  # sums that differ by less, relatively, are equal

Floats = npt.NDArray[np.float64]


class Test(NamedTuple):
    p: float
    how: str
    least: float
    """The smallest p that samples of this size can give (without ties)."""


def midranks(values: Floats) -> Floats:
    """Rank of each value, from 1; equal ones share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place])


def rank_sum(baseline: Sequence[float], variant: Sequence[float]) -> Test | None:
    """Do the two samples come from one population? ``None``: one is empty, or all values are equal."""
    both = np.asarray([*baseline, *variant], dtype=float)
    n, m = len(baseline), len(variant)
    if not n or not m or both.min() == both.max():
        return None
    ranks = midranks(both)
    least = min(1.0, 2 / math.comb(n + m, n)) if n + m <= MOST_EXACT else 0.0
    if n + m > MOST_EXACT:
        return Test(_normal(ranks, n), NORMAL, least)
    doubled = np.rint(2 * ranks).astype(np.int64)
    return Test(_exact(doubled, n), EXACT, least)


def _exact(doubled: npt.NDArray[np.int64], n: int) -> float:
    """Of the sum of the first ``n`` doubled midranks among all choices of ``n``."""
    observed = int(doubled[:n].sum())
    few = min(n, len(doubled) - n)  # the sum of the others tells the same
    if few != n:
        observed = int(doubled.sum()) - observed
    ways = np.zeros((few + 1, int(np.sort(doubled)[-few:].sum()) + 1))
    ways[0, 0] = 1.0
    for nth, rank in enumerate(doubled.tolist()):
        top = min(few, nth + 1)
        ways[1 : top + 1, rank:] += ways[0:top, : ways.shape[1] - rank].copy()
    counts = ways[few]
    lower, upper = counts[: observed + 1].sum(), counts[observed:].sum()
    return min(1.0, float(2 * min(lower, upper) / counts.sum()))


def _normal(ranks: Floats, n: int) -> float:
    """Lehmann (1975), Nonparametrics, 1.3; ties lower the variance of the ranks."""
    m = len(ranks) - n
    spread = math.sqrt(n * m / len(ranks) * float(np.var(ranks, ddof=1)))
    away = abs(float(ranks[:n].sum()) - n * (len(ranks) + 1) / 2) - 0.5
    return min(1.0, math.erfc(max(0.0, away) / spread / math.sqrt(2)))


def signs(differences: Sequence[float]) -> Test | None:
    """Is the mean of paired differences 0? Every sign may be turned over. ``None``: none differs from 0."""
    values = np.asarray(differences, dtype=float)
    if not len(values) or not values.any():
        return None
    observed = abs(float(values.sum()))
    limit = observed - _SAME * float(np.abs(values).sum())
    n = len(values)
    if n <= MOST_SIGNS:
        sums = np.array([values[0]])  # the other half of the patterns is its mirror image
        for value in values[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return Test(float(np.mean(np.abs(sums) >= limit)), EXACT, 2.0 ** (1 - n))
    random = np.random.default_rng(SEED)
    hits = sum(
        int((np.abs(random.choice((-1.0, 1.0), size=(DRAWS // 10, n)) @ values) >= limit).sum())
        for _ in range(10)
    )
    return Test((hits + 1) / (DRAWS + 1), MONTE_CARLO, 1 / (DRAWS + 1))  # Phipson and Smyth (2010)
