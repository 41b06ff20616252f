"""Quantiles of Student's t: by bisection of its exact tail, with many degrees of freedom by expansion."""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

from dbdyno.stats.chance import students_p

MOST_DEGREES = 1000
"""Of the exact tail; more are taken for these many (p then comes out a little too large)."""
_MANY = 200
"""From here on the expansion is right to ten digits."""


def tail(t: float, degrees: int) -> float:
    """Two-sided p of ``t``."""
    return students_p(t, min(degrees, MOST_DEGREES))


@lru_cache(maxsize=4096)
def quantile(degrees: int, alpha: float = 0.05) -> float:
    """The t that is exceeded, on both sides together, with probability ``alpha``."""
    if degrees >= _MANY:
        return _expanded(NormalDist().inv_cdf(1 - alpha / 2), degrees)
    low, high = 0.0, 1.0
    while tail(high, degrees) > alpha:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if tail(middle, degrees) > alpha else (low, middle)
    return middle


def _expanded(z: float, degrees: int) -> float:
    """Abramowitz and Stegun 26.7.5."""
    z2 = z * z
    terms = (
        z * (z2 + 1) / 4,
        z * (5 * z2**2 + 16 * z2 + 3) / 96,
        z * (3 * z2**3 + 19 * z2**2 + 17 * z2 - 15) / 384,
        z * (79 * z2**4 + 776 * z2**3 + 1482 * z2**2 - 1920 * z2 - 945) / 92160,
    )
    return z + sum(term / float(degrees) ** n for n, term in enumerate(terms, start=1))
