"""From a ladder to all that it says: models, answers, the paragraph, and what was asked of the model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from dbdyno.conclude import scaling
from dbdyno.conclude.catalogue import claim, sentence
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.ladder import ladders
from dbdyno.conclude.ladder.axis_ladders import with_axes
from dbdyno.conclude.ladder.ladders import Row
from dbdyno.conclude.ladder.rungs import Outlier, Rungs, outlier, without
from dbdyno.conclude.run.reason import reason
from dbdyno.conclude.run.steadiness import along
from dbdyno.conclude.scaling import rate_capacity, smt
from dbdyno.conclude.scaling.capacity import bends, deliveries
from dbdyno.conclude.scaling.cpu_wait import onset
from dbdyno.conclude.scaling.paragraph import paragraph, vetoed
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.kinds import kind_of, speaking_of
from dbdyno.model.results.analyses import CURVE, RESIDUALS, Estimate, Ladder, Scaling
from dbdyno.model.results.claim import Claim
from dbdyno.stats.scaling.points import FEWEST

if TYPE_CHECKING:
    from dbdyno.model.results.results import Results


def scaled(
    ladder: Ladder, results: Results | None = None, *, model: str | None = None, seed: int = 1
) -> Scaling:
    """``ladder`` with models, answers and paragraph; ``results``: of the run that it is of.

    ``model`` is put first whatever the data say of it. Raises UsageError: there is no such model, or it
    cannot be fitted.
    """
    found = outlier(ladder)
    if found is not None:
        ladder = without(ladder, found)
    made, doubts = vetoed(fitted(ladder, model, seed))
    drop = Rungs.of(ladder).drop()
    if drop is not None and (made.best is None or doubts):
        made, doubts = _before(drop[1], made, doubts, model, seed)
    made = _with_cpu(answered(made, results))
    left = () if found is None else (_left_out(ladder, found),)
    made = replace(made, answers=(*made.answers, *doubts, *left))
    made = replace(made, notes=(*made.notes, *_above_one(ladder)))
    words = paragraph(made)
    return replace(made, answers=(*made.answers, claim("paragraph", {"words": words}))) if words else made


IMPOSSIBLE = 1.1
"""Efficiency from which on it is explained, where it is within noise."""


def _above_one(ladder: Ladder) -> tuple[str, ...]:
    """Why an efficiency is above 100 % though no load delivers more per session beyond noise."""
    rungs = Rungs.of(ladder)
    load, top = max(rungs.efficiencies.items(), key=lambda e: e[1])
    if rungs.above_one is not None or top < IMPOSSIBLE:
        return ()
    unit, values = ladder.load_unit, {"top": top, "noise": rungs.noise_text}
    values |= {"load": fmt.load(load, unit), "first": fmt.load(rungs.first, unit)}
    return (sentence("fit-note", values, case="above-one"),)


_Doubts = tuple[Claim, ...]


def _before(
    load: float, made: Scaling, doubts: _Doubts, model: str | None, seed: int
) -> tuple[Scaling, _Doubts]:
    """Fitted to the loads below a drop, if a model describes these."""
    ladder = replace(made.ladder, broken_from=load)
    if ladder.points.filter(pl.col("load") < load)["load"].n_unique() < FEWEST:
        return made, doubts
    below, still = vetoed(fitted(ladder, model, seed))
    if below.best is None or (still and made.best is not None):
        return made, doubts
    note = sentence("fitted-below", {"load": fmt.load(load, ladder.load_unit)})
    return replace(below, notes=(*below.notes, note)), still


def _left_out(ladder: Ladder, found: Outlier) -> Claim:
    unit = ladder.throughput_unit
    low, high = (fmt.rate(v, unit) for v in (found.low, found.high))
    said = {"rate": fmt.rate(found.throughput, unit), "load": fmt.load(found.load, ladder.load_unit)}
    case = "above" if found.throughput > found.high else "below"
    return claim(
        "outlier", said | {"low": low, "high": high}, Estimate("outlier", found.throughput, unit), case=case
    )


def answered(scaling: Scaling, results: Results | None = None) -> Scaling:
    """``scaling`` with its answers: one-session, peak, one-core, one-cpu, knee, second-knee,
    throughput-step, scales-to, superlinear, throughput-drop, at-cpus, one-more-session, reason, cpu-wait,
    smt-yield, cpu-per-work, cpu-inflation, equivalent-cores; each as far as it is known, and some say that it
    is unknown and why.

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
    """One a ladder of the run, by sessions or by rate: a workload under a variant. Empty: an observation, or
    phases, have none."""
    with speaking_of(kind_of(results.plan)):
        return _scalings_of(results, model, seed)


def _scalings_of(results: Results, model: str | None, seed: int) -> tuple[Scaling, ...]:
    by_rate = tuple(
        rate_capacity.scaling_by_rate(one, results, model) for one in ladders.rate_ladders_of(results)
    )
    if by_rate:
        return by_rate
    along_axes = with_axes(results, ladders.ladders_of(results))
    made = (_of_run(ladder, results, model, seed) for ladder in along_axes)
    return tuple(_of_commands(m, results) if results.plan.jobs else m for m in made)


def _of_commands(made: Scaling, results: Results) -> Scaling:
    """By threads with what was concluded of one job before all else."""
    axis = made.ladder.axis
    if axis is None:
        return made
    told = [f for f in results.findings if f.id == "speed-up"]
    if len(told) > 1:
        told = [f for f in told if f.subject == axis]
    curve = made.curve.with_columns(
        response_s=pl.lit(None, pl.Float64)
    )  # Little's law is of jobs, not threads
    return replace(made, answers=(*told, *made.answers), curve=curve)


def _of_run(ladder: Ladder, results: Results, model: str | None, seed: int) -> Scaling:
    """A run that says nothing of scaling (no valid rung, rungs without a call) is a run all the same. A
    ladder along an axis is of several variants: no tables of one of them are its."""
    run = results if ladder.axis is None else None
    loads = ladder.points["load"].n_unique()
    if loads < FEWEST and model is None:
        return answered(_nothing(ladder, scaling.too_few(loads)), run)  # without loading scipy
    try:
        return scaled(ladder, run, model=model, seed=seed)
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
    if model is None or (made.best is not None and made.best.model == model):
        return made
    alone = scaling.scale(ladder, seed, (model,))
    assert alone.best is not None  # it is always fitted
    chosen, first = made.best, made.fit(model) or replace(alone.best, weight=0.0, weight_bic=0.0)
    named: dict[str, Any] = {"model": first.title, "parameters": len(first.parameters)}
    named |= {"loads": len(ladders.loads(ladder))}
    if chosen is not None:
        named |= {"best": chosen.title, "weight": chosen.weight}
    case = "few" if first.degrees < 1 else "none" if chosen is None else "other"
    others = tuple(f for f in made.fits if f.model != model)
    notes = (sentence("requested-model", named, case=case), *made.notes)
    return replace(alone, fits=(first, *others), refused=made.refused, notes=notes)
