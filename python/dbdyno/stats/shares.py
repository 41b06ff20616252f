"""Shares seen in samples: intervals, and how many independent samples unequal ones are worth."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from dbdyno.stats.distributions import Z95

if TYPE_CHECKING:
    import polars as pl

Number = TypeVar("Number", float, "pl.Expr")


def wilson_of(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of ``hits`` out of ``n``."""
    low, high = _wilson(hits / n, float(n))
    return max(0.0, low), min(1.0, high)


def wilson(share: pl.Expr, n: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """The same of a share seen in ``n`` effective samples, per row.

    It never leaves [0, 1] and keeps its width at shares of 0 and 1. A share beyond [0, 1] counts as 0 or 1.
    """
    low, high = _wilson(share.clip(0.0, 1.0), n)
    return low.clip(0.0, 1.0), high.clip(0.0, 1.0)


def _wilson(p: Number, n: Number) -> tuple[Number, Number]:
    """Score interval (Wilson 1927; Brown, Cai, DasGupta 2001, Statistical Science 16, equation 5)."""
    z2 = Z95 * Z95
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * (p * (1 - p) / n + z2 / (4 * n * n)) ** 0.5
    return middle - half, middle + half


_RARE = (0.0, 0.0513, 0.3554, 0.8177)
"""Lower ends, in hits, for 0 to 3 hits: half the 5 % points of chi square with 2 x degrees of freedom."""


def interval(share: pl.Expr, n: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Wilson's interval, wider where a share is next to 0 or 1: up to 3 hits, or all but 3.

    There Wilson's end lies too near (it holds as few as 84 of 100); Poisson's is taken instead, as by Brown,
    Cai and DasGupta (Interval estimation for a binomial proportion, Statistical Science 16, 2001, 4.1.1).
    Effective numbers are no integers: between those of whole hits it is linear.
    """
    import polars as pl

    p = share.clip(0.0, 1.0)
    low, high = wilson(p, n)
    least, most = _rare(p * n) / n, 1 - _rare((1 - p) * n) / n
    rare, common = p * n <= 3, (1 - p) * n <= 3
    return (
        pl.when(rare).then(pl.min_horizontal(low, least)).otherwise(low),
        pl.when(common).then(pl.max_horizontal(high, most)).otherwise(high),
    )


def _rare(hits: pl.Expr) -> pl.Expr:
    import polars as pl

    steps = pairwise(_RARE)
    return pl.sum_horizontal((b - a) * (hits - i).clip(0.0, 1.0) for i, (a, b) in enumerate(steps))


def effective(weight: pl.Expr) -> pl.Expr:
    """Effective number of samples of unequal weight (Kish 1965): ``(sum w)^2 / sum w^2``."""
    w = weight.cast(float)
    return w.sum() ** 2 / (w * w).sum()
