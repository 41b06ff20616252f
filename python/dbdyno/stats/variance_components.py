"""Variance components of nested measurements: estimates with their degrees of freedom, and intervals.

A level of nesting (a window, the sessions, a start of the server) adds its own variance to that of the levels
below it. Its variance is the difference of two mean squares, and so may come out below zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dbdyno.stats.autocorrelation import Floats
from dbdyno.stats.estimates import Mean
from dbdyno.stats.laws import chi_square_quantile, f_quantile

_LEAST_VALUES = 10
_COVERED = 0.95


class Variance(NamedTuple):
    """An estimate that is distributed as a chi-square of these degrees of freedom, times a factor."""

    value: float
    degrees: float

    def upper(self, confidence: float) -> float:
        """Returns the bound that the variance is below with this confidence."""
        return self.value * self.degrees / chi_square_quantile(confidence, self.degrees)

    @property
    def interval95(self) -> tuple[float, float]:
        tail = (1 - _COVERED) / 2
        return self.upper(tail), self.upper(1 - tail)

    def times(self, factor: float) -> Variance:
        return Variance(self.value * factor, self.degrees)


def pooled(groups: Iterable[Sequence[float]]) -> Variance | None:
    """Returns the variance within groups about their own means; None without two values in a group."""
    means = [Mean.of(g) for g in groups if len(g) > 1]
    degrees = sum(m.n - 1 for m in means)
    return Variance(sum(m.m2 for m in means) / degrees, degrees) if degrees else None


def successive(groups: Iterable[Sequence[float]]) -> Variance | None:
    """Returns half the mean square of differences of neighbours in their order, which slow changes hardly
    touch; None without neighbours.

    Its degrees of freedom are those of chi-square with its variance for independent normal values: of n
    values, 2 (n - 1)^2 / (3 n - 4) (von Neumann and others 1941, Ann. Math. Statist. 12, 153-162).
    """
    several = [np.asarray(g, dtype=float) for g in groups if len(g) > 1]
    differences = sum(len(g) - 1 for g in several)
    if not differences:
        return None
    squares = sum(float((np.diff(g) ** 2).sum()) for g in several)
    degrees = 2 * differences**2 / sum(3 * len(g) - 4 for g in several)
    return Variance(squares / (2 * differences), degrees)


def of_sum(*parts: Variance) -> Variance:
    """Returns the sum of independent estimates, of which some may be negative, with the degrees of freedom of
    Satterthwaite (1946, Biometrics Bulletin 2, 110-114). A sum that is not above zero is 0."""
    value = math.fsum(p.value for p in parts)
    below = math.fsum(p.value**2 / p.degrees for p in parts)
    return Variance(max(0.0, value), max(1.0, value**2 / below) if below and value > 0 else 1.0)


def excess(above: Variance, below: Variance) -> tuple[float, float, float]:
    """Returns the variance that ``above`` has beyond ``below``, with its 95 % interval; each is at least 0.

    The interval is that of Ting, Burdick, Graybill, Jeyaratnam and Lu (1990, J. Stat. Comput. Simul. 35,
    135-143) for a difference of mean squares; it keeps its level where Satterthwaite's does not.
    """
    tail = (1 - _COVERED) / 2
    a, b = above.value, below.value

    def gap(values: tuple[float, float], degrees: tuple[float, float], lower: bool) -> float:
        (x, y), (n, m) = values, degrees
        p = tail if lower else 1 - tail  # upper tail of the first mean square
        g = 1 - n / chi_square_quantile(p, n)
        h = m / chi_square_quantile(1 - p, m) - 1
        f = f_quantile(1 - p, n, m)
        cross = ((f - 1) ** 2 - g * g * f * f - h * h) / f
        return math.sqrt(max(0.0, g * g * x * x + h * h * y * y + cross * x * y))

    low = a - b - gap((a, b), (above.degrees, below.degrees), lower=True)
    high = a - b + gap((a, b), (above.degrees, below.degrees), lower=False)
    return max(0.0, a - b), max(0.0, low), max(0.0, high)


class LongRun(NamedTuple):
    """The variance of the mean of a correlated series, times its length, where that is long."""

    variance: Variance
    steps: float
    """Integrated autocorrelation time."""


def long_run(series: Sequence[Sequence[float]]) -> LongRun | None:
    """Returns the long-run variance of several short series of one law, each about its own mean; None for
    fewer than ten values, or of one value each.

    Autocovariances are pooled over the series, because those of ten values are too uncertain. A mean that is
    subtracted lowers each of them by the long-run variance over the length, which is given back. Lags count
    up to the first that is within two standard errors of 0.
    """
    several = [np.asarray(s, dtype=float) - np.mean(s) for s in series if len(s) > 1]
    n = sum(map(len, several))
    if n < _LEAST_VALUES:
        return None
    length = n / len(several)
    autocovariance = [_autocovariance(several, lag) for lag in range(int(length / 3) + 1)]
    total, whole = autocovariance[0], autocovariance[0] / (1 - 1 / length)
    variance, lags = whole, 0
    for lag, covariance in enumerate(autocovariance[1:], start=1):
        if abs(covariance + whole / length) <= 2 * variance / math.sqrt(n):
            break
        total, lags = total + 2 * covariance, lag
        whole = max(total / (1 - (2 * lag + 1) / length), variance / length)
    degrees = max(1.0, (n - len(several)) / (2 * lags + 1))  # of a sum of so many autocovariances
    return LongRun(Variance(whole, degrees), whole / variance if variance > 0 else 1.0)


def _autocovariance(centred: Sequence[Floats], lag: int) -> float:
    """Returns the mean product of values that are ``lag`` apart in one series."""
    products = [float(s[lag:] @ s[: len(s) - lag]) for s in centred if len(s) > lag]
    return math.fsum(products) / max(1, sum(len(s) - lag for s in centred if len(s) > lag))
