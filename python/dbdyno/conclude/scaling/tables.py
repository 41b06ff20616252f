"""A ladder's points as arrays, checked; the best fit as a curve, and every point beside it."""

from __future__ import annotations

import numpy as np
import polars as pl

from dbdyno.model.errors import UsageError
from dbdyno.model.scaling import CURVE, RESIDUALS, Ladder
from dbdyno.stats.scaling.curves import Floats
from dbdyno.stats.scaling.figures import band
from dbdyno.stats.scaling.fit import Fit
from dbdyno.stats.scaling.intervals import Drawn
from dbdyno.stats.scaling.points import Points

NEEDED = ("load", "throughput")
PLACES = 100
REACH = 1.5
"""Times the largest measured load up to which the curve is drawn."""


def points_of(ladder: Ladder) -> Points:
    """Raises :class:`UsageError` where a point is of no use; nothing is left out silently."""
    frame = ladder.points
    for name in NEEDED:
        if name not in frame.columns:
            raise UsageError(
                f"{ladder.name}: no column {name!r}", f"there are: {', '.join(frame.columns) or 'none'}"
            )
    if frame.is_empty():
        raise UsageError(f"{ladder.name}: no points", "a ladder needs a load and a throughput for every rung")
    columns = {name: _numbers(ladder.name, frame, name) for name in NEEDED}
    repeat = (
        frame["repeat"].fill_null(1).to_numpy().astype(float)
        if "repeat" in frame.columns
        else np.ones(len(frame))
    )
    order = np.lexsort((repeat, columns["load"]))
    return Points(columns["load"][order], columns["throughput"][order], repeat[order])


def _numbers(ladder: str, frame: pl.DataFrame, name: str) -> Floats:
    if not frame[name].dtype.is_numeric():
        raise UsageError(f"{ladder}: {name} is not a number but {frame[name].dtype}", "give numbers only")
    values = frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(bad):
        what = frame[name][int(bad[0])]
        raise UsageError(
            f"{ladder}: {name} of point {int(bad[0]) + 1} is {what if what is not None else 'missing'}",
            "it must be a number above 0: leave the point out, or measure it again",
        )
    return np.asarray(values, dtype=float)


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
