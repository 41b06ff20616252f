"""Chooses the models that describe the points, and tests whether growth bends at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dbdyno.stats.scaling.curves import Floats
from dbdyno.stats.scaling.fit import Fit, fit
from dbdyno.stats.scaling.models import MODELS, Model, for_loads
from dbdyno.stats.scaling.points import FEWEST, Points

CLEAR = 20.0
"""Likelihood ratio to the best model from which on a model is clearly worse."""
SAME = 0.005
"""Largest difference from a plateau, as a share of the largest throughput, of a curve that counts as one."""


@dataclass(frozen=True)
class Weighed:
    """A fit with its weights."""

    fit: Fit
    weight: float
    """Akaike weight by AICc (Burnham and Anderson, Model Selection and Multimodel Inference (2002),
    section 2.9)."""
    weight_bic: float


class Unfitted(NamedTuple):
    """A model that needs more loads or points than there are."""

    model: Model
    what: str
    """The lacking quantity: loads | points."""
    needed: int
    present: int


@dataclass(frozen=True)
class Choice:
    """All models that could be fitted, best first, and those that were left out."""

    weighed: tuple[Weighed, ...]
    unfitted: tuple[Unfitted, ...] = ()
    plateaus: tuple[Model, ...] = ()
    """Models that were left out, as they differ from a plateau by less than :data:`SAME`."""


def choose(points: Points, names: Sequence[str], think_s: float | None) -> Choice:
    """Fits and ranks the named models; none with fewer than :data:`FEWEST` loads."""
    loads = len(points.loads)
    if loads < FEWEST:
        return Choice(())
    fits, unfitted, plateaus = [], [], []
    for name in names:
        if name == "repairman" and think_s == 0:
            plateaus.append(MODELS[name])
            continue
        model = for_loads(MODELS[name], points.n, think_s)
        lack = _too_few(model, loads, len(points.n))
        if lack is not None:
            unfitted.append(lack)
            continue
        fits.append(fit(model, points.n, points.x))
    copies = _copies_of_plateau(fits)
    kept = [f for f in fits if not any(f is c for c in copies)]
    return Choice(_weighed(kept), tuple(unfitted), (*plateaus, *(f.model for f in copies)))


def _too_few(model: Model, loads: int, points: int) -> Unfitted | None:
    """Returns the lack of a model, or None. AICc needs three points more than there are parameters, the
    curve one load more."""
    parameters = len(model.parameters)
    if loads <= parameters:
        return Unfitted(model, "loads", parameters + 1, loads)
    if points < parameters + 3:
        return Unfitted(model, "points", parameters + 3, points)
    return None


def _copies_of_plateau(fits: list[Fit]) -> list[Fit]:
    """Returns the fits with knees that equal the plateau within :data:`SAME`: a smaller difference is not
    a finding."""
    flat = next((f for f in fits if f.model.name == "plateau"), None)
    if flat is None:
        return []
    kneed = [f for f in fits if f.model.name in ("one-knee", "two-knees")]
    return [f for f in kneed if float(np.abs(f.predicted - flat.predicted).max()) < SAME]


def _weighed(fits: list[Fit]) -> tuple[Weighed, ...]:
    ranked = sorted(fits, key=lambda f: (round(f.aicc, 9), len(f.p)))
    shares = [_shares([getattr(f, what) for f in ranked]) for what in ("aicc", "bic")]
    return tuple(Weighed(f, a, b) for f, a, b in zip(ranked, *shares, strict=True))


def _shares(values: list[float]) -> list[float]:
    least = min(values, default=0.0)
    likely = [math.exp(-(v - least) / 2) for v in values]
    return [v / sum(likely) for v in likely]


DRAWS = 999
PLACES = 60
ALPHA = 0.05
"""Largest p of a bend, and with it of a knee or a peak, that is claimed."""


def straight_p(n: Floats, x: Floats, seed: int) -> float | None:
    """Returns the p that the points lie on a straight line through 0, against growth that slows down at one
    knee anywhere; None for too few points.

    The statistic is F of the best knee. Its distribution comes from draws of normal errors (Davies,
    Biometrika 74 (1987) 33, on why tables do not hold; Hansen, Econometrica 64 (1996) 413, for the draws).
    """
    loads = np.unique(n)
    if len(loads) < 4:
        return None
    knees = np.unique(np.concatenate([loads[:-1], (loads[1:-1] + loads[:-2]) / 2]))
    if len(knees) > PLACES:
        knees = knees[np.linspace(0, len(knees) - 1, PLACES).astype(int)]
    errors = np.random.default_rng(seed).normal(size=(DRAWS, len(n)))
    size = n / n.max()
    constant = _p(n, x, errors, knees, np.ones_like(n))
    proportional = min(_p(n, x, errors * size, knees, np.ones_like(n)), _p(n, x, errors * size, knees, size))
    return max(
        constant, min(1.0, 2 * proportional)
    )  # whether errors are constant or proportional (two tests) is unknown


def _p(n: Floats, x: Floats, errors: Floats, knees: Floats, size: Floats) -> float:
    """Returns the p of the best knee among ``errors``, with points weighted by the inverse of ``size``."""
    line = n / size
    line = line / np.sqrt((line * line).sum())
    own, drawn = (x / x.max() / size)[None], errors / size
    own, drawn = (e - (e @ line)[:, None] * line for e in (own, drawn))
    least = _gain(n, own, knees, size)[0]
    return float((1 + (_gain(n, drawn, knees, size) >= least).sum()) / (DRAWS + 1))


def _gain(n: Floats, off: Floats, knees: Floats, size: Floats) -> Floats:
    """Returns the largest share of the squares ``off`` the line (draws, points) that growth slowing at a
    knee explains."""
    line = n / size
    line = line / np.sqrt((line * line).sum())
    bends = np.maximum(n - knees[:, None], 0) / size
    bends = bends - (bends @ line)[:, None] * line
    length = np.sqrt((bends**2).sum(1))
    keep = length > 1e-9 * n.max()
    taken = off @ (bends[keep] / length[keep, None]).T
    return np.asarray((np.minimum(taken, 0) ** 2).max(1) / np.maximum((off**2).sum(1), 1e-300))
