"""Quantiles of a table of buckets (columns ``low_ns``, ``high_ns``, ``count``)."""

from __future__ import annotations

import math

import polars as pl


def merged(histogram: pl.DataFrame) -> pl.DataFrame:
    """Buckets of the same bounds as one, by rising bounds. Commutative, associative, idempotent on one."""
    return histogram.group_by("low_ns", "high_ns").agg(pl.col("count").sum()).sort("low_ns", "high_ns")


def quantile_ns(histogram: pl.DataFrame, q: float) -> int | None:
    """The highest duration of the bucket that holds the call of rank ``ceil(q n)``; ``None`` without calls.

    As HdrHistogram's ``getValueAtPercentile``: with 3 significant digits at most 0.1 % too high.
    """
    total = int(histogram["count"].sum())
    if total == 0:
        return None
    buckets = merged(histogram)
    rank = max(1, math.ceil(q * total - 1e-9))
    return int(buckets.filter(pl.col("count").cum_sum() >= rank)["high_ns"][0])
