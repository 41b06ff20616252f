"""The stopping rule of ``--until``: a fixed-width sequential procedure (Chow and Robbins 1965)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.compare import paced
from dbdyno.conclude.compare.effects import (
    BY_NAME,
    RANKING,
    CellFigures,
    Key,
    Metric,
    cells_of,
    effect_between,
    everywhere,
    known,
)
from dbdyno.conclude.compare.table import ALPHA_STOPPED
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import LEAST_REPEATS, Tightness
from dbdyno.model.units import counted, format_given
from dbdyno.stats.estimates import Mean


def rule(target: str) -> Claim:
    """Returns the claim of the stopping rule and its consequence for p values. ``target`` is text such as
    ``2%``."""
    return claim("stopping-rule", {"least": LEAST_REPEATS, "target": target, "alpha": ALPHA_STOPPED})


class _Width(NamedTuple):
    where: str
    half: float | None
    repeats: int


def tight_enough(tables: Mapping[str, pl.DataFrame], plan: Plan, target: float) -> Tightness:
    """Returns whether every interval's half-width is at most ``target`` (0.02 is 2 %). ``tables`` are
    ``windows`` and ``rates`` of all cells measured so far. With several variants the interval is that of the
    ratio to the baseline, with one that of the mean rate, relative to it."""
    widths = list(_widths(tables, plan))
    if not widths:
        return Tightness(False, None, "nothing measured yet", 0)
    repeats = min(w.repeats for w in widths)
    unknown = [w for w in widths if w.half is None]
    if unknown:
        return Tightness(False, None, unknown[0].where, repeats)
    widest = max(widths, key=lambda w: w.half or 0.0)
    done = repeats >= LEAST_REPEATS and widest.half is not None and widest.half <= target
    return Tightness(done, widest.half, widest.where, repeats)


def _widths(tables: Mapping[str, pl.DataFrame], plan: Plan) -> Iterator[_Width]:
    """Yields the width at every rung of the plan, measured or not."""
    cells = cells_of(tables).of
    rungs = dict.fromkeys(Key(c.workload, c.variant, c.sessions, c.rate_per_s) for c in plan.cells)
    groups = {rung: cells.get(rung, {}) for rung in rungs}
    ranking = RANKING if all(k.rate_per_s is None for k in rungs) else paced.RANKING
    metric = _metric([g for g in groups.values() if g], ranking)
    names = list(dict.fromkeys(rung.variant for rung in rungs))
    first = plan.experiment.baseline or names[0]
    for rung, group in groups.items():
        rate = "" if rung.rate_per_s is None else f", {format_given(rung.rate_per_s)}/s"
        where = f"{rung.variant}, {counted(rung.sessions, 'session')}{rate}"
        if len(names) == 1:
            yield _Width(where, *_mean_width(group, metric))
        elif rung.variant != first:
            yield _Width(where, *_ratio_width(groups.get(rung._replace(variant=first), {}), group, metric))


def _metric(groups: list[Mapping[int, CellFigures]], ranking: Sequence[str]) -> Metric:
    name = next((n for n in ranking if everywhere(groups, n)), ranking[-1])
    return BY_NAME[name]


def _mean_width(group: Mapping[int, CellFigures], metric: Metric) -> tuple[float | None, int]:
    mean = Mean.of(known(group, metric.name).values())
    ends = mean.positive95
    return (None if ends is None or not mean.value else (ends[1] - ends[0]) / 2 / mean.value), mean.n


def _ratio_width(
    baseline: Mapping[int, CellFigures], group: Mapping[int, CellFigures], metric: Metric
) -> tuple[float | None, int]:
    e = effect_between(baseline, group, metric, paired=True)
    repeats = min(e.n_baseline, e.n_variant)
    if e.low is None or e.high is None or not e.ratio or repeats < 2:
        return None, repeats
    return (e.high - e.low) / 2 / e.ratio, repeats
