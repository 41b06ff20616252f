"""Which models a ladder speaks for, how clearly, and what it cannot tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dbdyno.stats.scaling.fit import Fit, fit
from dbdyno.stats.scaling.models import MODELS, for_loads
from dbdyno.stats.scaling.points import FEWEST, Points, too_few

CLEAR = 20.0
"""A model this many times less likely than the best one is told apart from it."""
SAME = 0.005
"""Share of the largest throughput: a curve that differs from a plateau by less is one."""


@dataclass(frozen=True)
class Weighed:
    fit: Fit
    weight: float
    """By AICc: Burnham and Anderson, Model Selection and Multimodel Inference (2002), section 2.9."""
    weight_bic: float


@dataclass(frozen=True)
class Choice:
    """All models that could be fitted, best first, and what was left out."""

    weighed: tuple[Weighed, ...]
    refused: tuple[str, ...]
    notes: tuple[str, ...]


def choose(points: Points, names: Sequence[str], think_s: float | None) -> Choice:
    """Fits and ranks the models named."""
    loads = len(points.loads)
    if loads < FEWEST:
        return Choice((), (too_few(loads),), ())
    fits, refused, notes = [], [], []
    for name in names:
        if name == "repairman" and think_s == 0:
            notes.append("the machine-repairman model without think time is the plateau")
            continue
        model = for_loads(MODELS[name], points.n, think_s)
        few = _too_few(loads, len(points.n), len(model.parameters))
        if few:
            refused.append(f"{model.title}: {few}")
            continue
        fits.append(fit(model, points.n, points.x))
    kept = _without_copies(fits, notes)
    return Choice(_weighed(kept), tuple(refused), tuple(notes))


def _too_few(loads: int, points: int, parameters: int) -> str | None:
    """AICc needs three points more than there are parameters, the curve a load more."""
    if loads <= parameters:
        return f"{parameters} parameters need at least {parameters + 1} different loads, there are {loads}"
    if points < parameters + 3:
        return (
            f"{parameters} parameters need at least {parameters + 3} points to be weighed, there are {points}"
        )
    return None


def _without_copies(fits: list[Fit], notes: list[str]) -> list[Fit]:
    """One knee with nothing gained after it is a plateau; what little differs is no finding."""
    flat = next((f for f in fits if f.model.name == "plateau"), None)
    if flat is None:
        return fits
    kept = []
    for f in fits:
        differs = float(np.abs(f.predicted - flat.predicted).max())
        if f.model.name in ("one-knee", "two-knees") and differs < SAME:
            notes.append(f"{f.model.title} differs from a plateau by less than {SAME:.1%}: left out")
            continue
        kept.append(f)
    return kept


def _weighed(fits: list[Fit]) -> tuple[Weighed, ...]:
    ranked = sorted(fits, key=lambda f: (round(f.aicc, 9), len(f.p)))
    shares = [_shares([getattr(f, what) for f in ranked]) for what in ("aicc", "bic")]
    return tuple(Weighed(f, a, b) for f, a, b in zip(ranked, *shares, strict=True))


def _shares(values: list[float]) -> list[float]:
    least = min(values, default=0.0)
    likely = [math.exp(-(v - least) / 2) for v in values]
    return [v / sum(likely) for v in likely]
