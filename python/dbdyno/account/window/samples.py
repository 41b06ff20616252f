"""Samples cut to the window, each with the time that it stands for.

A sample stands for the time from the middle between it and the one before to the middle between it and
the next, cut at the window. A sample that was not answered stands for nothing: its neighbours take its
time, and the ledger's intervals grow by it. The two samplers (the server asked, its memory read) each
number their own samples, and each fill the window.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.window.attribution import fold, workers
from dbdyno.account.window.cells import for_each
from dbdyno.model.raw import RawCell

_SAMPLE = ["via", "sample"]


def cut_sampler(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_sampler``: the spans of a sampler's samples follow one another and fill its window."""
    return for_each("cut_sampler", cells, _spans)


def cut_samples(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_samples``: the rows of the samples in ``cut_sampler``."""
    return for_each("cut_samples", cells, _rows)


def seen_spans(cell: RawCell, samples: pl.DataFrame) -> pl.DataFrame:
    """Per session and task: ``seen_from`` and ``seen_to``, the time that ``samples`` of it stand for."""
    mine = samples.filter(pl.col("role") == "session").with_columns(_via(), _tid())
    found = mine.select("session", "pid", "tid", *_SAMPLE).join(_spans(cell), on=_SAMPLE)
    return found.group_by("session", "pid", "tid", maintain_order=True).agg(
        seen_from=pl.col("low_ns").min(), seen_to=pl.col("high_ns").max()
    )


def _tid() -> pl.Expr:
    return pl.coalesce("tid", "pid").alias("tid")


def _via() -> pl.Expr:
    return pl.col("via").fill_null("sql")


def _spans(cell: RawCell) -> pl.DataFrame:
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    start = pl.col("start_ns")
    at = start + (pl.col("end_ns") - start) // 2
    answered = cell.tables["sampler"].filter(pl.col("status") == "ok").with_columns(_via(), at_ns=at)
    inside = answered.filter((pl.col("at_ns") >= t0) & (pl.col("at_ns") < t1)).sort("via", "at_ns", "sample")
    here = pl.col("at_ns")
    before, after = (here.shift(n).over("via") for n in (1, -1))
    return inside.select(
        *_SAMPLE,
        "at_ns",
        late_ns=start - pl.col("due_ns"),
        low_ns=(before + (here - before) // 2).fill_null(t0),
        high_ns=(here + (after - here) // 2).fill_null(t1),
    )


def _rows(cell: RawCell) -> pl.DataFrame:
    samples = fold(cell.tables["samples"].with_columns(_via(), _tid()), workers(cell))
    inside = samples.join(_spans(cell).select(_SAMPLE), on=_SAMPLE, maintain_order="left")
    return inside.select(
        *(
            "pid",
            "tid",
            "role",
            "session",
            "sample",
            "state",
            "wait_class",
            "wait_event",
            "task_state",
            "status",
        ),
        *("via", "start_ticks", "query_id", "leader_pid", "worker"),
        at_ns=pl.col("task_ns").fill_null(pl.col("sql_after_ns")),
        skew_ns=pl.col("task_ns") - (pl.col("sql_before_ns") + pl.col("sql_after_ns")) // 2,
    )
