"""What is said beside the numbers: bounds, doubts, refusals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dbdyno.conclude.scaling import too_few
from dbdyno.model.scaling import Fitted
from dbdyno.stats.scaling.choose import CLEAR, SAME, Choice, Unfitted, Weighed
from dbdyno.stats.scaling.figures import Figure, Figures
from dbdyno.stats.scaling.fit import Fit
from dbdyno.stats.scaling.intervals import LEAST
from dbdyno.stats.scaling.points import FARTHEST, FEWEST, Points

ALIKE = 0.05
"""p below which residuals are said to be autocorrelated."""
ROUGH = 0.2
"""Typical error of the best model, as a share of mean throughput, above which none describes the ladder."""


def unfit(weighed: Sequence[Weighed], bends: bool) -> str | None:
    """Why even the best model is no description of the ladder; ``None``: it is one."""
    if not weighed:
        return None
    best = weighed[0].fit
    if bends and not any(len(w.fit.model.parameters) > 1 for w in weighed):
        return f"throughput flattens; {len(best.n)} load levels are too few to fit a model (need 6)"
    error = math.sqrt(best.rss / max(best.degrees, 1)) / float(best.x.mean())
    if error > ROUGH:
        said = f"the best of them, {best.model.title}, deviates by {error:.0%} of the mean throughput"
        return f"no model describes these points: {said}; measure again, on a quiet machine, with repeats"
    return None


def left_out(chosen: Choice, loads: int) -> tuple[str, ...]:
    """Why models were not fitted."""
    if loads < FEWEST:
        return (too_few(loads),)
    return tuple(_unfitted(u) for u in chosen.unfitted)


def _unfitted(few: Unfitted) -> str:
    what = "different loads" if few.what == "loads" else "points to be weighed"
    parameters = f"{len(few.model.parameters)} parameters"
    return f"{few.model.title}: {parameters} need at least {few.needed} {what}, there are {few.present}"


def plateaus(chosen: Choice) -> tuple[str, ...]:
    """Models that were left out because they are a plateau here."""
    return tuple(
        "the machine-repairman model without think time is the plateau"
        if m.name == "repairman"
        else f"{m.title} differs from a plateau by less than {SAME:.1%}: left out"
        for m in chosen.plateaus
    )


def no_bend(p: float | None) -> str:
    if p is None:
        return "too few load levels to test for a knee"
    return f"growth does not differ significantly from a straight line (p = {p:.2g}): no knee, no peak"


def repeats(points: Points) -> tuple[str, ...]:
    """Why intervals are not by repeats."""
    climbs = len(np.unique(points.repeat))
    if climbs < 2:
        return ()
    if points.series is None:
        return ("repeats differ in their load levels: intervals are by profile likelihood",)
    if climbs < LEAST:
        few = f"{climbs} repeats are too few to draw from ({LEAST} are needed)"
        return (f"{few}: intervals are by profile likelihood",)
    return ()


def reach(points: Points, load: float) -> str:
    """Where ``load`` lies outside the measured loads; empty: within."""
    first, last = float(points.n.min()), float(points.n.max())
    if load > FARTHEST * last:
        return f"warning: {load:g} is more than twice the largest measured load, {last:g}: do not rely on it"
    if load > last:
        return f"beyond the measured range, which ends at {last:g}"
    return f"below the measured range, which starts at {first:g}" if load < first else ""


def bound_note(found: Fit, name: str) -> str:
    """Empty: the parameter is not at a bound."""
    if name not in found.at_bound:
        return ""
    if name == "kappa":
        return "at its bound 0: no retrograde growth, this is Amdahl's law"
    if name in ("servers", "knee", "knee2"):
        return "at its bound: not seen between the measured loads"
    return "at its bound"


def fit_notes(found: Fit, figures: Figures, bends: bool, p: float | None, one_climb: bool) -> list[str]:
    said = [f"{name} is {bound_note(found, name)}" for name in found.at_bound]
    last = float(found.n.max())
    if found.model.knees and not bends:
        said.append("growth does not differ from a straight line: no knee")
    if figures.peak is not None and not peak_claimed(figures, bends):
        said.append(f"{_forecast(figures)} is not claimed: the data do not rule out that there is none")
    elif figures.peak is not None and figures.peak.value > FARTHEST * last:
        where = f"the peak at {figures.peak.value:.4g}"
        said.append(f"warning: {where} lies beyond twice the measured range, which ends at {last:g}")
    if p is not None and p < ALIKE:
        said.append(
            f"residuals of neighbouring loads are correlated (p = {p:.2g})"
            + (": intervals from this one climb are too narrow" if one_climb else "")
        )
    return said


def _forecast(figures: Figures) -> str:
    top = f" of {figures.top.value:.6g}" if figures.top is not None else ""
    return f"the peak{top} at {figures.peak.value:.4g}" if figures.peak is not None else "a peak"


def peak_claimed(figures: Figures, bends: bool) -> bool:
    """Only a peak that the interval does not send to infinity, on growth that bends beyond chance."""
    if figures.peak is None or not bends or figures.peak.interval[1] is None:
        return False
    losses = [_loss(f) for f in figures.parameters if f.name in ("kappa", "yield", "yield2")]
    return any(losses)


def _loss(figure: Figure) -> bool:
    low, high = figure.interval
    return (low is not None and low > 0) if figure.name == "kappa" else (high is not None and high < 0)


def doubts(weighed: Sequence[Weighed]) -> list[str]:
    """Models that are not clearly less likely than the best."""
    if len(weighed) < 2:
        return []
    near = [w for w in weighed if w.weight * CLEAR > weighed[0].weight]
    if len(near) < 2:
        return []
    names = [f"{w.fit.model.title} ({w.weight:.2f})" for w in near]
    return [f"{', '.join(names[:-1])} and {names[-1]} fit about equally well (Akaike weights)"]


def below_the_bend(usl: Fitted | None, amdahl: Fitted | None, last: float) -> list[str]:
    """The law and Amdahl's differ by what comes after the bend."""
    if usl is None or amdahl is None:
        return []
    kappa = usl.parameters[2]
    peak = ((1 - usl.parameters[1].value) / kappa.value) ** 0.5 if kappa.value > 0 else float("inf")
    if peak <= last or (kappa.low is not None and kappa.low > 0 and usl.aicc < amdahl.aicc - 2):
        return []
    return [
        "USL and Amdahl fit equally well below the bend "
        f"(AICc {usl.aicc:.1f} and {amdahl.aicc:.1f}): measure higher loads to find a peak"
    ]
