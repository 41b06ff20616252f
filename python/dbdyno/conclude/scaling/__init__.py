"""Describes how a system scales: models fitted to a ladder, the choice among them, intervals, sentences.
Pure.

Functions import numerical libraries at their first call, because these take longer to load than most commands
run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dbdyno.model.results.analyses import Estimate, Ladder, Scaling

NAMES = ("linear", "amdahl", "usl", "plateau", "queue", "repairman", "one-knee", "two-knees")
"""Names of the models, simplest first."""


def too_few(loads: int) -> str:
    """Returns the refusal of a ladder with fewer than :data:`~dbdyno.stats.scaling.points.FEWEST` different
    loads."""
    from dbdyno.conclude.catalogue import sentence
    from dbdyno.stats.scaling.points import FEWEST

    return sentence("too-few-loads", {"loads": loads, "fewest": FEWEST})


def scale(ladder: Ladder, seed: int = 1, models: Sequence[str] | None = None) -> Scaling:
    """Returns all models, or those named, fitted to ``ladder`` by least squares, best first by AICc.

    With too few rungs ``fits`` is empty or shorter, and ``refused`` states the reason. ``seed`` is that of
    the random draws. The best of all models gets intervals that allow for its selection; named models get
    their own. Raises UsageError if a point is missing, not a number, or not above 0.
    """
    from dbdyno.conclude.scaling.chosen import chosen
    from dbdyno.conclude.scaling.fitted import scale as made

    return chosen(made(ladder, seed)) if models is None else made(ladder, seed, models)


def predict(scaling: Scaling, load: float, model: str | None = None) -> Estimate:
    """Returns throughput at ``load``. Its note warns outside the measured range, most strongly beyond twice
    the range."""
    from dbdyno.conclude.scaling.chosen import predicted
    from dbdyno.conclude.scaling.fitted import predict as made

    prediction = made(scaling, load, model)
    by_choice = min(scaling.fits, key=lambda f: f.aicc).model == (model or scaling.fits[0].model)
    return predicted(scaling, prediction, load) if by_choice else prediction


__all__ = ["NAMES", "predict", "scale", "too_few"]
