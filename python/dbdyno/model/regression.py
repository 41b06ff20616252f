"""CPU per unit of work, as a regression says it: what a unit costs, and what is used without any work."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from dbdyno.model.frame import Frame
from dbdyno.model.scaling import Estimate

PARTS = ("cpu", "user", "system")
"""All CPU, and the two that add up to it."""

REGRESSION_POINTS: dict[str, type[pl.DataType]] = {
    "load": pl.Float64,  # NULL: a time series
    "repeat": pl.Int64,  # NULL: a time series
    "work": pl.Float64,  # of the first kind, per second
    "cpu": pl.Float64,  # CPU seconds per second
    "predicted": pl.Float64,
    "residual": pl.Float64,
    "leverage": pl.Float64,  # 0..1
    "cook": pl.Float64,  # Cook's distance; NULL: the point alone decides
}
"""Columns of ``Regression.points``: one row a point, in the order that was given."""


@dataclass(frozen=True)
class Part:
    """All CPU, its user or its system time."""

    name: str
    slopes: tuple[Estimate, ...]
    """CPU seconds per unit of work, one a kind of work."""
    background: Estimate
    """CPU seconds per second at zero work."""
    r_squared: float | None
    """``None``: CPU does not vary."""
    residual_sd: float
    """CPU seconds per second."""

    @property
    def slope(self) -> Estimate:
        return self.slopes[0]


@dataclass(frozen=True)
class Regression:
    """CPU on work in one regime. ``refused``: why there are no parts."""

    name: str
    regime: str
    """``up to 4 sessions``, ``above 4 sessions, oversubscribed``, ``all windows``, ..."""
    work_units: tuple[str, ...]
    n: int
    degrees: int
    method: str
    """How standard errors and intervals were made."""
    parts: tuple[Part, ...]
    """All CPU first; user and system where they are known."""
    points: Frame
    ratio: Estimate | None = None
    """All CPU over all work of the first kind, background included: what is known without a slope, too."""
    durbin_watson: float | None = None
    autocorrelation_p: float | None = None
    """Two-sided, that residuals are independent in the order of time, or of load."""
    breusch_pagan_p: float | None = None
    """That errors are as large at much work as at little."""
    notes: tuple[str, ...] = ()
    refused: str | None = None

    def part(self, name: str) -> Part | None:
        return next((p for p in self.parts if p.name == name), None)

    @property
    def total(self) -> Part | None:
        return self.part("cpu")
