"""Least squares for many problems at once: Levenberg and Marquardt's method with bounds, vectorised.

A profile needs hundreds of fits, a bootstrap thousands: one after another with scipy they would take longer
than the run that they explain. The fit itself is finished by scipy.
"""

from __future__ import annotations

import numpy as np

from dbdyno.stats.scaling.curves import Floats
from dbdyno.stats.scaling.models import Model

STEPS = 60
_NUDGE = 1e-7


def solve(
    model: Model, n: Floats, x: Floats, start: Floats, held: Floats | None = None, gain: float = 1e-13
) -> tuple[Floats, Floats]:
    """Minima of the sum of squares near ``start``.

    ``n``: (points,); ``x``: (points,) or (problems, points); ``start``: (problems, parameters); ``held``: of
    the same shape, true where a parameter keeps its start; ``gain``: relative, below it a problem is done.
    Returns parameters and sums of squares, (problems,).
    """
    p = np.clip(start, model.low, model.high)
    held = np.zeros(p.shape, dtype=bool) if held is None else held.astype(bool)
    p = np.where(held, start, p)
    x = np.broadcast_to(x, (len(p), len(n)))
    curve = model.quick or model.curve
    r = x - curve(n, p)
    rss = (r * r).sum(1)
    damping, live = np.full(len(p), 1e-3), np.arange(len(p))
    for _ in range(STEPS):
        step = _step(model, n, p[live], r[live], damping[live], held[live])
        new = np.where(held[live], p[live], np.clip(p[live] + step, model.low, model.high))
        r_new = x[live] - curve(n, new)
        rss_new = np.nan_to_num((r_new * r_new).sum(1), nan=np.inf)
        better = rss_new < rss[live]
        still = np.where(better, rss[live] - rss_new > gain * rss[live], damping[live] < 1e6)
        take = live[better]
        p[take], r[take], rss[take] = new[better], r_new[better], rss_new[better]
        damping[live] = np.where(better, damping[live] / 8, damping[live] * 6)
        live = live[still & (rss[live] > 1e-26)]
        if not len(live):
            break
    return p, rss


def jacobian(model: Model, n: Floats, p: Floats, nudge: float = _NUDGE) -> Floats:
    """Derivatives of the throughput, (problems, points, parameters), one-sided away from the upper bounds."""
    curve = model.quick or model.curve
    f = curve(n, p)
    out = np.empty((*f.shape, p.shape[1]))
    for i in range(p.shape[1]):
        h = nudge * np.maximum(np.abs(p[:, i]), 1e-4 if model.parameters[i].unit == "ratio" else 1e-9)
        h = np.where(p[:, i] + h > model.parameters[i].high, -h, h)
        there = p.copy()
        there[:, i] += h
        out[:, :, i] = (curve(n, there) - f) / h[:, None]
    return out


def _step(model: Model, n: Floats, p: Floats, r: Floats, damping: Floats, held: Floats) -> Floats:
    j = jacobian(model, n, p)
    size = np.sqrt((j * j).sum(1))
    size = np.where(size > 0, size, 1.0)
    j = j / size[:, None, :]
    g = np.einsum("bki,bk->bi", j, r)
    at_bound = ((p <= model.low) & (g < 0)) | ((p >= model.high) & (g > 0))
    fixed = held | at_bound
    a = np.einsum("bki,bkj->bij", j, j)
    a = np.where(fixed[:, :, None] | fixed[:, None, :], 0.0, a)
    own = np.arange(p.shape[1])
    a[:, own, own] += np.where(fixed, 1.0, damping[:, None] + 1e-12)
    g = np.where(fixed, 0.0, g)
    return np.asarray(np.linalg.solve(a, g[:, :, None])[:, :, 0] / size)
