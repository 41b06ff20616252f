"""The effect of one group of cells against another: paired by repeat, as two samples, of single windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dbdyno.conclude.compare.cells import CellFigures, known
from dbdyno.conclude.compare.effect import Floor, effect, no_interval
from dbdyno.conclude.compare.metrics import Metric, least_error, within_of
from dbdyno.conclude.compare.paired import effect_of_pairs
from dbdyno.conclude.compare.samples import effect_of_samples
from dbdyno.model.comparison import Effect
from dbdyno.stats.fieller import Moments

Group = Mapping[int, CellFigures]


def effect_between(baseline: Group, variant: Group, metric: Metric, paired: bool) -> Effect:
    """``paired``: repeats of the same number are of one block, and only those that both sides have count."""
    a, b = known(baseline, metric.name), known(variant, metric.name)
    if paired:
        common = sorted(a.keys() & b.keys())
        a, b = {r: a[r] for r in common}, {r: b[r] for r in common}
    if not a or not b:
        return Effect(n_baseline=len(a), n_variant=len(b), reason=no_interval("unknown"))
    if len(a) == len(b) == 1:
        return _single(next(iter(a)), next(iter(b)), baseline, variant, metric)
    floor = Floor(_floor(baseline, a, metric), _floor(variant, b, metric))
    if paired:
        return effect_of_pairs([(a[r], b[r]) for r in a], floor)
    return effect_of_samples(list(a.values()), list(b.values()), floor)


def _floor(group: Group, values: Mapping[int, float], metric: Metric) -> float:
    """Variance of the mean of these values by their windows alone."""
    return (
        math.fsum((v * least_error(metric, group[r].rates)) ** 2 for r, v in values.items())
        / len(values) ** 2
    )


def _single(r: int, s: int, baseline: Group, variant: Group, metric: Metric) -> Effect:
    """One repeat of each: by the windows alone. That is no interval of the effect, and it is labelled so."""
    x, y = baseline[r].rates[metric.name] or 0.0, variant[s].rates[metric.name] or 0.0
    sizes = {"n_baseline": 1, "n_variant": 1}
    errors = [within_of(metric, c.rates) for c in (baseline[r], variant[s])]
    if metric.within is None or any(e is None for e in errors):
        ratio = y / x if x > 0 and y > 0 else None
        return Effect(ratio=ratio, reason=no_interval("one"), **sizes)
    vxx, vyy = ((v * (e or 0.0)) ** 2 for v, e in zip((x, y), errors, strict=True))
    degrees = _degrees([baseline[r], variant[s]])
    made = effect(Moments(x, y, vxx, vyy, 0.0, degrees), None, "within the window only", None, **sizes)
    return made.model_copy(update={"p": None})


def _degrees(cells: Sequence[CellFigures]) -> int:
    """Of the window with the fewest independent seconds."""
    return max(1, math.floor(min(c.rates.get("effective_bins") or 2 for c in cells)) - 1)
