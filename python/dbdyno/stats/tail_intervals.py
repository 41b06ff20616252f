"""Intervals of quantiles by order statistics, for values that may be correlated.

The number of values above the true quantile q of n independent values is binomial, which makes two of the
ordered values the ends of its interval (David, Nagaraja 2003, Order Statistics, 7.1). Calls are not
independent: a stall makes many of them slow at once. The variance of the number of values above, from its
course in time, over that of independent values is the design effect (Kish 1965, Survey Sampling, 8.2). The
values count as that many fewer (Woodruff 1952, JASA 47, 635-646).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dbdyno.stats.autocorrelation import Floats, integrated_time
from dbdyno.stats.estimates import Z95, students_quantile

LEAST_ABOVE = 10.0
"""Least number of independent values above a quantile, and below it, that has an interval. With fewer, one
burst more or less moves the quantile out of it."""
LEAST_GROUPS = 3
"""Least number of repeats whose variation is an error."""
LEAST_SECONDS = 30
"""Least number of seconds of a window from which correlation in time can be estimated. In 10 s with a
correlation time of 3 s, two intervals of ten would miss the quantile."""
LEAST_EFFECTIVE = 10.0
"""The same of independent intervals of time."""


def design_effect(
    above: Sequence[float] | Floats, values: Sequence[float] | Floats, extra: float = 0.0
) -> float | None:
    """Returns the variance of the number of values above a threshold, over that of independent values.

    ``above`` and ``values`` are counts of successive seconds, ``extra`` a further variance of the sum of
    ``above``. The result has Student's factor for the number of seconds, and is at least 1. None if there
    are too few seconds, or no or every value is above.
    """
    counts, sizes = np.asarray(above, dtype=float), np.asarray(values, dtype=float)
    seconds, n = len(sizes), float(sizes.sum())
    share = float(counts.sum()) / n if n else 0.0
    if seconds < LEAST_SECONDS or not 0 < share < 1:
        return None
    residuals = counts - share * sizes
    residuals -= residuals.mean()
    squares = float(residuals @ residuals)
    # The first autocorrelation of a short series is too small (Kendall 1954, Biometrika 41, 403-404). One
    # standard error is added (Bartlett 1946), as intervals are too short by far where it is missed.
    first = max(0.0, float(residuals[1:] @ residuals[:-1]) / squares) if squares else 0.0
    first = min(0.98, first + (1 + 3 * first) / seconds + ((1 - first**2) / seconds) ** 0.5)
    time = max(1.0, (1 + first) / (1 - first), integrated_time(residuals) if squares else 1.0)
    if seconds / time < LEAST_EFFECTIVE:
        return None
    variance = squares * seconds / (seconds - 1) * time + extra
    student = students_quantile(seconds / time - 1) / Z95
    return max(1.0, float(variance * student**2 / (n * share * (1 - share))))


def effect_of_groups(above: Sequence[float] | Floats, values: Sequence[float] | Floats) -> float | None:
    """Returns the same from groups that are independent of each other, as repeats are; None for fewer than
    three."""
    counts, sizes = np.asarray(above, dtype=float), np.asarray(values, dtype=float)
    groups, n = len(sizes), float(sizes.sum())
    share = float(counts.sum()) / n if n else 0.0
    if groups < LEAST_GROUPS or not 0 < share < 1:
        return None
    residuals = counts - share * sizes
    variance = groups / (groups - 1) * float(residuals @ residuals)
    student = students_quantile(groups - 1) / Z95
    return max(1.0, float(variance * student**2 / (n * share * (1 - share))))


class Ranks(NamedTuple):
    """Ranks from 1 of the ordered values at the ends of an interval; None: no value is the end."""

    low: int | None
    high: int | None


def ranks(n: int, q: float, effect: float) -> Ranks | None:
    """Returns the ranks of the ends of the 95 % interval of the quantile; None if fewer than
    :data:`LEAST_ABOVE` independent values are above or below it."""
    from scipy.special import bdtrik

    alone = n / effect
    if alone * min(q, 1 - q) < LEAST_ABOVE:
        return None
    # The number above is binomial. With a real number of values its distribution is continuous, too.
    fewest, most = (float(bdtrik(p, alone, 1 - q)) + 1 for p in (0.025, 0.975))
    low = n - int(np.ceil(most * effect)) + 1
    high = n - int(np.floor(fewest * effect)) + 1
    return Ranks(low if low >= 1 else None, high if high <= n else None)
