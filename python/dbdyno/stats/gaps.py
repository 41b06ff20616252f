"""Do the sessions fall apart into two groups? The largest gap between them, against one population.

Logarithms of durations are sorted and cut where the gap is largest against the spread within the two parts.
How large that gets by chance is simulated with a population of long tails (Student's t of 3 degrees): times
of real machines have them, and against the normal law every hiccup would be a group.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_RATIO = 1.10
"""A gap narrower than this is no group, however sharp it is."""
RESOLUTION = 0.002
"""Spread within a group is taken to be at least this part: clocks and prints have a resolution."""
_DRAWS, _FEWEST_DRAWS, _NUMBERS = 9_999, 1_999, 1_000_000


class Parted(NamedTuple):
    """Two groups, and how likely one population looks so."""

    apart: float  # of their middles, in logarithms
    p: float


def gap(logs: Floats) -> Parted | None:
    """Of sessions, shape (N,); ``None``: under 3."""
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
    """Of sorted rows (draws, N): each gap, and the standard deviation within its two parts (pooled)."""
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
