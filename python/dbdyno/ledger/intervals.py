"""Intervals of sampled shares."""

from __future__ import annotations

import polars as pl

Z95 = 1.959964
"""Two-sided 95 % quantile of the normal distribution (NIST/SEMATECH e-Handbook, 1.3.6.7.1)."""


def wilson(share: pl.Expr, n: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Wilson's 95 % score interval of a share seen in ``n`` effective samples (Wilson 1927).

    It never leaves [0, 1] and keeps its width at shares of 0 and 1. A share beyond [0, 1] counts as 0 or 1.
    """
    p = share.clip(0.0, 1.0)
    z2 = Z95 * Z95
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * (p * (1 - p) / n + z2 / (4 * n * n)).sqrt()
    return (middle - half).clip(0.0, 1.0), (middle + half).clip(0.0, 1.0)


def effective(weight: pl.Expr) -> pl.Expr:
    """Effective number of samples of unequal weight (Kish 1965): ``(sum w)^2 / sum w^2``."""
    w = weight.cast(pl.Float64)
    return w.sum() ** 2 / (w * w).sum()


def clustered(n: pl.Expr, tasks: pl.Expr, mean: pl.Expr, mean_square: pl.Expr) -> pl.Expr:
    """Effective number of observations when each of ``n`` samples sees ``tasks`` tasks at once.

    ``mean`` and ``mean_square`` are of the number of tasks found in the state. Tasks that sleep together
    tell less than independent ones: the design effect, between 1 and ``tasks``, is the variance between
    samples over that of independent tasks (Kish 1965). Where nothing varies they count as one.
    """
    p = mean / tasks
    independent = tasks * p * (1 - p)
    between = mean_square - mean * mean
    effect = pl.when(independent > 1e-12).then((between / independent).clip(1.0, tasks)).otherwise(tasks)
    return n * tasks / effect
