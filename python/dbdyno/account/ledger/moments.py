"""The samples' rows summed up, once, to what sums and their errors are made of.

A task has as many rows as samples; what is asked of them are sums by label, and how much these vary from
sample to sample. For a group of one task that is the sum of squares of its rows; for a group of several the
sums of each sample. Tasks that are in the same groups, whatever is asked, are one *bunch*: of those the rows
of a sample are summed up. So the tables here are as long as there are labels a task, and labels a sample
and bunch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from dbdyno.account.ledger.sample_rows import LABEL, Sampled
from dbdyno.stats.estimates import interval, wilson

_LIKE = ("cell", "role", "worker", "exact", "known")
_WHAT = ("kind", "state", *LABEL, "answers")


@dataclass(frozen=True)
class Moments:
    by_task: pl.DataFrame
    """``task``, what was seen, and the sum of each measure and of ``part``."""
    by_sample: pl.DataFrame
    """Sums of each measure by ``bunch``, ``instant`` and what was seen."""
    squares: pl.DataFrame
    """``task``, and of each measure the sum of squares over its samples."""
    bunches: pl.DataFrame
    """``task``, ``bunch``, ``exact``."""

    def of(self, measure: str, keys: Mapping[str, pl.Expr], *, exact: bool = True) -> Moments:
        """With ``measure`` as ``y``, where it is above 0, by ``keys``. ``exact`` False: without tasks whose
        waits are traced."""
        mine = self if exact else self.only(self.bunches.filter(~pl.col("exact")).select("task"))
        by_task, by_sample = (
            rows.filter(pl.col(measure) > 0).with_columns(y=pl.col(measure)).with_columns(**keys)
            for rows in (mine.by_task, mine.by_sample)
        )
        squares = mine.squares.select("task", yy=measure)
        return Moments(by_task, by_sample, squares, mine.bunches)

    def only(self, tasks: pl.DataFrame) -> Moments:
        """Of ``tasks``, which are whole bunches."""
        bunches = self.bunches.join(tasks.select("task"), on="task", how="semi")
        by_task, squares = (
            rows.join(tasks.select("task"), on="task", how="semi", maintain_order="left")
            for rows in (self.by_task, self.squares)
        )
        by_sample = self.by_sample.join(bunches, on="bunch", how="semi", maintain_order="left")
        return Moments(by_task, by_sample, squares, bunches)


def moments(
    seen: pl.DataFrame, found: Sampled, tasks: pl.DataFrame, measures: Sequence[str], more: Sequence[str]
) -> Moments:
    """``seen``: sums of what was seen, with the ``part`` of its rows that each is, and, per unit of weight,
    ``measures``, and ``more`` to be summed."""
    what = [n for n in _WHAT if n in seen.columns]
    some = pl.any_horizontal(pl.col(m) > 0 for m in measures)
    by_task = seen.group_by("task", *what).agg(
        *((pl.col(n) * pl.col("weight")).sum().alias(n) for n in (*measures, *more)),
        (pl.col("part") * pl.col("there")).filter(some).sum(),
        pl.col("first").min(),
        *((pl.col(m) ** 2 * pl.col("weight_2") / pl.col("part")).sum().alias(f"{m}_2") for m in measures),
    )
    by_task = by_task.sort("first", "task", *what).drop("first")
    squares = by_task.group_by("task").agg(pl.col(f"{m}_2").sum().alias(m) for m in measures)
    bunches = bunched(tasks)
    alike = ["bunch", *(n for n in what if n != "answers")]
    rows = seen.join(bunches.select("task", "bunch"), on="task", maintain_order="left")
    names = rows.select(alike).unique(maintain_order=True).with_row_index("alike")
    rows = rows.join(names, on=alike, nulls_equal=True, maintain_order="left")
    by_sample = _by_sample(rows.select("seen", "alike", "part", *measures), found, measures)
    by_sample = by_sample.join(names, on="alike", maintain_order="left").drop("alike")
    return Moments(by_task.drop(f"{m}_2" for m in measures), by_sample, squares, bunches)


def _by_sample(seen: pl.DataFrame, found: Sampled, measures: Sequence[str]) -> pl.DataFrame:
    parts = [
        rows.group_by("alike", "instant", maintain_order=True).agg(
            (pl.col(m) * pl.col("weight")).sum() for m in measures
        )
        for rows in found.each(seen)
    ]
    return pl.concat(parts)


def bunched(tasks: pl.DataFrame) -> pl.DataFrame:
    """``task``, ``bunch``, ``exact``: tasks that no group tells apart. Sessions with parallel workers are
    groups of several tasks by themselves."""
    own = tasks.filter(pl.col("role") == "session")
    led = own.group_by("cell", "session").len().filter(pl.col("len") > 1)
    alike = tasks.join(
        led.select("cell", "session", leads=pl.col("session")), on=["cell", "session"], how="left",
        nulls_equal=False, maintain_order="left",
    )  # fmt: skip
    alike = alike.with_columns(heard=pl.col("samples").is_not_null())
    names = alike.select(*_LIKE, "leads", "heard").unique(maintain_order=True).with_row_index("bunch")
    found = alike.join(names, on=[*_LIKE, "leads", "heard"], nulls_equal=True, maintain_order="left")
    return found.select("task", "bunch", "exact")


# Sums over sampled rows, with their sampling error.


def sums(seen: Moments, members: pl.DataFrame, keys: Sequence[str], more: Sequence[str] = ()) -> pl.DataFrame:
    """Per group and ``keys`` the sum of ``y`` over the rows of ``seen``, and its sampling error.

    ``seen``: what a row stands for is its ``y``, and ``part`` how much of a row it is (1, if it is not
    divided); the rows of a group are the whole that the keys divide. ``members``: ``task``, ``group``. Gives
    ``value``, the ``whole``, the least and greatest share of it (``p_low``, ``p_high``), the greatest share
    of a key that was not seen (``p_unseen``), the number of ``samples``, and the sums of ``more``.

    The error is that of a ratio of sums over samples (Kish 1965): tasks in one sample are not independent
    of each other. The effective number of observations is that of independent ones with the same variance,
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
