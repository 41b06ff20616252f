"""Pairs of repeats of one block: what drifts from block to block is on both sides and cancels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dbdyno.conclude.compare.effect import Floor, effect, without
from dbdyno.model.comparison import Effect
from dbdyno.stats.fieller import Moments
from dbdyno.stats.significance import signs

Pairs = Sequence[tuple[float, float]]
"""Baseline and variant."""


def effect_of_pairs(pairs: Pairs, floor: Floor | None = None) -> Effect:
    """Ratio of means by Fieller with the covariance of the pairs, n - 1 degrees of freedom."""
    n = len(pairs)
    sizes = {"n_baseline": n, "n_variant": n}
    if n < 2:
        sides = [x for x, _ in pairs], [y for _, y in pairs]
        return without("pairs", sides[0], sides[1], None, basis="pairs", **sizes)
    return effect(moments_of_pairs(pairs), signs([y - x for x, y in pairs]), "pairs", floor, **sizes)


def moments_of_pairs(pairs: Pairs) -> Moments:
    """Of at least two."""
    n = len(pairs)
    x, y = (math.fsum(side) / n for side in zip(*pairs, strict=True))
    dx, dy = [v - x for v, _ in pairs], [v - y for _, v in pairs]
    vxx, vyy, vxy = (_product(a, b) / (n - 1) / n for a, b in ((dx, dx), (dy, dy), (dx, dy)))
    return Moments(x, y, vxx, vyy, vxy, n - 1)


def _product(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(u * v for u, v in zip(a, b, strict=True))
