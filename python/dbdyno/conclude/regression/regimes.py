"""Parts of a ladder in which one line may hold: cut at its knees, at its CPUs, at what was throttled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from dbdyno.conclude.regression.refusals import LEAST_POINTS, LEAST_RUNGS, note
from dbdyno.model.scaling import Estimate, Fitted, Ladder

_NEAR = 0.25
"""A knee this close to the number of CPUs, relative, is that number's."""
_AT = 0.05
"""A rung so little above a knee, relative, is at the knee: no knee is known better."""
_SURE = 0.1
"""Of Akaike weight: a model with knees that has less is not asked for them."""


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
    found = _knees(ladder) if knees is None else tuple(_estimate(k) for k in knees)
    cpus = ladder.machine.cpus
    cuts = _cuts(found, cpus)
    held = ladder.points["load"].is_in(sorted(float(t) for t in throttled))
    free = ladder.points.filter(~held)
    made = list(_pieces(free, cuts, cpus, ladder.load_unit))
    if held.any():
        made.append(Regime("throttled by a limit", ladder.points.filter(held)))
    return tuple(r for r in made if not r.points.is_empty())


def _estimate(knee: Estimate | float) -> Estimate:
    return knee if isinstance(knee, Estimate) else Estimate("knee", float(knee))


def _knees(ladder: Ladder) -> tuple[Estimate, ...]:
    from dbdyno.conclude.scaling import scale

    return likely_knees(scale(ladder).fits)


def likely_knees(fits: Sequence[Fitted]) -> tuple[Estimate, ...]:
    """Of the best model that has some, where the data do not speak against it."""
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
    edges = [0.0, *(c.value * (1 + _AT) for c in cuts), float("inf")]
    unsure = _unsure(points, cuts, edges)
    names = [0.0, *(c.value for c in cuts), float("inf")]
    for (low, high), between in zip(pairwise(edges), pairwise(names), strict=True):
        mine = points.filter(pl.col("load") > low, pl.col("load") <= high)
        out = sorted({float(n) for n in mine["load"]} & unsure)
        kept = mine.filter(~pl.col("load").is_in(out))
        loads = f"{', '.join(f'{n:g}' for n in out)} {unit}"
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
        sides = [[x for x in loads if a < x <= b and x not in inside] for a, b in _sides(edges, n)]
        if all(len(s) >= LEAST_POINTS and len(set(s)) >= LEAST_RUNGS for s in sides):
            found |= inside
    return found


def _sides(edges: Sequence[float], n: int) -> tuple[tuple[float, float], tuple[float, float]]:
    return (edges[n], edges[n + 1]), (edges[n + 1], edges[n + 2])


def _words(low: float, high: float, cpus: float | None, unit: str) -> str:
    if low == 0 and high == float("inf"):
        return f"all {unit}"
    told = f"up to {high:.3g} {unit}" if low == 0 else f"above {low:.3g} {unit}"
    told = told if low == 0 or high == float("inf") else f"{low:.3g} to {high:.3g} {unit}"
    near = cpus is not None and low >= cpus * (1 - _NEAR)
    return f"{told}, more than CPUs" if near and low > 0 else told
