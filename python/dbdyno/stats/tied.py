"""Growth that bends at two known loads: the number of cores, and the number of threads (CPUs).

X(N) = rate (min(N, c) + r (min(N, C) - c) + s (N - C)) / (1 + sigma (N - 1)), negative terms left out,
with c cores and C CPUs known. Without sigma it is linear in rate, rate r and rate s; sigma is the loss of
every load to contention, as in Amdahl's law. Residuals are relative to the curve, so that proportional
errors have the same weight everywhere. The yield is throughput with all threads over that with one thread
per core.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats.estimates import students_quantile

Floats = NDArray[np.float64]
Interval = tuple[float, float] | None

EXACT = 1e-6
"""Relative size of residuals up to which they are rounding errors and not noise."""
_REACH, _PLACES = 2.0, 60
"""Factor below and above the cores within which the first bend is searched, and number of places on each
side."""
_STEPS = 30


@dataclass(frozen=True)
class Tied:
    """The fit. Intervals are of 95 %; None without a degree of freedom for the noise, or for an exact fit."""

    core_yield: float
    yield95: Interval
    knee95: Interval
    """Interval of the first bend with the second fixed at the CPUs.

    An end at the limit of the search is infinite, or 0."""
    error: float
    """Relative standard deviation of a point from the curve; 0 if the fit is exact."""
    degrees: int
    sigma: float
    curve: Floats
    """Throughput at the fitted loads."""

    @property
    def noise(self) -> float | None:
        """Relative standard deviation of one measurement; None if unknown."""
        return self.error if self.degrees > 0 and self.error > EXACT else None


@dataclass(frozen=True)
class _Form:
    """A fit of one of two forms: with contention, or without."""

    sigma: float
    value: float
    std_err: float
    """Standard error of the yield's logarithm."""
    curve: Floats
    rss: float
    degrees: int


def tied(n: Sequence[float], x: Sequence[float], cores: float, threads: int, cpus: float) -> Tied | None:
    """Returns the fit to throughputs ``x`` above 0 at loads ``n``. ``threads``: per core, at least two;
    ``cpus``: load of the second bend. None without a load up to the cores or one above, or with too few
    different loads."""
    loads, rates = np.asarray(n, dtype=float), np.asarray(x, dtype=float)
    straight = _form(loads, rates, cores, threads, cpus, bent=False)
    if straight is None:
        return None
    bent = _form(loads, rates, cores, threads, cpus, bent=True)
    possible = [straight] if bent is None else [straight, bent]
    best = straight if bent is None or not _excluded(straight, bent) else bent
    possible = [best] if best is bent else possible
    error = math.sqrt(best.rss / best.degrees) if best.degrees > 0 else 0.0
    ends = [e for f in possible if (e := _ends(f)) is not None]
    known = best.degrees > 0 and error > EXACT and len(ends) == len(possible)
    yield95 = (min(low for low, _ in ends), max(high for _, high in ends)) if known else None
    knees = [k for f in possible if f.degrees > 0 and (k := _knee(loads, rates, cores, cpus, f)) is not None]
    knee = (min(low for low, _ in knees), max(high for _, high in knees)) if knees else None
    return Tied(best.value, yield95, knee, error, best.degrees, best.sigma, best.curve)


def _excluded(straight: _Form, bent: _Form) -> bool:
    """Returns whether sigma reduces the sum of squares significantly."""
    least = max(bent.rss, len(bent.curve) * EXACT**2)
    return straight.rss > least * (1 + students_quantile(bent.degrees) ** 2 / bent.degrees)


def _ends(form: _Form) -> Interval:
    if form.degrees < 1:
        return None
    half = min(students_quantile(form.degrees) * form.std_err, 50.0)
    return form.value * math.exp(-half), form.value * math.exp(half)


def _columns(n: Floats, knee: float, cpus: float) -> Floats:
    """Returns the parts of each load; the last one only if the loads can separate it from the previous
    one."""
    parts = parts_of(n, knee, cpus)
    return parts if parts[:, 2].any() and len(np.unique(n[n > knee])) > 1 else parts[:, :2]


def parts_of(n: Floats, knee: float | Floats, second: float | Floats) -> Floats:
    """Returns (..., loads, 3): the part of each load up to ``knee``, between ``knee`` and ``second``, and
    beyond. ``knee`` and ``second`` are scalars or have shape (..., 1)."""
    between = np.clip(np.minimum(n, second) - knee, 0.0, None)
    return np.stack([np.minimum(n, knee), between, np.clip(n - second, 0.0, None)], axis=-1)


def _form(n: Floats, x: Floats, cores: float, threads: int, cpus: float, *, bent: bool) -> _Form | None:
    columns = _columns(n, cores, cpus)
    if not (n <= cores).any() or not columns[:, 1].any():
        return None
    places, k = len(np.unique(n)), columns.shape[1] + bent
    if places < k or (bent and (len(n) < k + 2 or np.count_nonzero(np.unique(n) <= cores) < 3)):
        return None
    solution = _solved(n, x, columns, bent=bent)
    if solution is None:
        return None
    coefficients, sigma, curve, covariance = solution
    rss, degrees = float((((x - curve) / curve) ** 2).sum()), len(n) - k
    low, full = coefficients[0], coefficients[0] + (threads - 1) * coefficients[1]
    if min(low, full) <= 0:
        return None
    before, after = (1 + sigma * (load - 1) for load in (cores, cores * threads))
    slope = np.zeros(k)  # gradient of the yield's logarithm
    slope[:2] = 1 / full - 1 / low, (threads - 1) / full
    if bent:
        slope[-1] = (cores - 1) / before - (cores * threads - 1) / after
    variance = max(0.0, float(slope @ covariance @ slope)) * rss / max(degrees, 1)
    value = float(full / low * before / after)
    return _Form(sigma, value, math.sqrt(variance), curve, rss, degrees)


def _solved(
    n: Floats, x: Floats, columns: Floats, *, bent: bool
) -> tuple[Floats, float, Floats, Floats] | None:
    """Returns coefficients, sigma, curve, and their covariance for a relative variance of 1; None if no
    curve or no sigma above 0 is found. Gauss-Newton steps, each weighted by the previous curve."""
    curve, parts, sigma = x.copy(), columns.shape[1], 0.0
    design: Floats = columns
    coefficients: Floats = np.zeros(parts)
    for step in range(_STEPS):
        shrunk = columns / (1 + sigma * (n - 1))[:, None]
        design = shrunk
        free = bent and step > 0
        if free:
            design = np.column_stack([shrunk, -curve * (n - 1) / (1 + sigma * (n - 1))])
        weighted = design / curve[:, None]
        target = (x + (design[:, -1] * sigma if free else 0.0)) / curve
        solution, _, rank, _ = np.linalg.lstsq(weighted, target, rcond=None)
        if rank < design.shape[1]:
            return None
        before = curve
        coefficients = np.asarray(solution[:parts])
        if free:
            sigma = min(max(float(solution[-1]), 0.0), 2 * sigma + 0.05)
        curve = columns @ coefficients / (1 + sigma * (n - 1))
        if not (curve > 0).all():
            return None
        if step > 2 and float(np.abs(curve / before - 1).max()) < 1e-10:
            break
    if bent and sigma <= 0:
        return None
    inverse: Floats = np.asarray(np.linalg.pinv((design / curve[:, None]).T @ (design / curve[:, None])))
    return coefficients, sigma, curve, inverse


def _knee(n: Floats, x: Floats, cores: float, cpus: float, best: _Form) -> Interval:
    """Returns the interval of the first bend by its profile, with sigma and weights fixed. If it does not
    contain the cores, the bend is elsewhere."""
    places = cores * _REACH ** np.linspace(-1, 1, 2 * _PLACES + 1)
    places = places[(places >= n.min()) & (places < n.max())]
    if not len(places):
        return None
    weight = 1 / ((1 + best.sigma * (n - 1)) * best.curve)
    designs = np.stack([parts_of(n, float(k), max(cpus, float(k))) * weight[:, None] for k in places])
    target = x / best.curve
    left = target - (designs @ (np.linalg.pinv(designs) @ target)[..., None])[..., 0]
    squares = (left * left).sum(axis=1)
    least = max(min(float(squares.min()), best.rss), len(n) * EXACT**2)
    inside = places[squares <= least * (1 + students_quantile(best.degrees) ** 2 / best.degrees)]
    if not len(inside):
        return None
    low = 0.0 if inside[0] == places[0] else float(inside[0])
    return low, math.inf if inside[-1] == places[-1] else float(inside[-1])
