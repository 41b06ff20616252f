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

from dbdyno.account.ledger.sample_rows import LABEL

_LIKE = ("cell", "role", "worker", "exact", "known")
_WHAT = ("kind", "state", *LABEL, "answers")


@dataclass(frozen=True)
class Moments:
    by_task: pl.DataFrame
    """``task``, what was seen, and the sum of each measure and of ``part``."""
    by_sample: pl.DataFrame
    """The same by ``bunch`` and ``instant``."""
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


def moments(rows: pl.DataFrame, tasks: pl.DataFrame, measures: Sequence[str], more: Sequence[str]) -> Moments:
    """``rows``: ``task``, ``instant``, ``part``, what was seen, ``measures``, and ``more`` to be summed."""
    what = [n for n in _WHAT if n in rows.columns]
    summed = [pl.col(n).sum() for n in (*measures, *more)]
    counted = pl.col("part").filter(pl.any_horizontal(pl.col(m) > 0 for m in measures)).sum()
    bunches = bunched(tasks)
    by_task = rows.group_by("task", *what).agg(
        *summed,
        counted,
        pl.col("instant").min().alias("first"),
        *((pl.col(m) ** 2 / pl.col("part")).sum().alias(f"{m}_2") for m in measures),
    )
    by_task = by_task.sort("first", "task").drop("first").with_columns(_texts())
    squares = by_task.group_by("task").agg(pl.col(f"{m}_2").sum().alias(m) for m in measures)
    grouped = rows.join(bunches.select("task", "bunch"), on="task", maintain_order="left")
    by_sample = grouped.group_by("bunch", "instant", *what).agg(*summed, counted).with_columns(_texts())
    return Moments(by_task.drop(f"{m}_2" for m in measures), by_sample, squares, bunches)


def _texts() -> pl.Expr:
    """Codes stand for words in the samples' many rows."""
    return pl.col(pl.Categorical, pl.Enum).cast(pl.String)


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
