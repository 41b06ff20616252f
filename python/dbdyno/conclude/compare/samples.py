"""Two independent samples: medians as benchstat gives them, ratio of means with Fieller's interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dbdyno.conclude.compare.effect import Floor, effect, without
from dbdyno.model.comparison import Effect, Summary
from dbdyno.stats.fieller import Moments
from dbdyno.stats.mean import Mean
from dbdyno.stats.significance import order_interval, rank_sum


def effect_of_samples(
    baseline: Sequence[float], variant: Sequence[float], floor: Floor | None = None
) -> Effect:
    """Degrees of freedom: n + m - 2; of samples of unequal size Welch-Satterthwaite's, if they are fewer."""
    sizes = {"n_baseline": len(baseline), "n_variant": len(variant)}
    if min(sizes.values()) < 2:
        return without("samples", baseline, variant, rank_sum(baseline, variant), **sizes)
    return effect(
        moments_of_samples(baseline, variant), rank_sum(baseline, variant), "samples", floor, **sizes
    )


def moments_of_samples(baseline: Sequence[float], variant: Sequence[float]) -> Moments:
    """Of at least two values each; every sample has its own variance."""
    a, b = Mean.of(baseline), Mean.of(variant)
    vxx, vyy = (m.m2 / (m.n - 1) / m.n for m in (a, b))
    return Moments(a.value, b.value, vxx, vyy, 0.0, _degrees(a, b, vxx, vyy))


def _degrees(a: Mean, b: Mean, vxx: float, vyy: float) -> int:
    """Welch (1947) at the ratio found, rounded down: a few values of large spread are no match for many."""
    whole = a.n + b.n - 2
    if a.n == b.n or a.value == 0 or vxx + vyy == 0:
        return whole
    scaled = vxx * (b.value / a.value) ** 2
    welch = (scaled + vyy) ** 2 / (scaled**2 / (a.n - 1) + vyy**2 / (b.n - 1))
    return max(1, min(whole, math.floor(welch)))


def summary(values: Sequence[float]) -> Summary:
    """Median with the narrowest interval of order statistics that holds it with at least 95 %."""
    ordered, n = sorted(values), len(values)
    low, high, confidence = order_interval(n)
    return Summary(
        n=n,
        mean=math.fsum(values) / n,
        median=(ordered[(n - 1) // 2] + ordered[n // 2]) / 2,
        low=ordered[low - 1] if low >= 1 else None,
        high=ordered[high - 1] if high <= n else None,
        confidence=confidence,
    )
