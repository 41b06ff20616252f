"""The best fit's figures as they are claimed: with intervals that hold after the choice of model."""

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


def chosen(made: Scaling) -> Scaling:
    """``made`` of all models: rate, knees and peak of the best one are claimed where the average of all
    models has them, and their intervals, as the curve's band, are the average's."""
    if made.best is None:
        return made
    of, off = _average(*_columns(made))
    best = _claimed(made.best, of)
    x = made.curve["throughput"].to_numpy()
    _, low, high = band(of, points_of(made.ladder), off, made.curve["load"].to_numpy())
    ends = {"low": np.minimum(low, x), "high": np.maximum(high, x)}
    curve = made.curve.with_columns(**{name: pl.Series(v) for name, v in ends.items()})
    return replace(made, fits=(best, *made.fits[1:]), curve=curve)


def _columns(made: Scaling) -> tuple[tuple[float, ...], ...]:
    points = points_of(made.ladder)
    return tuple(tuple(c.tolist()) for c in (points.n, points.x, points.repeat))


@lru_cache(maxsize=8)
def _average(
    n: tuple[float, ...], x: tuple[float, ...], repeat: tuple[float, ...]
) -> tuple[Averaged, Misfit]:
    order = np.lexsort((x, repeat, n))
    points = Points(*(np.array(c, dtype=float)[order] for c in (n, x, repeat)))
    of = averaged(points)
    return of, misfit(points, of.throughput(points.loads)[0])


def predicted(made: Scaling, found: Estimate, load: float) -> Estimate:
    """``found`` by the best model with what holds any law like it; the average of all models where these put
    the best one's value outside of that."""
    of, off = _average(*_columns(made))
    middle, low, high = (float(v[0]) for v in band(of, points_of(made.ladder), off, np.array([load])))
    value = found.value if low < found.value < high else middle
    return replace(found, value=value, low=low, high=high, method=METHOD)


def _claimed(best: Fitted, of: Averaged) -> Fitted:
    figures = of.figures
    peak, top = figures["peak"], figures["peak throughput"]
    has_peak = peak.claimed and best.peak is not None
    below = best.peak is not None and best.peak.value < of.first  # nobody measured what there is at it
    knees = _knees(best.knees, [f for name in ("knee", "knee2") if (f := figures[name]).claimed])
    claimed = {(k.value, k.unit): k for k in knees}  # as a parameter it has no other interval
    return replace(
        best,
        parameters=tuple(
            replace(knee, name=p.name, note=p.note)
            if (knee := claimed.get((p.value, p.unit))) is not None
            else _parameter(p, figures.get(_NAMES.get(p.name, p.name)))
            for p in best.parameters
        ),
        peak=_peak(best.peak, peak, of) if has_peak else None,
        peak_throughput=_held(best.peak_throughput, top) if has_peak and not below else None,
        knees=knees,
    )


_NAMES = {"servers": "knee"}


def _parameter(own: Estimate, found: Claimed | None) -> Estimate:
    """The rate has the average's interval; what is of this model has at least its own, too."""
    if found is None or found.low is None or found.high is None:
        return own
    if own.name == "rate":
        return replace(own, low=min(found.low, own.value), high=max(found.high, own.value), method=METHOD)
    if own.low is None or own.high is None:
        return own
    return replace(own, low=min(own.low, found.low), high=max(own.high, found.high), method=METHOD)


def _knees(own: Sequence[Estimate], claimed: Sequence[Claimed]) -> tuple[Estimate, ...]:
    return tuple(k for e, c in zip(own, claimed, strict=False) if (k := _held(e, c)) is not None)


def _peak(own: Estimate | None, found: Claimed, of: Averaged) -> Estimate | None:
    """As :func:`_held`; draws with a peak below the lowest load have it there: no lower end, and a note."""
    if own is None:
        return None
    held = _held(replace(own, value=max(own.value, of.first)), found)
    if held is None or (held.low or 0.0) > of.first:
        return held
    return replace(held, low=None, note=reach(of.first, of.last, own.value))


def _held(own: Estimate | None, found: Claimed) -> Estimate | None:
    """The best model's value where the average holds it; ``None``: the other models contradict it."""
    if own is None or found.low is None or found.high is None or not found.low <= own.value <= found.high:
        return None
    return replace(own, low=found.low, high=found.high, method=METHOD, std_err=None)
