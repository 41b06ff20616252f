"""Two samples of numbers: by their means and by their ranks, outliers with their weight, what decides where
nothing varies or a mean is 0, and what to bear in mind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dbdyno.conclude.catalogue import claim, sentence
from dbdyno.conclude.catalogue.number_format import p_value, percent
from dbdyno.conclude.compare.effects import do_not_vary, effect_of_samples, no_interval
from dbdyno.conclude.compare.table import ALPHA, MARGIN, MODES, careful_p, judge
from dbdyno.model.errors import UsageError
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import (
    Effect,
    Outlier,
    SampleComparison,
    Summary,
    Verdict,
    ratio_text,
    verdict_text,
)
from dbdyno.model.units import format_apart, format_number, format_p
from dbdyno.stats.estimates import Mean
from dbdyno.stats.significance import order_interval, outliers, rank_sum, shift, studentised

FEWEST_FOR_MEDIAN = 6
"""Values from which on an interval of order statistics holds the median with 95 %."""
FEWEST_FOR_RANKS = 4
"""Values on each side from which on a rank test can be significant at 5 %."""
_APART = 1e100
"""Means that differ by more are in different units."""
_MOST_NAMED = 3


@dataclass(frozen=True)
class _Sample:
    name: str
    values: tuple[float, ...]
    lines: tuple[int, ...] = ()
    """Line numbers of the values in their file; empty if they are not known."""

    def without(self, places: Iterable[int]) -> _Sample:
        kept = [i for i in range(len(self.values)) if i not in set(places)]
        return replace(self, values=tuple(self.values[i] for i in kept), lines=())

    def times(self, factor: float) -> _Sample:
        return replace(self, values=tuple(v * factor for v in self.values))


def compare_samples(
    baseline: Sequence[float],
    variant: Sequence[float],
    names: tuple[str, str] = ("old", "new"),
    margin: float = MARGIN,
    higher_is_better: bool = False,
    lines: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> SampleComparison:
    """``lines``: of the values in their files. Raises :class:`UsageError` for an empty sample and for values
    that are negative or not finite."""
    found = zip(names, (baseline, variant), lines, strict=True)
    sides = tuple(_Sample(name, tuple(values), tuple(of)) for name, values, of in found)
    for side in sides:
        _check(side)
    factor = _factor(*sides)
    scaled = [s.times(factor) for s in sides]
    effect = _effect(scaled[0].values, scaled[1].values)
    judged = judge(effect, careful_p(effect), margin, higher_is_better)
    ranks = by_ranks(scaled[0].values, scaled[1].values)
    odd = tuple(tuple(outliers(s.values)) for s in scaled)
    kept = [s.without(places).values for s, places in zip(scaled, odd, strict=True)]
    rest = _effect(kept[0], kept[1]) if any(odd) else None
    a, b = (summary_of_sample(s.values) for s in scaled)
    made = SampleComparison(
        baseline=names[0],
        variant=names[1],
        of_baseline=_scaled_summary(a, factor),
        of_variant=_scaled_summary(b, factor),
        median_change=b.median / a.median - 1 if a.median else None,
        higher_is_better=higher_is_better,
        margin=margin,
        effect=_scaled(effect, factor),
        verdict=judged.verdict,
        because=judged.because,
        further_repeats=judged.further_repeats,
        note=judged.note,
        by_ranks=None if ranks is None else _scaled(ranks, factor),
        rank_verdict=None if ranks is None else _verdict_by_ranks(ranks, margin, higher_is_better),
        without_outliers=None if rest is None else _scaled(rest, factor),
        outliers=tuple(o for s, p in zip(sides, odd, strict=True) for o in _outliers(s, p, factor)),
    )
    return made.model_copy(update={"conclusions": (_answer(made), *_notes(made))})


def _effect(baseline: Sequence[float], variant: Sequence[float]) -> Effect:
    """Where both of Student's tests see a difference, a permutation test must see it, too, if it can: few
    values of a skewed population against many have too small a p by Student."""
    made = effect_of_samples(baseline, variant)
    if made.p is None or made.p_difference is None or max(made.p, made.p_difference) >= ALPHA:
        return made
    test = studentised(baseline, variant)
    if test is None or test.least >= ALPHA:
        return made
    return made.model_copy(update={"p_difference": max(made.p_difference, test.p)})


def _check(sample: _Sample) -> None:
    if not sample.values:
        raise UsageError(f"{sample.name} has no values", "one number per line, or a table with a header")
    for n, value in enumerate(sample.values, start=1):
        if not math.isfinite(value):
            raise UsageError(
                f"{sample.name}: value {n} is {value}, not a finite number", "leave it out, or measure again"
            )
        if value < 0:
            raise UsageError(
                f"{sample.name}: value {n} is {value:g}, below 0", "rates, times and counts are 0 or more"
            )


def _factor(baseline: _Sample, variant: _Sample) -> float:
    """A power of two that brings the values near 1, so that no square is too large or too small."""
    largest = [m for s in (baseline, variant) if (m := max(s.values)) > 0]
    if len(largest) == 2 and not 1 / _APART < largest[1] / largest[0] < _APART:
        raise UsageError(
            f"{baseline.name} and {variant.name} differ by a factor of more than {_APART:g}",
            "give both in the same unit",
        )
    return math.ldexp(1.0, -math.frexp(largest[0])[1]) if largest else 1.0


def summary_of_sample(values: Sequence[float]) -> Summary:
    """Median with the narrowest interval of order statistics that holds it with at least 95 %."""
    ordered, n = sorted(values), len(values)
    mean_low, mean_high = Mean.of(values).positive95 or (None, None)
    low, high, confidence = order_interval(n)
    return Summary(
        n=n,
        mean=math.fsum(values) / n,
        mean_low=mean_low,
        mean_high=mean_high,
        median=(ordered[(n - 1) // 2] + ordered[n // 2]) / 2,
        low=ordered[low - 1] if low >= 1 else None,
        high=ordered[high - 1] if high <= n else None,
        confidence=confidence,
    )


def _scaled_summary(s: Summary, factor: float) -> Summary:
    names = ("mean", "mean_low", "mean_high", "median", "low", "high")
    return s.model_copy(update={n: v / factor for n in names if (v := getattr(s, n)) is not None})


def _scaled(effect: Effect, factor: float) -> Effect:
    names = ("difference", "difference_low", "difference_high")
    return effect.model_copy(update={n: v / factor for n in names if (v := getattr(effect, n)) is not None})


# -- by ranks: what a few values far from the others hardly touch --


def by_ranks(baseline: Sequence[float], variant: Sequence[float]) -> Effect | None:
    """The typical ratio and the rank test; where a value is 0, the typical difference. ``None``: neither side
    varies, or one has a single value."""
    if do_not_vary(baseline, variant) or min(len(baseline), len(variant)) < 2:
        return None
    test = rank_sum(baseline, variant)
    known = {"n_baseline": len(baseline), "n_variant": len(variant), "basis": "ranks"}
    if test is not None:
        known |= {"p_permutation": test.p, "permutation": test.how, "least_p": test.least}
    if min(*baseline, *variant) <= 0:
        by = shift(baseline, variant)
        ends = {"difference_low": by.low, "difference_high": by.high}
        return Effect(difference=by.value, reason=no_interval("zero"), **ends, **known)
    by = shift([math.log(v) for v in baseline], [math.log(v) for v in variant])
    low, high = (None if end is None else math.exp(end) for end in (by.low, by.high))
    reason = no_interval("ranks") if low is None else ""
    return Effect(ratio=math.exp(by.value), low=low, high=high, reason=reason, **known)


def _verdict_by_ranks(effect: Effect, margin: float, higher_is_better: bool) -> Verdict:
    low, high = effect.low, effect.high
    if low is not None and high is not None and low >= 1 - margin and high <= 1 + margin:
        return "no difference"
    larger = effect.ratio > 1 if effect.ratio is not None else (effect.difference or 0) > 0
    same = effect.ratio == 1 or effect.difference == 0
    if effect.p_permutation is None or effect.p_permutation >= ALPHA or same:
        return "undecided"
    return "better" if larger == higher_is_better else "worse"


# -- outliers --


def _outliers(sample: _Sample, places: Sequence[int], factor: float) -> Iterator[Outlier]:
    mean, rest = (
        math.fsum(s.times(factor).values) / max(1, len(s.values)) for s in (sample, sample.without(places))
    )
    for i in places:
        yield Outlier(
            sample=sample.name,
            value=sample.values[i],
            place=i + 1,
            line=sample.lines[i] if sample.lines else None,
            moves_mean=mean / rest - 1 if rest else None,
        )


def _which(found: Sequence[Outlier]) -> str:
    """``9,000 (line 4)``; the first three of many."""
    words = [
        f"{format_number(o.value)} ({'value' if o.line is None else 'line'} {o.line or o.place})"
        for o in found[:_MOST_NAMED]
    ]
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return (", ".join(words) if more else " and ".join(words)) + more


# -- in words --


def _answer(made: SampleComparison) -> Claim:
    e = made.effect
    said = {
        "variant": made.variant,
        "baseline": made.baseline,
        "direction": "higher" if made.higher_is_better else "lower",
        "margin": f"{100 * made.margin:g} %",
        "change": _change(e),
        "value": format_number(made.of_baseline.mean),
        "ends": _ends(e, made.verdict in ("better", "worse")),
        "more": "",
        "because": f" ({made.because})" if made.because else "",
    }
    if (n := made.further_repeats) is not None:
        many = "one more value of each may" if n == 1 else f"about {n:,} more values of each would"
        said["more"] = f"; {many} decide"
    case = made.verdict.replace(" ", "-")
    return claim("samples-answer", said, e.ratio, case=case, low=e.low, high=e.high)


def _change(e: Effect) -> str:
    """``17.2 % lower than``; ``3.2 times``; ``300 higher than`` where there is no ratio."""
    word = "higher" if (e.difference or 0) > 0 else "lower"
    if e.ratio is None:
        return f"{format_number(abs(e.difference or 0))} {word} than"
    if not 0.1 < e.ratio < 2:
        return f"{ratio_text(e, e.ratio)} times"
    return f"{_per_cent(e.ratio, e)} {word} than"


def _per_cent(ratio: float, e: Effect) -> str:
    if e.low is None or e.high is None:
        return f"{format_number(abs(100 * ratio - 100))} %"
    half, change = 50 * (e.high - e.low), abs(100 * ratio - 100)
    most = max(3, 2 - math.floor(math.log10(change))) if change else 3
    digits = min(most, max(0, 1 - math.floor(math.log10(half)))) if half > 0 else most
    return f"{change:.{digits}f} %"


def _ends(e: Effect, as_change: bool) -> str:
    if e.ratio is None or e.low is None or e.high is None:
        return "" if e.ratio is None or as_change else f", ratio {ratio_text(e, e.ratio)}"
    if as_change and 0.1 < e.ratio < 2:
        near, far = sorted((e.low, e.high), key=lambda end: abs(end - 1))
        return f" ({_per_cent(near, e)} to {_per_cent(far, e)})"
    ends = f"{ratio_text(e, e.low)} to {ratio_text(e, e.high)}"
    return f" ({ends})" if as_change else f", ratio {ratio_text(e, e.ratio)} ({ends})"


def _notes(made: SampleComparison) -> Iterator[Claim]:
    yield from _said_of_outliers(made)
    yield from _disagreement(made)
    yield from _constants(made)
    e = made.effect
    if e.ratio is None and e.difference is not None and e.difference != 0:
        zero = made.baseline if made.of_baseline.mean == 0 else made.variant
        ends = ""
        if e.difference_low is not None and e.difference_high is not None:
            ends = f" ({_signed(e.difference_low)} to {_signed(e.difference_high)})"
        yield claim("no-ratio", {"sample": zero, "difference": _signed(e.difference), "ends": ends})
    yield from _few(made)


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{format_number(abs(value))}"


def _said_of_outliers(made: SampleComparison) -> Iterator[Claim]:
    for name in dict.fromkeys(o.sample for o in made.outliers):
        found = [o for o in made.outliers if o.sample == name]
        moved = found[0].moves_mean
        said = {
            "which": _which(found),
            "verb": "does" if len(found) == 1 else "do",
            "sample": name,
            "direction": "raise" if (moved or 0) > 0 else "lower",
            "share": "all of it"
            if moved is None
            else percent(abs(moved))
            if abs(moved) >= 0.001
            else "less than 0.1 %",
        }
        said["direction"] += "s" if len(found) == 1 else ""
        yield claim("sample-outlier", said)
    if (rest := made.without_outliers) is not None and rest.ratio is not None:
        judged = judge(rest, careful_p(rest), made.margin, made.higher_is_better)
        ends = "" if rest.low is None or rest.high is None else _interval(rest)
        said = {
            "which": "it" if len(made.outliers) == 1 else "them",
            "ratio": ratio_text(rest, rest.ratio) + ends,
        }
        said["verdict"] = verdict_text(judged.verdict, made.margin, judged.because)
        yield claim("without-outliers", said)


def _interval(e: Effect) -> str:
    return f" ({ratio_text(e, e.low or 0)} to {ratio_text(e, e.high or 0)})"


def _disagreement(made: SampleComparison) -> Iterator[Claim]:
    """Where the rank test does not say what the means say, with the reason."""
    ranks = made.by_ranks
    if ranks is None or made.rank_verdict is None or ranks.p_permutation is None:
        return
    p = ranks.p_permutation
    means = made.verdict in ("better", "worse")
    if made.rank_verdict == made.verdict and not (made.verdict == "no difference" and p < ALPHA):
        return
    said = {
        "means": verdict_text(made.verdict, made.margin, made.because),
        "medians": verdict_text(made.rank_verdict, made.margin),
        "p": p_value(p),
        "why": _why(made, ranks, means, p < ALPHA),
    }
    yield claim("means-and-medians", said)


def _why(made: SampleComparison, ranks: Effect, means: bool, significant: bool) -> str:
    e = made.effect
    n, m = e.n_baseline, e.n_variant
    margin = f"{100 * made.margin:g} %"
    said = {"n": n, "m": m, "least": format_p(ranks.least_p or 0), "margin": margin, "modes": MODES}
    opposite = means and made.rank_verdict in ("better", "worse")
    if made.verdict == "no difference":
        case = "margin" if significant else "unsure" if ranks.low is not None else "no-interval"
    elif (ranks.least_p or 0) >= ALPHA and means:
        case = "ranks-few"
    elif made.outliers:
        case = "outliers"
    elif opposite:
        case = "shape"
    elif significant and min(n, m) < FEWEST_FOR_RANKS:
        case = "means-few"
    elif (e.p or 1.0) < 2 * ALPHA and ranks.p_permutation is not None and ranks.p_permutation < 2 * ALPHA:
        case = "borderline"
    else:
        case = "spread"
    return sentence("means-and-medians-why", said, case=case)


def _constants(made: SampleComparison) -> Iterator[Claim]:
    a, b, e = made.of_baseline, made.of_variant, made.effect
    x, y = format_apart(a.mean, b.mean)
    said: dict[str, Any] = {"n": a.n, "m": b.n, "x": x, "y": y}
    said |= {"baseline": made.baseline, "variant": made.variant}
    if e.exact and e.difference:
        yield claim("same-values", said | {"p": format_p(e.p or 0.0)})


def _few(made: SampleComparison) -> Iterator[Claim]:
    """As benchstat says it."""
    sizes = ((made.baseline, made.of_baseline.n), (made.variant, made.of_variant.n))
    n, m = sizes[0][1], sizes[1][1]
    if single := [name for name, size in sizes if size < 2]:
        said = {"samples": ", ".join(f"{name} has 1" for name in single), "needed": FEWEST_FOR_MEDIAN}
        yield claim("few-values", said | {"decisive": FEWEST_FOR_RANKS}, case="spread")
    if single or made.effect.exact:
        return
    if few := [f"{name} has {size}" for name, size in sizes if size < FEWEST_FOR_MEDIAN]:
        yield claim("few-values", {"needed": FEWEST_FOR_MEDIAN, "samples": ", ".join(few)}, case="interval")
    if math.comb(n + m, n) < 2 / ALPHA:
        yield claim("few-values", {"needed": FEWEST_FOR_RANKS, "n": n, "m": m}, case="test")
