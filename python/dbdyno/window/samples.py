"""Samples cut to the window, each with the time that it stands for.

A sample stands for the time from the middle between it and the one before to the middle between it and
the next, cut at the window. A sample that was not answered stands for nothing: its neighbours take its
time, and the ledger's intervals grow by it.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.model.raw import RawCell
from dbdyno.window.spans import for_each
from dbdyno.window.tasks import fold, workers


def cut_sampler(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_sampler``: the spans of a cell's samples follow one another and fill its window."""
    return for_each("cut_sampler", cells, _spans)


def cut_samples(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_samples``: the rows of the samples in ``cut_sampler``."""
    return for_each("cut_samples", cells, _rows)


def _spans(cell: RawCell) -> pl.DataFrame:
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    start = pl.col("start_ns")
    at = start + (pl.col("end_ns") - start) // 2
    answered = cell.tables["sampler"].filter(pl.col("status") == "ok").with_columns(at.alias("at_ns"))
    inside = answered.filter((pl.col("at_ns") >= t0) & (pl.col("at_ns") < t1)).sort("at_ns", "sample")
    here, before, after = pl.col("at_ns"), pl.col("at_ns").shift(1), pl.col("at_ns").shift(-1)
    return inside.select(
        "sample",
        "at_ns",
        via=pl.col("via").fill_null("sql"),
        late_ns=start - pl.col("due_ns"),
        low_ns=(before + (here - before) // 2).fill_null(t0),
        high_ns=(here + (after - here) // 2).fill_null(t1),
    )


def _rows(cell: RawCell) -> pl.DataFrame:
    samples = fold(cell.tables["samples"], workers(cell)).join(_spans(cell).select("sample"), on="sample")
    return samples.select(
        *("pid", "role", "session", "sample", "state", "wait_class", "wait_event", "task_state", "status"),
        *("start_ticks", "query_id", "leader_pid", "worker"),
        via=pl.col("via").fill_null("sql"),
        at_ns=pl.col("task_ns").fill_null(pl.col("sql_after_ns")),
    )
