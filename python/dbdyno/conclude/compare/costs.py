"""Compares what a call, or a unit of work, costs on both sides: each figure's ratio, and a sentence that
names those that differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.compare.effects import COUNTED, TICK, CellFigures, Group, Metric, effect_between
from dbdyno.conclude.compare.table import ALPHA, Match, careful_p, few_repeats, judge
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import (
    Comparison,
    Contrast,
    Effect,
    OperationCost,
    OperationCosts,
    ratio_text,
)
from dbdyno.model.schema.data_sources.costs import (
    CALL,
    CLIENT_CPU,
    CPU,
    FIGURES,
    LESS_SESSIONS,
    NETWORK,
    ROUND_TRIPS,
    SYSTEM,
    USER,
    VOLUNTARY,
    WAL,
    WORK,
)
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import counted
from dbdyno.stats.estimates import Mean
from dbdyno.stats.significance import holm

NAMED = 5
"""Most figures that a sentence names."""
_SAME = (CPU, VOLUNTARY, "logical_reads", WAL, NETWORK)
"""Figures that a sentence names if they are the same on both sides."""
_MOST = 0.9
"""Share of the additional CPU time from which on all of it is said to be in one mode."""
_BY_ID = {f.id: f for f in FIGURES}
_RARE = {"count": 0.01, "bytes": 0.01 * 8192}
"""Amount per call, by unit, below which a cost on both sides is not named: one in a hundred calls."""
_METRICS = {
    CALL: {
        CPU: "cpu_per_call_ns",
        CLIENT_CPU: "client_cpu_per_call_ns",
        ROUND_TRIPS: "round_trips_per_call",
    },
    WORK: {CPU: "cpu_per_work_ns"},
}
"""Costs that are metrics of the comparison, too, by what they are the costs of."""


class _Value(NamedTuple):
    cell: str
    value: float
    width: float  # of its own interval, relative to the value


_Side = Mapping[str, Mapping[int, _Value]]
"""Values of a side by figure and repeat."""


def changes(
    matches: Sequence[Match], costs: Mapping[str, pl.DataFrame], unit: str, comparison: Comparison
) -> Iterator[OperationCosts]:
    """Yields the costs of each variant or run against the baseline, at each number of sessions. ``costs``
    holds the table ``costs`` of each run, by label. Costs per call are compared only for calls of equal
    size."""
    per = CALL if unit == noun("call") else WORK
    for m in matches:
        for label in m.groups:
            if label == m.baseline or (per == CALL and not m.same_call(label)):
                continue
            figures = [
                cost
                for background in (False, True)
                for cost in _contrasted(m, label, costs, per, comparison, background=background)
            ]
            if figures:
                where = {"workload": m.workload, "sessions": m.sessions, "series": m.series}
                yield OperationCosts(
                    **where, baseline=m.baseline, variant=label, unit=unit, figures=tuple(figures)
                )


def _contrasted(
    m: Match,
    label: str,
    costs: Mapping[str, pl.DataFrame],
    per: str,
    comparison: Comparison,
    *,
    background: bool,
) -> Iterator[OperationCost]:
    """Yields the figures that both sides know. Those that have no verdict elsewhere are one family of
    hypotheses."""
    of_side = [(costs[m.of.get(side, "")], m.groups[side]) for side in (m.baseline, label)]
    sides = [_side(table.filter(pl.col("per") == per), cells, background) for table, cells in of_side]
    per_call = [_side(table.filter(pl.col("per") == CALL), cells, background) for table, cells in of_side]
    common = [f for f in FIGURES if f.id in sides[0] and f.id in sides[1]]
    contrasts = {} if background else _contrasts_of_metrics(comparison, m, label, per)
    alone = [f for f in common if f.id not in contrasts]
    effects = [_effect(f.id, f.unit, sides, m.paired) for f in alone]
    adjusted = holm([careful_p(e) for e in effects])
    family = sum(p is not None for p in adjusted) or 1
    for figure, effect, p in zip(alone, effects, adjusted, strict=True):
        verdict = judge(effect, p, comparison.margin, False, family, comparison.alpha)
        contrasts[figure.id] = Contrast(
            workload=m.workload,
            sessions=m.sessions,
            series=m.series,
            baseline=m.baseline,
            variant=label,
            effect=effect,
            p_holm=p,
            **verdict._asdict(),
        )
    for figure in common:
        means = [_mean(side, figure.id) for side in sides]
        most = max(_mean(side, figure.id) for side in per_call)
        yield OperationCost(
            figure=figure.id,
            background=background,
            unit=figure.unit,
            baseline_mean=means[0],
            variant_mean=means[1],
            rare=most < _RARE.get(figure.unit, 0.0),
            contrast=contrasts[figure.id],
        )


def _mean(side: _Side, figure: str) -> float:
    return Mean.of(v.value for v in side[figure].values()).value


def _contrasts_of_metrics(comparison: Comparison, m: Match, label: str, per: str) -> dict[str, Contrast]:
    """Returns the contrasts of those figures that the comparison has as metrics, so that no figure has two
    verdicts."""
    by_metric = {
        table.metric: c
        for table in comparison.metrics
        for c in table.claims
        if (c.workload, c.sessions, c.series, c.variant) == (m.workload, m.sessions, m.series, label)
        and not c.neighbours
    }
    return {figure: by_metric[name] for figure, name in _METRICS[per].items() if name in by_metric}


def _side(costs: pl.DataFrame, cells: Group, background: bool) -> _Side:
    repeats = {c.cell: repeat for repeat, c in cells.items()}
    known = costs.filter(pl.col("cell").is_in(list(repeats)))
    known = known.drop_nulls("background" if background else "value")
    if background:  # a small rest of two large figures says nothing of a difference
        known = known.filter(~pl.col("background_source").str.ends_with(LESS_SESSIONS))
    side: dict[str, dict[int, _Value]] = {}
    for row in known.iter_rows(named=True):
        value, width = row["background"], 0.0
        if not background:
            value, ends = row["value"], (row["low"], row["high"])
            width = (ends[1] - ends[0]) / value if None not in ends and value else 0.0
        side.setdefault(row["figure"], {})[repeats[row["cell"]]] = _Value(row["cell"], value, width)
    return side


def _effect(figure: str, unit: str, sides: Sequence[_Side], paired: bool) -> Effect:
    values = [side[figure] for side in sides]
    groups = [{r: CellFigures(v.cell, {figure: v.value}) for r, v in side.items()} for side in values]
    timed = unit == "ns"
    width = max(Mean.of(v.width for v in side.values()).value for side in values)
    resolution = max(TICK if timed else COUNTED, width)
    nothing = not any(v.value for side in values for v in side.values())
    metric = Metric(figure, "", unit, False, None, resolution, counted=not timed or nothing)
    return effect_between(groups[0], groups[1], metric, paired)


# -- in a sentence --


def claims(comparison: Comparison) -> Iterator[Claim]:
    """Yields a claim for each pair at the highest load of each ladder, if there are intervals."""
    highest = {
        (c.workload, c.series): max(
            o.sessions for o in comparison.operation_costs if (o.workload, o.series) == (c.workload, c.series)
        )
        for c in comparison.operation_costs
    }
    for change in comparison.operation_costs:
        if change.sessions != highest[change.workload, change.series]:
            continue
        if not any(f.contrast.effect.low is not None or f.contrast.effect.exact for f in change.figures):
            continue
        values: dict[str, Any] = {
            "variant": f"{change.series} {change.variant}".strip(),
            "baseline": change.baseline,
            "load": fmt.load(change.sessions),
            "unit": change.unit,
            "speed": _speed(comparison, change),
            "named": _joined(_differences(change)),
            "same": _same(change, comparison.margin),
        }
        cpu = next((f.contrast.effect for f in change.figures if f.figure == CPU and not f.background), None)
        ends = (None, None, None) if cpu is None else (cpu.ratio, cpu.low, cpu.high)
        effects = [f.contrast.effect for f in change.figures]
        n, m = (max(getattr(e, side) for e in effects) for side in ("n_baseline", "n_variant"))
        few = math.comb(n + m, n) < 2 / ALPHA
        values["few"] = few_repeats(n) if n == m else f"{n} and {counted(m, 'repeat')} are too few"
        case = "some" if values["named"] else "few" if few else "none"
        yield claim("cost-change", values, ends[0], case=case, low=ends[1], high=ends[2])


def _speed(comparison: Comparison, change: OperationCosts) -> str:
    """Returns ``7 % slower: ``; "" if no difference was decided."""
    table = comparison.metrics[0]
    key = (change.workload, change.sessions, change.series, change.variant)
    for c in table.claims:
        same = (c.workload, c.sessions, c.series, c.variant) == key and not c.neighbours
        if same and c.verdict in ("better", "worse") and c.effect.ratio:
            rate = c.effect.ratio if table.higher_is_better else 1 / c.effect.ratio
            share = fmt.percent(abs(rate - 1)) if rate < 2 else f"{ratio_text(c.effect, rate)} times"
            return f"{share} {'faster' if rate > 1 else 'slower'}: "
    return ""


def _differences(change: OperationCosts) -> list[str]:
    """Returns the figures that differ in words, those of sessions first. A part is named if its whole does
    not differ; the modes of CPU time are named with it, and full-page images always."""
    own = {f.figure: f for f in change.figures if not f.background and _differs(f)}
    named = [f for i, f in own.items() if not _stands_for_another(i, own)]
    behind = {f.figure: f for f in change.figures if f.background and _differs(f)}
    named += [f for i, f in behind.items() if not _stands_for_another(i, behind)]
    texts = [_words(f, change) for f in named[:NAMED]]
    return [*texts, *([f"{len(named) - NAMED} more"] if len(named) > NAMED else [])]


def _stands_for_another(figure: str, differing: Mapping[str, OperationCost]) -> bool:
    return _BY_ID[figure].whole in differing and figure != "wal_full_page_images"


def _differs(cost: OperationCost) -> bool:
    return cost.contrast.verdict in ("better", "worse") and not cost.rare


def _words(cost: OperationCost, change: OperationCosts) -> str:
    """Returns ``9 % more CPU (8 % to 10 %), all of it in the kernel``."""
    effect, title = cost.contrast.effect, _BY_ID[cost.figure].title
    title = f"{title} in the background" if cost.background else title
    measured = cost.unit in ("ns", "bytes")
    much, more, less = ("much", "more", "less") if measured else ("many", "more", "fewer")
    if effect.ratio is None:
        return f"{title} {fmt.plain(cost.variant_mean)} instead of {fmt.plain(cost.baseline_mean)}"
    if effect.ratio >= 2:
        ends = (
            ""
            if effect.low is None or effect.high is None
            else (f" ({ratio_text(effect, effect.low)} to {ratio_text(effect, effect.high)})")
        )
        return f"{ratio_text(effect, effect.ratio)} times as {much} {title}{ends}" + _mode(cost, change)
    ends = ""
    if effect.low is not None and effect.high is not None:
        near, far = sorted((effect.low, effect.high), key=lambda end: abs(end - 1))
        low, high = (fmt.percent(abs(end - 1)) for end in (near, far))
        ends = f" ({low.removesuffix(' %')} to {high})" if low != high else ""
    share = fmt.percent(abs(effect.ratio - 1))
    return f"{share} {more if effect.ratio > 1 else less} {title}{ends}" + _mode(cost, change)


def _mode(cost: OperationCost, change: OperationCosts) -> str:
    """Returns in which mode the additional CPU time is; "" if that is not decided."""
    if cost.figure != CPU or cost.background:
        return ""
    whole = cost.variant_mean - cost.baseline_mean
    parts = {f.figure: f for f in change.figures if f.figure in (USER, SYSTEM) and not f.background}
    differing = [
        (f, (f.variant_mean - f.baseline_mean) / whole)
        for f in parts.values()
        if f.contrast.verdict == cost.contrast.verdict
    ]
    if len(parts) < 2 or not differing:
        return ""
    if len(differing) == 2:
        kernel = next(share for f, share in differing if f.figure == SYSTEM)
        return f", {fmt.percent(kernel)} of it in the kernel"
    ((part, share),) = differing
    where = "in the kernel" if part.figure == SYSTEM else "in user mode"
    return f", {'all' if share >= _MOST else 'most'} of it {where}" if share > 0.5 else ""


def _same(change: OperationCosts, margin: float) -> str:
    """Returns the main figures that are the same on both sides; "" without any."""
    titles = [
        _BY_ID[f.figure].title
        for f in change.figures
        if f.figure in _SAME
        and not f.background
        and f.contrast.verdict in ("equal", "no difference")
        and f.baseline_mean > 0
    ]
    return f"; the same within {100 * margin:g} %: {_joined(titles)}" if titles else ""


def _joined(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))
