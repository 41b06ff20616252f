"""Quantiles of Student's t, by bisection of its exact tail."""

from __future__ import annotations

from functools import lru_cache

from dbdyno.analyze.chance import students_p

MOST_DEGREES = 1000
"""More are taken for these many: the 95 % quantile is 0.12 % wider than the normal one."""


def tail(t: float, degrees: int) -> float:
    """Two-sided p of ``t``."""
    return students_p(t, min(degrees, MOST_DEGREES))


@lru_cache(maxsize=4096)
def quantile(degrees: int, alpha: float = 0.05) -> float:
    """The t that is exceeded, on both sides together, with probability ``alpha``."""
    low, high = 0.0, 1.0
    while tail(high, degrees) > alpha:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if tail(middle, degrees) > alpha else (low, middle)
    return (low + high) / 2
