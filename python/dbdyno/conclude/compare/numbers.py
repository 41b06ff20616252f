"""Two samples of anybody's numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dbdyno.conclude.compare.samples import effect_of_samples, summary
from dbdyno.conclude.compare.verdict import MARGIN, careful_p, judge
from dbdyno.model.comparison import SampleComparison
from dbdyno.model.errors import UsageError


def compare_samples(
    baseline: Sequence[float],
    variant: Sequence[float],
    names: tuple[str, str] = ("old", "new"),
    margin: float = MARGIN,
    higher_is_better: bool = False,
) -> SampleComparison:
    """Raises :class:`UsageError` for an empty sample and for values that are no finite numbers."""
    for name, values in zip(names, (baseline, variant), strict=True):
        _check(name, values)
    a, b = summary(baseline), summary(variant)
    effect = effect_of_samples(baseline, variant)
    return SampleComparison(
        baseline=names[0],
        variant=names[1],
        of_baseline=a,
        of_variant=b,
        median_change=b.median / a.median - 1 if a.median else None,
        higher_is_better=higher_is_better,
        margin=margin,
        effect=effect,
        **judge(effect, careful_p(effect), margin, higher_is_better).fields(),
    )


def _check(name: str, values: Sequence[float]) -> None:
    if not values:
        raise UsageError(f"{name} has no values", "one number a line, or CSV with a header and --column")
    for n, value in enumerate(values, start=1):
        if not math.isfinite(value):
            raise UsageError(
                f"{name}: value {n} is {value}, not a finite number", "leave it out, or measure again"
            )
