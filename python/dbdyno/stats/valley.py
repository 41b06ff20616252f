"""Do the calls of many rounds fall apart into two groups, whosever they are? A valley between two hills.

A density of one hill is nowhere lower than at both of two places around. So of three windows of one width, in
the middle and at the middles of the two halves, the middle one holds no fewer calls than the emptier of the
others, but by chance: a sign test, whatever the population is.
"""

from __future__ import annotations

import math

import numpy as np

from dbdyno.stats.gaps import LEAST_RATIO, Floats, Parted

FEWEST_ROUNDS = 8


def valley(logs: Floats) -> Parted | None:
    """Of shape (rounds, N), N at least 2; ``None``: under 8 rounds.

    What a session always is and what a round is (their means) are taken off first: neither makes a
    group.
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
    # calls of a round add up to zero: one less of each is free
    free = 1 - 1 / logs.shape[1]
    return Parted(apart, _rarer(math.ceil(near[1] * free), math.floor(min(near[0], near[2]) * free)))


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


def _rarer(few: int, many: int) -> float:
    """Chance of at most ``few`` heads in ``few + many`` throws (binomial, exact)."""
    n = few + many
    if few >= many:
        return 1.0
    terms = (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(few + 1))
    return min(1.0, sum(math.exp(t - n * math.log(2)) for t in terms))
