"""Gives the best fit's figures intervals that hold after the choice of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import polars as pl

from dbdyno.conclude.scaling.fitted import points_of
from dbdyno.conclude.scaling.remarks import reach
from dbdyno.model.results.analyses import Estimate, Fitted, Scaling
from dbdyno.stats.scaling.averaged import Averaged, Claimed, averaged
from dbdyno.stats.scaling.misfit import Misfit, band, misfit
from dbdyno.stats.scaling.points import Points

METHOD = "average of models"


def chosen(scaling: Scaling) -> Scaling:
    """Returns ``scaling``, fitted with all models, with the claims of the best one: its rate, knees and peak
    are claimed if the average of all models has them. Their intervals and the curve's band are those of the
    average."""
    if scaling.best is None:
        return scaling
    average, misfits = _average(*_columns(scaling))
    best = _claimed_fit(scaling.best, average)
    x = scaling.curve["throughput"].to_numpy()
    _, low, high = band(average, points_of(scaling.ladder), misfits, scaling.curve["load"].to_numpy())
    ends = {"low": np.minimum(low, x), "high": np.maximum(high, x)}
    curve = scaling.curve.with_columns(**{name: pl.Series(v) for name, v in ends.items()})
    return replace(scaling, fits=(best, *scaling.fits[1:]), curve=curve)


def _columns(scaling: Scaling) -> tuple[tuple[float, ...], ...]:
    points = points_of(scaling.ladder)
    return tuple(tuple(c.tolist()) for c in (points.n, points.x, points.repeat))


@lru_cache(maxsize=8)
def _average(
    n: tuple[float, ...], x: tuple[float, ...], repeat: tuple[float, ...]
) -> tuple[Averaged, Misfit]:
    order = np.lexsort((x, repeat, n))
    points = Points(*(np.array(c, dtype=float)[order] for c in (n, x, repeat)))
    average = averaged(points)
    return average, misfit(points, average.throughput(points.loads)[0])


def predicted(scaling: Scaling, prediction: Estimate, load: float) -> Estimate:
    """Returns ``prediction`` of the best model with the interval of the average of all models. Its value is
    the average's if the best model's lies outside this interval."""
    average, misfits = _average(*_columns(scaling))
    middle, low, high = (
        float(v[0]) for v in band(average, points_of(scaling.ladder), misfits, np.array([load]))
    )
    value = prediction.value if low < prediction.value < high else middle
    return replace(prediction, value=value, low=low, high=high, method=METHOD)


def _claimed_fit(best: Fitted, average: Averaged) -> Fitted:
    figures = average.figures
    peak, top = figures["peak"], figures["peak throughput"]
    has_peak = peak.claimed and best.peak is not None
    # Below the lowest measured load the height of a peak is extrapolated: only its place is claimed.
    below = best.peak is not None and best.peak.value < average.first
    knees = _knees(best.knees, [f for name in ("knee", "knee2") if (f := figures[name]).claimed])
    claimed = {(k.value, k.unit): k for k in knees}  # a knee that is a parameter gets the same interval there
    return replace(
        best,
        parameters=tuple(
            replace(knee, name=p.name, note=p.note)
            if (knee := claimed.get((p.value, p.unit))) is not None
            else _parameter(p, figures.get(_NAMES.get(p.name, p.name)))
            for p in best.parameters
        ),
        peak=_peak(best.peak, peak, average) if has_peak else None,
        peak_throughput=_within_average(best.peak_throughput, top) if has_peak and not below else None,
        knees=knees,
    )


_NAMES = {"servers": "knee"}


def _parameter(own: Estimate, average: Claimed | None) -> Estimate:
    """Returns a parameter with its interval. The rate has the average's interval; a parameter of this model
    alone has at least its own."""
    if average is None or average.low is None or average.high is None:
        return own
    if own.name == "rate":
        return replace(own, low=min(average.low, own.value), high=max(average.high, own.value), method=METHOD)
    if own.low is None or own.high is None:
        return own
    return replace(own, low=min(own.low, average.low), high=max(own.high, average.high), method=METHOD)


def _knees(own: Sequence[Estimate], claimed: Sequence[Claimed]) -> tuple[Estimate, ...]:
    return tuple(k for e, c in zip(own, claimed, strict=False) if (k := _within_average(e, c)) is not None)


def _peak(own: Estimate | None, average_peak: Claimed, average: Averaged) -> Estimate | None:
    """Returns the peak as :func:`_within_average` does. Draws with a peak below the lowest load put it at
    that load: then the peak has no lower end, and a note."""
    if own is None:
        return None
    held = _within_average(replace(own, value=max(own.value, average.first)), average_peak)
    if held is None or (held.low or 0.0) > average.first:
        return held
    return replace(held, low=None, note=reach(average.first, average.last, own.value))


def _within_average(own: Estimate | None, average: Claimed) -> Estimate | None:
    """Returns the best model's value with the average's interval. None if the value lies outside it, that is
    if the other models contradict it."""
    if (
        own is None
        or average.low is None
        or average.high is None
        or not average.low <= own.value <= average.high
    ):
        return None
    return replace(own, low=average.low, high=average.high, method=METHOD, std_err=None)
