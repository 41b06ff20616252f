"""A ladder as means by load, with their errors, and between its rungs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dbdyno.model.scaling import Ladder

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rungs:
    """Logarithm of a positive quantity by load, and the variance of its mean."""

    loads: Floats
    """Measured ones, ascending, at least one."""
    grid: Floats
    """Loads at which it is known, in the range of ``loads``, with them: between two the logarithm runs
    straight over that of the load, which is exact where a ladder rises with the sessions, or is flat."""
    logs: Floats
    variances: Floats
    """NaN: not known."""
    degrees: float
    """Of freedom of the variances; ``inf``: from a model's band."""
    basis: str
    """``repeats``, ``model band`` or empty: no variance is known."""

    def at(self, load: float) -> tuple[float, float]:
        """Logarithm and its variance. ``load`` within the range."""
        high = min(int(np.searchsorted(self.grid, load)), len(self.grid) - 1)
        if self.grid[high] == load:
            return float(self.logs[high]), float(self.variances[high])
        low = high - 1
        x0, x1 = math.log(self.grid[low]), math.log(self.grid[high])
        w = (math.log(load) - x0) / (x1 - x0)
        log = float((1 - w) * self.logs[low] + w * self.logs[high])
        v0, v1 = float(self.variances[low]), float(self.variances[high])
        if self.fitted:  # a model errs alike at both
            return log, ((1 - w) * math.sqrt(v0) + w * math.sqrt(v1)) ** 2
        return log, (1 - w) ** 2 * v0 + w**2 * v1

    @property
    def fitted(self) -> bool:
        """It is a model's curve, not what was measured."""
        return self.basis == "model band"

    def measured(self, load: float) -> bool:
        return bool((self.loads == load).any())


Band = Callable[[Ladder], pl.DataFrame | None]
"""The model's curve: columns ``load``, ``throughput``, ``low``, ``high``."""


def rungs_of(ladder: Ladder, column: str, band: Band | None = None) -> Rungs | None:
    """Of a column of the points; ``None``: it is nowhere known.

    With repeats the spread of logarithms, pooled over rungs (repeats of one rung are too few to tell their
    own); a rung with fewer repeats has a larger error. Without repeats the model's curve and its band, where
    there is one: a single point is not its own mean. Else the points, without variance.
    """
    known = ladder.points.filter(pl.col(column).is_not_null() & (pl.col(column) > 0))
    if known.is_empty():
        return None
    log = pl.col(column).log()
    means = known.group_by("load").agg(mean=log.mean(), n=pl.len(), ss=(log - log.mean()).pow(2).sum())
    means = means.sort("load")
    loads, logs, n = (means[c].to_numpy().astype(float) for c in ("load", "mean", "n"))
    degrees = float(n.sum() - len(n))
    if degrees >= 1:
        pooled = float(means["ss"].sum()) / degrees
        return Rungs(loads, loads, logs, pooled / n, degrees, "repeats")
    fitted = _of_band(loads, band(ladder)) if band and column == "throughput" else None
    return fitted or Rungs(loads, loads, logs, np.full(len(loads), math.nan), math.inf, "")


def _of_band(loads: Floats, curve: pl.DataFrame | None) -> Rungs | None:
    """The curve within the measured range; the variance from the width of its 95 % band."""
    if curve is None or curve.is_empty():
        return None
    known = curve.filter(*(pl.col(c).is_not_null() & (pl.col(c) > 0) for c in ("throughput", "low", "high")))
    if known.is_empty():
        return None
    known = known.sort("load")
    inside = known.filter(pl.col("load").is_between(loads[0], loads[-1]))["load"].to_numpy()
    grid = np.union1d(inside, loads)
    columns = (known[c].log().to_numpy() for c in ("load", "throughput", "low", "high"))
    x, mean, low, high = columns
    logs, width = (np.interp(np.log(grid), x, y) for y in (mean, (high - low) / (2 * 1.959964)))
    return Rungs(loads, grid, logs, width**2, math.inf, "model band")


def union(a: Sequence[float] | Floats, b: Sequence[float] | Floats) -> list[float]:
    """Loads of either that lie within the range of both."""
    low, high = max(min(a), min(b)), min(max(a), max(b))
    return sorted(x for x in {*map(float, a), *map(float, b)} if low <= x <= high)
