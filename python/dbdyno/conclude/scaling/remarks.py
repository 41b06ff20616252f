"""Remarks beside the numbers: bounds, doubts, refusals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.catalogue import sentence
from dbdyno.conclude.scaling import too_few
from dbdyno.model.results.analyses import Fitted
from dbdyno.model.units import format_given, format_rate
from dbdyno.stats.scaling.choose import CLEAR, SAME, Choice, Unfitted, Weighed
from dbdyno.stats.scaling.figures import Figure, Figures
from dbdyno.stats.scaling.fit import Fit
from dbdyno.stats.scaling.intervals import LEAST
from dbdyno.stats.scaling.points import FARTHEST, FEWEST, Points

ALIKE = 0.05
"""p value below which residuals are called autocorrelated."""
ROUGH = 0.2
"""Typical error of the best model, relative to mean throughput, above which no model describes the ladder."""


def unfit(weighed: Sequence[Weighed], bends: bool) -> str | None:
    """Returns the reason why even the best model does not describe the ladder; None if it does."""
    if not weighed:
        return None
    best = weighed[0].fit
    if bends and not any(len(w.fit.model.parameters) > 1 for w in weighed):
        return sentence("no-model", {"loads": len(best.n)}, case="few")
    error = math.sqrt(best.rss / max(best.degrees, 1)) / float(best.x.mean())
    if error > ROUGH:
        return sentence("no-model", {"model": best.model.title, "error": error}, case="rough")
    return None


def left_out(chosen: Choice, loads: int) -> tuple[str, ...]:
    """Returns the reasons why models were not fitted."""
    if loads < FEWEST:
        return (too_few(loads),)
    return tuple(_unfitted(u) for u in chosen.unfitted)


def _unfitted(reason: Unfitted) -> str:
    values = {"model": reason.model.title, "parameters": len(reason.model.parameters)}
    values |= {"needed": reason.needed, "present": reason.present}
    return sentence("model-not-fitted", values, case="loads" if reason.what == "loads" else "points")


def plateaus(chosen: Choice) -> tuple[str, ...]:
    """Returns a remark per model that was left out because it equals a plateau here."""
    return tuple(
        sentence(
            "model-left-out",
            {"model": m.title, "limit": SAME},
            case="repairman" if m.name == "repairman" else "same",
        )
        for m in chosen.plateaus
    )


def no_bend(p: float | None) -> str:
    return sentence("straight-line", {"p": p}, case="few" if p is None else "straight")


def repeats(points: Points) -> tuple[str, ...]:
    """Returns the reason why intervals do not come from repeats; empty if they do or there is only one
    climb."""
    climbs = len(np.unique(points.repeat))
    if climbs < 2:
        return ()
    if points.series is None:
        return (sentence("interval-method", case="differ"),)
    if climbs < LEAST:
        return (sentence("interval-method", {"repeats": climbs, "needed": LEAST}, case="few"),)
    return ()


def reach(first: float, last: float, load: float) -> str:
    """Returns a warning if ``load`` lies outside the measured loads ``first`` to ``last``; "" within."""
    if first <= load <= last:
        return ""
    case = "below" if load < first else "far" if load > FARTHEST * last else "beyond"
    values = {"load": fmt.load_number(load), "first": format_given(first), "last": format_given(last)}
    return sentence("forecast", values, case=case)


def bound_note(model_fit: Fit, name: str) -> str:
    """Returns the remark on a parameter at a bound; "" if it is not at one."""
    if name not in model_fit.at_bound:
        return ""
    case = "kappa" if name == "kappa" else "unseen" if name in ("servers", "knee", "knee2") else "plain"
    return sentence("at-bound", {"name": name}, case=case)


def fit_notes(model_fit: Fit, figures: Figures, bends: bool, p: float | None, one_climb: bool) -> list[str]:
    last = float(model_fit.n.max())
    values: dict[str, Any] = {"last": format_given(last), "p": p, "top": ""}
    if figures.peak is not None:
        values["peak"] = figures.peak.value
        values["top"] = "" if figures.top is None else f" of {format_rate(figures.top.value)}"
    unsure = figures.peak is not None and not peak_claimed(figures, bends)
    far = figures.peak is not None and not unsure and figures.peak.value > FARTHEST * last
    correlated = p is not None and p < ALIKE
    cases = {
        "no-knee": bool(model_fit.model.knees) and not bends,
        "peak-unsure": unsure,
        "peak-far": far,
        "one-climb": correlated and one_climb,
        "correlated": correlated and not one_climb,
    }
    notes = [sentence("fit-note", values, case=case) for case, holds in cases.items() if holds]
    return [*(bound_note(model_fit, name) for name in model_fit.at_bound), *notes]


def peak_claimed(figures: Figures, bends: bool) -> bool:
    """Returns whether the peak is claimed: its interval is finite, and growth bends beyond chance."""
    if figures.peak is None or not bends or figures.peak.interval[1] is None:
        return False
    losses = [_loss(f) for f in figures.parameters if f.name in ("kappa", "yield", "yield2")]
    return any(losses)


def _loss(figure: Figure) -> bool:
    low, high = figure.interval
    return (low is not None and low > 0) if figure.name == "kappa" else (high is not None and high < 0)


def doubts(weighed: Sequence[Weighed]) -> list[str]:
    """Returns a remark on the models that are not clearly less likely than the best."""
    if len(weighed) < 2:
        return []
    near = [w for w in weighed if w.weight * CLEAR > weighed[0].weight]
    if len(near) < 2:
        return []
    names = [f"{w.fit.model.title} ({w.weight:.2f})" for w in near]
    return [sentence("equal-models", {"models": f"{', '.join(names[:-1])} and {names[-1]}"})]


def below_the_bend(usl: Fitted | None, amdahl: Fitted | None, last: float) -> list[str]:
    """Returns a remark if the loads end before the bend, where the USL and Amdahl's law do not differ."""
    if usl is None or amdahl is None:
        return []
    kappa = usl.parameters[2]
    peak = ((1 - usl.parameters[1].value) / kappa.value) ** 0.5 if kappa.value > 0 else float("inf")
    if peak <= last or (kappa.low is not None and kappa.low > 0 and usl.aicc < amdahl.aicc - 2):
        return []
    return [sentence("below-the-bend", {"usl": usl.aicc, "amdahl": amdahl.aicc})]
