"""The power of Student's test of a mean of differences: repeats for a difference, and the reverse."""

from __future__ import annotations

import math
from functools import lru_cache

from dbdyno.stats.estimates import students_quantile

MOST = 10_000
"""Largest number of repeats that is looked for."""


def power(shift: float, repeats: int, alpha: float) -> float:
    """Returns the probability that the two-sided test of ``repeats`` differences is significant, in the right
    direction, if their mean is ``shift`` standard deviations from 0 (noncentral t)."""
    from dbdyno.stats.laws import noncentral_t_above

    degrees = repeats - 1
    limit = students_quantile(degrees, alpha)
    centre = shift * math.sqrt(repeats)
    if centre > limit + 10:  # would take long
        return 1.0
    return noncentral_t_above(limit, degrees, centre)


@lru_cache(maxsize=4096)
def least_shift(repeats: int, alpha: float, wanted: float) -> float:
    """Returns the least mean, in standard deviations of a difference, that ``repeats`` find with probability
    ``wanted``. By bisection."""
    low, high = 0.0, 2 * students_quantile(repeats - 1, alpha)
    while power(high, repeats, alpha) < wanted:
        high *= 2
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle, repeats, alpha) < wanted else (low, middle)
    return high


def repeats_for(shift: float, alpha: float, wanted: float, least: int) -> int | None:
    """Returns the fewest repeats, ``least`` or more, that find a mean of ``shift`` standard deviations with
    probability ``wanted``; None if they are more than :data:`MOST`."""
    if shift <= 0 or least_shift(MOST, alpha, wanted) > shift:
        return None
    low, high = least - 1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if least_shift(middle, alpha, wanted) <= shift else (middle, high)
    return high
