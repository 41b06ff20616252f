"""Whether growth bends at all: a knee is sought everywhere, so F of the best one needs a law of its own."""

from __future__ import annotations

import numpy as np

from dbdyno.stats.scaling.curves import Floats

DRAWS = 999
PLACES = 60
ALPHA = 0.05
"""p up to which a bend, and with it a knee or a peak, is claimed."""


def straight_p(n: Floats, x: Floats, seed: int) -> float | None:
    """p that the points lie on a straight line through 0 but for chance, against growth that slows down at
    one knee somewhere: F of the best knee, its law by draws of normal errors (Davies, Biometrika 74 (1987)
    33, on why the tables do not hold; Hansen, Econometrica 64 (1996) 413, for the draws). None: too few
    points to say."""
    loads = np.unique(n)
    if len(loads) < 4:
        return None
    knees = np.unique(np.concatenate([loads[:-1], (loads[1:-1] + loads[:-2]) / 2]))
    if len(knees) > PLACES:
        knees = knees[np.linspace(0, len(knees) - 1, PLACES).astype(int)]
    errors = np.random.default_rng(seed).normal(size=(DRAWS, len(n)))
    size = n / n.max()
    alike = _p(n, x, errors, knees, np.ones_like(n))
    growing = min(_p(n, x, errors * size, knees, np.ones_like(n)), _p(n, x, errors * size, knees, size))
    return max(alike, min(1.0, 2 * growing))  # errors of one size, or in proportion (two tests): nobody knows


def _p(n: Floats, x: Floats, errors: Floats, knees: Floats, size: Floats) -> float:
    """p of the best knee among ``errors``, all points weighted by the inverse of ``size``."""
    line = n / size
    line = line / np.sqrt((line * line).sum())
    own, drawn = (x / x.max() / size)[None], errors / size
    own, drawn = (e - (e @ line)[:, None] * line for e in (own, drawn))
    least = _gain(n, own, knees, size)[0]
    return float((1 + (_gain(n, drawn, knees, size) >= least).sum()) / (DRAWS + 1))


def _gain(n: Floats, off: Floats, knees: Floats, size: Floats) -> Floats:
    """Largest share of the squares ``off`` the line (draws, points) that growth slowing at a knee takes
    away."""
    line = n / size
    line = line / np.sqrt((line * line).sum())
    bends = np.maximum(n - knees[:, None], 0) / size
    bends = bends - (bends @ line)[:, None] * line
    length = np.sqrt((bends**2).sum(1))
    keep = length > 1e-9 * n.max()
    taken = off @ (bends[keep] / length[keep, None]).T
    return np.asarray((np.minimum(taken, 0) ** 2).max(1) / np.maximum((off**2).sum(1), 1e-300))
