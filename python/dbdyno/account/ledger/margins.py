"""The exact margins of each task's window: on a CPU, in the run queue, off; and how exact they are."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

Tables = Mapping[str, pl.DataFrame]

KEY = ("cell", "pid", "tid", "start_ticks")
STALE_NS = 10_000_000
"""Another task's run time may be this old at a read, if it is on a CPU then (a tick at HZ=100)."""
PENDING = 2.0
"""A task found runnable may wait in the run queue, unbooked yet: up to so many of its mean waits."""
SWITCH_NS = 2_000
"""What a switch may leave in the wrong book: 8 to 15 % of run time at slices of 10 to 20 us, against an
exact trace (docs/ledger.md)."""
SWITCH_SHARE = 0.15
SETTLED_NS = 1_000_000
"""A sleeping task's figures are booked; its state and they are two reads."""
UNREAD = 0.01
"""The trace's labels are no account of a task's waits where it could not read more than this part of them."""

TASKS = "os tasks"


def margins(cut: Tables) -> pl.DataFrame:
    """One row a task of ``cut_tasks``, numbered ``task``, with the figures that the ledger uses.

    Where the scheduler trace saw it without a gap, bracket and figures are the trace's (``traced``), else
    those of the OS tasks. ``exact``: its waits are the trace's, too, as it could read their labels; else they
    are the samples', apportioned to these figures. ``known``: run and run queue are known. ``stale_run_ns``,
    ``stale_runq_ns``: how wrong each may be at its ends; ``switch_ns``: by the number of its switches.
    """
    traced = cut["cut_traced"].filter(
        (pl.col("status") == "ok") & pl.all_horizontal(pl.col("run_ns", "runq_ns", "sleep_ns").is_not_null())
    )
    figures = (
        "from_ns",
        "to_ns",
        "wall_ns",
        "over_ns",
        "partial",
        "run_ns",
        "runq_ns",
        "voluntary",
        "involuntary",
    )
    mine = traced.select(*KEY, *(pl.col(n).alias(f"x_{n}") for n in figures), *_only_traced())
    tasks = _with_brief(cut["cut_tasks"], traced)
    tasks = tasks.join(mine, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    tasks = tasks.join(_unread(cut), on=KEY, how="left", nulls_equal=True, maintain_order="left")
    seen = pl.col("x_run_ns").is_not_null()
    chosen = {n: pl.when(seen).then(f"x_{n}").otherwise(n) for n in figures[:-2]}
    counted = {n: pl.coalesce(f"x_{n}", n) for n in figures[-2:]}
    read = pl.col("unread").fill_nan(0.0).fill_null(0.0) <= UNREAD
    tasks = tasks.with_columns(
        traced=seen, exact=seen & read, status=pl.when(seen).then(pl.lit("ok")).otherwise("status")
    ).drop("unread")
    tasks = tasks.with_columns(**chosen, **counted).drop(f"x_{n}" for n in figures)
    tasks = tasks.with_columns(known=pl.col("run_ns").is_not_null() & pl.col("runq_ns").is_not_null())
    return tasks.with_columns(**_errors(), off_ns=_off()).with_row_index("task")


def _unread(cut: Tables) -> pl.DataFrame:
    """Per traced task the part of its time off the CPU whose label the trace could not read."""
    off, refused = pl.col("sleep_ns") + pl.col("runq_ns"), pl.col("status") != "ok"
    return cut["cut_waits"].group_by(KEY).agg(unread=off.filter(refused).sum() / off.sum())


def _with_brief(tasks: pl.DataFrame, traced: pl.DataFrame) -> pl.DataFrame:
    """``tasks``, and those that lived too briefly for two reads: the trace alone knows what they used."""
    brief = traced.join(tasks, on=KEY, how="anti", nulls_equal=True)
    known = [c for c in brief.columns if c in tasks.columns]
    return pl.concat([tasks, brief.select(known)], how="diagonal")


def _only_traced() -> list[pl.Expr]:
    return [pl.col("sleep_ns").alias("slept_ns"), pl.col("throttled_ns"), pl.col("slack_ns").fill_null(0)]


def _off() -> pl.Expr:
    """Neither on a CPU nor in the run queue; of a task whose figures are unknown, all that is no CPU time."""
    return (
        pl.when("known")
        .then(pl.col("wall_ns") - pl.col("run_ns") - pl.col("runq_ns"))
        .otherwise(pl.col("wall_ns") - pl.col("run_ns").fill_null(0))
    )


def _errors() -> dict[str, pl.Expr]:
    settled = {e: pl.col(f"state_{e}").is_in(["S", "D", "I"]).fill_null(False) for e in "ab"}
    wait = (PENDING * pl.col("runq_ns") / pl.col("slices")).fill_nan(0.0).fill_null(0.0)
    wait = pl.min_horizontal(wait, pl.col("runq_ns").fill_null(0) / 2)
    pending = pl.max_horizontal(pl.lit(float(STALE_NS)), wait)

    def ends(unsettled: pl.Expr) -> pl.Expr:
        worst = pl.max_horizontal(
            pl.when(s).then(float(SETTLED_NS)).otherwise(unsettled) for s in settled.values()
        )
        return pl.when("traced").then(pl.col("slack_ns").cast(pl.Float64)).otherwise(worst)

    used = (pl.col("run_ns") + pl.col("runq_ns")).fill_null(0)
    switches = pl.min_horizontal(SWITCH_NS * pl.col("slices").fill_null(0), SWITCH_SHARE * used)
    return {
        "stale_run_ns": ends(pl.lit(float(STALE_NS))),
        "stale_runq_ns": ends(pending),
        "switch_ns": pl.when("traced").then(0.0).otherwise(switches).cast(pl.Float64),
    }
