"""Fits a model to points by least squares.

Residuals are differences of throughput, each point with the same weight, as in published fits. A profile
needs hundreds of fits and a bootstrap thousands, and one by one these would take longer than
the measurement. So Levenberg and Marquardt's method is vectorised here, with bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from dbdyno.stats.scaling.curves import Floats
from dbdyno.stats.scaling.models import Model, tabled

STEPS = 60
LAST_STEPS = 30
NEAR = 1e-9
"""Relative gain below which the search from all starts ends; only the best one is then refined."""
_NUDGE = 1e-7


def solve(
    model: Model, n: Floats, x: Floats, start: Floats, held: Floats | None = None, gain: float = 1e-13
) -> tuple[Floats, Floats]:
    """Returns minima of the sum of squares near ``start``.

    ``n``: (points,); ``x``: (points,) or (problems, points); ``start``: (problems, parameters); ``held``:
    of the same shape, true if a parameter keeps its start; ``gain``: relative gain below which a problem
    is done. Returns parameters and sums of squares, (problems,).
    """
    lowest, highest = model.low, model.high
    p = np.clip(start, lowest, highest)
    held = np.zeros(p.shape, dtype=bool) if held is None else held.astype(bool)
    p = np.where(held, start, p)
    x = np.broadcast_to(x, (len(p), len(n)))
    curve = model.quick or model.curve
    r = x - curve(n, p)
    rss = (r * r).sum(1)
    damping, live = np.full(len(p), 1e-3), np.arange(len(p))
    for _ in range(STEPS):
        at, off, fixed = p[live], r[live], held[live]
        step, promised = _step(model, n, at, off, damping[live], fixed)
        new = np.where(fixed, at, np.minimum(np.maximum(at + step, lowest), highest))
        r_new = x[live] - curve(n, new)
        rss_new = (r_new * r_new).sum(1)
        rss_old = rss[live]
        better = rss_new < rss_old
        hopeful = (promised > gain * rss_old) | (damping[live] > 1)  # a damped step promises little anywhere
        still = np.where(better, rss_old - rss_new > gain * rss_old, hopeful & (damping[live] < 1e6))
        take = live[better]
        p[take], r[take], rss[take] = new[better], r_new[better], rss_new[better]
        # Marquardt's damping: less after a success, more after a failure, with factors found by trial.
        damping[live] = np.where(better, damping[live] / 8, damping[live] * 6)
        live = live[still & (rss[live] > 1e-26)]
        if not len(live):
            break
    return p, rss


def jacobian(model: Model, n: Floats, p: Floats, nudge: float = _NUDGE) -> Floats:
    """Returns derivatives of the throughput, (problems, points, parameters), one-sided away from the upper
    bounds."""
    size = np.maximum(np.abs(p), [1e-4 if q.unit == "ratio" else 1e-9 for q in model.parameters])
    h = np.where(p + nudge * size > model.high, -nudge, nudge) * size
    diagonal = np.arange(p.shape[1])
    moved = np.repeat(p[:, None], p.shape[1] + 1, axis=1)
    moved[:, diagonal, diagonal] += h
    f = (model.quick or model.curve)(n, moved)
    return np.asarray(np.swapaxes((f[:, :-1] - f[:, -1:]) / h[:, :, None], 1, 2))


def _step(
    model: Model, n: Floats, p: Floats, r: Floats, damping: Floats, held: Floats
) -> tuple[Floats, Floats]:
    """Returns the step, and the fall of the sum of squares that a linear model promises."""
    j = jacobian(model, n, p)
    transposed = np.swapaxes(j, 1, 2)
    a, g = transposed @ j, (transposed @ r[:, :, None])[:, :, 0]
    diagonal = np.arange(p.shape[1])
    size = np.sqrt(a[:, diagonal, diagonal])
    size = np.where(size > 0, size, 1.0)
    a, g = a / (size[:, :, None] * size[:, None, :]), g / size
    at_bound = ((p <= model.low) & (g < 0)) | ((p >= model.high) & (g > 0))
    fixed = np.logical_or(held, at_bound)
    a = np.where(fixed[:, :, None] | fixed[:, None, :], 0.0, a)
    a[:, diagonal, diagonal] += np.where(fixed, 1.0, damping[:, None] + 1e-12)
    g = np.where(fixed, 0.0, g)
    step = np.linalg.solve(a, g[:, :, None])[:, :, 0]
    return step / size, 2 * (step * g).sum(1)


MANY = 150
"""Number of points above which a part of them locates the valleys, and all of them refine the minima."""
AT_BOUND = 1e-7
"""Distance from its bound, relative to its size, at which a parameter counts as at the bound."""
EXACT = 1e-9
"""Size of residuals, relative to the largest throughput, up to which they are rounding errors."""
KEPT = 6
"""Number of local minima that are kept, as an interval may have to be searched from each."""


@dataclass(frozen=True)
class Fit:
    """A model fitted to points. ``x`` is in units of ``size``, which in every model scales only ``rate``."""

    model: Model
    n: Floats
    x: Floats
    size: float
    minima: Floats
    """Local minima, (minima, parameters), the best first."""
    rss: float

    @property
    def p(self) -> Floats:
        return np.asarray(self.minima[0])

    @property
    def degrees(self) -> int:
        """Points less parameters."""
        return len(self.n) - len(self.p)

    @property
    def variance(self) -> float:
        return max(self.rss, len(self.n) * EXACT**2) / max(self.degrees, 1)

    @cached_property
    def predicted(self) -> Floats:
        return self.model.curve(self.n, self.p)

    @property
    def r_squared(self) -> float:
        spread = float(((self.x - self.x.mean()) ** 2).sum())
        return 1 - self.rss / spread if spread > 0 else math.nan

    @property
    def aic(self) -> float:
        """n ln(RSS / n) + 2k: Akaike 1974, for normal residuals, without constants; RSS in units of
        throughput."""
        return self._deviance + 2 * len(self.p)

    @property
    def aicc(self) -> float:
        """Hurvich and Tsai, Biometrika 76 (1989) 297; the variance counts as a parameter."""
        k, n = len(self.p) + 1, len(self.n)
        return self._deviance + 2 * k * n / (n - k - 1) if n - k - 1 > 0 else math.inf

    @property
    def bic(self) -> float:
        """Schwarz, Annals of Statistics 6 (1978) 461; the variance counts as a parameter."""
        return self._deviance + (len(self.p) + 1) * math.log(len(self.n))

    @property
    def _deviance(self) -> float:
        n = len(self.n)
        return n * (math.log(max(self.rss / n, EXACT**2)) + 2 * math.log(self.size))

    @cached_property
    def at_bound(self) -> tuple[str, ...]:
        """Names of the parameters at a bound: the curvature does not give their error."""
        model = self.model
        near = AT_BOUND * np.maximum(np.abs(self.p), 1e-3)
        held = (self.p - model.low <= near) | (model.high - self.p <= near)
        return tuple(name for name, h in zip(model.names, held, strict=True) if h and name != "rate")

    @cached_property
    def slopes(self) -> Floats:
        """Derivatives of the throughput by the parameters, (points, parameters)."""
        return central(self.model, self.n, self.p)

    @cached_property
    def covariance(self) -> Floats:
        """Covariance of the parameters by the curvature; zero rows for those at a bound."""
        free = [i for i, name in enumerate(self.model.names) if name not in self.at_bound]
        j = self.slopes[:, free]
        out = np.zeros((len(self.p), len(self.p)))
        scale = np.sqrt((j * j).sum(0))
        scale = np.where(scale > 0, scale, 1.0)
        out[np.ix_(free, free)] = np.linalg.pinv((j / scale).T @ (j / scale)) / np.outer(scale, scale)
        return out * self.variance


def central(model: Model, n: Floats, p: Floats) -> Floats:
    """Returns derivatives by central differences."""
    steps = np.diag(1e-5 * np.maximum(np.abs(p), 1e-6))
    up, down = p + steps, p - steps
    f = model.curve(n, np.concatenate([up, down]))
    own = np.diag(up) - np.diag(down)
    return np.asarray((f[: len(p)] - f[len(p) :]).T / own)


def fit(model: Model, n: Floats, x: Floats) -> Fit:
    """Returns the best fit within the bounds. ``n``, ``x``: (points,), above 0, with at least as many
    different loads as the model has parameters."""
    size = float(x.max())
    scaled = x / size
    model = unit(model, size)
    few = slice(None, None, max(1, len(n) // MANY))
    rough = model if few.step == 1 else tabled(model, n[few])
    p, rss = solve(rough, n[few], scaled[few], starts(rough, n[few], scaled[few]), gain=NEAR)
    minima, best = distinct(p, rss)
    if len(n) >= 2 * MANY:
        minima, best = distinct(*solve(model, n, scaled, minima, gain=NEAR))
    minima[0], least = _refined(model, n, scaled, minima[0], best)
    return Fit(model, n, scaled, size, minima, least)


def unit(model: Model, size: float) -> Model:
    """Returns ``model`` for throughput in units of ``size``. Only a model with a known think time depends
    on it."""
    return model if math.isinf(model.high[0]) else _resized(model, size)


def _resized(model: Model, size: float) -> Model:
    def curve(n: Floats, p: Floats) -> Floats:
        return model.curve(n, p * to_size) / size

    to_size = np.array([size, *[1.0] * (len(model.parameters) - 1)])
    rate = replace(model.parameters[0], high=model.parameters[0].high / size)
    knees = tuple(replace(k, of=lambda p, k=k: k.of(p * to_size)) for k in model.knees)  # type: ignore[misc]
    return replace(model, parameters=(rate, *model.parameters[1:]), curve=curve, knees=knees)


def starts(model: Model, n: Floats, x: Floats) -> Floats:
    """Returns starting points: knees at and between the loads, other parameters at a few sizes; the best
    few of them."""
    loads, top = np.unique(n), float(n.max())
    between = np.unique(np.concatenate([loads, (loads[1:] + loads[:-1]) / 2]))
    if len(between) > 41:
        between = between[np.linspace(0, len(between) - 1, 41).astype(int)]
    sizes: dict[str, tuple[float, ...]] = {
        "rate": (1.0,),
        "sigma": (0.0, 0.003, 0.03, 0.3, 0.9),
        "kappa": tuple(k / top**2 for k in (0.0, 0.03, 0.3, 3.0, 30.0)),
        "think": (0.01, 0.3, 3.0),
        "yield": (0.8, 0.4, 0.0, -0.3),
        "yield2": (0.4, 0.0, -0.3),
    }
    choices = [tuple(between) if q.is_knee else sizes[q.name] for q in model.parameters]
    grid = np.array(list(product(*choices)))
    knees = [i for i, q in enumerate(model.parameters) if q.is_knee]
    if len(knees) == 2:
        grid = grid[grid[:, knees[0]] < grid[:, knees[1]]]
    grid = np.clip(grid, model.low, model.high)
    return _promising(model, n, x, grid)


def _promising(model: Model, n: Floats, x: Floats, grid: Floats) -> Floats:
    """Returns the starts with the least sum of squares, each with its best rate."""
    f = (model.quick or model.curve)(n, grid)
    rate = np.maximum((f * x).sum(1) / np.maximum((f * f).sum(1), 1e-300), 1e-12)
    grid = grid.copy()
    grid[:, 0] = np.clip(grid[:, 0] * rate, model.low[0], model.high[0])
    rss = ((x - rate[:, None] * f) ** 2).sum(1)
    order = np.argsort(rss, kind="stable")
    if len(model.parameters) == 5:  # valleys lie side by side: starts from several of them
        return np.asarray(grid[order[:72:3]])
    return np.asarray(grid[order[: 12 if any(q.is_kink for q in model.parameters) else 6]])


def distinct(p: Floats, rss: Floats) -> tuple[Floats, float]:
    """Returns the distinct minima, best first, and the least sum of squares."""
    order = np.argsort(rss, kind="stable")
    kept: list[Floats] = []
    for i in order:
        near = 1e-4 * np.maximum(np.abs(p[i]), 1e-6)
        if all((np.abs(p[i] - other) > near).any() for other in kept):
            kept.append(p[i])
        if len(kept) == KEPT:
            break
    return np.array(kept), float(rss[order[0]])


def _refined(model: Model, n: Floats, x: Floats, p: Floats, rss: float) -> tuple[Floats, float]:
    """Refines a minimum by Gauss-Newton steps with central differences, halved if they lead upwards."""
    free = (p > model.low + AT_BOUND * 1e-3) & (p < model.high * (1 - 1e-12))
    if not free.any() or rss < len(n) * EXACT**2:
        return p, rss
    r = x - model.curve(n, p)
    rss = float(r @ r)
    for _ in range(LAST_STEPS):
        slopes = central(model, n, p)[:, free]
        size = np.maximum(np.sqrt((slopes * slopes).sum(0)), 1e-300)
        step = np.zeros_like(p)
        step[free] = np.linalg.lstsq(slopes / size, r, rcond=None)[0] / size
        for part in (1.0, 0.5, 0.25, 0.125):
            new = np.where(free, np.clip(p + part * step, model.low, model.high), p)
            r_new = x - model.curve(n, new)
            if (less := float(r_new @ r_new)) < rss:
                break
        else:
            break
        is_done = bool((np.abs(new - p) <= 1e-13 * np.abs(p)).all())
        p, r, rss = new, r_new, less
        if is_done:
            break
    return p, rss
