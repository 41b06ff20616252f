"""The answer in one paragraph, and what of a model may be said in it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl

from dbdyno.conclude.catalogue import claim, sentence
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.ladder import ladders
from dbdyno.conclude.ladder.rungs import Rungs
from dbdyno.model.results.analyses import Estimate, Fitted, Ladder, Scaling
from dbdyno.model.results.claim import Claim

NEAR = 0.05
"""A model with this share of the best one's weight is not ruled out."""
ALIKE = 0.05
"""p below which residuals are said to follow a pattern."""
ROUNDED = 5e-4
"""Relative residuals up to this are rounding, whatever pattern they have."""
_BEYOND = 1.5
"""A load so many times a knee that is as efficient as the lowest one contradicts it."""

# -- the veto --


def vetoed(made: Scaling) -> tuple[Scaling, tuple[Claim, ...]]:
    """Without the peak and the knees of models whose residuals follow a pattern, or that a measured load
    contradicts; and the claim that says so of the best one."""
    reasons = {f.model: why for f in made.fits if (why := _veto(made, f))}
    if not reasons:
        return made, ()
    bare: dict[str, Any] = {"peak": None, "peak_throughput": None, "knees": ()}
    fits = tuple(replace(f, **bare) if f.model in reasons else f for f in made.fits)
    best = fits[0]
    if best.model not in reasons:
        return replace(made, fits=fits), ()
    case, said = reasons[best.model]
    said |= {
        "shape": shape(best),
        "error": fmt.at_least(typical_error(made, best)),
        "tried": _number(len(fits)),
    }
    value = None if case == "contradicted" else Estimate("pattern", best.autocorrelation_p or 0.0, "p")
    none = pl.lit(None, pl.Float64)  # what is rejected predicts nothing; the band is that of all models
    curve = made.curve.filter(~pl.col("beyond")).with_columns(throughput=none, response_s=none)
    return replace(made, fits=fits, curve=curve), (claim("model-veto", said, value, case=case),)


def _veto(made: Scaling, fit: Fitted) -> tuple[str, dict[str, Any]] | None:
    """Case and values of the claim; ``None``: nothing speaks against its peak and knees."""
    p = fit.autocorrelation_p
    if p is not None and p < ALIKE and typical_error(made, fit) > ROUNDED:
        return "pattern", {"p": fmt.p_value(p)}
    rungs, unit = Rungs.of(made.ladder), made.ladder.load_unit
    if fit.peak is not None and not _may_peak(rungs, fit.peak):
        return "contradicted", {"what": f"a peak at {fmt.load(fit.peak.value, unit)}"}
    for knee in fit.knees[:1]:
        beyond = (n for n in rungs.loads if n >= _BEYOND * (knee.high or knee.value))
        if any(rungs.efficiencies[n] >= 1 for n in beyond):
            return "contradicted", {"what": f"a knee at {fmt.load(knee.value, unit)}"}
    return None


def _may_peak(rungs: Rungs, peak: Estimate) -> bool:
    """Whether the peak may lie where throughput is highest: up to the next load on both sides."""
    first, last = (rungs.loads.index(rungs.peak[i]) for i in (0, -1))
    low = rungs.loads[first - 1] if first else 0.0
    high = rungs.loads[last + 1] if last + 1 < len(rungs.loads) else math.inf
    return (peak.high or peak.value) >= low and (peak.low or peak.value) <= high


def typical_error(made: Scaling, fit: Fitted) -> float:
    """Root of the mean square of the residuals, over the mean throughput."""
    mean = float(_used(made.ladder)["throughput"].mean() or 1.0)  # type: ignore[arg-type]
    return math.sqrt(fit.rss / max(fit.degrees, 1)) / mean


# -- the paragraph --

_SENTENCES = ("scales-to", "superlinear", "one-more-session", "throughput-drop", "reason", "smt-yield")
_SHAPES = {"one-knee": "one with one bend", "two-knees": "one with two bends"}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


def paragraph(made: Scaling) -> str:
    """What it delivers, up to where it scales, what stops it, what that rests on, what to measure next. Of a
    :class:`Scaling` that has its answers; says what is unknown, too."""
    if made.ladder.points.is_empty():
        return " ".join(a.text for a in made.answers)
    found = {a.id: a for a in reversed(made.answers)}
    known = [found[name] for name in _SENTENCES if name in found]
    texts = [a.text for a in known if _tells(a, found)]
    left = [found["outlier"].text] if "outlier" in found else []
    first = [_delivers(made), *_assumed(Rungs.of(made.ladder))]
    return " ".join([*first, *texts, _basis(made, found.get("model-veto")), *left, *_next(made)])


def _tells(answer: Claim, found: dict[str, Claim]) -> bool:
    """Whether it adds something to the sentences before and after it."""
    if answer.id == "smt-yield":
        return answer.value is not None
    if answer.id == "one-more-session":
        return answer.case != "nothing" and not (answer.case == "less" and "throughput-drop" in found)
    return True


def _delivers(made: Scaling) -> str:
    ladder, rungs = made.ladder, Rungs.of(made.ladder)
    unit, load_unit, lowest = ladder.throughput_unit, ladder.load_unit, rungs.loads[0]
    said: dict[str, Any] = {"name": ladder.name, "load": fmt.load(rungs.best, load_unit)}
    said |= {"rate": fmt.rate(rungs.x(rungs.best), unit), "one": fmt.rate(rungs.x(lowest), unit)}
    said |= {"times": rungs.x(rungs.best) / rungs.x(lowest)}
    said |= {"lowest": "one" if lowest == 1 else fmt.load(lowest, load_unit)}
    said |= {"alike": fmt.loads(rungs.peak[0], rungs.peak[-1], load_unit)}
    if rungs.is_constant:
        return sentence("delivers", said, case="constant")
    case = "first" if rungs.best == lowest else "times"
    return sentence("delivers", said, case=case, parts=["alike"] if len(rungs.peak) > 1 else [])


def _assumed(rungs: Rungs) -> Iterator[str]:
    """That noise, with which all figures are compared, was not measured."""
    if rungs.noise.source == "assumed" and not rungs.repeated:
        yield sentence("delivers", {"noise": rungs.noise_text}, case="assumed")


def _basis(made: Scaling, veto: Claim | None) -> str:
    best, said = made.best, {"measured": _measured(made.ladder)}
    if best is None:
        why = made.refused[0].rstrip(".") if made.refused else "Too little was measured to fit a curve"
        return sentence("basis", said | {"why": why}, case="none")
    if veto is not None:
        return f"{sentence('basis', said, case='bare')} {veto.text}"
    values: dict[str, Any] = {**said, "shape": shape(best), "error": fmt.at_least(typical_error(made, best))}
    values |= {"tried": _number(len(made.fits)), "bends": _bends(made.ladder, best)}
    figures = ", ".join(f"{e.name} {_short(e.value)}" for e in best.parameters[1:])
    values |= {"figures": f" ({figures})" if figures else ""}
    case, bends = _case(made, best), bool(best.knees) and not Rungs.of(made.ladder).is_constant
    return sentence("basis", values | _others(made), case=case, parts=["bends"] if bends else [])


def _case(made: Scaling, best: Fitted) -> str:
    if best.weight < max(f.weight for f in made.fits) or not best.weight:
        return "requested"
    if len(made.fits) < 2 or made.fits[1].weight == 0:
        return "exact" if typical_error(made, best) <= ROUNDED else "alone"
    return "sure" if not _near(made) else "unsure"


def _near(made: Scaling) -> list[Fitted]:
    """Models other than the best that are not ruled out."""
    return [f for f in made.fits[1:] if f.weight >= NEAR * made.fits[0].weight]


def _others(made: Scaling) -> dict[str, str]:
    supported = max(made.fits, key=lambda f: f.weight)
    instead = shape(supported) if supported.weight else "none"
    names = [shape(f) for f in _near(made)]
    many = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
    return {"others": many, "instead": instead}


def _short(value: float) -> str:
    """``0.1``, ``8.22e-06``."""
    return f"{value:.3g}"


def _bends(ladder: Ladder, best: Fitted) -> str:
    """``at 8.1 sessions (7.8 to 8.3)``; where loads are far apart, ``between 8 and 16 sessions``: the place
    between them is the model's, and not in the data."""
    loads, unit = Rungs.of(ladder).loads, ladder.load_unit
    told = []
    for knee in best.knees:
        below = max((n for n in loads if n <= knee.value), default=0.0)
        above = min((n for n in loads if n >= knee.value), default=math.inf)
        low, high = knee.low or below, knee.high or above
        if below and math.isfinite(above) and above >= _GAP * below and above - below > 1:
            told.append(f"between {fmt.load_number(min(low, below))} and {fmt.load(max(high, above), unit)}")
        else:
            told.append(f"{fmt.at_load(knee.value, unit)}{fmt.load_spread(knee)}")
    return " and ".join(told)


def _used(ladder: Ladder) -> pl.DataFrame:
    """The points that models are fitted to."""
    until = ladder.broken_from
    return ladder.points if until is None else ladder.points.filter(pl.col("load") < until)


def _measured(ladder: Ladder) -> str:
    """``16 loads``, ``5 loads below 64 sessions with 3 repeats each``."""
    used, until = _used(ladder), ladder.broken_from
    loads, repeats = used["load"].n_unique(), min(used.group_by("load").len()["len"].to_list())
    below = f" below {fmt.load(until, ladder.load_unit)}" if until is not None else ""
    again = f" with {repeats} repeats each" if repeats > 1 else ""
    return f"{loads} load{'' if loads == 1 else 's'}{below}{again}"


def shape(fit: Fitted) -> str:
    """``one with two bends``, ``a plateau``."""
    return _SHAPES.get(fit.model, fit.title)


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


# -- what to measure next --

_FEW = 6
"""Different loads from which on curves with a bend can be compared."""
_ROUGH = 0.05
"""Noise from which on longer measurements are advised, relative."""
_REPEATS = 3
_GAP = 1.5
"""Loads so many times apart leave room for another one between them."""


def _next(made: Scaling) -> Iterator[str]:
    """At most two: what would close what is open."""
    ladder, rungs = made.ladder, Rungs.of(made.ladder)
    steps = [sentence("next-step", said, case=case) for case, said in _open(ladder, rungs)][:2]
    if steps:
        yield sentence("next-step", {"steps": "; ".join(steps)}, case="all")


def _open(ladder: Ladder, rungs: Rungs) -> Iterator[tuple[str, dict[str, Any]]]:
    """Case and values of the catalogue's entry, what matters most first."""
    unit = ladder.load_unit
    for load, _ in ladder.outliers:
        yield "outlier", {"load": fmt.load(load, unit)}
    between = _gap(ladder, rungs)
    if between is not None:
        yield "gap", {"low": fmt.load_number(between[0]), "high": fmt.load(between[1], unit)}
    gain = rungs.gain()
    rises = gain is not None and rungs.peak == rungs.loads[-1:] and (gain[1].low or 0) > 0
    if rises and gain is not None and rungs.goes_on(gain[0], rises=True):
        yield "higher", {"load": fmt.load(2 * rungs.loads[-1], unit)}
    if len(rungs.loads) < _FEW:
        yield "more", {"count": _FEW - len(rungs.loads)}
    if rungs.noise.share > _ROUGH:
        yield "longer", {}
    elif all(m.n < _REPEATS for m in rungs.means.values()):
        yield "repeats", {}


def _gap(ladder: Ladder, rungs: Rungs) -> tuple[float, float] | None:
    """Neighbouring loads far apart between which throughput drops, or growth falls off."""
    drop = rungs.drop()
    bend = ladders.bend(ladder)
    if drop is not None:
        return (drop[0], drop[1]) if drop[1] - drop[0] > 1 else None
    if bend is not None:
        at = rungs.loads.index(bend.value)
        pair = (rungs.loads[at], rungs.loads[min(at + 1, len(rungs.loads) - 1)])
    else:
        return None
    return pair if pair[1] >= _GAP * pair[0] and pair[1] - pair[0] > 1 else None
