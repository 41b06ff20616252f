"""Judges each pair, and makes the tables of ranks and contrasts."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from dbdyno.conclude.catalogue import sentence, with_nouns
from dbdyno.conclude.compare import paced
from dbdyno.conclude.compare.effects import (
    BY_NAME,
    BY_TITLE,
    COSTS,
    DURATION,
    METRICS,
    RANKING,
    CellFigures,
    Group,
    Metric,
    effect_between,
    everywhere,
    in_pairs,
    known,
)
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.results.comparison import MARGIN as MARGIN
from dbdyno.model.results.comparison import Contrast, Effect, Line, MetricTable, Verdict
from dbdyno.model.results.results import Results
from dbdyno.model.results.trend import FIGURES, column_of
from dbdyno.model.units import counted, format_number
from dbdyno.stats.estimates import Mean, students_quantile, students_tail
from dbdyno.stats.significance import holm

ALPHA = 0.05
ALPHA_STOPPED = 0.025
"""Level for a run that stopped when its intervals were tight: simulations show at most 5 % false differences
then."""
MOST_REPEATS = 10_000


MODES = 2.0
"""The largest ratio that two modes of one machine are assumed to produce: two sessions that share a core or a
CPU have half of what each has alone."""


def careful_p(effect: Effect) -> float | None:
    """Returns Student's p, but not below the probability that two modes of the machine look like an effect.

    A machine with two modes of equal probability (placement on CPUs causes such modes) shows one of them in
    all n repeats of one side and the other in all m repeats of the other with probability 2 ** (1 - n - m):
    hardly any spread, and no effect. Student's p ignores modes; with two or three repeats they would cause
    false verdicts in 12 to 20 % of runs. Modes cause a ratio of at most :data:`MODES`; a larger one must also
    arise by chance, so its probability is a product.
    """
    if effect.p is None:
        return None
    modes = 2.0 ** (1 - effect.n_baseline - effect.n_variant)
    return max(effect.p, effect.p_difference or 0.0, modes * _p_beyond_modes(effect))


def _p_beyond_modes(effect: Effect) -> float:
    """Returns Student's p that the true ratio is no farther from 1 than :data:`MODES`."""
    if effect.ratio is None or effect.std_err is None or not effect.degrees or _as_modes(effect):
        return 1.0
    away = abs(math.log(effect.ratio)) - math.log(MODES)
    return students_tail(away / (effect.std_err / effect.ratio), effect.degrees)


def _as_modes(effect: Effect) -> bool:
    return effect.ratio is None or abs(math.log(effect.ratio)) <= math.log(MODES)


def _too_few(effect: Effect, n: int, m: int) -> bool:
    """Returns whether there are too few repeats to decide a ratio that modes could cause: a rank test of so
    many must be able to reach 5 %. With three against three it cannot, as its least p is 2 / 20."""
    return _as_modes(effect) and n + m < 2 / ALPHA and math.comb(n + m, n) < 2 / ALPHA


class Judgement(NamedTuple):
    verdict: Verdict
    further_repeats: int | None
    note: str
    because: str = ""
    """For tables: in a few words, why it is undecided."""


def judge(
    effect: Effect,
    p_holm: float | None,
    margin: float,
    higher_is_better: bool,
    family: int = 1,
    alpha: float = ALPHA,
) -> Judgement:
    """Returns the verdict. The margin is checked first: a sure difference within the margin counts as none.
    ``family`` is the number of claims that ``p_holm`` is adjusted for."""
    if effect.exact or (effect.ratio is None and effect.difference_low is not None):
        return _without_interval(effect, p_holm, margin, higher_is_better, family, alpha)
    if effect.ratio is None or effect.low is None or effect.high is None:
        known = effect.ratio is not None and effect.std_err is not None
        further = _further(effect, margin, alpha / family) if known else None
        return Judgement("undecided", further, effect.reason, _without_ends(effect))
    if effect.basis == "within the window only":
        return Judgement("undecided", None, sentence("verdict-note", case="window"), few_repeats(1))
    clear = effect.low > 1 or effect.high < 1
    if effect.low >= 1 - margin and effect.high <= 1 + margin:
        return Judgement("no difference", None, _small(effect) if clear else "")
    few = _too_few(effect, effect.n_baseline, effect.n_variant)
    if clear and not few and p_holm is not None and p_holm < alpha:
        better = (effect.ratio > 1) == higher_is_better
        return Judgement("better" if better else "worse", None, "")
    further = _further(effect, margin, alpha / family)
    reason = _why_undecided(effect, few, family, alpha) if clear else ("", "contains 1")
    return Judgement("undecided", further, *reason)


def _without_interval(
    effect: Effect, p_holm: float | None, margin: float, higher_is_better: bool, family: int, alpha: float
) -> Judgement:
    """Returns the verdict on sides that do not vary or have a mean of 0, from p alone. The margin applies if
    there is a ratio."""
    if effect.exact and not effect.difference:
        return Judgement("equal", None, effect.reason)
    if effect.ratio is not None and 1 - margin <= effect.ratio <= 1 + margin:
        return Judgement("no difference", None, _small(effect))
    n, m = effect.n_baseline, effect.n_variant
    if p_holm is not None and p_holm < alpha and (effect.exact or not _too_few(effect, n, m)):
        better = ((effect.difference or 0) > 0) == higher_is_better
        return Judgement("better" if better else "worse", None, effect.reason)
    needed = (k for k in range(1, 20) if effect.exact and 2.0 ** (1 - n - m - 2 * k) < alpha / family)
    low, high = effect.difference_low, effect.difference_high
    clear = low is not None and high is not None and not low <= 0 <= high
    because = "the difference may be 0"
    if effect.exact or (clear and _too_few(effect, n, m)):
        because = few_repeats(n, m)
    elif clear:
        because = f"not certain among {family} comparisons"
    return Judgement("undecided", next(needed, None), effect.reason, because)


def few_repeats(n: int, m: int | None = None) -> str:
    """Returns ``3 repeats are too few``; ``2 and 4 repeats are too few`` if the sides differ."""
    if m is not None and n != m:
        return f"{n} and {m} repeats are too few"
    return f"{counted(n, 'repeat')} {'is' if n == 1 else 'are'} too few"


def _without_ends(effect: Effect) -> str:
    """Returns why there is no interval, in a few words."""
    sizes = effect.n_baseline, effect.n_variant
    reason = effect.reason.partition(":")[0].rstrip(".")
    return few_repeats(*sizes) if min(sizes) == 1 else f"{reason[:1].lower()}{reason[1:]}"


def _small(effect: Effect) -> str:
    return sentence("verdict-note", {"change": _signed_percent(effect.ratio or 1)}, case="margin")


def _why_undecided(effect: Effect, few: bool, family: int, alpha: float) -> tuple[str, str]:
    """Returns why an interval that excludes 1 is not enough: a sentence, and a few words."""
    repeats = min(effect.n_baseline, effect.n_variant)
    if not few and (effect.p_difference or 0.0) >= alpha / family:
        return sentence("verdict-note", {"p": effect.p_difference}, case="skewed"), "skewed values"
    if few or (careful_p(effect) or 1.0) >= alpha / family > (effect.p or 1.0):
        because = few_repeats(effect.n_baseline, effect.n_variant)
        many = "" if few else f" for {family} comparisons"
        return sentence("verdict-note", {"repeats": repeats}, case="few"), f"{because}{many}"
    if family > 1:
        because = f"not certain among {family} comparisons"
        return sentence("verdict-note", {"others": family - 1}, case="family"), because
    return sentence("verdict-note", {"alpha": alpha}, case="level"), f"p above {alpha:g}"


def _further(effect: Effect, margin: float, alpha: float) -> int | None:
    """Returns the further repeats per side that would decide, if the ratio and its spread stay the same; at
    least as many as a difference needs, since so few repeats know little of the spread. None if more than
    :data:`MOST_REPEATS`."""
    n = min(effect.n_baseline, effect.n_variant)
    further = range(1, MOST_REPEATS)
    index = bisect_left(further, True, key=lambda more: _decides(effect, n + more, margin, alpha))
    return further[index] if index < len(further) else None


def _decides(effect: Effect, repeats: int, margin: float, alpha: float) -> bool:
    assert effect.ratio is not None and effect.std_err is not None
    if _too_few(effect, repeats, repeats):
        return False
    n = min(effect.n_baseline, effect.n_variant)
    std_err = effect.std_err / effect.ratio * math.sqrt(n / repeats)
    degrees = repeats - 1 if effect.basis == "pairs" else 2 * repeats - 2
    away = abs(math.log(effect.ratio))
    if away > std_err * students_quantile(degrees, alpha) and 2.0 ** (1 - 2 * repeats) < alpha:
        return True
    return away + std_err * students_quantile(degrees) <= math.log1p(margin)


def further_to_exclude(effect: Effect, ratios: Sequence[float]) -> int | None:
    """Returns the further repeats per side by which the interval would exclude all of these ratios, if the
    estimate and its spread stay the same. None if more than :data:`MOST_REPEATS`, or the spread is
    unknown."""
    if not effect.ratio or effect.std_err is None:
        return None
    n = min(effect.n_baseline, effect.n_variant)
    std_err = effect.std_err / effect.ratio
    away = min(abs(math.log(effect.ratio / r)) for r in ratios)

    def excludes(more: int) -> bool:
        degrees = n + more - 1 if effect.basis == "pairs" else 2 * (n + more) - 2
        if _too_few(effect, n + more, n + more):
            return False
        return away > std_err * math.sqrt(n / (n + more)) * students_quantile(degrees)

    further = range(1, MOST_REPEATS)
    index = bisect_left(further, True, key=excludes)
    return further[index] if index < len(further) else None


# -- the table of one quantity --


@dataclass(frozen=True)
class Match:
    """The groups of cells compared at one rung, by label, including the baseline."""

    workload: str
    sessions: int
    baseline: str
    groups: Mapping[str, Mapping[int, CellFigures]]
    paired: bool
    series: str = ""
    of: Mapping[str, str] = field(default_factory=dict)
    """The run of each label, if there are two."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Size of a call by label, if calibrated."""
    rate_per_s: float | None = None
    """Rate of paced load; None if it is not paced."""
    start_up_ns: Mapping[str, float] = field(default_factory=dict)
    """How much durations of a label may be shorter, if the start-up of a shell was subtracted from them."""

    def errors_ns(self, baseline: str, variant: str) -> tuple[float, float]:
        return self.start_up_ns.get(baseline, 0.0), self.start_up_ns.get(variant, 0.0)

    def same_call(self, label: str) -> bool:
        """Returns whether the label's calls have the size of the baseline's."""
        return self.sizes.get(label) == self.sizes.get(self.baseline)


class _Pair(NamedTuple):
    match: Match
    baseline: str
    variant: str
    neighbours: bool


def metric_table(
    metric: Metric, matches: Sequence[Match], margin: float, work: str, alpha: float = ALPHA
) -> MetricTable:
    """Returns all lines and claims of ``metric`` over the rungs. Holm's family consists of all claims of the
    table. ``work`` is the work unit's short name."""
    ranked = [(m, _ranked(metric, m)) for m in matches]
    pairs = [p for m, lines in ranked for p in _pairs(m, [line.variant for line in lines])]
    effects = [
        effect_between(
            p.match.groups[p.baseline],
            p.match.groups[p.variant],
            metric,
            p.match.paired,
            p.match.errors_ns(p.baseline, p.variant),
        )
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
            **judge(e, q, margin, metric.higher_is_better, family, alpha)._asdict(),
        )
        for p, e, q in zip(pairs, effects, adjusted, strict=True)
    ]
    return MetricTable(
        metric=metric.name,
        title=with_nouns(metric.title, work=work),
        unit=metric.unit.format(work=work),
        higher_is_better=metric.higher_is_better,
        lines=tuple(line for _, lines in ranked for line in lines),
        claims=tuple(claims),
    )


def _ranked(metric: Metric, match: Match) -> list[Line]:
    """Returns the lines, best first. Metrics of calls are left out for calls of another size than the
    baseline's. Means of two sides in pairs are of the pairs, as their ratio is."""
    values = {
        label: known(cells, metric.name)
        for label, cells in match.groups.items()
        if match.same_call(label) or not metric.of_call
    }
    if match.paired and len(values) == 2:
        values = dict(zip(values, in_pairs([*values.values()]), strict=True))
    means = {label: Mean.of(own.values()) for label, own in values.items()}
    measured = [(label, mean) for label, mean in means.items() if mean.n]
    measured.sort(key=lambda item: item[1].value, reverse=metric.higher_is_better)
    place = {"workload": match.workload, "sessions": match.sessions, "series": match.series}
    lines = []
    for rank, (label, mean) in enumerate(measured, start=1):
        low, high = mean.positive95 or (None, None)
        figures = {"repeats": mean.n, "mean": mean.value, "low": low, "high": high}
        lines.append(Line(**place, variant=label, rank=rank, **figures))
    return lines


def _pairs(match: Match, ranked: Sequence[str]) -> list[_Pair]:
    """Returns pairs of each variant with the baseline, then of neighbours in the rank, the better with the
    next below it."""
    if match.baseline not in ranked:
        return []
    others = [v for v in ranked if v != match.baseline]
    against = [_Pair(match, match.baseline, v, False) for v in others]
    both = [(a, b) for a, b in pairwise(ranked) if match.baseline not in (a, b)]
    return against + [_Pair(match, worse, best, True) for best, worse in both]


# -- options --


@dataclass(frozen=True)
class Options:
    margin: float = MARGIN
    """Share up to which a difference does not matter."""
    baseline: str | None = None
    """The variant that others are compared with. None: the recipe's baseline, else the first variant."""
    metric: str | None = None
    """The metric that ranks, which is then the only one. None: work per second, else calls per second."""
    rung: int | None = None
    """Compares only at this number of sessions."""
    across_sizes: bool = False
    """Compares although data differ in size and calls do more work on more data."""
    costs: tuple[str, ...] = ()
    """Costs that have a table of their own, because a rule is about them."""


def alpha_of(*runs: Results) -> float:
    """Returns the level of significance, which is stricter if a run stopped because its intervals were
    tight."""
    return ALPHA_STOPPED if any(r.plan.experiment.until is not None for r in runs) else ALPHA


def tables_of(matches: Sequence[Match], options: Options, work: str, alpha: float) -> tuple[MetricTable, ...]:
    """Returns the tables: that of the ranking metric first, then those of other metrics that some rung can
    compare."""
    chosen = _chosen(matches, options)
    margin = options.margin
    return tuple(metric_table(m, paced.of_metric(m, matches), margin, work, alpha) for m in chosen)


def _chosen(matches: Sequence[Match], options: Options) -> list[Metric]:
    known = [m for m in METRICS if any(_comparable(x, m) for x in paced.of_metric(m, matches))]
    costs = [m for m in COSTS.values() if any(_comparable(x, m) for x in matches)]
    if options.metric is not None:
        return [_named(options.metric, [*known, *costs])]
    groups = [g for x in matches for g in x.groups.values()]
    same = all(x.same_call(label) for x in matches for label in x.groups)
    set_by_rate = any(m.rate_per_s is not None for m in matches)
    shells = any(m.start_up_ns for m in matches)  # executions per second include the shell's start-up
    by = paced.RANKING if set_by_rate else (DURATION, *RANKING) if shells else RANKING
    ranking = [n for n in by if same or not BY_NAME[n].of_call]
    first = next((BY_NAME[n] for n in ranking if everywhere(groups, n)), None)
    if first is None and not same:
        raise UsageError("the calls are of different size", "measure both with the same --call-target")
    if first is None:
        raise UsageError("no measurement of the comparison has a rate", "look at the runs: dbdyno show RUN")
    asked = [m for m in costs if m.name in options.costs]
    return [first, *(m for m in known if m is not first), *asked]


def _comparable(match: Match, metric: Metric) -> bool:
    """Returns whether the metric is known for the baseline and at least one more label. Costs may be 0."""

    def is_known(cells: Group) -> bool:
        return bool(known(cells, metric.name)) if metric.name in COSTS else everywhere([cells], metric.name)

    known_labels = [
        label
        for label, cells in match.groups.items()
        if is_known(cells) and (match.same_call(label) or not metric.of_call)
    ]
    return match.baseline in known_labels and len(known_labels) > 1


def _named(name: str, known: Sequence[Metric]) -> Metric:
    name = metric_named(name, f"no quantity {name!r}")
    if BY_NAME[name] not in known and name in RANKING and any(m.name == paced.RANKING[0] for m in known):
        raise UsageError(f"{name} was set by the rate, which was kept", f"compare {paced.RANKING[0]}")
    if BY_NAME[name] not in known:
        raise UsageError(
            f"{name} is not known of what is compared",
            f"known are {', '.join(m.name for m in known if (m.name in COSTS) is (name in COSTS))}",
        )
    return BY_NAME[name]


SHORT = [name for name, figure in FIGURES.items() if figure.column in BY_NAME]
"""Short names of quantities: ``p99``."""
_OTHER_WORDS = dict.fromkeys(("tps", "qps", "rps", "ops"), "calls") | dict.fromkeys(
    ("latency", "response", "response_time", "avg", "average"), "mean"
)
"""Words of other tools -> the quantity's short name."""


def metric_named(name: str, refusal: str) -> str:
    """Returns the metric of this name, short name or title: ``p99``, ``cpu_user_per_call``,
    ``user_cpu_per_call``. Raises :class:`UsageError` with ``refusal`` and the nearest name, or the short
    ones."""
    for full in (name, column_of(name), f"{name}_ns", BY_TITLE.get(name)):
        if full in BY_NAME:
            return full
    listed = f"known: {', '.join(SHORT)}; costs as their table names them: wal_bytes_per_call, reads_per_work"
    begun = (n for n in (*SHORT, *BY_NAME) if len(name) > 2 and n.startswith(name.lower()))
    meant = _OTHER_WORDS.get(name.lower()) or next(begun, None)
    near = f"did you mean {meant!r}?" if meant else did_you_mean(name, (*SHORT, *BY_NAME, *BY_TITLE), listed)
    raise UsageError(refusal, near)


def costs_among(figures: Iterable[str]) -> tuple[str, ...]:
    """Returns those of the figures that are costs, for :class:`Options`."""
    return tuple(f for f in dict.fromkeys(figures) if f in COSTS)


def only_rung(matches: Sequence[Match], rung: int | None) -> list[Match]:
    """Returns the matches at this number of sessions. Raises :class:`UsageError`, which names the rungs, if
    there are none."""
    if rung is None:
        return list(matches)
    at_rung = [m for m in matches if m.sessions == rung]
    if not at_rung:
        rungs = ", ".join(str(n) for n in sorted({m.sessions for m in matches}))
        raise UsageError(f"nothing can be compared at {counted(rung, 'session')}", f"there are {rungs}")
    return at_rung


def _signed_percent(ratio: float) -> str:
    change = 100 * ratio - 100
    return f"{'-' if change < 0 else '+'}{format_number(abs(change), 3)} %"
