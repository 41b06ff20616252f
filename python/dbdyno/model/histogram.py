"""Quantiles of a table of buckets (columns ``low_ns``, ``high_ns``, ``count``)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import polars as pl


def merged(histogram: pl.DataFrame) -> pl.DataFrame:
    """Buckets of the same bounds as one, by rising bounds. Commutative, associative, idempotent on one."""
    return histogram.group_by("low_ns", "high_ns").agg(pl.col("count").sum()).sort("low_ns", "high_ns")


def quantiles_ns(histogram: pl.DataFrame, qs: Sequence[float]) -> list[int | None]:
    """:func:`quantile_ns` of several ``q``."""
    buckets = merged(histogram)
    highs, counts = buckets["high_ns"].to_list(), buckets["count"].cum_sum().to_list()
    total = counts[-1] if counts else 0
    ranks = (max(1, math.ceil(q * total - 1e-9)) for q in qs)
    return [highs[bisect_left(counts, rank)] if total else None for rank in ranks]


def quantile_ns(histogram: pl.DataFrame, q: float) -> int | None:
    """The highest duration of the bucket that holds the call of rank ``ceil(q n)``; ``None`` without calls.

    As HdrHistogram's ``getValueAtPercentile``: with 3 significant digits at most 0.1 % too high.
    """
    return quantiles_ns(histogram, [q])[0]
