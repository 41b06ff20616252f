"""What a regression cannot tell, and what to bear in mind of one that it can."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dbdyno.conclude.catalogue import sentence
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


def before(work: Floats, units: Sequence[str]) -> str | None:
    """Why no line can be drawn through points of this ``work``, (n, k); ``None``: it can."""
    n, kinds = work.shape
    need = LEAST_POINTS + kinds - 1
    if n < need:
        return sentence("no-regression", {"points": n, "needed": need}, case="points")
    for column, unit in zip(work.T, units, strict=True):
        low, high = float(column.min()), float(column.max())
        if (high - low) / high < LEAST_SPREAD if high > 0 else True:
            said = {"low": low, "high": high, "unit": unit, "needed": LEAST_SPREAD}
            return sentence("no-regression", said, case="spread")
        if len(np.unique(column)) < LEAST_RUNGS:
            return sentence("no-regression", case="two")
    if condition(work) > MOST_CONDITION:
        return sentence("no-regression", {"units": " and ".join(units)}, case="collinear")
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
            said = {"cost": format_ns(slope.value * 1e9), "unit": slope.name}
            sure = slope.high is not None and slope.high < 0
            return sentence("no-regression", said, case="negative" if sure else "unsure")
    return None


def notes(fit: Fit, parts: Sequence[Part], ordered: bool) -> Iterator[str]:
    total = parts[0]
    for slope in total.slopes:
        if slope.low is None or slope.low <= 0:
            yield note("no-cost", unit=slope.name)
    if total.background.value < 0:
        high = total.background.high
        yield note("background" if high is not None and high < 0 else "background-unsure")
    yield from _leverage(fit)
    yield from _neighbours(fit, ordered)


def note(case: str, **said: Any) -> str:
    return sentence("regression-note", said, case=case)


def _leverage(fit: Fit) -> Iterator[str]:
    """Points that draw the line to themselves (Cook 1977: above 1 one looks again)."""
    for n, (h, distance) in enumerate(zip(fit.leverage, cook(fit), strict=True)):
        if h > _MUCH_LEVERAGE or distance > 1:
            work = ", ".join(f"{w:.4g}" for w in fit.x[n, 1:])
            moved = f", Cook's distance {distance:.2g}" if math.isfinite(distance) else ""
            yield note("leverage", work=work, leverage=h, cook=moved)


def _neighbours(fit: Fit, ordered: bool) -> Iterator[str]:
    if ordered and fit.rss > 0:
        r = float(fit.residuals[1:] @ fit.residuals[:-1]) / fit.rss
        if r > 0.6:
            yield note("neighbours", r=r)
