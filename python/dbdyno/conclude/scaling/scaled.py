"""From a ladder to all that it says: models, answers, the paragraph, and what was asked of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from dbdyno.conclude import ladders, scaling, smt
from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.capacity import bends, deliveries
from dbdyno.conclude.catalogue import claim, sentence
from dbdyno.conclude.cpu_wait import onset
from dbdyno.conclude.ladders import Row
from dbdyno.conclude.reason import reason
from dbdyno.conclude.steadiness import along
from dbdyno.model.analyses import CURVE, RESIDUALS, Estimate, Fitted, Ladder, Scaling
from dbdyno.model.claim import Claim
from dbdyno.model.errors import UsageError
from dbdyno.model.units import format_ns, significant
from dbdyno.stats.scaling.points import FEWEST

if TYPE_CHECKING:
    from dbdyno.model.results import Results


def scaled(
    ladder: Ladder, results: Results | None = None, *, model: str | None = None, seed: int = 1
) -> Scaling:
    """``ladder`` with models, answers and paragraph; ``results``: of the run that it is of.

    ``model`` is put first whatever the data say of it. Raises UsageError: there is no such model, or it
    cannot be fitted.
    """
    made = _with_cpu(answered(fitted(ladder, model, seed), results))
    words = paragraph(made)
    return replace(made, answers=(*made.answers, claim("paragraph", {"words": words}))) if words else made


def answered(scaling: Scaling, results: Results | None = None) -> Scaling:
    """``scaling`` with its answers: one-session, peak, one-core, one-cpu, knee, second-knee,
    throughput-step, scales-to, at-cpus, one-more-session, reason, cpu-wait, smt-yield, cpu-per-work,
    cpu-inflation, equivalent-cores;
    each as far as it is known, and some say that it is unknown and why.

    ``results``: of the run that the ladder is of (:func:`ladders_of`); without them there is no ledger.
    """
    ladder = scaling.ladder
    if not ladders.loads(ladder):
        return scaling
    kind, why = reason(scaling, results)
    rows: list[Row] = []
    if results is not None and ladder.workload is not None:
        mine = (pl.col("workload") == ladder.workload) & (pl.col("variant") == ladder.variant)
        rows = results.tables["rungs"].filter(mine).to_dicts()
    made = (
        *deliveries(scaling, rows),
        *bends(scaling),
        *along(ladder),
        why,
        onset(ladder, results),
        *smt.threads(scaling, results, kind),
    )
    return replace(scaling, answers=made)


def _with_cpu(made: Scaling) -> Scaling:
    """With CPU per unit of work, one line a regime between the knees, where CPU was measured."""
    ladder = made.ladder
    known = [c for c in ("cpu", "cpu_user") if ladder.points[c].null_count() < ladder.points.height]
    if not known or made.best is None:
        return made
    from dbdyno.conclude.regression import cpu_per_work, likely_knees  # loads scipy

    return replace(made, regressions=cpu_per_work(ladder, likely_knees(made.fits)))


def scalings_of(results: Results, *, model: str | None = None, seed: int = 1) -> tuple[Scaling, ...]:
    """One a ladder of the run: a workload under a variant. Empty: an observation has none."""
    return tuple(_of_run(ladder, results, model, seed) for ladder in ladders.ladders_of(results))


def _of_run(ladder: Ladder, results: Results, model: str | None, seed: int) -> Scaling:
    """A run that says nothing of scaling (no valid rung, rungs without a call) is a run all the same."""
    loads = ladder.points["load"].n_unique()
    if loads < FEWEST and model is None:
        return answered(_nothing(ladder, scaling.too_few(loads)), results)  # without loading scipy
    try:
        return scaled(ladder, results, model=model, seed=seed)
    except UsageError as e:
        if model is not None:
            raise
        return _nothing(ladder, e.message)


def _nothing(ladder: Ladder, why: str) -> Scaling:
    ladder = replace(ladder, points=ladder.points.filter(pl.col("throughput") > 0))
    return Scaling(ladder, (), pl.DataFrame(schema=CURVE), pl.DataFrame(schema=RESIDUALS), (why,))


def fitted(ladder: Ladder, model: str | None, seed: int) -> Scaling:
    """All models, best first, or ``model`` first."""
    if model is not None and model not in scaling.NAMES:
        raise UsageError(f"no model {model!r}", f"there are: {', '.join(scaling.NAMES)}")
    made = scaling.scale(ladder, seed)
    if model is None or made.best is None or made.best.model == model:
        return made
    alone = scaling.scale(ladder, seed, (model,))
    if alone.best is None:
        raise UsageError(f"{model} cannot be fitted: {'; '.join(alone.refused)}", "measure more rungs")
    chosen, said = made.best, made.fit(model)
    first = said or replace(alone.best, weight=0.0, weight_bic=0.0)
    named = {"model": first.title, "best": chosen.title, "weight": chosen.weight}
    note = sentence("requested-model", named)
    others = tuple(f for f in made.fits if f.model != model)
    return replace(alone, fits=(first, *others), refused=made.refused, notes=(note, *made.notes))


def asked(
    made: Scaling,
    loads: Sequence[float] = (),
    response_s: Sequence[float] = (),
    throughputs: Sequence[float] = (),
) -> Scaling:
    """``made`` with an answer for each question to the model: throughput at a load, load for a response
    time, load and response time for a throughput. Raises UsageError where nothing was fitted."""
    best = made.best
    if best is None:
        raise UsageError(f"no model was fitted: {'; '.join(made.refused)}", "measure more rungs")
    found = [
        *(_prediction(made, load) for load in loads),
        *(_within(made, best, seconds) for seconds in response_s),
        *(_for_rate(made, best, rate) for rate in throughputs),
    ]
    return replace(made, answers=(*found, *made.answers))


def _prediction(made: Scaling, load: float) -> Claim:
    told = scaling.predict(made, load, made.best.model if made.best else None)
    ends = "" if told.low is None or told.high is None else f" ({_number(told.low)} to {_number(told.high)})"
    unit = made.ladder.load_unit
    said = {"rate": f"{_number(told.value)} {told.unit}{ends}", "load": f"{load:g} {unit}"}
    said |= {"note": told.note, "by": _by(made)}
    value = replace(told, name=f"at {load:g} {unit}")
    return claim("prediction", said, value, parts=_noted(told.note))


def _within(made: Scaling, best: Fitted, seconds: float) -> Claim:
    from dbdyno.stats.scaling import inverse

    think, shown = made.ladder.think_s or 0.0, format_ns(seconds * 1e9)
    try:
        load = inverse.load_for_response(best, seconds, think)
    except inverse.OutOfReach as e:
        return claim("response-target", {"target": shown, "why": e.message}, case="never")
    ladder, note = made.ladder, _beyond(made, load)
    said = {
        "target": shown,
        "load": f"{_number(load)} {ladder.load_unit}",
        "rate": f"{_number(load / (seconds + think))} {ladder.throughput_unit}",
        "note": note,
        "by": _by(made),
    }
    value = Estimate(f"at {shown}", load, ladder.load_unit, note=note)
    return claim("response-target", said, value, case="met", parts=_noted(note))


def _for_rate(made: Scaling, best: Fitted, rate: float) -> Claim:
    from dbdyno.stats.scaling import inverse

    think, shown = made.ladder.think_s or 0.0, f"{_number(rate)} {made.ladder.throughput_unit}"
    try:
        load = inverse.load_for_throughput(best, rate)
    except inverse.OutOfReach as e:
        return claim("throughput-target", {"target": shown, "why": e.message}, case="never")
    note = _beyond(made, load)
    said = {
        "target": shown,
        "load": f"{_number(load)} {made.ladder.load_unit}",
        "response": format_ns(max(load / rate - think, 0.0) * 1e9),
        "note": note,
        "by": _by(made),
    }
    value = Estimate(shown, load, made.ladder.load_unit, note=note)
    return claim("throughput-target", said, value, case="met", parts=_noted(note))


def _noted(note: str) -> list[str]:
    return ["note"] if note else []


def _by(made: Scaling) -> str:
    return f"fit: {made.best.title}" if made.best else ""


def _beyond(made: Scaling, load: float) -> str:
    from dbdyno.conclude.scaling.remarks import reach  # loads scipy

    loads = made.ladder.points["load"]
    return reach(min(loads), max(loads), load)


def _number(value: float) -> str:
    return significant(value, 4)


# -- the paragraph --

SURE = 0.95
"""Weight from which on one model is said to be the right one of those that were tried."""


def paragraph(scaling: Scaling) -> str:
    """Four to six sentences: what it delivers, to where it scales, why it ends there, what one more session
    brings, how sure that is. Of a :class:`Scaling` that has its answers; says what is unknown, too."""
    if scaling.ladder.points.is_empty():
        return " ".join(a.text for a in scaling.answers)
    said = {a.id: a.text for a in reversed(scaling.answers)}
    known = [said[name] for name in ("scales-to", "reason", "one-more-session") if name in said]
    return " ".join([_delivers(scaling), *known, _basis(scaling)])


def _delivers(scaling: Scaling) -> str:
    ladder = scaling.ladder
    top, unit = ladders.reached(ladder), ladder.throughput_unit
    peak, one = ladders.throughput(ladder, top), ladders.alone(scaling)
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
    said: dict[str, Any] = {"levels": len(ladders.loads(ladder))}
    said["repeats"] = f" with {repeats} repeats each" if repeats > 1 else ""
    if best is None:
        said["why"] = scaling.refused[0].rstrip(".") if scaling.refused else "too little was measured"
        return sentence("basis", said, case="none")
    said |= {"model": best.title, "weight": best.weight}
    if best.weight >= SURE or len(scaling.fits) < 2:
        return sentence("basis", said, case="sure")
    other = scaling.fits[1]
    return sentence("basis", said | {"other": other.title, "other_weight": other.weight}, case="unsure")
