"""The capacity: the level at which throughput stays when the asked rate rises.

Throughput is the smaller of the rate and the capacity. Below the capacity its slope is known (1), so only
rates that were not delivered carry information on the level. A rate close to the capacity counts as not
delivered if the system was slow or arrivals were many by chance: its throughput is low by selection. Rates
within two standard deviations of their throughput are therefore left out if others remain; the choice is by
rate. If a fall at higher rates can be neither shown nor excluded, the interval contains both the mean of all
rates and a straight line's value at the lowest rate.

Errors at neighbouring rates may be correlated, as a disturbance lasts longer than one measurement.
Intervals are widened by the effect of a first-order autoregression along the rates on means and slopes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from dbdyno.stats.estimates import Mean, students_quantile

_EXACT = 1e-3
"""Least relative error of a throughput."""
_SERIES = 3
_CORRELATIONS = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Correlations of neighbouring rates that are averaged over. Nearer to 1, few rates do not determine a
level."""
LEVEL = 0.03
"""Largest share by which a level may change from the lowest rate to the highest, with 95 % confidence."""
_NEAR = 2.0
"""Least distance of a rate above its throughput, in standard deviations of a measurement."""


class Delivered(NamedTuple):
    rate: float  # asked for, per second
    value: float  # delivered, per second


@dataclass(frozen=True)
class Capacity:
    """The capacity per second, with 95 % interval ``low`` to ``high``; None if unknown.

    Kinds: ``level``, equal at all rates within the error; ``falls``, significantly less at higher rates,
    with ``value`` at the lowest; ``rises``, significantly more, with ``value`` at the highest as a lower
    bound; ``single``, one measurement.
    """

    kind: Literal["level", "falls", "rises", "single"]
    value: float
    points: tuple[Delivered, ...]
    """The measurements that it follows from, by rate."""
    low: float | None = None
    high: float | None = None
    change: tuple[float, float] | None = None
    """95 % interval of the change from the lowest to the highest rate, as a share of their mean.

    None for fewer than two rates or three points."""


def capacity(measured: Sequence[Delivered]) -> Capacity:
    """Returns the capacity by one or more measurements at rates that were not delivered."""
    points = _clearly_above(tuple(sorted(measured)))
    mean = Mean.of(p.value for p in points)
    if mean.std_dev is None:
        return Capacity("single", mean.value, points)
    line, wider = _line(points), _widening(points)
    half = max(
        wider[0] * students_quantile(mean.n - 1) * mean.std_dev / math.sqrt(mean.n), _EXACT * mean.value
    )
    level = Capacity("level", mean.value, points, max(0.0, mean.value - half), mean.value + half)
    if line is None:
        return level
    line = replace(line, wider=wider)
    low, high = line.change(mean.value)
    level = replace(level, change=(low, high))
    if high < 0:
        return _at_lowest(replace(level, kind="falls"))
    if low > 0:
        top = Mean.of(p.value for p in points if p.rate == points[-1].rate)
        return replace(level, kind="rises", value=top.value, low=None, high=None)
    return level if max(-low, high) <= LEVEL else _with_possible_fall(level, line)


@dataclass(frozen=True)
class _Line:
    """Throughput as a linear function of the logarithm of the rate, by least squares."""

    middle: float
    mean: float
    slope: float
    spread: float
    ends: tuple[float, float]
    sd: float
    points: int
    wider: tuple[float, float] = (1.0, 1.0)
    """Factors on the standard errors of mean and slope by correlated errors."""

    def at(self, x: float) -> float:
        return self.mean + self.slope * (x - self.middle)

    @property
    def t(self) -> float:
        return students_quantile(self.points - 2)

    def half(self, x: float) -> float:
        of_mean = self.wider[0] ** 2 / self.points
        return self.t * self.sd * math.sqrt(of_mean + (self.wider[1] * (x - self.middle)) ** 2 / self.spread)

    def change(self, level: float) -> tuple[float, float]:
        reach = (self.ends[1] - self.ends[0]) / level
        half = max(self.wider[1] * self.t * self.sd / math.sqrt(self.spread) * reach, _EXACT)
        return self.slope * reach - half, self.slope * reach + half


def _line(points: tuple[Delivered, ...]) -> _Line | None:
    """Returns the line; None for fewer than two rates or three points."""
    n, x = len(points), [math.log(p.rate) for p in points]
    if n < 3 or x[0] == x[-1]:
        return None
    middle, mean = sum(x) / n, sum(p.value for p in points) / n
    spread = sum((v - middle) ** 2 for v in x)
    off = [p.value - mean for p in points]
    slope = sum((v - middle) * o for v, o in zip(x, off, strict=True)) / spread
    rest = sum((o - slope * (v - middle)) ** 2 for v, o in zip(x, off, strict=True))
    return _Line(middle, mean, slope, spread, (x[0], x[-1]), math.sqrt(rest / (n - 2)), n)


def _widening(points: tuple[Delivered, ...]) -> tuple[float, float]:
    """Returns the factors by which correlated errors widen the standard errors of mean and slope, at least
    1. They cannot be estimated from fewer than :data:`_SERIES` rates, and are 1 then."""
    rates = sorted({p.rate for p in points})
    if len(rates) < _SERIES:
        return 1.0, 1.0
    import numpy as np  # numpy takes longer to load than all else in this module

    from dbdyno.stats.least_squares import autoregressive, ols

    x, y = np.log(rates), np.array([Mean.of(p.value for p in points if p.rate == r).value for r in rates])
    fit = ols(np.column_stack([np.ones_like(x), x - x.mean()]), y)
    independent = fit.rss / fit.degrees * np.diag(fit.bread)
    if float(independent.min()) <= 0:
        return 1.0, 1.0
    of_mean, of_slope = np.sqrt(np.maximum(autoregressive(fit, np.array(_CORRELATIONS)) / independent, 1.0))
    return float(of_mean), float(of_slope)


def _clearly_above(points: tuple[Delivered, ...]) -> tuple[Delivered, ...]:
    """Returns the points whose rate is above the throughput by more than chance; all points if fewer than
    two remain."""
    mean, line = Mean.of(p.value for p in points), _line(points)

    def most(rate: float) -> float:
        if line is None:
            return mean.value + _NEAR * (mean.std_dev or 0.0)
        return line.at(math.log(rate)) + _NEAR * line.sd

    clear = tuple(p for p in points if p.rate > most(p.rate))
    return clear if len(clear) > 1 else points


def _with_possible_fall(level: Capacity, line: _Line) -> Capacity:
    """Widens the interval to contain the line's interval at the lowest rate."""
    first = line.ends[0]
    low, high = line.at(first) - line.half(first), line.at(first) + line.half(first)
    assert level.low is not None and level.high is not None
    return replace(level, low=max(0.0, min(level.low, low)), high=max(level.high, high))


def _at_lowest(falling: Capacity) -> Capacity:
    """Returns the mean at the lowest rate, with an error from the scatter of all repeats about their
    rate's mean."""
    rates = sorted({p.rate for p in falling.points})
    means = [Mean.of(p.value for p in falling.points if p.rate == r) for r in rates]
    first, degrees = means[0], sum(m.n - 1 for m in means)
    if not degrees:
        return replace(falling, value=first.value, low=None, high=None)
    error = math.sqrt(sum(m.m2 for m in means) / degrees / first.n)
    half = max(students_quantile(degrees) * error, _EXACT * first.value)
    return replace(falling, value=first.value, low=max(0.0, first.value - half), high=first.value + half)
