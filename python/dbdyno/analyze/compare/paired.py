"""Pairs of repeats of one block: what drifts from block to block is on both sides and cancels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dbdyno.analyze.compare.fieller import Moments
from dbdyno.analyze.compare.making import Floor, effect, without
from dbdyno.analyze.compare.permutation import signs
from dbdyno.model.comparison import Effect


def effect_of_pairs(pairs: Sequence[tuple[float, float]], floor: Floor | None = None) -> Effect:
    """Of (baseline, variant): ratio of means by Fieller with the covariance of pairs, n - 1 degrees of freedom."""
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    n = len(pairs)
    sizes = {"n_baseline": n, "n_variant": n}
    if n < 2:
        return without("an interval needs at least two repeats of both", xs, ys, basis="pairs", **sizes)
    x, y = math.fsum(xs) / n, math.fsum(ys) / n
    dx, dy = [v - x for v in xs], [v - y for v in ys]
    vxx, vyy, vxy = (_product(a, b) / (n - 1) / n for a, b in ((dx, dx), (dy, dy), (dx, dy)))
    test = signs([b - a for a, b in pairs])
    return effect(Moments(x, y, vxx, vyy, vxy, n - 1), test, "pairs", floor, **sizes)


def _product(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(u * v for u, v in zip(a, b, strict=True))
