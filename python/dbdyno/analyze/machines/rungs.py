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
    """Logarithms of a positive quantity by load: their means, and the variances of these means.

    Between two rungs the logarithm runs straight over the logarithm of load: a ladder that rises with the
    sessions, or that is flat, is exact there.
    """

    loads: Floats
    """Ascending, at least one."""
    logs: Floats
    variances: Floats
    """NaN: not known."""
    degrees: float
    """Of freedom of the variances; ``inf``: from a model's band."""
    basis: str
    """``repeats``, ``model band`` or empty: no variance is known."""

    def at(self, load: float) -> tuple[float, float]:
        """Logarithm and its variance. ``load`` within the range."""
        high = int(np.searchsorted(self.loads, load))
        if self.loads[min(high, len(self.loads) - 1)] == load:
            return float(self.logs[high]), float(self.variances[high])
        low = high - 1
        x0, x1 = math.log(self.loads[low]), math.log(self.loads[high])
        w = (math.log(load) - x0) / (x1 - x0)
        log = (1 - w) * self.logs[low] + w * self.logs[high]
        v0, v1 = float(self.variances[low]), float(self.variances[high])
        if math.isinf(self.degrees):  # a model's band errs alike at both rungs
            return float(log), ((1 - w) * math.sqrt(v0) + w * math.sqrt(v1)) ** 2
        return float(log), (1 - w) ** 2 * v0 + w**2 * v1

    def measured(self, load: float) -> bool:
        return bool((self.loads == load).any())


Band = Callable[[Ladder], pl.DataFrame | None]
"""The model's curve: columns ``load``, ``throughput``, ``low``, ``high``."""


def rungs_of(ladder: Ladder, column: str, band: Band | None = None) -> Rungs | None:
    """Of a column of the points; ``None``: it is nowhere known.

    With repeats the spread of logarithms, pooled over rungs (repeats of one rung are too few to tell their
    own); a rung with fewer repeats has a larger error. Without repeats the model's band, where there is one.
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
        return Rungs(loads, logs, pooled / n, degrees, "repeats")
    variances = _of_band(loads, band(ladder) if band and column == "throughput" else None)
    basis = "model band" if bool(np.isfinite(variances).all()) else ""
    return Rungs(loads, logs, variances, math.inf, basis)


def _of_band(loads: Floats, curve: pl.DataFrame | None) -> Floats:
    """Variance of a logarithm from the width of a 95 % band."""
    if curve is None or curve.is_empty():
        return np.full(len(loads), math.nan)
    curve = curve.filter(pl.col("low") > 0, pl.col("high") > 0).sort("load")
    if curve.is_empty():
        return np.full(len(loads), math.nan)
    width = (curve["high"].log() - curve["low"].log()).to_numpy() / (2 * 1.959964)
    return np.asarray(np.interp(np.log(loads), np.log(curve["load"].to_numpy()), width) ** 2)


def union(a: Sequence[float] | Floats, b: Sequence[float] | Floats) -> list[float]:
    """Loads of either that lie within the range of both."""
    low, high = max(min(a), min(b)), min(max(a), max(b))
    return sorted(x for x in {*map(float, a), *map(float, b)} if low <= x <= high)
