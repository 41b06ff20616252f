"""CPU per unit of work of a ladder: a line for each regime between knees, CPUs and throttled loads."""

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
"""A knee this close to the number of CPUs, relative, is that number's."""
_AT = 0.05
"""A rung so little above a knee, relative, is at the knee: no knee is known better."""
_SURE = 0.1
"""Akaike weight: a model with knees that has less is not asked for them."""


@dataclass(frozen=True)
class Regime:
    words: str
    points: pl.DataFrame
    notes: tuple[str, ...] = ()


def regimes(
    ladder: Ladder, knees: Sequence[Estimate | float] | None, throttled: Collection[float] = ()
) -> tuple[Regime, ...]:
    """In the order of load. A point inside a knee's interval could belong to either side: to neither, where
    both sides have enough without it, else to the side where its load lies."""
    found = (
        _knees(ladder)
        if knees is None
        else tuple(k if isinstance(k, Estimate) else Estimate("knee", float(k)) for k in knees)
    )
    cpus = ladder.machine.cpus
    cuts = _cuts(found, cpus)
    held = ladder.points["load"].is_in(sorted(float(t) for t in throttled))
    free = ladder.points.filter(~held)
    made = list(_pieces(free, cuts, cpus, ladder.load_unit))
    if held.any():
        made.append(Regime(sentence("regime", case="throttled"), ladder.points.filter(held)))
    return tuple(r for r in made if not r.points.is_empty())


def _knees(ladder: Ladder) -> tuple[Estimate, ...]:
    from dbdyno.conclude.scaling import scale

    return likely_knees(scale(ladder).fits)


def likely_knees(fits: Sequence[Fitted]) -> tuple[Estimate, ...]:
    """Those of the best model that has some, where the data do not speak against it."""
    return next((f.knees for f in fits if f.knees and f.weight >= _SURE), ())


def _cuts(knees: Sequence[Estimate], cpus: float | None) -> list[Estimate]:
    """Knees, and the CPUs where no knee is near."""
    cuts = list(knees)
    if cpus and not any(_is_near(k, cpus) for k in knees):
        cuts.append(Estimate("CPUs", cpus))
    return sorted(cuts, key=lambda k: k.value)


def _is_near(knee: Estimate, cpus: float) -> bool:
    inside = knee.low is not None and knee.high is not None and knee.low <= cpus <= knee.high
    return inside or abs(knee.value - cpus) <= _NEAR * cpus


def _pieces(
    points: pl.DataFrame, cuts: Sequence[Estimate], cpus: float | None, unit: str
) -> Iterator[Regime]:
    edges = [0.0, *(c.value * (1 + _AT) for c in cuts), math.inf]
    unsure = _unsure(points, cuts, edges)
    names = [0.0, *(c.value for c in cuts), math.inf]
    for (low, high), between in zip(pairwise(edges), pairwise(names), strict=True):
        mine = points.filter(pl.col("load") > low, pl.col("load") <= high)
        out = sorted({float(n) for n in mine["load"]} & unsure)
        kept = mine.filter(~pl.col("load").is_in(out))
        loads = f"{', '.join(map(format_given, out))} {unit}"
        notes = (note("inside", loads=loads),) if out else ()
        yield Regime(_words(*between, cpus, unit), kept, notes)


def _unsure(points: pl.DataFrame, cuts: Sequence[Estimate], edges: Sequence[float]) -> set[float]:
    """Loads inside a knee's interval that both of its sides can spare."""
    loads = [float(n) for n in points["load"]]
    found: set[float] = set()
    for n, cut in enumerate(cuts):
        if cut.low is None or cut.high is None:
            continue
        inside = {x for x in loads if cut.low < x < cut.high}
        sides = [[x for x in loads if a < x <= b and x not in inside] for a, b in pairwise(edges[n : n + 3])]
        if all(len(s) >= LEAST_POINTS and len(set(s)) >= LEAST_RUNGS for s in sides):
            found |= inside
    return found


def _words(low: float, high: float, cpus: float | None, unit: str) -> str:
    case = "all" if high == math.inf else "up-to"
    if low > 0:
        case = "above" if high == math.inf else "between"
    beyond = cpus is not None and low > 0 and low >= cpus * (1 - _NEAR)
    said = {"low": low, "high": high, "unit": unit}
    return sentence("regime", said, case=case, parts=["more-than-cpus"] if beyond else [])


# -- the lines --

_NOISE = 0.05
"""Share of the variance of work that may be noise between repeats: it flattens the slope by as much."""


def cpu_per_work(
    ladder: Ladder,
    knees: Sequence[Estimate | float] | None = None,
    throttled: Collection[float] = (),
) -> tuple[Regression, ...]:
    """CPU (seconds per second) on throughput (units per second), one regression a regime, by load.

    ``knees``: loads where growth changes; ``None``: those of the ladder's best model with knees; ``()``:
    none. ``throttled``: loads at which a limit held the sessions: a regime of its own, as is what lies above
    the machine's CPUs. A line is never laid across them. Errors are HC3's: points are no time series.
    """
    points, notes = _usable(ladder)
    if points.is_empty():
        return (_refused(ladder, sentence("no-regression", case="no-cpu")),)
    found = regimes(replace(ladder, points=points), knees, throttled)
    return tuple(_regressed(ladder, r, notes) for r in found)


def _usable(ladder: Ladder) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Points with work and CPU; CPU is user and system where it alone is missing."""
    together = pl.coalesce("cpu", pl.col("cpu_user") + pl.col("cpu_system"))
    points = ladder.points.with_columns(cpu=together)
    kept = points.filter(pl.col("cpu").is_not_null(), pl.col("throughput").is_not_null())
    missing = len(points) - len(kept)
    said = {"missing": missing, "points": len(points)}
    return kept, ((note("missing", **said),) if missing else ())


def _regressed(ladder: Ladder, regime: Regime, notes: tuple[str, ...]) -> Regression:
    points = regime.points.sort("load", "repeat")
    split = points["cpu_user"].null_count() + points["cpu_system"].null_count() == 0
    made = regress(
        points["throughput"].to_numpy(),
        points["cpu"].to_numpy(),
        ordered=False,
        user=points["cpu_user"].to_numpy() if split else None,
        system=points["cpu_system"].to_numpy() if split else None,
        units=(unit_of_work(ladder.throughput_unit),),
        name=ladder.name,
        regime=regime.words,
    )
    marked = made.points.with_columns(load=points["load"], repeat=points["repeat"])
    apart = () if split else (note("no-split"),)
    few = points["load"].n_unique()
    refused = made.refused
    if refused is None and few < LEAST_RUNGS:
        refused = sentence("no-regression", {"loads": few}, case="few")
    said = (*notes, *regime.notes, *apart, *_flattened(points), *made.notes)
    parts = made.parts if refused is None else ()
    return replace(made, points=marked, notes=said, refused=refused, parts=parts)


def _flattened(points: pl.DataFrame) -> tuple[str, ...]:
    """Noise in the work itself lowers the slope (errors in variables: Fuller 1987, 1.1); repeats show it."""
    work = pl.col("throughput")
    within = points.group_by("load").agg(n=pl.len(), ss=work.var() * (pl.len() - 1)).filter(pl.col("n") > 1)
    degrees = int((within["n"] - 1).sum()) if len(within) else 0
    whole = points["throughput"].var()
    if not degrees or not isinstance(whole, float) or whole <= 0:
        return ()
    share = float(within["ss"].sum()) / degrees / whole
    if share < _NOISE:
        return ()
    return (note("noisy-work", share=share),)


def _refused(ladder: Ladder, why: str) -> Regression:
    empty = pl.DataFrame(schema=REGRESSION_POINTS)
    unit = unit_of_work(ladder.throughput_unit)
    return Regression(
        ladder.name, _words(0, math.inf, None, ladder.load_unit), (unit,), 0, 0, "", (), empty, refused=why
    )
