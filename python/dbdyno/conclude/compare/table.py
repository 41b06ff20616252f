"""A table of one quantity: ranked lines of each rung, and the claims among them, adjusted together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from dbdyno.conclude.compare.cells import CellFigures, known
from dbdyno.conclude.compare.effects import effect_between
from dbdyno.conclude.compare.metrics import Metric
from dbdyno.conclude.compare.verdict import ALPHA, careful_p, judge
from dbdyno.model.comparison import Contrast, Line, MetricTable
from dbdyno.stats.mean import Mean
from dbdyno.stats.significance import holm


@dataclass(frozen=True)
class Match:
    """What is compared at one rung: groups of cells by label, the baseline among them."""

    workload: str
    sessions: int
    baseline: str
    groups: Mapping[str, Mapping[int, CellFigures]]
    paired: bool
    series: str = ""
    of: Mapping[str, str] = field(default_factory=dict)
    """The run of each label, where there are two."""


class _Pair(NamedTuple):
    match: Match
    baseline: str
    variant: str
    neighbours: bool


def metric_table(
    metric: Metric, matches: Sequence[Match], margin: float, work: str, alpha: float = ALPHA
) -> MetricTable:
    """All lines and claims of ``metric`` over the rungs. Holm's family are all claims of the table.

    ``work``: the work unit's short name."""
    ranked = [(m, _ranked(metric, m)) for m in matches]
    pairs = [p for m, lines in ranked for p in _pairs(m, [line.variant for line in lines])]
    effects = [
        effect_between(p.match.groups[p.baseline], p.match.groups[p.variant], metric, p.match.paired)
        for p in pairs
    ]
    adjusted = holm([careful_p(e) for e in effects])
    family = sum(p is not None for p in adjusted) or 1
    claims = [
        Contrast(
            workload=p.match.workload,
            sessions=p.match.sessions,
            series=p.match.series,
            baseline=p.baseline,
            variant=p.variant,
            neighbours=p.neighbours,
            effect=e,
            p_holm=q,
            **judge(e, q, margin, metric.higher_is_better, family, alpha).fields(),
        )
        for p, e, q in zip(pairs, effects, adjusted, strict=True)
    ]
    return MetricTable(
        metric=metric.name,
        title=metric.title.format(work=work),
        unit=metric.unit.format(work=work),
        higher_is_better=metric.higher_is_better,
        lines=tuple(line for _, lines in ranked for line in lines),
        claims=tuple(claims),
    )


def _ranked(metric: Metric, match: Match) -> list[Line]:
    """The best first."""
    means = {label: Mean.of(known(cells, metric.name).values()) for label, cells in match.groups.items()}
    there = [(label, mean) for label, mean in means.items() if mean.n]
    there.sort(key=lambda item: item[1].value, reverse=metric.higher_is_better)
    return [_line(match, rank, label, mean) for rank, (label, mean) in enumerate(there, start=1)]


def _line(match: Match, rank: int, label: str, mean: Mean) -> Line:
    low, high = mean.interval95 or (None, None)
    return Line(
        workload=match.workload,
        sessions=match.sessions,
        series=match.series,
        variant=label,
        rank=rank,
        repeats=mean.n,
        mean=mean.value,
        low=low,
        high=high,
    )


def _pairs(match: Match, ranked: Sequence[str]) -> list[_Pair]:
    """Each against the baseline; then neighbours in the rank, the better one against the next below it."""
    if match.baseline not in ranked:
        return []
    others = [v for v in ranked if v != match.baseline]
    against = [_Pair(match, match.baseline, v, False) for v in others]
    both = [(a, b) for a, b in pairwise(ranked) if match.baseline not in (a, b)]
    return against + [_Pair(match, worse, best, True) for best, worse in both]
