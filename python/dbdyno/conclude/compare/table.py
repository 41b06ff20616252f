"""The verdict on each pair, and the tables of ranks and contrasts."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from dbdyno.conclude.catalogue import sentence, with_nouns
from dbdyno.conclude.compare import paced
from dbdyno.conclude.compare.effects import (
    BY_NAME,
    DURATION,
    METRICS,
    RANKING,
    CellFigures,
    Metric,
    effect_between,
    everywhere,
    known,
)
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.results.comparison import Contrast, Effect, Line, MetricTable, Verdict
from dbdyno.model.results.results import Results
from dbdyno.model.units import counted, format_number
from dbdyno.stats.estimates import Mean, students_quantile, students_tail
from dbdyno.stats.significance import holm

ALPHA = 0.05
ALPHA_STOPPED = 0.025
"""In a run that stopped when its intervals were tight: simulated, false differences are then 5 % at most."""
MARGIN = 0.02
MOST_REPEATS = 10_000


MODES = 2.0
"""The largest ratio that two modes of one machine are held to make: two sessions that share a core, or a CPU,
have half of what each has alone."""


def careful_p(effect: Effect) -> float | None:
    """Student's p, but not below the chance that two modes of the machine look like an effect.

    With probability 2 ** (1 - n - m) a machine with two modes of equal chance (placement on CPUs makes such)
    shows one of them in all n repeats of one side and the other in all m of the other: hardly any spread, and
    no effect. Student's p knows of no modes; with two or three repeats that alone makes 12 to 20 % of false
    runs. Modes make a ratio of :data:`MODES` at most: a larger one must besides be there by chance.
    """
    if effect.p is None:
        return None
    modes = 2.0 ** (1 - effect.n_baseline - effect.n_variant)
    return max(effect.p, effect.p_difference or 0.0, modes * _p_beyond_modes(effect))


def _p_beyond_modes(effect: Effect) -> float:
    """Student's p that the true ratio is no farther from 1 than :data:`MODES`."""
    if effect.ratio is None or effect.std_err is None or not effect.degrees or _as_modes(effect):
        return 1.0
    away = abs(math.log(effect.ratio)) - math.log(MODES)
    return students_tail(away / (effect.std_err / effect.ratio), effect.degrees)


def _as_modes(effect: Effect) -> bool:
    return effect.ratio is None or abs(math.log(effect.ratio)) <= math.log(MODES)


def _too_few(effect: Effect, n: int, m: int) -> bool:
    """A ratio that modes could make is decided only where a rank test of so many repeats can reach 5 %: no
    order of three against three is rarer than 1 in 10."""
    return _as_modes(effect) and n + m < 2 / ALPHA and math.comb(n + m, n) < 2 / ALPHA


class Judgement(NamedTuple):
    verdict: Verdict
    further_repeats: int | None
    note: str
    because: str = ""
    """In a word or two, why it is undecided although the interval excludes 1: it fits into a table."""


def judge(
    effect: Effect,
    p_holm: float | None,
    margin: float,
    higher_is_better: bool,
    family: int = 1,
    alpha: float = ALPHA,
) -> Judgement:
    """The margin is asked first: a difference that is there but does not matter is none above the margin.

    ``family``: how many claims ``p_holm`` is adjusted for.
    """
    if effect.exact or (effect.ratio is None and effect.difference_low is not None):
        return _without_interval(effect, p_holm, margin, higher_is_better, family, alpha)
    if effect.ratio is None or effect.low is None or effect.high is None:
        known = effect.ratio is not None and effect.std_err is not None
        return Judgement(
            "undecided", _further(effect, margin, alpha / family) if known else None, effect.reason
        )
    if effect.basis == "within the window only":
        return Judgement("undecided", None, sentence("verdict-note", case="window"), "1 repeat")
    clear = effect.low > 1 or effect.high < 1
    if effect.low >= 1 - margin and effect.high <= 1 + margin:
        return Judgement("no difference", None, _small(effect) if clear else "")
    few = _too_few(effect, effect.n_baseline, effect.n_variant)
    if clear and not few and p_holm is not None and p_holm < alpha:
        better = (effect.ratio > 1) == higher_is_better
        return Judgement("better" if better else "worse", None, "")
    further = _further(effect, margin, alpha / family)
    return Judgement("undecided", further, *(_why_undecided(effect, few, family, alpha) if clear else ("",)))


def _without_interval(
    effect: Effect, p_holm: float | None, margin: float, higher_is_better: bool, family: int, alpha: float
) -> Judgement:
    """Sides that do not vary, or a mean of 0: by p alone; the margin is of a ratio, where there is one."""
    if effect.exact and not effect.difference:
        return Judgement("equal", None, effect.reason)
    if effect.ratio is not None and 1 - margin <= effect.ratio <= 1 + margin:
        return Judgement("no difference", None, _small(effect))
    n, m = effect.n_baseline, effect.n_variant
    if p_holm is not None and p_holm < alpha and (effect.exact or not _too_few(effect, n, m)):
        better = ((effect.difference or 0) > 0) == higher_is_better
        return Judgement("better" if better else "worse", None, effect.reason)
    needed = (k for k in range(1, 20) if effect.exact and 2.0 ** (1 - n - m - 2 * k) < alpha / family)
    return Judgement("undecided", next(needed, None), effect.reason)


def _small(effect: Effect) -> str:
    return sentence("verdict-note", {"change": _signed_percent(effect.ratio or 1)}, case="margin")


def _why_undecided(effect: Effect, few: bool, family: int, alpha: float) -> tuple[str, str]:
    """Why an interval that is clear of 1 is not enough: a sentence, and in a word or two."""
    repeats = min(effect.n_baseline, effect.n_variant)
    if not few and (effect.p_difference or 0.0) >= alpha / family:
        return sentence("verdict-note", {"p": effect.p_difference}, case="skewed"), "skewed values"
    if few or (careful_p(effect) or 1.0) >= alpha / family > (effect.p or 1.0):
        return sentence("verdict-note", {"repeats": repeats}, case="few"), counted(repeats, "repeat")
    if family > 1:
        return sentence("verdict-note", {"others": family - 1}, case="family"), f"{family} claims"
    return sentence("verdict-note", {"alpha": alpha}, case="level"), f"p above {alpha:g}"


def _further(effect: Effect, margin: float, alpha: float) -> int | None:
    """More repeats of each, if the ratio and its spread stay what they are. ``None``: more than 10,000."""
    n = min(effect.n_baseline, effect.n_variant)
    further = range(1, MOST_REPEATS)
    found = bisect_left(further, True, key=lambda more: _decides(effect, n + more, margin, alpha))
    return further[found] if found < len(further) else None


def _decides(effect: Effect, repeats: int, margin: float, alpha: float) -> bool:
    assert effect.ratio is not None and effect.std_err is not None
    n = min(effect.n_baseline, effect.n_variant)
    std_err = effect.std_err / effect.ratio * math.sqrt(n / repeats)
    degrees = repeats - 1 if effect.basis == "pairs" else 2 * repeats - 2
    away = abs(math.log(effect.ratio))
    few = _too_few(effect, repeats, repeats) or 2.0 ** (1 - 2 * repeats) >= alpha
    if away > std_err * students_quantile(degrees, alpha) and not few:
        return True
    return away + std_err * students_quantile(degrees) <= math.log1p(margin)


# -- the table of one quantity --


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
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Size of a call by label, where it was calibrated."""
    rate_per_s: float | None = None
    """Rate of paced load; none: it is not paced."""
    start_up_ns: Mapping[str, float] = field(default_factory=dict)
    """By how much durations of a label may be shorter, where the start-up of a shell was taken off them."""

    def errors_ns(self, baseline: str, variant: str) -> tuple[float, float]:
        return self.start_up_ns.get(baseline, 0.0), self.start_up_ns.get(variant, 0.0)

    def same_call(self, label: str) -> bool:
        """As the baseline's."""
        return self.sizes.get(label) == self.sizes.get(self.baseline)


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
    """The best first. Figures of calls are left out where they are calls of another size than the
    baseline's."""
    means = {
        label: Mean.of(known(cells, metric.name).values())
        for label, cells in match.groups.items()
        if match.same_call(label) or not metric.of_call
    }
    there = [(label, mean) for label, mean in means.items() if mean.n]
    there.sort(key=lambda item: item[1].value, reverse=metric.higher_is_better)
    place = {"workload": match.workload, "sessions": match.sessions, "series": match.series}
    found = []
    for rank, (label, mean) in enumerate(there, start=1):
        low, high = mean.positive95 or (None, None)
        figures = {"repeats": mean.n, "mean": mean.value, "low": low, "high": high}
        found.append(Line(**place, variant=label, rank=rank, **figures))
    return found


def _pairs(match: Match, ranked: Sequence[str]) -> list[_Pair]:
    """Each against the baseline; then neighbours in the rank, the better one against the next below it."""
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
    """A difference up to this share does not matter."""
    baseline: str | None = None
    """The variant that others are compared with; ``None``: the recipe's, else the first."""
    metric: str | None = None
    """The quantity that ranks, then the only one. ``None``: work a second, else calls a second."""
    rung: int | None = None
    """At so many sessions alone."""
    across_sizes: bool = False
    """Also where the sizes of the data differ and calls do more work with more data."""


def alpha_of(*runs: Results) -> float:
    """The level of significance: stricter where a run stopped because its intervals were tight."""
    return ALPHA_STOPPED if any(r.plan.experiment.until is not None for r in runs) else ALPHA


def tables_of(matches: Sequence[Match], options: Options, work: str, alpha: float) -> tuple[MetricTable, ...]:
    """The ranking quantity first, which is known everywhere; then others that can be compared somewhere."""
    chosen = _chosen(matches, options)
    margin = options.margin
    return tuple(metric_table(m, paced.of_metric(m, matches), margin, work, alpha) for m in chosen)


def _chosen(matches: Sequence[Match], options: Options) -> list[Metric]:
    known = [m for m in METRICS if any(_comparable(x, m) for x in paced.of_metric(m, matches))]
    if options.metric is not None:
        return [_named(options.metric, known)]
    groups = [g for x in matches for g in x.groups.values()]
    same = all(x.same_call(label) for x in matches for label in x.groups)
    set_by_rate = any(m.rate_per_s is not None for m in matches)
    shells = any(m.start_up_ns for m in matches)  # executions per second have their start-up in them
    by = paced.RANKING if set_by_rate else (DURATION, *RANKING) if shells else RANKING
    ranking = [n for n in by if same or not BY_NAME[n].of_call]
    first = next((BY_NAME[n] for n in ranking if everywhere(groups, n)), None)
    if first is None and not same:
        raise UsageError("the calls are of different size", "measure both with the same --call-target")
    if first is None:
        raise UsageError("no measurement of the comparison has a rate", "look at the runs: dbdyno show RUN")
    return [first, *(m for m in known if m is not first)]


def _comparable(match: Match, metric: Metric) -> bool:
    """Known of the baseline and of one more."""
    there = [
        label
        for label, cells in match.groups.items()
        if everywhere([cells], metric.name) and (match.same_call(label) or not metric.of_call)
    ]
    return match.baseline in there and len(there) > 1


def _named(name: str, known: Sequence[Metric]) -> Metric:
    if name not in BY_NAME:
        raise UsageError(f"no quantity {name!r}", did_you_mean(name, BY_NAME))
    if BY_NAME[name] not in known and name in RANKING and any(m.name == paced.RANKING[0] for m in known):
        raise UsageError(f"{name} was set by the rate, which was kept", f"compare {paced.RANKING[0]}")
    if BY_NAME[name] not in known:
        raise UsageError(
            f"{name} is not known of what is compared",
            f"known are {', '.join(m.name for m in known)}",
        )
    return BY_NAME[name]


def only_rung(matches: Sequence[Match], rung: int | None) -> list[Match]:
    """Those at so many sessions; raises :class:`UsageError` naming the rungs that there are."""
    if rung is None:
        return list(matches)
    found = [m for m in matches if m.sessions == rung]
    if not found:
        there = ", ".join(str(n) for n in sorted({m.sessions for m in matches}))
        raise UsageError(f"nothing can be compared at {counted(rung, 'session')}", f"there are {there}")
    return found


def _signed_percent(ratio: float) -> str:
    change = 100 * ratio - 100
    return f"{'-' if change < 0 else '+'}{format_number(abs(change), 3)} %"
