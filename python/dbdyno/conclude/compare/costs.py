"""Compares what a call, or a unit of work, costs on both sides: each figure's ratio, and a sentence that
names those that differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.compare.effects import BY_NAME, DURATION, Group, effect_between, in_pairs, known
from dbdyno.conclude.compare.table import ALPHA, Match, careful_p, few_repeats, judge
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import (
    Comparison,
    Contrast,
    MetricTable,
    OperationCost,
    OperationCosts,
    in_brackets,
    ratio_text,
)
from dbdyno.model.schema.data_sources.costs import (
    BY_ID,
    CALL,
    CPU,
    FIGURES,
    INVOLUNTARY,
    NETWORK,
    SYSTEM,
    USER,
    VOLUNTARY,
    WAL,
    WORK,
    metric_of,
)
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import format_amount, joined
from dbdyno.stats.estimates import Mean
from dbdyno.stats.significance import holm

NAMED = 5
"""Most figures that a sentence names."""
_SAME = (CPU, VOLUNTARY, "logical_reads", WAL, NETWORK)
"""Figures that a sentence names if they are the same on both sides."""
_MOST = 0.9
"""Share of the additional CPU time from which on all of it is said to be in one mode."""
RARE = 0.01
"""Count per call below which a cost on both sides is not named."""
SWITCHES_BEHIND = 0.1
"""Share of all switches by which those of the background must differ to be named: its tasks wake up by the
clock, so that their number per call follows the rate of calls."""
_RARE = {"count": RARE, "bytes": RARE * 8192}
"""The same by unit; of bytes a page as rarely."""
_READING, _WRITING = ("reads", "read_bytes"), ("writes", "written_bytes", "wal_writes", WAL)
"""The server's own figures that I/O of its devices can come from."""
EXPLAINS = 0.5
"""Share of the difference in time from which on CPU time is named together with it."""
MINOR = 0.1
"""Share of the difference in time below which no time is named together with it."""


def changes(
    matches: Sequence[Match], tables: Sequence[MetricTable], unit: str, comparison: Comparison
) -> Iterator[OperationCosts]:
    """Yields the costs of each variant or run against the baseline, at each number of sessions. ``tables``
    are those of all metrics. Costs per call are compared only for calls of equal size."""
    per = CALL if unit == noun("call") else WORK
    for m in matches:
        for label in m.groups:
            if label == m.baseline or (per == CALL and not m.same_call(label)):
                continue
            figures = [
                cost
                for background in (False, True)
                for cost in _contrasted(m, label, tables, per, comparison, background=background)
            ]
            if figures:
                where = {"workload": m.workload, "sessions": m.sessions, "series": m.series}
                yield OperationCosts(
                    **where, baseline=m.baseline, variant=label, unit=unit, figures=tuple(figures)
                )


def _contrasted(
    m: Match,
    label: str,
    tables: Sequence[MetricTable],
    per: str,
    comparison: Comparison,
    *,
    background: bool,
) -> Iterator[OperationCost]:
    """Yields the figures that both sides know. Those that have no verdict elsewhere are one family of
    hypotheses."""
    sides = m.groups[m.baseline], m.groups[label]
    names = {f.id: metric_of(f.id, per, background=background) for f in FIGURES}
    common = [f for f in FIGURES if all(known(side, names[f.id]) for side in sides)]
    elsewhere = _contrasts_of_metrics(tables, m, label)
    alone = [names[f.id] for f in common if names[f.id] not in elsewhere]
    effects = [effect_between(*sides, BY_NAME[name], m.paired) for name in alone]
    adjusted = holm([careful_p(e) for e in effects])
    family = sum(p is not None for p in adjusted) or 1
    contrasts = elsewhere | {
        name: Contrast(
            workload=m.workload,
            sessions=m.sessions,
            series=m.series,
            baseline=m.baseline,
            variant=label,
            effect=effect,
            p_holm=p,
            **judge(effect, p, comparison.margin, False, family, comparison.alpha)._asdict(),
        )
        for name, effect, p in zip(alone, effects, adjusted, strict=True)
    }
    for figure in common:
        means = _means(sides, names[figure.id], paired=m.paired)
        of_call = metric_of(figure.id, CALL, background=background)
        most = max((_mean(side, of_call) for side in sides if known(side, of_call)), default=0.0)
        yield OperationCost(
            figure=figure.id,
            background=background,
            unit=figure.unit,
            baseline_mean=means[0],
            variant_mean=means[1],
            rare=most < _RARE.get(figure.unit, 0.0),
            contrast=contrasts[names[figure.id]],
        )


def _means(sides: tuple[Group, Group], name: str, *, paired: bool) -> list[float]:
    """Returns the means of both sides: of pairs those of the repeats that both sides have, as their ratio
    is."""
    values = [known(side, name) for side in sides]
    return [Mean.of(own.values()).value for own in (in_pairs(values) if paired else values)]


def _mean(side: Group, name: str) -> float:
    return Mean.of(known(side, name).values()).value


def _contrasts_of_metrics(tables: Sequence[MetricTable], m: Match, label: str) -> dict[str, Contrast]:
    """Returns the contrasts by metric, so that no figure has two verdicts."""
    return {
        table.metric: c
        for table in tables
        for c in table.claims
        if (c.workload, c.sessions, c.series, c.variant) == (m.workload, m.sessions, m.series, label)
        and not c.neighbours
    }


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
        own = [f.contrast.effect for f in change.figures if not f.background]
        if not any(e.low is not None or e.exact for e in own):
            continue
        named = changed_costs(change, comparison.margin)
        speed = _speed(comparison, change)
        if named and speed:
            if _explained(comparison, change):
                named = [f for f in named if f.unit != "ns" or _part(comparison, change, f) >= MINOR]
            else:
                speed = ""
        values: dict[str, Any] = {
            "variant": f"{change.series} {change.variant}".strip(),
            "baseline": change.baseline,
            "load": fmt.load(change.sessions),
            "unit": change.unit,
            "speed": speed,
            "named": joined(listed(named, change)),
            "same": _same(change, comparison.margin),
            "margin": f"{100 * comparison.margin:g} %",
        }
        cpu = next((f.contrast.effect for f in change.figures if f.figure == CPU and not f.background), None)
        ends = (None, None, None) if cpu is None else (cpu.ratio, cpu.low, cpu.high)
        values["few"] = _too_few(change, comparison.alpha)
        case = "some" if values["named"] else "few" if values["few"] else "none"
        yield claim("cost-change", values, ends[0], case=case, low=ends[1], high=ends[2])


def _too_few(change: OperationCosts, alpha: float) -> str:
    """Returns that there are too few repeats to decide any cost, or one whose interval excludes 1; "" if
    neither is so."""
    effects = [f.contrast.effect for f in change.figures if not f.background]
    n, m = (max(getattr(e, side) for e in effects) for side in ("n_baseline", "n_variant"))
    if math.comb(n + m, n) < 2 / ALPHA:
        return few_repeats(n, m)
    family = sum(e.p is not None for e in effects)
    open_ = [f.contrast for f in change.figures if f.contrast.verdict == "undecided"]
    clear = any(c.effect.low and c.effect.high and not c.effect.low <= 1 <= c.effect.high for c in open_)
    if clear and family * 2.0 ** (1 - n - m) >= alpha:
        return f"{few_repeats(n, m)} for {family} costs"
    return ""


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


def _explained(comparison: Comparison, change: OperationCosts) -> bool:
    """Returns whether the CPU time of sessions explains the difference in speed, so that both may be named
    in a breath."""
    cpu = [f for f in change.figures if f.figure == CPU and not f.background]
    return any(_part(comparison, change, f) >= EXPLAINS for f in cpu)


def _part(comparison: Comparison, change: OperationCosts, cost: OperationCost) -> float:
    """Returns which share of the difference in time per unit a time is; 0 if the former is unknown."""
    difference_ns = _difference_ns(comparison, change)
    return (cost.variant_mean - cost.baseline_mean) / difference_ns if difference_ns else 0.0


def _difference_ns(comparison: Comparison, change: OperationCosts) -> float | None:
    """Returns the difference in time per unit: of calls that of their response time, if that is known, else
    that of a session's time."""
    tables = {t.metric: t for t in comparison.metrics}
    wanted = (DURATION, "calls_per_s") if change.unit == noun("call") else ("work_per_s",)
    table = next((tables[name] for name in wanted if name in tables), None)
    if table is None:
        return None
    key = (change.workload, change.sessions, change.series)
    lines = [x for x in table.lines if (x.workload, x.sessions, x.series) == key]
    means = {line.variant: line.mean for line in lines}
    a, b = means.get(change.baseline), means.get(change.variant)
    if not a or not b:
        return None
    return b - a if table.metric == DURATION else 1e9 * change.sessions * (1 / b - 1 / a)


def changed_costs(change: OperationCosts, margin: float) -> list[OperationCost]:
    """Returns the figures that differ and matter, those of sessions first. A part is named if its
    whole does not differ; the modes of CPU time are named with it, and full-page images always."""
    own = {f.figure: f for f in change.figures if not f.background and _matters(f, change, margin)}
    named = [f for i, f in own.items() if not _stands_for_another(i, own)]
    behind = {f.figure: f for f in change.figures if f.background and _matters(f, change, margin)}
    return named + [f for i, f in behind.items() if not _stands_for_another(i, behind)]


def listed(named: Sequence[OperationCost], change: OperationCosts) -> list[str]:
    """Returns the first figures in words, and the number of further ones."""
    texts = [_words(f, change) for f in named[:NAMED]]
    return [*texts, *([f"{len(named) - NAMED} more"] if len(named) > NAMED else [])]


def _stands_for_another(figure: str, differing: Mapping[str, OperationCost]) -> bool:
    return BY_ID[figure].whole in differing and figure != "wal_full_page_images"


def _matters(cost: OperationCost, change: OperationCosts, margin: float) -> bool:
    """Returns whether a cost differs, and by more than the margin of what it is a share of: for times the
    CPU time, for all others the same figure, of sessions and background together. The background's does not
    matter where one side has none, because a few of its writes fall into one measurement or another."""
    if cost.contrast.verdict not in ("better", "worse") or cost.rare:
        return False
    if cost.background and cost.contrast.effect.ratio is None:
        return False
    if BY_ID[cost.figure].device and _of_other_programs(cost, change):
        return False
    whole = [f for f in change.figures if f.figure == (CPU if cost.unit == "ns" else cost.figure)]
    most = max(sum(f.baseline_mean for f in whole), sum(f.variant_mean for f in whole))
    least = SWITCHES_BEHIND if cost.background and cost.figure in (VOLUNTARY, INVOLUNTARY) else margin
    return abs(cost.variant_mean - cost.baseline_mean) > max(least, margin) * most


def _of_other_programs(cost: OperationCost, change: OperationCosts) -> bool:
    """Returns whether I/O of the whole device cannot be the server's, which did next to none on both
    sides."""
    own = _READING if BY_ID[cost.figure].device.startswith("read") else _WRITING
    counted = [f for f in change.figures if f.figure in own]
    return bool(counted) and all(f.rare for f in counted)


def _words(cost: OperationCost, change: OperationCosts) -> str:
    """Returns ``9 % more CPU (8 % to 10 %), all of it in the kernel``."""
    effect, title = cost.contrast.effect, BY_ID[cost.figure].title
    title = f"{title} in the background" if cost.background else title
    measured = cost.unit in ("ns", "bytes")
    much, more, less = ("much", "more", "less") if measured else ("many", "more", "fewer")
    if effect.ratio is None:
        ours, theirs = (format_amount(v, cost.unit) for v in (cost.variant_mean, cost.baseline_mean))
        return f"{title} {ours} instead of {theirs}"
    if effect.ratio >= 2:
        times = f"{ratio_text(effect, effect.ratio)} times as {much} {title}{in_brackets(effect)}"
        return times + _mode(cost, change)
    ends, share = "", _change(effect.ratio)
    if effect.low is not None and effect.high is not None and share != _ALMOST_ALL:
        near, far = sorted((effect.low, effect.high), key=lambda end: abs(end - 1))
        low, high = map(_change, (near, far))
        ends = f" ({low.removesuffix(' %')} to {high})" if low != high else ""
    return f"{share} {more if effect.ratio > 1 else less} {title}{ends}" + _mode(cost, change)


_ALMOST_ALL = "over 99 %"


def _change(ratio: float) -> str:
    """Returns the change in per cent; of what is nearly gone that it is over 99 %."""
    share = fmt.percent(abs(ratio - 1))
    return _ALMOST_ALL if ratio < 1 and share == "100 %" else share


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
        BY_ID[f.figure].title
        for f in change.figures
        if f.figure in _SAME
        and not f.background
        and f.contrast.verdict in ("equal", "no difference")
        and f.baseline_mean > 0
    ]
    return f"; the same within {100 * margin:g} %: {joined(titles)}" if titles else ""
