"""Derives all conclusions from a ladder: models, answers, the paragraph, and the requested model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    """Returns the models, the answers and the paragraph of ``ladder``. ``results`` is the run that it comes
    from. ``model`` is put first whether or not the data support it. Raises UsageError if there is no such
    model or it cannot be fitted."""
    excluded = outlier(ladder)
    if excluded is not None:
        ladder = without(ladder, excluded)
    scaling, doubts = vetoed(fitted(ladder, model, seed))
    drop = Rungs.of(ladder).drop()
    if drop is not None and (scaling.best is None or doubts):
        scaling, doubts = _fitted_below(drop[1], scaling, doubts, model, seed)
    scaling = _with_regressions(answered(scaling, results))
    outlier_claims = () if excluded is None else (_outlier_claim(ladder, excluded),)
    scaling = replace(scaling, answers=(*scaling.answers, *doubts, *outlier_claims))
    scaling = replace(scaling, notes=(*scaling.notes, *_above_one(ladder)))
    text = paragraph(scaling)
    return (
        replace(scaling, answers=(*scaling.answers, claim("paragraph", {"words": text}))) if text else scaling
    )


IMPOSSIBLE = 1.1
"""Efficiency from which on a note explains why it may be above 1, if that is within noise."""


def _above_one(ladder: Ladder) -> tuple[str, ...]:
    """Returns a note if an efficiency is well above 100 % though no load delivers more per session beyond
    noise."""
    rungs = Rungs.of(ladder)
    load, highest = max(rungs.efficiencies.items(), key=lambda e: e[1])
    if rungs.above_one is not None or highest < IMPOSSIBLE:
        return ()
    unit, values = ladder.load_unit, {"top": highest, "noise": rungs.noise_text}
    values |= {"load": fmt.load(load, unit), "first": fmt.load(rungs.first, unit)}
    return (sentence("fit-note", values, case="above-one"),)


_Doubts = tuple[Claim, ...]


def _fitted_below(
    load: float, scaling: Scaling, doubts: _Doubts, model: str | None, seed: int
) -> tuple[Scaling, _Doubts]:
    """Returns the scaling fitted to the loads below a drop and its doubts, if a model describes these loads;
    else the arguments."""
    ladder = replace(scaling.ladder, broken_from=load)
    if ladder.points.filter(pl.col("load") < load)["load"].n_unique() < FEWEST:
        return scaling, doubts
    below, still = vetoed(fitted(ladder, model, seed))
    if below.best is None or (still and scaling.best is not None):
        return scaling, doubts
    note = sentence("fitted-below", {"load": fmt.load(load, ladder.load_unit)})
    return replace(below, notes=(*below.notes, note)), still


def _outlier_claim(ladder: Ladder, excluded: Outlier) -> Claim:
    unit = ladder.throughput_unit
    low, high = (fmt.rate(v, unit) for v in (excluded.low, excluded.high))
    values = {"rate": fmt.rate(excluded.throughput, unit), "load": fmt.load(excluded.load, ladder.load_unit)}
    case = "above" if excluded.throughput > excluded.high else "below"
    return claim(
        "outlier",
        values | {"low": low, "high": high},
        Estimate("outlier", excluded.throughput, unit),
        case=case,
    )


def answered(scaling: Scaling, results: Results | None = None) -> Scaling:
    """Returns ``scaling`` with its answers, in this order: one-session, peak, one-core, one-cpu, knee,
    second-knee, throughput-step, scales-to, superlinear, throughput-drop, at-cpus, one-more-session, reason,
    cpu-wait, smt-yield, cpu-per-work, cpu-inflation, equivalent-cores. Each appears only as far as it is
    known; some state that a figure is unknown and why. A single load has no peak per part and no reason of
    growth.

    ``results`` is the run that the ladder comes from (:func:`ladders_of`); without it the answers that need
    the ledger are missing.
    """
    ladder = scaling.ladder
    if not ladders.loads(ladder):
        return scaling
    kind, why = reason(scaling, results)
    rows: list[Row] = []
    if results is not None and ladder.workload is not None:
        of_ladder = (pl.col("workload") == ladder.workload) & (pl.col("variant") == ladder.variant)
        rows = results.tables["rungs"].filter(of_ladder).to_dicts()
    answers = (
        *deliveries(scaling, rows),
        *bends(scaling),
        *along(ladder),
        *([why] if len(ladders.loads(ladder)) > 1 else []),
        onset(ladder, results),
        *smt.threads(scaling, results, kind),
    )
    return replace(scaling, answers=answers)


def _with_regressions(scaling: Scaling) -> Scaling:
    """Returns ``scaling`` with regressions of CPU time on work, one line per regime between the knees, if CPU
    was measured."""
    ladder = scaling.ladder
    known = [c for c in ("cpu", "cpu_user") if ladder.points[c].null_count() < ladder.points.height]
    if not known or scaling.best is None:
        return scaling
    from dbdyno.conclude.regression import cpu_per_work, likely_knees

    return replace(scaling, regressions=cpu_per_work(ladder, likely_knees(scaling.fits)))


def scalings_of(results: Results, *, model: str | None = None, seed: int = 1) -> tuple[Scaling, ...]:
    """Returns one scaling per ladder of the run (by sessions or by rate), that is per workload and variant.
    Empty for an observation and for phases."""
    with speaking_of(kind_of(results.plan)):
        return _scalings_of(results, model, seed)


def _scalings_of(results: Results, model: str | None, seed: int) -> tuple[Scaling, ...]:
    by_rate = tuple(
        _in_doubt(rate_capacity.scaling_by_rate(ladder, results, model))
        for ladder in _with_disturbed(ladders.rate_ladders_of(results), results)
    )
    if by_rate:
        return by_rate
    along_axes = _with_disturbed(with_axes(results, ladders.ladders_of(results)), results)
    scalings = [_in_doubt(_scaling_of(ladder, results, model, seed)) for ladder in along_axes]
    return tuple(_with_speed_up(m, results) if results.plan.jobs else m for m in scalings)


def _with_disturbed(some: Iterable[Ladder], results: Results) -> Iterator[Ladder]:
    for ladder in some:
        yield ladders.with_disturbed(ladder, results.tables["windows"], results.findings)


def _in_doubt(scaling: Scaling) -> Scaling:
    if not scaling.ladder.disturbed:
        return scaling
    place = ladders.disturbed_place(scaling.ladder)
    return replace(scaling, answers=tuple(ladders.in_doubt(a, place) for a in scaling.answers))


def doubted(claims: Iterable[Claim], results: Results) -> Iterator[Claim]:
    """Yields the claims of an auto ladder, each with a doubt if its ladder has disturbed loads. The subject
    of a claim is its variant, "" if there is only one."""
    known = _with_disturbed((*ladders.ladders_of(results), *ladders.rate_ladders_of(results)), results)
    places = {one.variant: ladders.disturbed_place(one) for one in known if one.disturbed}
    for c in claims:
        place = next((p for variant, p in places.items() if c.subject in ("", variant)), None)
        yield c if place is None else ladders.in_doubt(c, place)


def _with_speed_up(scaling: Scaling, results: Results) -> Scaling:
    """Returns a scaling along an axis of threads with the speed-up of one job as its first answer."""
    axis = scaling.ladder.axis
    if axis is None:
        return scaling
    speed_ups = [f for f in results.findings if f.id == "speed-up"]
    if len(speed_ups) > 1:
        speed_ups = [f for f in speed_ups if f.subject == axis]
    curve = scaling.curve.with_columns(
        response_s=pl.lit(None, pl.Float64)
    )  # Little's law needs jobs in the system; the axis counts threads, so throughput gives no response time
    return replace(scaling, answers=(*speed_ups, *scaling.answers), curve=curve)


def _scaling_of(ladder: Ladder, results: Results, model: str | None, seed: int) -> Scaling:
    """Returns the scaling of one ladder, without a model if none can be fitted. A ladder along an axis joins
    several variants, so it does not get the run's tables, which are per variant."""
    run = results if ladder.axis is None else None
    loads = ladder.points["load"].n_unique()
    if loads < FEWEST and model is None:
        return answered(_without_model(ladder, scaling.too_few(loads)), run)  # without loading numpy
    try:
        return scaled(ladder, run, model=model, seed=seed)
    except UsageError as e:
        if model is not None:
            raise
        return _without_model(ladder, e.message)


def _without_model(ladder: Ladder, why: str) -> Scaling:
    ladder = replace(ladder, points=ladder.points.filter(pl.col("throughput") > 0))
    return Scaling(ladder, (), pl.DataFrame(schema=CURVE), pl.DataFrame(schema=RESIDUALS), (why,))


def fitted(ladder: Ladder, model: str | None, seed: int) -> Scaling:
    """Returns all models, best first, or ``model`` first. Raises UsageError if there is no such model."""
    if model is not None and model not in scaling.NAMES:
        raise UsageError(f"no model {model!r}", f"there are: {', '.join(scaling.NAMES)}")
    models = scaling.scale(ladder, seed)
    if model is None or (models.best is not None and models.best.model == model):
        return models
    alone = scaling.scale(ladder, seed, (model,))
    assert alone.best is not None  # it is always fitted
    chosen, first = models.best, models.fit(model) or replace(alone.best, weight=0.0, weight_bic=0.0)
    named: dict[str, Any] = {"model": first.title, "parameters": len(first.parameters)}
    named |= {"loads": len(ladders.loads(ladder))}
    if chosen is not None:
        named |= {"best": chosen.title, "weight": chosen.weight}
    case = "few" if first.degrees < 1 else "none" if chosen is None else "other"
    others = tuple(f for f in models.fits if f.model != model)
    notes = (sentence("requested-model", named, case=case), *models.notes)
    return replace(alone, fits=(first, *others), refused=models.refused, notes=notes)
