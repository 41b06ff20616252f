"""Sums over sampled rows, with their sampling error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from dbdyno.stats.shares import interval, wilson

if TYPE_CHECKING:
    from dbdyno.account.ledger.moments import Moments


def sums(seen: Moments, members: pl.DataFrame, keys: Sequence[str], more: Sequence[str] = ()) -> pl.DataFrame:
    """Per group and ``keys`` the sum of ``y`` over the rows of ``seen``, and its sampling error.

    ``seen``: what a row stands for is its ``y``, and ``part`` how much of a row it is (1, if it is not
    divided); the rows of a group are the whole that the keys divide. ``members``: ``task``, ``group``. Gives
    ``value``, the ``whole``, the least and greatest share of it (``p_low``, ``p_high``), the greatest share
    of a key that was not seen (``p_unseen``), the number of ``samples``, and the sums of ``more``.

    The error is that of a ratio of sums over samples (Kish 1965): tasks seen in one sample are no independent
    witnesses. The effective number of observations is that of independent ones with the same variance,
    at least the samples', at most the rows'; :func:`interval` with that number.
    """
    mine = members.select("task", "group")
    rows = mine.join(seen.by_task, on="task", maintain_order="right")
    at = ["group", *keys]
    counted = rows.group_by(at, maintain_order=True).agg(
        *(pl.col(m).sum() for m in more), value=pl.col("y").sum(), samples=pl.col("part").sum()
    )
    squares = mine.join(rows.select("task").unique(), on="task", how="semi").join(seen.squares, on="task")
    whole = rows.group_by("group").agg(whole=pl.col("y").sum())
    whole = whole.join(squares.group_by("group").agg(pl.col("yy").sum()), on="group")
    found = counted.join(whole, on="group", maintain_order="left")
    crossed, clusters = _crossed(mine, seen, at)
    found = found.join(crossed, on=at, how="left", nulls_equal=True, maintain_order="left")
    found = found.join(clusters, on="group", how="left", maintain_order="left")
    return _with_interval(found.with_columns(pl.coalesce("aa", "yy")).sort("group", maintain_order=True))


def _crossed(members: pl.DataFrame, seen: Moments, at: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Over the samples of groups of several tasks: ``xx`` and ``xa`` by ``at``, ``aa`` by group, of a key's
    sum x and of the whole sum a. In a group of one task, its samples are its observations."""
    crowds = members.group_by("group").agg(pl.len()).filter(pl.col("len") > 1).select("group")
    bunches = members.join(crowds, on="group", how="semi").join(seen.bunches, on="task")
    rows = bunches.select("group", "bunch").unique(maintain_order=True).join(seen.by_sample, on="bunch")
    x, a = pl.col("x"), pl.col("a")
    by_sample = rows.group_by("group", "instant").agg(a=pl.col("y").sum())
    parts = rows.group_by(*at, "instant").agg(x=pl.col("y").sum()).join(by_sample, on=["group", "instant"])
    clusters = by_sample.group_by("group").agg(aa=(a * a).sum())
    return parts.group_by(at).agg(xx=(x * x).sum(), xa=(x * a).sum()), clusters


def _with_interval(found: pl.DataFrame) -> pl.DataFrame:
    """Step by step: one expression would take longer to be planned than to be worked out."""
    p, n, least, whole = (pl.col(name) for name in ("p", "n", "least", "whole"))
    found = found.with_columns(p=pl.col("value") / whole, least=whole**2 / pl.col("aa"))
    found = found.with_columns(variance=pl.col("xx") - 2 * p * pl.col("xa") + p * p * pl.col("aa"))
    varies = pl.col("variance") > 1e-12 * whole**2
    n_free = pl.when(varies).then(p * (1 - p) * whole**2 / pl.col("variance")).otherwise(least)
    most = whole**2 / pl.col("yy")
    found = found.with_columns(n=pl.max_horizontal(pl.min_horizontal(n_free, most), least))
    low, high = interval(p, n)
    low, high = pl.min_horizontal(low, p), pl.max_horizontal(high, p)
    bounds = found.with_columns(p_low=low, p_high=high, p_unseen=wilson(pl.lit(0.0), least)[1])
    return bounds.drop("xx", "xa", "aa", "yy", "p", "n", "least", "variance")
