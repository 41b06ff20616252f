"""Shares of samples of a window that were lost. Pure."""

from __future__ import annotations

import polars as pl

from dbdyno.model.results.raw import RawCell


def inside(cell: RawCell) -> pl.Expr:
    """Returns an expression: whether a sample (``t_ns``) lies in the window."""
    return (pl.col("t_ns") >= cell.meta.t0_ns) & (pl.col("t_ns") < cell.meta.t1_ns)


def lost_samples(cell: RawCell) -> float:
    """Returns the lost share of the CPU profile's samples."""
    lost = _missing(cell, "profile_losses", "lost")
    taken = cell.scan("profile_samples").filter(inside(cell)).select(pl.len()).collect().item()
    return lost / (lost + taken) if lost else 0.0


def lost_sleep(cell: RawCell, samples: pl.DataFrame) -> float:
    """Returns the share of sampled sleep whose stacks were lost. ``samples`` are the stacks that were
    kept, with ``aas``, the time that each stands for."""
    lost = _missing(cell, "sleep_losses", "asleep_ns") / (cell.meta.t1_ns - cell.meta.t0_ns)
    return lost / (lost + float(samples["aas"].sum())) if lost else 0.0


def _missing(cell: RawCell, table: str, column: str) -> float:
    """Sums a column of losses over the window. A row that begins before or ends after it counts in
    proportion to the time inside."""
    t0, t1 = pl.lit(cell.meta.t0_ns), pl.lit(cell.meta.t1_ns)
    within = pl.min_horizontal("end_ns", t1) - pl.max_horizontal("start_ns", t0)
    part = within.clip(0) / (pl.col("end_ns") - pl.col("start_ns")).clip(1)
    return float(cell.scan(table).select((pl.col(column) * part).sum()).collect().item() or 0.0)
