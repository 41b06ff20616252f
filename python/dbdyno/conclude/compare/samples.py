"""Compares two samples of numbers by their means and by their ranks. It reports outliers with their effect on
the mean, decides samples that do not vary or have a mean of 0, and adds remarks."""

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
    in_brackets,
    ratio_text,
    verdict_text,
)
from dbdyno.model.units import format_apart, format_number, format_p
from dbdyno.stats.estimates import Mean
from dbdyno.stats.significance import order_interval, outliers, rank_sum, shift, studentised

FEWEST_FOR_MEDIAN = 6
"""Values that an interval of order statistics needs to contain the median with 95 %: 1 - 2 * 0.5**6 =
0.97."""
FEWEST_FOR_RANKS = 4
"""Values per side that a rank test needs to be significant at 5 %: 2 / C(8, 4) = 0.029."""
CLAIMS = (
    *("samples-answer", "no-ratio", "sample-outlier", "without-outliers", "means-and-medians"),
    *("same-values", "few-values"),
)
"""All claims about two samples."""
_APART = 1e100
"""Factor between means beyond which the samples must have different units."""
_MOST_NAMED = 3


@dataclass(frozen=True)
class _Sample:
    name: str
    values: tuple[float, ...]
    lines: tuple[int, ...] = ()
    """Line numbers of the values in their file; empty if unknown."""

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
    """Compares two samples. ``lines`` are the line numbers of their values in the files. Raises
    :class:`UsageError` for an empty sample and for values that are negative or not finite."""
    inputs = zip(names, (baseline, variant), lines, strict=True)
    sides = tuple(_Sample(name, tuple(values), tuple(value_lines)) for name, values, value_lines in inputs)
    for side in sides:
        _check(side)
    factor = _factor(*sides)
    scaled = [s.times(factor) for s in sides]
    effect = _effect(scaled[0].values, scaled[1].values)
    judged = judge(effect, careful_p(effect), margin, higher_is_better)
    ranks = by_ranks(scaled[0].values, scaled[1].values)
    outlier_places = tuple(tuple(outliers(s.values)) for s in scaled)
    kept = [s.without(places).values for s, places in zip(scaled, outlier_places, strict=True)]
    rest = _effect(kept[0], kept[1]) if any(outlier_places) else None
    a, b = (summary_of_sample(s.values) for s in scaled)
    comparison = SampleComparison(
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
        outliers=tuple(
            o for s, p in zip(sides, outlier_places, strict=True) for o in _outliers(s, p, factor)
        ),
    )
    return comparison.model_copy(update={"conclusions": (_answer(comparison), *_notes(comparison))})


def _effect(baseline: Sequence[float], variant: Sequence[float]) -> Effect:
    """Returns the effect of the means. If both of Student's tests are significant, a permutation test must
    confirm them if it has enough values: Student's p is too small for few values of a skewed population
    against many."""
    effect = effect_of_samples(baseline, variant)
    if effect.p is None or effect.p_difference is None or max(effect.p, effect.p_difference) >= ALPHA:
        return effect
    test = studentised(baseline, variant)
    if test is None or test.least >= ALPHA:
        return effect
    return effect.model_copy(update={"p_difference": max(effect.p_difference, test.p)})


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
    """Returns a power of two that brings the values near 1, so that no square overflows or underflows."""
    largest = [m for s in (baseline, variant) if (m := max(s.values)) > 0]
    if len(largest) == 2 and not 1 / _APART < largest[1] / largest[0] < _APART:
        raise UsageError(
            f"{baseline.name} and {variant.name} differ by a factor of more than {_APART:g}",
            "give both in the same unit",
        )
    return math.ldexp(1.0, -math.frexp(largest[0])[1]) if largest else 1.0


def summary_of_sample(values: Sequence[float]) -> Summary:
    """Returns the mean and the median, with the narrowest interval of order statistics that contains the
    median with at least 95 %."""
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
    """Returns the typical ratio (the typical difference if a value is 0) and the rank test, which a few
    extreme values hardly affect. None if neither side varies or one has a single value."""
    if do_not_vary(baseline, variant) or min(len(baseline), len(variant)) < 2:
        return None
    test = rank_sum(baseline, variant)
    known = {"n_baseline": len(baseline), "n_variant": len(variant), "basis": "ranks"}
    if test is not None:
        known |= {"p_permutation": test.p, "permutation": test.how, "least_p": test.least}
    if min(*baseline, *variant) <= 0:  # no logarithm, hence no ratio
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


def _outlier_list(outliers: Sequence[Outlier]) -> str:
    """Lists outliers with their place: ``9,000 (line 4)``; only the first three of many."""
    words = [
        f"{format_number(o.value)} ({'value' if o.line is None else 'line'} {o.line or o.place})"
        for o in outliers[:_MOST_NAMED]
    ]
    more = f" and {len(outliers) - _MOST_NAMED} more" if len(outliers) > _MOST_NAMED else ""
    return (", ".join(words) if more else " and ".join(words)) + more


# -- in words --


def _answer(comparison: SampleComparison) -> Claim:
    e = comparison.effect
    values = {
        "variant": comparison.variant,
        "baseline": comparison.baseline,
        "direction": "higher" if comparison.higher_is_better else "lower",
        "margin": f"{100 * comparison.margin:g} %",
        "change": _change(e),
        "value": format_number(comparison.of_baseline.mean),
        "ends": _ends(e, comparison.verdict in ("better", "worse")),
        "more": "",
        "because": f" ({comparison.because})" if comparison.because else "",
    }
    if (n := comparison.further_repeats) is not None:
        many = "one more value of each may" if n == 1 else f"about {n:,} more values of each would"
        values["more"] = f"; {many} decide"
    case = comparison.verdict.replace(" ", "-")
    return claim("samples-answer", values, e.ratio, case=case, low=e.low, high=e.high)


def _change(e: Effect) -> str:
    """Formats the effect: ``17.2 % lower than``; ``3.2 times``; ``300 higher than`` without a ratio."""
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
    if e.ratio is None:
        return ""
    if as_change and e.low is not None and e.high is not None and 0.1 < e.ratio < 2:
        near, far = sorted((e.low, e.high), key=lambda end: abs(end - 1))
        return f" ({_per_cent(near, e)} to {_per_cent(far, e)})"
    return in_brackets(e) if as_change else f", ratio {ratio_text(e, e.ratio)}{in_brackets(e)}"


def _notes(comparison: SampleComparison) -> Iterator[Claim]:
    yield from _outlier_claims(comparison)
    yield from _disagreement(comparison)
    yield from _constants(comparison)
    e = comparison.effect
    if e.ratio is None and e.difference is not None and e.difference != 0:
        zero = comparison.baseline if comparison.of_baseline.mean == 0 else comparison.variant
        ends = ""
        if e.difference_low is not None and e.difference_high is not None:
            ends = f" ({_signed(e.difference_low)} to {_signed(e.difference_high)})"
        yield claim("no-ratio", {"sample": zero, "difference": _signed(e.difference), "ends": ends})
    yield from _too_few_values(comparison)


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{format_number(abs(value))}"


def _outlier_claims(comparison: SampleComparison) -> Iterator[Claim]:
    for name in dict.fromkeys(o.sample for o in comparison.outliers):
        in_sample = [o for o in comparison.outliers if o.sample == name]
        shift = in_sample[0].moves_mean
        values = {
            "which": _outlier_list(in_sample),
            "verb": "does" if len(in_sample) == 1 else "do",
            "sample": name,
            "direction": "raise" if (shift or 0) > 0 else "lower",
            "share": "all of it"
            if shift is None
            else percent(abs(shift))
            if abs(shift) >= 0.001
            else "less than 0.1 %",
        }
        values["direction"] += "s" if len(in_sample) == 1 else ""
        yield claim("sample-outlier", values)
    if (rest := comparison.without_outliers) is not None and rest.ratio is not None:
        judged = judge(rest, careful_p(rest), comparison.margin, comparison.higher_is_better)
        values = {
            "which": "it" if len(comparison.outliers) == 1 else "them",
            "ratio": ratio_text(rest, rest.ratio) + in_brackets(rest),
        }
        values["verdict"] = verdict_text(judged.verdict, comparison.margin, judged.because)
        yield claim("without-outliers", values)


def _disagreement(comparison: SampleComparison) -> Iterator[Claim]:
    """Yields a claim with the reason if the rank test and the means lead to different verdicts."""
    ranks = comparison.by_ranks
    if ranks is None or comparison.rank_verdict is None or ranks.p_permutation is None:
        return
    p = ranks.p_permutation
    means = comparison.verdict in ("better", "worse")
    if comparison.rank_verdict == comparison.verdict and not (
        comparison.verdict == "no difference" and p < ALPHA
    ):
        return
    values = {
        "means": verdict_text(comparison.verdict, comparison.margin, comparison.because),
        "medians": verdict_text(comparison.rank_verdict, comparison.margin),
        "p": p_value(p),
        "why": _why(comparison, ranks, means, p < ALPHA),
    }
    yield claim("means-and-medians", values)


def _why(comparison: SampleComparison, ranks: Effect, means: bool, significant: bool) -> str:
    e = comparison.effect
    n, m = e.n_baseline, e.n_variant
    margin = f"{100 * comparison.margin:g} %"
    values = {"n": n, "m": m, "least": format_p(ranks.least_p or 0), "margin": margin, "modes": MODES}
    opposite = means and comparison.rank_verdict in ("better", "worse")
    if comparison.verdict == "no difference":
        case = "margin" if significant else "unsure" if ranks.low is not None else "no-interval"
    elif (ranks.least_p or 0) >= ALPHA and means:
        case = "ranks-few"
    elif comparison.outliers:
        case = "outliers"
    elif opposite:
        case = "shape"
    elif significant and min(n, m) < FEWEST_FOR_RANKS:
        case = "means-few"
    elif (e.p or 1.0) < 2 * ALPHA and ranks.p_permutation is not None and ranks.p_permutation < 2 * ALPHA:
        case = "borderline"
    else:
        case = "spread"
    return sentence("means-and-medians-why", values, case=case)


def _constants(comparison: SampleComparison) -> Iterator[Claim]:
    a, b, e = comparison.of_baseline, comparison.of_variant, comparison.effect
    x, y = format_apart(a.mean, b.mean)
    values: dict[str, Any] = {"n": a.n, "m": b.n, "x": x, "y": y}
    values |= {"baseline": comparison.baseline, "variant": comparison.variant}
    if e.exact and e.difference:
        yield claim("same-values", values | {"p": format_p(e.p or 0.0)})


def _too_few_values(comparison: SampleComparison) -> Iterator[Claim]:
    """Yields a claim if there are too few values for an interval or a test, with the thresholds of
    benchstat."""
    sizes = ((comparison.baseline, comparison.of_baseline.n), (comparison.variant, comparison.of_variant.n))
    n, m = sizes[0][1], sizes[1][1]
    if single := [name for name, size in sizes if size < 2]:
        values = {"samples": ", ".join(f"{name} has 1" for name in single), "needed": FEWEST_FOR_MEDIAN}
        yield claim("few-values", values | {"decisive": FEWEST_FOR_RANKS}, case="spread")
    if single or comparison.effect.exact:
        return
    if few := [f"{name} has {size}" for name, size in sizes if size < FEWEST_FOR_MEDIAN]:
        yield claim("few-values", {"needed": FEWEST_FOR_MEDIAN, "samples": ", ".join(few)}, case="interval")
    if math.comb(n + m, n) < 2 / ALPHA:
        yield claim("few-values", {"needed": FEWEST_FOR_RANKS, "n": n, "m": m}, case="test")
