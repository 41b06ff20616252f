"""A ladder in a paragraph that a manager can read."""

from __future__ import annotations

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.answers import rungs
from dbdyno.model.claim import Claim
from dbdyno.model.scaling import Scaling

SURE = 0.95
"""Weight from which on one model is said to be the right one of those that were tried."""


def paragraph(scaling: Scaling) -> str:
    """Four to six sentences: what it delivers, to where it scales, why it ends there, what one more session
    brings, how sure that is. Of a :class:`Scaling` that has its answers; says what is not told, too."""
    answers = {a.id: a for a in reversed(scaling.answers)}
    if scaling.ladder.points.is_empty():
        return " ".join(a.text for a in scaling.answers)
    sentences = [
        _delivers(scaling),
        _claim(answers, "scales-to"),
        _claim(answers, "reason"),
        _claim(answers, "one-more-session"),
        _sure(scaling),
    ]
    return " ".join(s for s in sentences if s)


def _delivers(scaling: Scaling) -> str:
    ladder = scaling.ladder
    top, unit = rungs.reached(ladder), ladder.throughput_unit
    peak, one = rungs.at(ladder, top), rungs.alone(scaling)
    assert peak is not None
    text = f"{ladder.name}: {fmt.load(top, ladder.load_unit)} deliver {fmt.rate(peak.value, unit)}"
    if one is not None and one[0].value > 0 and top > 1:
        text += f", {fmt.plain(peak.value / one[0].value)} times the throughput of one"
        text += f" ({fmt.rate(one[0].value, unit)})"
    return f"{text}."


def _sure(scaling: Scaling) -> str:
    ladder, best = scaling.ladder, scaling.best
    rungs_told = f"{len(rungs.loads(ladder))} load levels"
    repeats = min(ladder.points.group_by("load").len()["len"].to_list())
    measured = f"{rungs_told} with {repeats} repeats each" if repeats > 1 else rungs_told
    if best is None:
        why = scaling.refused[0].rstrip(".") if scaling.refused else "too little was measured"
        return f"No model is fitted to {measured}: {why}."
    text = f"Basis: {measured}; {best.title} has {fmt.percent(best.weight)} of the weight"
    if best.weight >= SURE or len(scaling.fits) < 2:
        return f"{text} among the models tried."
    return f"{text}; {scaling.fits[1].title} ({fmt.percent(scaling.fits[1].weight)}) is not ruled out."


def _claim(answers: dict[str, Claim], name: str) -> str:
    return answers[name].text if name in answers else ""
