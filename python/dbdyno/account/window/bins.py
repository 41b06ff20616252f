"""The window in bins: each session's run and run-queue time, bin by bin."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.window.attribution import pooled, sessions_of
from dbdyno.account.window.cells import for_each
from dbdyno.account.window.deltas import TASK
from dbdyno.account.window.tasks import reads_of
from dbdyno.model.plan.plan import LEAST_WINDOW_NS
from dbdyno.model.results.raw import RawCell

BINS = 60


def cut_bins(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_bins``: about 60 bins, none under 1 s, of each session's own task (without
    workers).

    Growth between two reads is spread evenly over the time between them; ``known_ns`` is the part of a bin
    that lies between reads. A session behind a pooler has no task of its own.
    """
    return for_each("cut_bins", [c for c in cells if not pooled(c)], _bins)


def _bins(cell: RawCell) -> pl.DataFrame:
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    count = max(1, min(BINS, (t1 - t0) // LEAST_WINDOW_NS))
    length = max(1, (t1 - t0) / count)
    pieces = _pieces(cell)
    low, high = pl.max_horizontal("before", pl.lit(t0)), pl.min_horizontal("at_ns", pl.lit(t1))
    pieces = pieces.with_columns(low=low, high=high).filter(pl.col("high") > pl.col("low"))
    first = ((pl.col("low") - t0) / length).floor().cast(pl.Int64)
    last = (((pl.col("high") - t0) / length).ceil().cast(pl.Int64) - 1).clip(0, count - 1)
    spread = pieces.with_columns(bin=pl.int_ranges(first, last + 1)).explode("bin")
    start = (t0 + pl.col("bin") * length).round().cast(pl.Int64)
    end = (t0 + (pl.col("bin") + 1) * length).round().cast(pl.Int64)
    spread = spread.with_columns(start_ns=start, end_ns=end)
    inside = pl.min_horizontal("high", "end_ns") - pl.max_horizontal("low", "start_ns")
    share = inside / (pl.col("at_ns") - pl.col("before"))
    known = spread.group_by("session", "bin").agg(
        known_ns=inside.sum(), run_ns=(pl.col("run") * share).sum(), runq_ns=(pl.col("runq") * share).sum()
    )
    grid = (
        sessions_of(cell)
        .select(pl.col("session").unique())
        .join(pl.DataFrame({"bin": range(count)}), how="cross")
    )
    bins = grid.join(known, on=["session", "bin"], how="left").sort("session", "bin")
    return bins.select(
        "session",
        start_ns=start,
        end_ns=end,
        known_ns=pl.col("known_ns").fill_null(0),
        run_ns="run_ns",
        runq_ns="runq_ns",
    )


def _pieces(cell: RawCell) -> pl.DataFrame:
    """Returns growth from read to read of the sessions' own tasks. If a figure fell, the growth is left
    out."""
    reads = reads_of(cell).filter((pl.col("role") == "session") & ~pl.col("worker")).sort("at_ns")
    growth = {n: pl.col(f"{n}_ns").diff().over(TASK) for n in ("run", "runq")}
    pieces = reads.with_columns(before=pl.col("at_ns").shift(1).over(TASK), **growth)
    return pieces.filter((pl.col("run") >= 0) & (pl.col("runq") >= 0) & (pl.col("at_ns") > pl.col("before")))
