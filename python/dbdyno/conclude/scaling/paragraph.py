"""Writes the answer in one paragraph, and decides which claims of a model it may contain."""

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
"""Share of the best model's weight from which on another model is not ruled out."""
ALIKE = 0.05
"""p value of autocorrelation below which residuals follow a pattern."""
ROUNDED = 5e-4
"""Relative residuals up to this size are rounding, and their pattern is ignored."""
_BEYOND = 1.5
"""Multiple of a knee beyond which a load as efficient as the lowest one contradicts the knee."""

# -- the veto --


def vetoed(scaling: Scaling) -> tuple[Scaling, tuple[Claim, ...]]:
    """Returns ``scaling`` without the peak and the knees of models whose residuals follow a pattern or that a
    measured load contradicts, and the claim about this if it concerns the best model."""
    reasons = {f.model: why for f in scaling.fits if (why := _veto(scaling, f))}
    if not reasons:
        return scaling, ()
    bare: dict[str, Any] = {"peak": None, "peak_throughput": None, "knees": ()}
    fits = tuple(replace(f, **bare) if f.model in reasons else f for f in scaling.fits)
    best = fits[0]
    if best.model not in reasons:
        return replace(scaling, fits=fits), ()
    case, values = reasons[best.model]
    values |= {
        "shape": shape(best),
        "error": fmt.at_least(typical_error(scaling, best)),
        "tried": _number(len(fits)),
    }
    value = None if case == "contradicted" else Estimate("pattern", best.autocorrelation_p or 0.0, "p")
    none = pl.lit(
        None, pl.Float64
    )  # a rejected model predicts nothing; the band stays, it is that of all models
    curve = scaling.curve.filter(~pl.col("beyond")).with_columns(throughput=none, response_s=none)
    return replace(scaling, fits=fits, curve=curve), (claim("model-veto", values, value, case=case),)


def _veto(scaling: Scaling, fit: Fitted) -> tuple[str, dict[str, Any]] | None:
    """Returns case and values of the claim against a model's peak and knees; None if nothing contradicts
    them."""
    p = fit.autocorrelation_p
    if p is not None and p < ALIKE and typical_error(scaling, fit) > ROUNDED:
        return "pattern", {"p": fmt.p_value(p)}
    rungs, unit = Rungs.of(scaling.ladder), scaling.ladder.load_unit
    if fit.peak is not None and not _may_peak(rungs, fit.peak):
        return "contradicted", {"what": f"a peak at {fmt.load(fit.peak.value, unit)}"}
    for knee in fit.knees[:1]:
        beyond = (n for n in rungs.loads if n >= _BEYOND * (knee.high or knee.value))
        if any(rungs.efficiencies[n] >= 1 for n in beyond):
            return "contradicted", {"what": f"a knee at {fmt.load(knee.value, unit)}"}
    return None


def _may_peak(rungs: Rungs, peak: Estimate) -> bool:
    """Returns whether the model's peak may lie where measured throughput is highest, up to the next load on
    both sides."""
    first, last = (rungs.loads.index(rungs.peak[i]) for i in (0, -1))
    low = rungs.loads[first - 1] if first else 0.0
    high = rungs.loads[last + 1] if last + 1 < len(rungs.loads) else math.inf
    return (peak.high or peak.value) >= low and (peak.low or peak.value) <= high


def typical_error(scaling: Scaling, fit: Fitted) -> float:
    """Returns the root of the mean squared residual, relative to the mean throughput."""
    mean = float(_fitted_points(scaling.ladder)["throughput"].mean() or 1.0)  # type: ignore[arg-type]
    return math.sqrt(fit.rss / max(fit.degrees, 1)) / mean


# -- the paragraph --

_SENTENCES = ("scales-to", "superlinear", "one-more-session", "throughput-drop", "reason", "smt-yield")
_SHAPES = {"one-knee": "one with one bend", "two-knees": "one with two bends"}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


def paragraph(scaling: Scaling) -> str:
    """Returns the paragraph of a :class:`Scaling` that has its answers: throughput, the load up to which it
    scales, what limits it, the evidence, the next measurements. It also names what is unknown."""
    if scaling.ladder.points.is_empty():
        return " ".join(a.text for a in scaling.answers)
    answers = {a.id: a for a in reversed(scaling.answers)}
    in_order = [answers[name] for name in _SENTENCES if name in answers]
    texts = [a.text for a in in_order if _adds(a, answers)]
    outliers = [answers["outlier"].text] if "outlier" in answers else []
    disturbed = {"place": ladders.disturbed_place(scaling.ladder)}
    doubt = [sentence("disturbed", disturbed, case="paragraph")] if scaling.ladder.disturbed else []
    first = [_delivers(scaling), *doubt, *_noise_remark(Rungs.of(scaling.ladder))]
    return " ".join(
        [*first, *texts, _basis(scaling, answers.get("model-veto")), *outliers, *_next_steps(scaling)]
    )


def _adds(answer: Claim, answers: dict[str, Claim]) -> bool:
    """Returns whether the answer adds to the sentences before and after it."""
    if answer.id == "smt-yield":
        return answer.value is not None
    if answer.id == "one-more-session":
        return answer.case != "nothing" and not (answer.case == "less" and "throughput-drop" in answers)
    return True


def _delivers(scaling: Scaling) -> str:
    ladder, rungs = scaling.ladder, Rungs.of(scaling.ladder)
    unit, load_unit, lowest = ladder.throughput_unit, ladder.load_unit, rungs.loads[0]
    values: dict[str, Any] = {"name": ladder.name, "load": fmt.load(rungs.best, load_unit)}
    values |= {"rate": fmt.rate(rungs.x(rungs.best), unit), "one": fmt.rate(rungs.x(lowest), unit)}
    values |= {"times": rungs.x(rungs.best) / rungs.x(lowest)}
    values |= {"lowest": "one" if lowest == 1 else fmt.load(lowest, load_unit)}
    values |= {"alike": fmt.loads(rungs.peak[0], rungs.peak[-1], load_unit)}
    if ladder.disturbed:
        return sentence("delivers", values, case="disturbed")
    if rungs.is_constant:
        return sentence("delivers", values, case="constant")
    case = "first" if rungs.best == lowest else "times"
    return sentence("delivers", values, case=case, parts=["alike"] if len(rungs.peak) > 1 else [])


def _noise_remark(rungs: Rungs) -> Iterator[str]:
    """Yields a sentence if the noise that all figures are compared with was not measured."""
    if rungs.noise.source == "assumed" and not rungs.repeated:
        yield sentence("delivers", {"noise": rungs.noise_text}, case="assumed")


def _basis(scaling: Scaling, veto: Claim | None) -> str:
    best, measured = scaling.best, {"measured": _measured(scaling.ladder)}
    if best is None:
        why = scaling.refused[0].rstrip(".") if scaling.refused else "Too little was measured to fit a curve"
        return sentence("basis", measured | {"why": why}, case="none")
    if veto is not None:
        return f"{sentence('basis', measured, case='bare')} {veto.text}"
    values: dict[str, Any] = {
        **measured,
        "shape": shape(best),
        "error": fmt.at_least(typical_error(scaling, best)),
    }
    values |= {"tried": _number(len(scaling.fits)), "bends": _bends(scaling.ladder, best)}
    figures = ", ".join(f"{e.name} {_short(e.value)}" for e in best.parameters[1:])
    values |= {"figures": f" ({figures})" if figures else ""}
    case, bends = _case(scaling, best), bool(best.knees) and not Rungs.of(scaling.ladder).is_constant
    return sentence("basis", values | _other_models(scaling), case=case, parts=["bends"] if bends else [])


def _case(scaling: Scaling, best: Fitted) -> str:
    if best.weight < max(f.weight for f in scaling.fits) or not best.weight:
        return "requested"
    if len(scaling.fits) < 2 or scaling.fits[1].weight == 0:
        return "exact" if typical_error(scaling, best) <= ROUNDED else "alone"
    return "sure" if not _not_ruled_out(scaling) else "unsure"


def _not_ruled_out(scaling: Scaling) -> list[Fitted]:
    """Returns the models other than the best that are not ruled out: by AICc, or because BIC, which charges
    less for parameters if there are few points, prefers them."""
    best = scaling.fits[0]
    return [f for f in scaling.fits[1:] if f.weight >= NEAR * best.weight or f.weight_bic > best.weight_bic]


def _other_models(scaling: Scaling) -> dict[str, str]:
    supported = max(scaling.fits, key=lambda f: f.weight)
    instead = shape(supported) if supported.weight else "none"
    names = [shape(f) for f in _not_ruled_out(scaling)]
    many = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
    return {"others": many, "instead": instead}


def _short(value: float) -> str:
    """Formats a parameter: ``0.1``, ``8.22e-06``."""
    return f"{value:.3g}"


def _bends(ladder: Ladder, best: Fitted) -> str:
    """Returns the places of the knees: ``at 8.1 sessions (7.8 to 8.3)``, or ``between 8 and 16 sessions`` if
    loads are far apart, because the place between them comes from the model and not from data."""
    loads, unit = Rungs.of(ladder).loads, ladder.load_unit
    places = []
    for knee in best.knees:
        below = max((n for n in loads if n <= knee.value), default=0.0)
        above = min((n for n in loads if n >= knee.value), default=math.inf)
        low, high = knee.low or below, knee.high or above
        if below and math.isfinite(above) and above >= _GAP * below and above - below > 1:
            places.append(
                f"between {fmt.load_number(min(low, below))} and {fmt.load(max(high, above), unit)}"
            )
        else:
            places.append(f"{fmt.at_load(knee.value, unit)}{fmt.load_spread(knee)}")
    return " and ".join(places)


def _fitted_points(ladder: Ladder) -> pl.DataFrame:
    """Returns the points that models are fitted to."""
    until = ladder.broken_from
    return ladder.points if until is None else ladder.points.filter(pl.col("load") < until)


def _measured(ladder: Ladder) -> str:
    """Describes the measurements: ``16 loads``, ``5 loads below 64 sessions with 3 repeats each``."""
    used, until = _fitted_points(ladder), ladder.broken_from
    loads, repeats = used["load"].n_unique(), min(used.group_by("load").len()["len"].to_list())
    below = f" below {fmt.load(until, ladder.load_unit)}" if until is not None else ""
    again = f" with {repeats} repeats each" if repeats > 1 else ""
    return f"{loads} load{'' if loads == 1 else 's'}{below}{again}"


def shape(fit: Fitted) -> str:
    """Returns the name of a curve's shape: ``one with two bends``, ``a plateau``."""
    return _SHAPES.get(fit.model, fit.title)


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


# -- what to measure next --

_FEW = 6
"""Different loads that are needed to compare curves with a bend."""
_ROUGH = 0.05
"""Relative noise above which longer measurements are advised."""
_REPEATS = 3
_GAP = 1.5
"""Ratio of neighbouring loads from which on another load fits between them."""


def _next_steps(scaling: Scaling) -> Iterator[str]:
    """Yields advice on at most two further measurements that would settle open questions."""
    ladder, rungs = scaling.ladder, Rungs.of(scaling.ladder)
    steps = [sentence("next-step", values, case=case) for case, values in _open_questions(ladder, rungs)][:2]
    if steps:
        yield sentence("next-step", {"steps": "; ".join(steps)}, case="all")


def _open_questions(ladder: Ladder, rungs: Rungs) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields case and values of the catalogue's entry for each open question, the most important first."""
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
    """Returns neighbouring loads, far apart, between which throughput drops or growth weakens; None if there
    are none."""
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
