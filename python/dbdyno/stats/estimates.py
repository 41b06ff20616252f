"""Estimates and their errors: means (after latte's ``Mean{n,value,std_err}``), shares, distributions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import polars as pl


Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""

_T95 = (
    12.706204736175, 4.302652729749, 3.182446305284, 2.776445105198, 2.570581835636, 2.446911851145,
    2.364624251593, 2.306004135204, 2.262157162798, 2.228138851986, 2.200985160092, 2.178812829667,
    2.160368656463, 2.144786687918, 2.131449545560, 2.119905299221, 2.109815577833, 2.100922040241,
    2.093024054408, 2.085963447266, 2.079613844728, 2.073873067904, 2.068657610419, 2.063898561628,
    2.059538552753, 2.055529438643, 2.051830516480, 2.048407141795, 2.045229642133, 2.042272456301,
)  # fmt: skip
"""Student's two-sided 95 % quantiles for 1 to 30 degrees of freedom, so that few values need no core."""


@lru_cache(maxsize=4096)
def students_quantile(degrees: float, alpha: float = 0.05) -> float:
    """Returns the t whose absolute value is exceeded with probability ``alpha``. ``inf`` degrees: the
    normal distribution. Raises ValueError for less than one degree of freedom."""
    if degrees < 1:
        raise ValueError("an interval needs at least two values")
    if alpha == 0.05 and degrees <= len(_T95) and degrees == int(degrees):
        return _T95[int(degrees) - 1]
    from dbdyno.stats import laws  # loads the core

    return laws.students_quantile(alpha, degrees)


def welch_degrees(*variances: tuple[float, float]) -> float:
    """Returns the degrees of freedom of a sum of independent variances of means, given as (variance,
    degrees); ``inf`` if all degrees are infinite or all variances 0 (Welch 1947, Biometrika 34, 28-35)."""
    below = sum(v * v / degrees for v, degrees in variances)
    return sum(v for v, _ in variances) ** 2 / below if below > 0 else math.inf


def students_tail(t: float, degrees: float) -> float:
    """Returns the two-sided p of ``t``."""
    from dbdyno.stats import laws

    return laws.students_tail(t, degrees)


def chi_square_tail(x: float, degrees: int) -> float:
    """Returns the probability of a chi-square of at least ``x`` (Abramowitz and Stegun 1964, 26.4.4 and
    26.4.5)."""
    half, odd = min(x / 2, 1e300), degrees % 2  # a finite sum, which needs no core
    if half <= 0:
        return 1.0
    powers = (n + odd / 2 for n in range(degrees // 2))
    terms = (math.exp(i * math.log(half) - half - math.lgamma(i + 1)) for i in powers)
    return min(math.fsum((odd * math.erfc(math.sqrt(half)), *terms)), 1.0)


def sign_tail(few: int, many: int) -> float:
    """Returns the probability of at most ``few`` heads in ``few + many`` throws of a fair coin."""
    from dbdyno.stats import laws

    return laws.binomial_below(few, few + many, 0.5)


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean of ``n`` values, with the sum of squared deviations ``m2`` (Welford; merge: Chan et al. 1979)."""

    n: int = 0
    value: float = math.nan
    m2: float = 0.0

    @staticmethod
    def of(values: Iterable[float]) -> Mean:
        """Returns the mean of values, by differences from the first in two passes, so that equal values
        have exactly no variance."""
        known = list(values)
        if not known:
            return Mean()
        first, n = known[0], len(known)
        value = first + sum(v - first for v in known) / n
        return Mean(n, value, sum((v - value) * (v - value) for v in known))

    def merge(self, other: Mean) -> Mean:
        """Returns the mean of both sets of values. Commutative and associative within rounding; ``Mean()``
        is neutral."""
        if self.n == 0 or other.n == 0:
            return other if self.n == 0 else self
        n = self.n + other.n
        delta = other.value - self.value
        return Mean(
            n,
            self.value + delta * other.n / n,
            self.m2 + other.m2 + delta * delta * self.n * other.n / n,
        )

    @property
    def std_dev(self) -> float | None:
        """Sample standard deviation; None (not 0) for fewer than two values."""
        return math.sqrt(self.m2 / (self.n - 1)) if self.n > 1 else None

    @property
    def std_err(self) -> float | None:
        """Standard error of the mean; None for fewer than two values."""
        return None if self.std_dev is None else self.std_dev / math.sqrt(self.n)

    @property
    def interval95(self) -> tuple[float, float] | None:
        """Student's 95 % interval of the mean; None for fewer than two values."""
        if self.std_err is None:
            return None
        half = students_quantile(self.n - 1) * self.std_err
        return self.value - half, self.value + half

    @property
    def positive95(self) -> tuple[float, float] | None:
        """The same on a logarithmic scale; see :func:`positive_interval`."""
        if self.std_err is None or self.value <= 0:
            return self.interval95
        return positive_interval(self.value, self.std_err, self.n - 1)

    @property
    def share95(self) -> tuple[float, float] | None:
        """The same on the scale of log odds, so that it stays within 0 and 1 as the mean does."""
        if self.std_err is None or self.std_err == 0 or not 0 < self.value < 1:
            return self.interval95
        odds = self.value / (1 - self.value)
        half = students_quantile(self.n - 1) * self.std_err / (self.value * (1 - self.value))
        factor = math.exp(min(half, math.log(WIDEST)))
        return odds / factor / (1 + odds / factor), odds * factor / (1 + odds * factor)


WIDEST = 1e4
"""Largest ratio of an interval's ends; a wider interval is not reported."""


def positive_interval(
    value: float, std_err: float, degrees: float, alpha: float = 0.05
) -> tuple[float, float] | None:
    """Returns Student's interval on a logarithmic scale, its error by the delta method: both ends are
    above zero, however large the error. ``value`` is above zero. None if it is wider than :data:`WIDEST`."""
    half = students_quantile(degrees, alpha) * std_err / value
    return None if 2 * half > math.log(WIDEST) else (value / math.exp(half), value * math.exp(half))


# Intervals of shares in samples, and effective sample sizes.

Number = TypeVar("Number", float, "pl.Expr", "np.ndarray[Any, Any]")
Many = TypeVar("Many", "pl.Expr", "np.ndarray[Any, Any]")


def unseen(n: int) -> float:
    """Returns the upper end of the 95 % interval of a share that none of ``n`` samples met: 1 -
    0.05^(1/n), for large n the rule of three (Hanley, Lippman-Hand 1983)."""
    return 1 - 0.05 ** (1 / n) if n > 0 else 1.0


def wilson_of(hits: float, n: float) -> tuple[float, float]:
    """Returns Wilson's 95 % interval of ``hits`` out of ``n``; either may be an effective number."""
    low, high = _wilson(hits / n, float(n))
    return max(0.0, low), min(1.0, high)


def wilson(share: Many, n: Many) -> tuple[Many, Many]:
    """Returns the same for a share in ``n`` effective samples, row by row.

    It never leaves [0, 1] and keeps its width at shares of 0 and 1. A share outside of [0, 1] counts as 0
    or 1.
    """
    low, high = _wilson(share.clip(0.0, 1.0), n)
    return low.clip(0.0, 1.0), high.clip(0.0, 1.0)


def _wilson(p: Number, n: Number) -> tuple[Number, Number]:
    """Returns the score interval (Wilson 1927; Brown, Cai, DasGupta 2001, Statistical Science 16, equation
    5)."""
    z2 = Z95 * Z95
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * (p * (1 - p) / n + z2 / (4 * n * n)) ** 0.5
    return middle - half, middle + half


_RARE = (0.0, 0.0513, 0.3554, 0.8177)
"""Lower ends of Poisson's interval for 0 to 3 hits: half the 5 % points of chi-square with 2 x degrees of
freedom."""


def interval(share: pl.Series, n: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Returns Wilson's interval, widened for shares next to 0 or 1: up to 3 hits, or all but 3. Row by row;
    NULL if the share or ``n`` is.

    There Wilson's interval covers as few as 84 of 100; Poisson's end is taken instead, as by Brown, Cai
    and DasGupta (Interval estimation for a binomial proportion, Statistical Science 16, 2001, 4.1.1).
    Effective numbers are not integers: between whole hits the end is interpolated linearly.
    """
    import polars as pl

    ends = interval_ends(share.cast(pl.Float64).to_numpy(), n.cast(pl.Float64).to_numpy())
    low, high = (pl.Series(end) for end in ends)
    if not share.null_count() and not n.null_count():
        return low, high
    unknown = share.is_null() | n.is_null()
    return low.set(unknown, None), high.set(unknown, None)


def interval_ends(share: np.ndarray[Any, Any], n: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Returns both ends of :func:`interval`; NaN if the share or ``n`` is."""
    import numpy as np

    with np.errstate(all="ignore"):
        p = share.clip(0.0, 1.0)
        low, high = (end.clip(0.0, 1.0) for end in _wilson(p, n))
        least, most = _rare(p * n) / n, 1 - _rare((1 - p) * n) / n
        return [
            np.where(p * n <= 3, np.fmin(low, least), low),
            np.where((1 - p) * n <= 3, np.fmax(high, most), high),
        ]


def _rare(hits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Interpolates the lower ends :data:`_RARE` between whole hits."""
    steps = enumerate(pairwise(_RARE))
    return sum(((b - a) * (hits - i).clip(0.0, 1.0) for i, (a, b) in steps), start=0.0 * hits)


def effective(weight: pl.Expr) -> pl.Expr:
    """Returns the effective number of samples of unequal weight (Kish 1965): ``(sum w)^2 / sum w^2``."""
    w = weight.cast(float)
    return w.sum() ** 2 / (w * w).sum()
