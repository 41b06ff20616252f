"""What a regression cannot tell, and what to bear in mind of one that it can."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dbdyno.model.regression import Part
from dbdyno.model.units import format_ns
from dbdyno.stats.least_squares import Fit, Floats, cook

LEAST_POINTS = 4
"""For one kind of work; one more for each further kind."""
LEAST_RUNGS = 3
"""Different values of work: of two nobody sees whether a line fits."""
LEAST_SPREAD = 0.1
"""Of work: (highest - lowest) / highest."""
MOST_CONDITION = 30.0
"""Of the columns at unit length (Belsley, Kuh, Welsch 1980, Regression Diagnostics, 3.2)."""
_MUCH_LEVERAGE = 0.8
"""So much of its own prediction a point may decide before it is named."""
_NEGATIVE = "CPU falls where work rises"


def before(work: Floats, units: Sequence[str]) -> str | None:
    """Why no line can be drawn through points of this ``work``, (n, k); ``None``: it can."""
    n, kinds = work.shape
    need = LEAST_POINTS + kinds - 1
    if n < need:
        return f"{n} point{'' if n == 1 else 's'}: a slope with an interval needs {need}; measure more loads"
    for column, unit in zip(work.T, units, strict=True):
        spread = (column.max() - column.min()) / column.max() if column.max() > 0 else 0.0
        if spread < LEAST_SPREAD:
            return (
                f"work hardly varies ({column.min():.4g} to {column.max():.4g} {unit}/s, needs a spread of "
                f"{100 * LEAST_SPREAD:g} %): background and cost of work cannot be separated"
            )
        if len(np.unique(column)) < LEAST_RUNGS:
            return (
                "work takes only two values: the fit of a line cannot be checked; measure a third load level"
            )
    if condition(work) > MOST_CONDITION:
        return f"{' and '.join(units)} rise together (collinear): their costs cannot be separated"
    return None


def condition(work: Floats) -> float:
    """Of the kinds of work, centred, at unit length: 1 where they are independent; ``inf``: they are one."""
    centred = work - work.mean(axis=0)
    values = np.linalg.svd(centred / np.linalg.norm(centred, axis=0), compute_uv=False)
    return float(values[0] / values[-1]) if values[-1] > 0 else math.inf


def after(part: Part) -> str | None:
    """Why the fitted line means nothing; ``None``: it may."""
    for slope in part.slopes:
        if slope.value < 0:
            told = f"{format_ns(slope.value * 1e9)} a {slope.name}"
            if slope.high is not None and slope.high < 0:
                return f"{_NEGATIVE} ({told}): these points are not one regime, or CPU is not of this work"
            return f"{_NEGATIVE} ({told}), not significantly different from 0: vary the work more"
    return None


def notes(fit: Fit, parts: Sequence[Part], ordered: bool) -> Iterator[str]:
    total = parts[0]
    for slope in total.slopes:
        if slope.low is None or slope.low <= 0:
            yield f"the cost of a {slope.name} does not differ significantly from 0"
    high = total.background.high
    if total.background.value < 0:
        sure = high is not None and high < 0
        yield "background below 0" + (
            ": the line does not hold down to zero work (a unit costs more at higher load)"
            if sure
            else ", not significantly"
        )
    yield from _leverage(fit)
    yield from _neighbours(fit, ordered)


def _leverage(fit: Fit) -> Iterator[str]:
    """Points that draw the line to themselves (Cook 1977: above 1 one looks again)."""
    for n, (h, distance) in enumerate(zip(fit.leverage, cook(fit), strict=True)):
        if h > _MUCH_LEVERAGE or distance > 1:
            work = ", ".join(f"{w:.4g}" for w in fit.x[n, 1:])
            moved = f", Cook's distance {distance:.2g}" if math.isfinite(distance) else ""
            yield f"the point at work {work}/s decides the line (leverage {h:.2f}{moved})"


def _neighbours(fit: Fit, ordered: bool) -> Iterator[str]:
    if ordered and fit.rss > 0:
        r = float(fit.residuals[1:] @ fit.residuals[:-1]) / fit.rss
        if r > 0.6:
            yield (
                f"neighbouring measurements are correlated (r = {r:.2f}): the interval covers less than "
                "95 %; use longer or more measurements"
            )
