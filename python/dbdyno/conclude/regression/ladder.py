"""Regresses CPU on work along a ladder, one line per regime: between knees, below and above the CPUs,
throttled."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import polars as pl

from dbdyno.conclude.catalogue import sentence
from dbdyno.conclude.catalogue.number_format import unit_of_work
from dbdyno.conclude.regression.regress import LEAST_POINTS, LEAST_RUNGS, note, regress
from dbdyno.model.results.analyses import REGRESSION_POINTS, Estimate, Fitted, Ladder, Regression
from dbdyno.model.units import format_given

_NEAR = 0.25
"""Relative distance within which a knee and the number of CPUs are the same place."""
_AT = 0.05
"""Relative distance above a knee within which a rung is at the knee: knees are not known more exactly."""
_SURE = 0.1
"""Least Akaike weight of a model whose knees are used."""


@dataclass(frozen=True)
class Regime:
    words: str
    points: pl.DataFrame
    notes: tuple[str, ...] = ()


def regimes(
    ladder: Ladder, knees: Sequence[Estimate | float] | None, throttled: Collection[float] = ()
) -> tuple[Regime, ...]:
    """Returns the regimes in the order of load. A point within a knee's interval could belong to either side.
    It is left out if both sides have enough points without it; otherwise it belongs to the side where its
    load lies."""
    knee_estimates = (
        _knees(ladder)
        if knees is None
        else tuple(k if isinstance(k, Estimate) else Estimate("knee", float(k)) for k in knees)
    )
    cpus = ladder.machine.cpus
    cuts = _cuts(knee_estimates, cpus)
    throttled_points = ladder.points["load"].is_in(sorted(float(t) for t in throttled))
    free = ladder.points.filter(~throttled_points)
    all_regimes = list(_regimes_between(free, cuts, cpus, ladder.load_unit))
    if throttled_points.any():
        all_regimes.append(
            Regime(sentence("regime", case="throttled"), ladder.points.filter(throttled_points))
        )
    return tuple(r for r in all_regimes if not r.points.is_empty())


def _knees(ladder: Ladder) -> tuple[Estimate, ...]:
    from dbdyno.conclude.scaling import scale

    return likely_knees(scale(ladder).fits)


def likely_knees(fits: Sequence[Fitted]) -> tuple[Estimate, ...]:
    """Returns the knees of the best model with knees, if the data do not contradict it."""
    return next((f.knees for f in fits if f.knees and f.weight >= _SURE), ())


def _cuts(knees: Sequence[Estimate], cpus: float | None) -> list[Estimate]:
    """Returns the knees, and the number of CPUs if no knee is near it."""
    cuts = list(knees)
    if cpus and not any(_is_near(k, cpus) for k in knees):
        cuts.append(Estimate("CPUs", cpus))
    return sorted(cuts, key=lambda k: k.value)


def _is_near(knee: Estimate, cpus: float) -> bool:
    inside = knee.low is not None and knee.high is not None and knee.low <= cpus <= knee.high
    return inside or abs(knee.value - cpus) <= _NEAR * cpus


def _regimes_between(
    points: pl.DataFrame, cuts: Sequence[Estimate], cpus: float | None, unit: str
) -> Iterator[Regime]:
    edges = [0.0, *(c.value * (1 + _AT) for c in cuts), math.inf]
    unsure = _unsure(points, cuts, edges)
    names = [0.0, *(c.value for c in cuts), math.inf]
    for (low, high), between in zip(pairwise(edges), pairwise(names), strict=True):
        inside = points.filter(pl.col("load") > low, pl.col("load") <= high)
        out = sorted({float(n) for n in inside["load"]} & unsure)
        kept = inside.filter(~pl.col("load").is_in(out))
        loads = f"{', '.join(map(format_given, out))} {unit}"
        notes = (note("inside", loads=loads),) if out else ()
        yield Regime(_regime_text(*between, cpus, unit), kept, notes)


def _unsure(points: pl.DataFrame, cuts: Sequence[Estimate], edges: Sequence[float]) -> set[float]:
    """Returns loads within a knee's interval that both of its sides can spare."""
    loads = [float(n) for n in points["load"]]
    loads_to_omit: set[float] = set()
    for n, cut in enumerate(cuts):
        if cut.low is None or cut.high is None:
            continue
        inside = {x for x in loads if cut.low < x < cut.high}
        sides = [[x for x in loads if a < x <= b and x not in inside] for a, b in pairwise(edges[n : n + 3])]
        if all(len(s) >= LEAST_POINTS and len(set(s)) >= LEAST_RUNGS for s in sides):
            loads_to_omit |= inside
    return loads_to_omit


def _regime_text(low: float, high: float, cpus: float | None, unit: str) -> str:
    case = "all" if high == math.inf else "up-to"
    if low > 0:
        case = "above" if high == math.inf else "between"
    beyond = cpus is not None and low > 0 and low >= cpus * (1 - _NEAR)
    values = {"low": low, "high": high, "unit": unit}
    return sentence("regime", values, case=case, parts=["more-than-cpus"] if beyond else [])


# -- the lines --

_NOISE = 0.05
"""Share of the variance of work that is noise between repeats and gets a remark: it lowers the slope by that
share."""


def cpu_per_work(
    ladder: Ladder,
    knees: Sequence[Estimate | float] | None = None,
    throttled: Collection[float] = (),
) -> tuple[Regression, ...]:
    """Regresses CPU (seconds per second) on throughput (units per second), one regression per regime, by
    load.

    ``knees`` are loads where growth changes; None uses those of the ladder's best model with knees, ``()``
    none. ``throttled`` are loads at which a limit held the sessions: they form a regime, as do loads above
    the machine's CPUs. No line crosses regimes. Errors are HC3's, because points are not a time series.
    """
    points, notes = _usable(ladder)
    if points.is_empty():
        return (_refused(ladder, sentence("no-regression", case="no-cpu")),)
    pieces = regimes(replace(ladder, points=points), knees, throttled)
    return tuple(_regression(ladder, r, notes) for r in pieces)


def _usable(ladder: Ladder) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Returns the points with work and CPU, and notes. CPU is user plus system if only the sum is missing."""
    together = pl.coalesce("cpu", pl.col("cpu_user") + pl.col("cpu_system"))
    points = ladder.points.with_columns(cpu=together)
    kept = points.filter(pl.col("cpu").is_not_null(), pl.col("throughput").is_not_null())
    missing = len(points) - len(kept)
    values = {"missing": missing, "points": len(points)}
    return kept, ((note("missing", **values),) if missing else ())


def _regression(ladder: Ladder, regime: Regime, notes: tuple[str, ...]) -> Regression:
    points = regime.points.sort("load", "repeat")
    split = points["cpu_user"].null_count() + points["cpu_system"].null_count() == 0
    regression = regress(
        points["throughput"].to_numpy(),
        points["cpu"].to_numpy(),
        ordered=False,
        user=points["cpu_user"].to_numpy() if split else None,
        system=points["cpu_system"].to_numpy() if split else None,
        units=(unit_of_work(ladder.throughput_unit),),
        name=ladder.name,
        regime=regime.words,
    )
    marked = regression.points.with_columns(load=points["load"], repeat=points["repeat"])
    split_notes = () if split else (note("no-split"),)
    few = points["load"].n_unique()
    refused = regression.refused
    if refused is None and few < LEAST_RUNGS:
        refused = sentence("no-regression", {"loads": few}, case="few")
    values = (*notes, *regime.notes, *split_notes, *_noise_remark(points), *regression.notes)
    parts = regression.parts if refused is None else ()
    return replace(regression, points=marked, notes=values, refused=refused, parts=parts)


def _noise_remark(points: pl.DataFrame) -> tuple[str, ...]:
    """Returns a remark if noise in the work itself lowers the slope (errors in variables: Fuller 1987, 1.1),
    as repeats show."""
    work = pl.col("throughput")
    within = points.group_by("load").agg(n=pl.len(), ss=work.var() * (pl.len() - 1)).filter(pl.col("n") > 1)
    degrees = int((within["n"] - 1).sum()) if len(within) else 0
    whole = points["throughput"].var()
    if not degrees or not isinstance(whole, float) or whole <= 0:
        return ()
    # The slope is attenuated by the factor 1 - share (errors in the regressor).
    share = float(within["ss"].sum()) / degrees / whole
    if share < _NOISE:
        return ()
    return (note("noisy-work", share=share),)


def _refused(ladder: Ladder, why: str) -> Regression:
    empty = pl.DataFrame(schema=REGRESSION_POINTS)
    unit = unit_of_work(ladder.throughput_unit)
    return Regression(
        ladder.name,
        _regime_text(0, math.inf, None, ladder.load_unit),
        (unit,),
        0,
        0,
        "",
        (),
        empty,
        refused=why,
    )
