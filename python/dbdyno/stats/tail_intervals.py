"""Intervals of quantiles by order statistics, for values that may be correlated.

The number of values above the true quantile q of n independent values is binomial, which makes two of the
ordered values the ends of its interval (David, Nagaraja 2003, Order Statistics, 7.1). Calls are not
independent: a stall makes many of them slow at once. The variance of the number of values above, from its
course in time, over that of independent values is the design effect (Kish 1965, Survey Sampling, 8.2). The
values count as that many fewer (Woodruff 1952, JASA 47, 635-646).

An interval that is shown has to hold, not only most of all that could be asked for. So a window in which
levels last long, as far as it shows, has none.
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
LEAST_SECONDS = 60
"""Least number of seconds of a window from which its own variation is an error. In 30 s, levels that last as
long pass for steady too often."""
LEAST_EFFECTIVE = 15.0
"""The same of independent intervals of time."""
SURE = 0.01
"""Share of errors that the factors of Student's distribution allow. An interval is refused where the
variation looks large, so those that are shown are more often wrong than all: up to as many times as the share
shown is below 1. With one in a hundred, intervals shown in a fifth of the windows still hold in 95 of 100."""
SURE_OF_GROUPS = 0.003
"""The same of repeats. Levels that last longer than they do let few intervals through, the worst of all."""
_LOW, _SUM, _HIGH = 3, 6, 30
"""Cosine waves that show levels; from which the error of a sum follows; with which both are compared."""
_PASSED = 0.9
"""Share of steady series that pass one test. Where the test is weak, levels of 30 s pass as steady."""
_WEIGHTED = 0.28
"""Limit of the weighted squares (Nyblom, Makelainen 1983, JASA 78, 856-864), which 85 of 100 series of
independent values do not exceed."""


def _waves(residuals: Floats, n: int) -> Floats:
    """Returns the squares of the series' first cosine waves. Each has the variance of the sum as its mean, if
    the correlation in time is short."""
    frequency = np.arange(1, n + 1)[:, None]
    place = (np.arange(len(residuals)) + 0.5) / len(residuals)
    return np.asarray(2 * (np.cos(np.pi * frequency * place) @ residuals) ** 2)


def _residuals(sums: Floats, sizes: Floats) -> Floats:
    return np.asarray(sums - sums.sum() / sizes.sum() * sizes)


def is_steady(sums: Sequence[float] | Floats, values: Sequence[float] | Floats) -> bool:
    """Returns whether a window is long compared with the time for which levels last, as far as it shows.

    ``sums`` and ``values`` are of successive seconds: what is summed, and the number of values. The slowest
    waves of steady series are not higher than others (Mueller, Watson 2008, Econometrica 76, 979-1016), and
    their neighbours differ.
    """
    from dbdyno.stats.laws import f_quantile

    series = np.asarray(sums, dtype=float)
    residuals = _residuals(series, np.asarray(values, dtype=float))
    seconds = len(residuals)
    if seconds < LEAST_SECONDS:
        return False
    squares = _waves(residuals, _HIGH)
    if squares.max() <= (1e-9 * np.abs(series).sum()) ** 2:  # rounding
        return True
    level = float(squares[_SUM:].mean())
    slow, frequency = squares / level, np.pi * np.arange(1, _SUM + 1)
    return bool(
        seconds / _correlation_time(residuals - residuals.mean()) >= LEAST_EFFECTIVE
        and all(slow[:k].mean() <= f_quantile(_PASSED, k, _HIGH - _SUM) for k in (1, _LOW))
        and (slow[:_SUM] / frequency**2).sum() <= _WEIGHTED
    )


def _correlation_time(residuals: Floats) -> float:
    """Returns the integrated autocorrelation time in seconds, not too small but by chance."""
    squares, seconds = float(residuals @ residuals), len(residuals)
    if not squares:
        return 1.0
    # The first autocorrelation of a short series is too small (Kendall 1954, Biometrika 41, 403-404). One
    # standard error is added (Bartlett 1946), as intervals are too short by far where it is missed.
    first = max(0.0, float(residuals[1:] @ residuals[:-1]) / squares)
    first = min(0.98, first + (1 + 3 * first) / seconds + ((1 - first**2) / seconds) ** 0.5)
    return float(max(1.0, (1 + first) / (1 - first), integrated_time(residuals)))


def design_effect(
    above: Sequence[float] | Floats, values: Sequence[float] | Floats, extra: float = 0.0
) -> float | None:
    """Returns the variance of the number of values above a threshold, over that of independent values.

    ``above`` and ``values`` are counts of successive seconds, ``extra`` a further variance of the sum of
    ``above``. The variance is that of the slowest waves, with Student's factor for their number, and at least
    that of seconds. The result is at least 1. None if the seconds are too few or not steady, or no or every
    value is above.
    """
    counts, sizes = np.asarray(above, dtype=float), np.asarray(values, dtype=float)
    seconds, n = len(sizes), float(sizes.sum())
    share = float(counts.sum()) / n if n else 0.0
    if not 0 < share < 1 or not is_steady(counts, sizes):
        return None
    residuals = _residuals(counts, sizes)
    slow = float(_waves(residuals, _SUM).mean()) * _widened(_SUM)
    single = float(residuals @ residuals) * seconds / (seconds - 1) * _widened(seconds - 1)
    return max(1.0, (max(slow, single) + extra) / (n * share * (1 - share)))


def _widened(degrees: int, alpha: float = SURE) -> float:
    """Returns the factor of a variance of so many degrees of freedom with which an interval that is normal at
    95 % is Student's at ``alpha``."""
    return float(students_quantile(degrees, alpha) / Z95) ** 2


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
    # Less than the binomial variance is chance: bursts of equal number in all of three repeats.
    return max(1.0, variance / (n * share * (1 - share))) * _widened(groups - 1, SURE_OF_GROUPS)


class Ranks(NamedTuple):
    """Ranks from 1 of the ordered values at the ends of an interval; None: no value is the end."""

    low: int | None
    high: int | None


def ranks(n: int, q: float, effect: float) -> Ranks | None:
    """Returns the ranks of the ends of the 95 % interval of the quantile; None if fewer than
    :data:`LEAST_ABOVE` independent values are above or below it."""
    from dbdyno.stats.laws import binomial_count

    alone = n / effect
    if alone * min(q, 1 - q) < LEAST_ABOVE:
        return None
    # The number above is binomial. With a real number of values its distribution is continuous, too.
    fewest, most = (binomial_count(p, alone, 1 - q) + 1 for p in (0.025, 0.975))
    low = n - int(np.ceil(most * effect)) + 1
    high = n - int(np.floor(fewest * effect)) + 1
    return Ranks(low if low >= 1 else None, high if high <= n else None)
