"""The level at which what is delivered stays when more is asked for.

Delivered is the smaller of the rate and the capacity, so its slope below the capacity is known (1), and only
the rates that were not delivered say how high the level is. A rate close to it counts as not delivered where
chance made the system slow or the arrivals many: what was measured there is low by selection. Such rates,
within two standard deviations of what is delivered there, are left out where there are others; the choice is
by the rate. Where a fall at higher rates can be neither shown nor excluded, the interval holds both the mean
of all and what a straight line has at the lowest rate.

Errors may resemble those of the rates beside them: what disturbs a ladder lasts longer than a measurement.
Intervals are wider by as much as a first-order autoregression along the rates makes means and slopes less
certain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from dbdyno.stats.estimates import Mean, students_quantile

_EXACT = 1e-3
"""No throughput counts as known to better than this share."""
_SERIES = 3
_RESEMBLING = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Correlations of neighbouring rates that are thought of. Nearer to 1 a few rates say nothing of a level."""
LEVEL = 0.03
"""It is level where it surely changes by no more than this share from the lowest rate to the highest."""
_NEAR = 2.0
"""Standard deviations of a measurement by which a rate must lie above what is delivered."""


class Delivered(NamedTuple):
    rate: float  # asked for, per second
    value: float  # delivered, per second


@dataclass(frozen=True)
class Capacity:
    """``level``: the same at all rates but for chance; ``falls``: less at higher rates, 95 % sure, ``value``
    is that of the lowest; ``rises``: more, ``value`` is that of the highest, and a lower bound; ``single``:
    one measurement. Per second; ``low``, ``high``: 95 % interval, ``None``: not known."""

    kind: Literal["level", "falls", "rises", "single"]
    value: float
    points: tuple[Delivered, ...]
    """Those that it rests on, by rate."""
    low: float | None = None
    high: float | None = None
    change: tuple[float, float] | None = None
    """95 % interval of the change from the lowest to the highest rate, as a share of their mean; ``None``:
    fewer than two rates or three points."""


def capacity(over: Sequence[Delivered]) -> Capacity:
    """``over``: one or more measurements at rates that were not delivered."""
    points = _clear(tuple(sorted(over)))
    mean = Mean.of(p.value for p in points)
    if mean.std_dev is None:
        return Capacity("single", mean.value, points)
    line, wider = _line(points), _wider(points)
    half = max(
        wider[0] * students_quantile(mean.n - 1) * mean.std_dev / math.sqrt(mean.n), _EXACT * mean.value
    )
    made = Capacity("level", mean.value, points, max(0.0, mean.value - half), mean.value + half)
    if line is None:
        return made
    line = replace(line, wider=wider)
    low, high = line.change(mean.value)
    made = replace(made, change=(low, high))
    if high < 0:
        return _at_lowest(replace(made, kind="falls"))
    if low > 0:
        top = Mean.of(p.value for p in points if p.rate == points[-1].rate)
        return replace(made, kind="rises", value=top.value, low=None, high=None)
    return made if max(-low, high) <= LEVEL else _or_falling(made, line)


@dataclass(frozen=True)
class _Line:
    """Throughput over the logarithm of the rate, by least squares."""

    middle: float
    mean: float
    slope: float
    spread: float
    ends: tuple[float, float]
    sd: float
    points: int
    wider: tuple[float, float] = (1.0, 1.0)
    """Of mean and slope, standard errors over those of independent errors."""

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
    """``None``: fewer than two rates or three points."""
    n, x = len(points), [math.log(p.rate) for p in points]
    if n < 3 or x[0] == x[-1]:
        return None
    middle, mean = sum(x) / n, sum(p.value for p in points) / n
    spread = sum((v - middle) ** 2 for v in x)
    off = [p.value - mean for p in points]
    slope = sum((v - middle) * o for v, o in zip(x, off, strict=True)) / spread
    rest = sum((o - slope * (v - middle)) ** 2 for v, o in zip(x, off, strict=True))
    return _Line(middle, mean, slope, spread, (x[0], x[-1]), math.sqrt(rest / (n - 2)), n)


def _wider(points: tuple[Delivered, ...]) -> tuple[float, float]:
    """What errors that resemble their neighbours' make of the standard errors of mean and slope, 1 at least;
    with fewer than :data:`_SERIES` rates that cannot be seen."""
    rates = sorted({p.rate for p in points})
    if len(rates) < _SERIES:
        return 1.0, 1.0
    import numpy as np  # takes longer to load than all else here

    from dbdyno.stats.least_squares import autoregressive, ols

    x, y = np.log(rates), np.array([Mean.of(p.value for p in points if p.rate == r).value for r in rates])
    fit = ols(np.column_stack([np.ones_like(x), x - x.mean()]), y)
    independent = fit.rss / fit.degrees * np.diag(fit.bread)
    if float(independent.min()) <= 0:
        return 1.0, 1.0
    of_mean, of_slope = np.sqrt(np.maximum(autoregressive(fit, np.array(_RESEMBLING)) / independent, 1.0))
    return float(of_mean), float(of_slope)


def _clear(points: tuple[Delivered, ...]) -> tuple[Delivered, ...]:
    """Those at rates that chance could not have kept."""
    mean, line = Mean.of(p.value for p in points), _line(points)

    def most(rate: float) -> float:
        if line is None:
            return mean.value + _NEAR * (mean.std_dev or 0.0)
        return line.at(math.log(rate)) + _NEAR * line.sd

    clear = tuple(p for p in points if p.rate > most(p.rate))
    return clear if len(clear) > 1 else points


def _or_falling(found: Capacity, line: _Line) -> Capacity:
    first = line.ends[0]
    low, high = line.at(first) - line.half(first), line.at(first) + line.half(first)
    assert found.low is not None and found.high is not None
    return replace(found, low=max(0.0, min(found.low, low)), high=max(found.high, high))


def _at_lowest(found: Capacity) -> Capacity:
    """The mean at the lowest rate alone, with the scatter of all repeats about the mean of their rate."""
    rates = sorted({p.rate for p in found.points})
    means = [Mean.of(p.value for p in found.points if p.rate == r) for r in rates]
    first, degrees = means[0], sum(m.n - 1 for m in means)
    if not degrees:
        return replace(found, value=first.value, low=None, high=None)
    error = math.sqrt(sum(m.m2 for m in means) / degrees / first.n)
    half = max(students_quantile(degrees) * error, _EXACT * first.value)
    return replace(found, value=first.value, low=max(0.0, first.value - half), high=first.value + half)
