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
    crowds = mine.group_by("group").agg(pl.len()).filter(pl.col("len") > 1).select("group")
    alone = rows.join(crowds, on="group", how="anti", maintain_order="left")
    squares = mine.join(rows.select("task").unique(), on="task", how="semi").join(seen.squares, on="task")
    whole = rows.group_by("group").agg(whole=pl.col("y").sum())
    whole = whole.join(squares.group_by("group").agg(pl.col("yy").sum()), on="group")
    crowded = _samples_of(crowds, mine, seen)
    found = [_alone(alone, whole, ["group", *keys], more), _crowded(crowded, whole, ["group", *keys], more)]
    return _with_interval(pl.concat(found, how="diagonal").sort("group", maintain_order=True))


def _samples_of(crowds: pl.DataFrame, members: pl.DataFrame, seen: Moments) -> pl.DataFrame:
    """The sums of each sample over the tasks of groups of several."""
    bunches = members.join(crowds, on="group", how="semi").join(seen.bunches, on="task")
    return bunches.select("group", "bunch").unique(maintain_order=True).join(seen.by_sample, on="bunch")


def _alone(rows: pl.DataFrame, whole: pl.DataFrame, at: list[str], more: Sequence[str]) -> pl.DataFrame:
    """Groups of one task: its samples are its observations."""
    counted = rows.group_by(at, maintain_order=True).agg(
        _value(), _samples(), *(pl.col(m).sum() for m in more)
    )
    return counted.join(whole.with_columns(aa="yy"), on="group", maintain_order="left")


def _crowded(rows: pl.DataFrame, whole: pl.DataFrame, at: list[str], more: Sequence[str]) -> pl.DataFrame:
    by_sample = rows.group_by("group", "instant").agg(a=pl.col("y").sum())
    counted = rows.group_by(*at, "instant").agg(_value(), _samples(), *(pl.col(m).sum() for m in more))
    x, a = pl.col("value"), pl.col("a")
    sums = counted.join(by_sample, on=["group", "instant"]).group_by(at, maintain_order=True)
    found = sums.agg(
        xx=(x * x).sum(), xa=(x * a).sum(), **{n: pl.col(n).sum() for n in ("value", "samples", *more)}
    )
    clusters = by_sample.group_by("group").agg(aa=(a * a).sum())
    return found.join(whole.join(clusters, on="group"), on="group", maintain_order="left")


def _value() -> pl.Expr:
    return pl.col("y").sum().alias("value")


def _samples() -> pl.Expr:
    return pl.col("part").sum().alias("samples")


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
