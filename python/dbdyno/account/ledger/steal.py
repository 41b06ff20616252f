"""Time stolen from this machine by its hypervisor, and whose it may have been."""

from __future__ import annotations

import polars as pl

from dbdyno.account.ledger.margins import Tables


def steal(cut: Tables) -> pl.DataFrame:
    """Per cell the CPUs that were stolen (``steal``), by the host's own books (proc(5), /proc/stat)."""
    rows = cut["cut_levels"].filter((pl.col("origin") == "host") & (pl.col("key") == "cpu.steal_ns"))
    return rows.group_by("cell").agg(steal=(pl.col("delta") / pl.col("wall_ns")).first())


def with_stolen(tasks: pl.DataFrame, cut: Tables) -> pl.DataFrame:
    """``tasks`` with ``stolen_ns``: how much of a task's time off may have been stolen while it ran.

    A kernel that knows of steal leaves it out of run time, so it looks like time asleep. It falls on
    tasks as they run; those that we do not see have their part of it too, so this is the most.
    """
    run = pl.when("known").then(pl.col("run_ns")).fill_null(0)
    part = run / run.sum().over("cell")
    found = tasks.join(steal(cut), on="cell", how="left", maintain_order="left")
    stolen = pl.col("steal") * pl.col("over_ns") * part
    most = pl.min_horizontal(stolen, pl.col("off_ns")).fill_nan(0.0).fill_null(0.0).clip(0.0)
    return found.with_columns(stolen_ns=pl.when("traced").then(0.0).otherwise(most)).drop("steal")
