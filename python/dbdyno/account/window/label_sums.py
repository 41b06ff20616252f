"""The trace's sums by wait event and statement: checks that they add up, and assigns open waits to
statements."""

from __future__ import annotations

import polars as pl

from dbdyno.account.window.deltas import TASK
from dbdyno.model.schema.tables import sum_of_known

EVENT = ("wait_class", "wait_event", "status")
MOVES = ("runq_ns", "throttled_ns", "run_ns")
"""Figures that may shrink: time in progress at a read may be under another statement later."""
STAYS = ("sleep_ns", "sleeps", "begun", "unclear", "preempted", "run_samples", "came_ns", "left_ns")
OPEN = "open_ns"
"""The part of ``runq_ns`` at a read that moves to the next statement."""
_ADDS_UP = ("sleep_ns", "runq_ns", "run_ns")


def check_label_sums(tasks: pl.DataFrame, growth: pl.DataFrame) -> pl.DataFrame:
    """Returns ``tasks`` (growth of each task's sums) with status lost where ``growth`` by label does not add
    up to it, and reset where a figure went down that only grows.

    A task and its labels are read in one copy, with what is under way in both, so there is no distance
    between the two reads: their sums differ by 0 ns, and by anything where labels are missing in a read.
    """
    events = growth.group_by(*TASK, *EVENT, maintain_order=True).agg(
        *(pl.col(n).sum() for n in _ADDS_UP),
        fell=pl.any_horizontal(
            *((pl.col(n) < 0).any() for n in STAYS),
            *(pl.col(n).sum() < 0 for n in MOVES[:2]),
            (_booked() < 0).any(),
        ),
        has_run=pl.col("run_ns").is_not_null().any(),
    )
    by_label = events.group_by(TASK, maintain_order=True).agg(
        *(pl.col(n).sum().alias(f"{n}_labels") for n in _ADDS_UP), pl.col("fell", "has_run").any()
    )
    both = tasks.join(by_label, on=TASK, how="left", nulls_equal=True, maintain_order="left")
    # A task without labels has sums of 0.
    labels = {n: pl.col(f"{n}_labels").fill_null(0) for n in _ADDS_UP}
    apart = pl.any_horizontal(
        (labels[n] != pl.col(n)) & (pl.lit(n != "run_ns") | pl.col("has_run").fill_null(False))
        for n in _ADDS_UP
    )
    known, fell = pl.col("status") == "ok", pl.col("fell").fill_null(False)
    why = pl.when(known & fell).then(pl.lit("reset")).when(known & apart).then(pl.lit("lost"))
    return both.with_columns(status=why.otherwise("status")).select(tasks.columns)


def by_event(growth: pl.DataFrame) -> pl.DataFrame:
    """Sums ``growth`` over statements. A figure that went down is NULL."""
    figures = ("sleep_ns", "runq_ns", "throttled_ns", *STAYS[1:-2])
    sums = growth.group_by(*TASK, *EVENT, maintain_order=True).agg(sum_of_known(n) for n in figures)
    sums = sums.with_columns(pl.when(pl.col(n) >= 0).then(pl.col(n)).alias(n) for n in figures)
    return sums.with_columns(begun=begun()).drop("unclear")


def begun() -> pl.Expr:
    """Returns the number of waits that began; NULL if it is unknown of a sleep whether it began one."""
    return pl.when(pl.col("unclear") == 0).then("begun")


def by_statement(growth: pl.DataFrame) -> pl.DataFrame:
    """Assigns each figure of ``growth`` to the statement that caused it, never below 0, with bounds of the
    run queue (``runq_low``, ``runq_high``). The sums of a task do not change.

    The queue after a wait for the next statement belongs to that statement. At a read this is still unknown,
    and the open queue is under the previous statement. At the window's end it stays there. At its beginning
    it is subtracted from the statement that got it since: one that grew by at least as much. If several did,
    it is divided among them, and the interval reaches from all of it to none. Runs of older versions did not
    store the open part; there it is the amount by which a figure went down, and more may have moved unseen.

    A slice on a CPU moves likewise. It lies within the slices that came and left.
    """
    return _with_run(_with_queue(growth)).drop(f"{OPEN}_a", f"{OPEN}_b")


def _open(end: str) -> pl.Expr:
    """Returns the queue that was open at an end of the window. For older runs it is, at the beginning, the
    later fall."""
    fallen = pl.when(pl.lit(end == "a")).then((-pl.col("runq_ns")).clip(0)).otherwise(0)
    return pl.coalesce(f"{OPEN}_{end}", fallen)


def _booked() -> pl.Expr:
    """Returns the growth of the queue whose statement is known. It cannot go down."""
    return pl.col("runq_ns") + _open("a") - _open("b")


def _with_queue(growth: pl.DataFrame) -> pl.DataFrame:
    label = [*TASK, *EVENT]
    rows = growth.with_columns(
        was=_open("a"), still=_open("b"), booked=_booked(), has_open=pl.col(f"{OPEN}_b").is_not_null()
    )
    moved, booked = pl.col("was").sum().over(label), pl.col("booked")
    rows = rows.with_columns(moved=moved, may=(booked >= moved) & (moved > 0))
    all_booked = booked.sum().over(label)
    # One wait moves as a whole. If no row has room for it, the rows had it together.
    rows = rows.with_columns(
        may=pl.when(pl.col("may").any().over(label))
        .then("may")
        .otherwise((booked > 0) & (all_booked >= pl.col("moved")) & (pl.col("moved") > 0))
    )
    ones, may = pl.col("may").sum().over(label), pl.col("may")
    room = booked.filter(may).sum().over(label)
    taken = pl.when(may).then(pl.col("moved") * (booked / room)).otherwise(0.0)
    rest = pl.when((ones == 0) & (pl.col("still") > 0)).then(pl.col("still") - pl.col("moved"))
    value = booked - taken + rest.otherwise("still")
    unsure = may & ((ones > 1) | ~pl.col("has_open"))
    least = pl.when("has_open").then(booked - pl.col("moved")).otherwise(0.0).clip(0.0) + pl.col("still")
    unseen = ~pl.col("has_open") & (pl.col("was") > 0)
    queue = {
        "runq_ns": value.clip(0.0),
        "runq_low": pl.when(unsure).then(pl.min_horizontal(least, value)).otherwise(value).clip(0.0),
        "runq_high": pl.when(unsure)
        .then(booked + pl.col("still"))
        .when(unseen)
        .then(all_booked - pl.col("moved"))
        .otherwise(value)
        .clip(0.0),
        "throttled_ns": _without_falls("throttled_ns", label),
    }
    return rows.with_columns(**queue).drop("was", "still", "booked", "has_open", "moved", "may")


def _with_run(growth: pl.DataFrame) -> pl.DataFrame:
    before, run = pl.col("run_ns"), _without_falls("run_ns", list(TASK))
    taken = before - run  # negative for figures that went down
    return growth.with_columns(
        run_ns=run,
        left_ns=pl.when(before < 0)
        .then((pl.col("left_ns") + before).clip(0))
        .otherwise(pl.col("left_ns") + taken),
    )


def _without_falls(name: str, over: list[str]) -> pl.Expr:
    """Sets figures that went down to 0, and subtracts the fall from the others in proportion."""
    value = pl.col(name).cast(pl.Float64)
    up, down = value.clip(0.0), (-value).clip(0.0)
    room = up.sum().over(over)
    left = (room - down.sum().over(over)).clip(0.0)
    return pl.when(room > 0).then(up * (left / room)).otherwise(up)
