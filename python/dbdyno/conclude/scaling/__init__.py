"""How a system scales: models fitted to a ladder, chosen, with intervals, in words. Pure.

Numerical libraries are imported by the first call: they take longer to load than most commands run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dbdyno.model.results.analyses import Estimate, Ladder, Scaling

NAMES = ("linear", "amdahl", "usl", "plateau", "queue", "repairman", "one-knee", "two-knees")
"""Models, simplest first."""


def too_few(loads: int) -> str:
    """The refusal of a ladder with fewer than :data:`~dbdyno.stats.scaling.points.FEWEST` different loads."""
    from dbdyno.conclude.catalogue import sentence
    from dbdyno.stats.scaling.points import FEWEST

    return sentence("too-few-loads", {"loads": loads, "fewest": FEWEST})


def scale(ladder: Ladder, seed: int = 1, models: Sequence[str] | None = None) -> Scaling:
    """All models, or those named, fitted to ``ladder`` by least squares, best first by AICc.

    Where there are too few rungs ``fits`` is empty or shorter and ``refused`` says why. ``seed`` is that of
    draws. The best of all models has intervals after the choice, models that are named have their own. Raises
    UsageError where a point is of no use: missing, not a number, 0 or below.
    """
    from dbdyno.conclude.scaling.chosen import chosen
    from dbdyno.conclude.scaling.fitted import scale as made

    return chosen(made(ladder, seed)) if models is None else made(ladder, seed, models)


def predict(scaling: Scaling, load: float, model: str | None = None) -> Estimate:
    """Throughput at ``load``; its note warns outside the measured range, most beyond twice of it."""
    from dbdyno.conclude.scaling.chosen import predicted
    from dbdyno.conclude.scaling.fitted import predict as made

    found = made(scaling, load, model)
    by_choice = min(scaling.fits, key=lambda f: f.aicc).model == (model or scaling.fits[0].model)
    return predicted(scaling, found, load) if by_choice else found


__all__ = ["NAMES", "predict", "scale", "too_few"]
