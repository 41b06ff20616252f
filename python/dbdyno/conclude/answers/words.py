"""A ladder in a paragraph that a manager can read."""

from __future__ import annotations

from typing import Any

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.answers import rungs
from dbdyno.conclude.catalogue import sentence
from dbdyno.model.scaling import Scaling

SURE = 0.95
"""Weight from which on one model is said to be the right one of those that were tried."""


def paragraph(scaling: Scaling) -> str:
    """Four to six sentences: what it delivers, to where it scales, why it ends there, what one more session
    brings, how sure that is. Of a :class:`Scaling` that has its answers; says what is unknown, too."""
    if scaling.ladder.points.is_empty():
        return " ".join(a.text for a in scaling.answers)
    answers = {a.id: a.text for a in reversed(scaling.answers)}
    known = [answers[name] for name in ("scales-to", "reason", "one-more-session") if name in answers]
    return " ".join([_delivers(scaling), *known, _basis(scaling)])


def _delivers(scaling: Scaling) -> str:
    ladder = scaling.ladder
    top, unit = rungs.reached(ladder), ladder.throughput_unit
    peak, one = rungs.throughput(ladder, top), rungs.alone(scaling)
    said: dict[str, Any] = {
        "name": ladder.name,
        "load": fmt.load(top, ladder.load_unit),
        "rate": fmt.rate(peak, unit),
    }
    if one is None or one[0].value <= 0 or top <= 1:
        return sentence("delivers", said, case="alone")
    said |= {"times": peak / one[0].value, "one": fmt.rate(one[0].value, unit)}
    return sentence("delivers", said, case="times")


def _basis(scaling: Scaling) -> str:
    ladder, best = scaling.ladder, scaling.best
    repeats = min(ladder.points.group_by("load").len()["len"].to_list())
    said: dict[str, Any] = {"levels": len(rungs.loads(ladder))}
    said["repeats"] = f" with {repeats} repeats each" if repeats > 1 else ""
    if best is None:
        said["why"] = scaling.refused[0].rstrip(".") if scaling.refused else "too little was measured"
        return sentence("basis", said, case="none")
    said |= {"model": best.title, "weight": best.weight}
    if best.weight >= SURE or len(scaling.fits) < 2:
        return sentence("basis", said, case="sure")
    other = scaling.fits[1]
    return sentence("basis", said | {"other": other.title, "other_weight": other.weight}, case="unsure")
