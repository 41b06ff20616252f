"""The best fit as a curve, and every point beside it."""

from __future__ import annotations

import numpy as np
import polars as pl

from dbdyno.model.scaling import CURVE, RESIDUALS
from dbdyno.stats.scaling.curves import Floats
from dbdyno.stats.scaling.figures import band
from dbdyno.stats.scaling.fit import Fit
from dbdyno.stats.scaling.points import Points
from dbdyno.stats.scaling.repeats import Drawn

PLACES = 100
REACH = 1.5
"""Times the largest measured load up to which the curve is drawn."""


def empty_curve() -> pl.DataFrame:
    return pl.DataFrame(schema=CURVE)


def curve_table(found: Fit, points: Points, think_s: float | None, drawn: Drawn | None) -> pl.DataFrame:
    first, last = float(points.n.min()), float(points.n.max())
    loads = np.unique(np.concatenate([_places(min(1.0, first), REACH * last), points.loads]))
    x, low, high = band(found, loads, drawn)
    return pl.DataFrame(
        {
            "load": loads,
            "throughput": x,
            "low": low,
            "high": high,
            "response_s": np.where(x > 0, loads / np.where(x > 0, x, 1.0) - (think_s or 0.0), np.nan),
            "perfect": loads * _alone(found, points),
            "beyond": (loads < first) | (loads > last),
        },
        schema=CURVE,
    ).with_columns(pl.col("response_s").fill_nan(None))


def _places(low: float, high: float) -> Floats:
    """Evenly on a line where the loads are few, so that knees are drawn sharply; else evenly by ratio."""
    if high / low > 64:
        return np.asarray(np.geomspace(low, high, PLACES))
    return np.asarray(np.linspace(low, high, PLACES))


def _alone(found: Fit, points: Points) -> float:
    """Throughput of one session: as measured where that was, else as the model has it."""
    one = points.x[points.n == 1]
    return (
        float(one.mean()) if len(one) else float(found.model.curve(np.array([1.0]), found.p)[0]) * found.size
    )


def residual_table(points: Points, found: Fit | None) -> pl.DataFrame:
    predicted = None if found is None else found.predicted * found.size
    one = points.x[points.n == 1]
    alone = _alone(found, points) if found is not None else float(one.mean()) if len(one) else None
    return pl.DataFrame(
        {
            "load": points.n,
            "repeat": points.repeat.astype(int),
            "throughput": points.x,
            "predicted": predicted,
            "residual": None if predicted is None else points.x - predicted,
            "efficiency": None if alone is None else points.x / points.n / alone,
        },
        schema=RESIDUALS,
    )
