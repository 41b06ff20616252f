"""Compares the ladders of two machines: means by load with errors, their ratio over load, and where it
crosses 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dbdyno.model.results.analyses import Estimate, Ladder
from dbdyno.stats.estimates import Z95, students_quantile, welch_degrees

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rungs:
    """Logarithm of a positive quantity by load, and the variance of its mean."""

    loads: Floats
    """Measured loads, ascending, at least one."""
    grid: Floats
    """Loads at which the quantity is known: ``loads`` and loads in their range. Between two of them the
    logarithm is interpolated linearly over the logarithm of the load, which is exact where a ladder is flat
    or rises in proportion to the sessions."""
    logs: Floats
    variances: Floats
    """NaN where unknown."""
    degrees: float
    """Degrees of freedom of the variances; ``inf`` if they come from a model's band."""
    basis: str
    """``repeats``, ``model band``, or empty if no variance is known."""

    def at(self, load: float) -> tuple[float, float]:
        """Returns the logarithm and its variance at ``load``, which must be within the range of the grid."""
        high = min(int(np.searchsorted(self.grid, load)), len(self.grid) - 1)
        if self.grid[high] == load:
            return float(self.logs[high]), float(self.variances[high])
        low = high - 1
        x0, x1 = math.log(self.grid[low]), math.log(self.grid[high])
        w = (math.log(load) - x0) / (x1 - x0)
        log = float((1 - w) * self.logs[low] + w * self.logs[high])
        v0, v1 = float(self.variances[low]), float(self.variances[high])
        # Errors of one model at neighbouring loads are correlated, so standard errors are interpolated; those
        # of independent measurements are not, so variances are weighted by the squares.
        if self.fitted:
            return log, ((1 - w) * math.sqrt(v0) + w * math.sqrt(v1)) ** 2
        return log, (1 - w) ** 2 * v0 + w**2 * v1

    @property
    def fitted(self) -> bool:
        """Whether the values come from a model's curve instead of measurements."""
        return self.basis == "model band"

    def measured(self, load: float) -> bool:
        return bool((self.loads == load).any())


Band = Callable[[Ladder], pl.DataFrame | None]
"""Returns a model's curve with columns ``load``, ``throughput``, ``low``, ``high``, or None."""


def rungs_of(ladder: Ladder, column: str, band: Band | None = None) -> Rungs | None:
    """Returns rungs from a column of the points; None if the column has no positive value.

    With repeats the variance is that of the logarithms, pooled over rungs, because the repeats of one rung
    are too few for a variance of their own; a rung with fewer repeats has a larger error. Without repeats
    throughput comes from the model's curve and band, if there is one, because the error of a single point is
    unknown. Otherwise the points are returned without variance.
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
    from_band = _from_band(loads, band(ladder)) if band and column == "throughput" else None
    return from_band or Rungs(loads, loads, logs, np.full(len(loads), math.nan), math.inf, "")


def _from_band(loads: Floats, curve: pl.DataFrame | None) -> Rungs | None:
    """Returns rungs on the curve within the measured range; the variance follows from the width of its 95 %
    band."""
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
    logs, width = (np.interp(np.log(grid), x, y) for y in (mean, (high - low) / (2 * Z95)))
    return Rungs(loads, grid, logs, width**2, math.inf, "model band")


def union(a: Sequence[float] | Floats, b: Sequence[float] | Floats) -> list[float]:
    """Returns the loads of either side that lie within the range of both, ascending."""
    low, high = max(min(a), min(b)), min(max(a), max(b))
    return sorted(x for x in {*map(float, a), *map(float, b)} if low <= x <= high)


# -- the ratio --

_STEPS = 16
"""Points between two rungs at which the ends of a crossing's interval are searched for, before bisection."""


def critical(a: Rungs, b: Rungs, va: float, vb: float, alpha: float = 0.05) -> float:
    """Returns Student's two-sided quantile with Welch's degrees of freedom."""
    return students_quantile(welch_degrees((va, a.degrees), (vb, b.degrees)), alpha)


def estimate(r: Rungs, load: float, name: str, unit: str) -> Estimate:
    """Returns the quantity itself, a geometric mean over repeats, with its interval."""
    log, v = r.at(load)
    t = critical(r, r, v, 0.0)
    return _from_log(name, unit, log, v, t, r.basis)


def ratio(a: Rungs, b: Rungs, load_a: float, load_b: float | None = None) -> Estimate:
    """Returns B over A at one load, or each at its own load."""
    (la, va), (lb, vb) = a.at(load_a), b.at(load_a if load_b is None else load_b)
    return _from_log("ratio", "", lb - la, va + vb, critical(a, b, va, vb), _basis(a, b))


def crossings(a: Rungs, b: Rungs, loads: Sequence[float]) -> tuple[Estimate, ...]:
    """Returns the loads where the ratio passes 1, each with the interval of loads around it at which the
    ratio does not differ from 1. The loads whose 95 % interval of the ratio contains 1 form a 95 % confidence
    set of the crossing (inversion of a test)."""
    estimates = []
    for low, high in pairwise(loads):
        d0, d1 = _difference(a, b, low), _difference(a, b, high)
        if d0 * d1 < 0 or (d1 == 0 and d0 != 0 and high != loads[-1] and _passes(a, b, loads, high, d0)):
            crossing = math.exp(math.log(low) + (math.log(high) - math.log(low)) * d0 / (d0 - d1))
            estimates.append(_crossing(a, b, loads, crossing))
    known = bool(_basis(a, b))
    return tuple(_without_noise(estimates)) if not known or _differ(a, b, loads) else ()


def _differ(a: Rungs, b: Rungs, loads: Sequence[float]) -> bool:
    """Returns whether A and B differ at some load, at 5 % for all loads together (Bonferroni)."""
    for load in loads:
        va, vb = a.at(load)[1], b.at(load)[1]
        quantile = critical(a, b, va, vb, 0.05 / len(loads))
        if abs(_difference(a, b, load)) > quantile * math.sqrt(va + vb):
            return True
    return False


def _without_noise(estimates: Sequence[Estimate]) -> Iterator[Estimate]:
    """Yields one crossing per interval. Several crossings with one interval are noise about a single true
    crossing if their number is odd, and about none if it is even."""
    for ends, group in groupby(estimates, key=lambda e: (e.method, e.low, e.high)):
        same = list(group)
        if not ends[0]:
            yield from same
        elif len(same) % 2:
            yield same[len(same) // 2]


def _passes(a: Rungs, b: Rungs, loads: Sequence[float], at: float, before: float) -> bool:
    """Returns whether the ratio, which is exactly 1 at this rung, lies on the other side of 1 beyond it."""
    after = next((d for n in loads if n > at and (d := _difference(a, b, n)) != 0), 0.0)
    return after * before < 0


def _difference(a: Rungs, b: Rungs, load: float) -> float:
    return b.at(load)[0] - a.at(load)[0]


def _crossing(a: Rungs, b: Rungs, loads: Sequence[float], at: float) -> Estimate:
    if not _basis(a, b):
        return Estimate("crossing", at, note="no interval: neither repeats nor a model's band")
    grid = list(_grid(loads))
    return Estimate(
        "crossing",
        at,
        low=_interval_end(a, b, at, [x for x in reversed(grid) if x < at]),
        high=_interval_end(a, b, at, [x for x in grid if x > at]),
        method=f"loads at which the ratio may be 1, {_basis(a, b)}",
    )


def _interval_end(a: Rungs, b: Rungs, at: float, away: Sequence[float]) -> float | None:
    """Returns the last load, from ``at`` along ``away``, at which the ratio may be 1. None if it may be 1 at
    all of them."""
    inside = at
    for outside in away:
        if not _may_be_one(a, b, outside):
            for _ in range(12):  # bisection to 1/4096 of a step of the grid
                middle = math.sqrt(inside * outside)
                inside, outside = (middle, outside) if _may_be_one(a, b, middle) else (inside, middle)
            return inside
        inside = outside
    return None


def _grid(loads: Sequence[float]) -> Iterator[float]:
    for low, high in pairwise(loads):
        steps: Floats = np.geomspace(low, high, _STEPS, endpoint=False)
        yield from (float(x) for x in steps)
    yield loads[-1]


def _may_be_one(a: Rungs, b: Rungs, load: float) -> bool:
    estimate = ratio(a, b, load)
    return estimate.low is not None and estimate.high is not None and estimate.low <= 1 <= estimate.high


def _from_log(name: str, unit: str, log: float, variance: float, t: float, basis: str) -> Estimate:
    value = math.exp(log)
    if not basis or math.isnan(variance):
        return Estimate(name, value, unit, note="no interval: neither repeats nor a model's band")
    error = math.sqrt(variance)
    low, high = math.exp(log - t * error), math.exp(log + t * error)
    return Estimate(name, value, unit, low, high, method=basis, std_err=value * error)


def _basis(a: Rungs, b: Rungs) -> str:
    if not (a.basis and b.basis):
        return ""
    return a.basis if a.basis == b.basis else f"{a.basis} and {b.basis}"
