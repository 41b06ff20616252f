"""Tasks cut to the window: growth of each task's figures between the reads nearest to t0 and t1."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.window.attribution import fold, sessions_of, workers
from dbdyno.account.window.brief import brief_task, without_briefly_met
from dbdyno.account.window.cells import for_each, middle
from dbdyno.account.window.deltas import NEAR_NS, TASK, task_growth
from dbdyno.account.window.samples import seen_spans
from dbdyno.account.window.traced import traced_tasks
from dbdyno.account.window.trees import is_tree, outside, with_asides, with_ends, with_sessions
from dbdyno.model.plan.plan import LEAST_WINDOW_NS
from dbdyno.model.results.brief import MAIN, children
from dbdyno.model.results.raw import RawCell, once_each
from dbdyno.model.units import TICK_NS

AGAIN_NS = 500_000_000
"""Largest distance of a repeated read, which only tasks that were ready to run get.

Passes over all tasks are a second apart."""
_SURE = ("run_ns", "runq_ns")
_MORE = ("user_ns", "system_ns", "blkio_ns", "children_ns", "slices", "voluntary", "involuntary")
_COLUMNS = ("pid", "tid", "start_ticks", "role", "session", "worker")
_BRACKET = ("from_ns", "to_ns", "wall_ns", "over_ns", "partial", "status")


def cut_tasks(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_tasks``. Every session has a row; one that was never read has its status and no
    figures."""
    return for_each("cut_tasks", cells, _cut)


@once_each
def reads_of(cell: RawCell) -> pl.DataFrame:
    """Returns all reads of tasks with run and run queue, workers folded, with their instant ``at_ns``."""
    tasks = fold(cell.tables["tasks"].with_columns(middle().alias("at_ns")), workers(cell))
    return _own(tasks.filter((pl.col("status") == "ok") & pl.col("run_ns").is_not_null()))


def _cut(cell: RawCell) -> pl.DataFrame:
    meta = cell.meta
    known = with_ends(with_sessions(reads_of(cell), cell), cell)
    reads = _with_waits(_with_births(with_asides(known, cell), meta.t0_ns))
    tree = is_tree(cell)
    shortest_ns = 1 if tree else LEAST_WINDOW_NS  # unread time of ended tasks has a row of its own
    rows = task_growth(reads, meta.t0_ns, meta.t1_ns, _SURE, _MORE, shortest_ns, come_and_go=tree)
    read = rows.select(*_COLUMNS, *_BRACKET, *_SURE, *_MORE, state_a="state", state_b="state_b")
    if is_tree(cell):
        read = read.filter(~outside(meta.t0_ns, meta.t1_ns))
    brief = _too_brief(cell, read)
    read = read.join(brief, on=list(TASK), how="anti", nulls_equal=True)
    rows = pl.concat([read, _unread(cell, read)], how="diagonal_relaxed")
    rows = _with_unread_children(rows, cell)
    group = brief_task(cell, known)
    followed = traced_tasks(cell)
    if group is None and followed.is_empty():
        return rows
    rows = without_briefly_met(rows, cell, followed)
    return rows if group is None else pl.concat([rows, group], how="diagonal_relaxed")


def _with_unread_children(tasks: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    """Adds ``unread_ns``, the CPU time of the server's main process for ended children that were never
    read."""
    ended = None if is_tree(cell) else children(cell.tables["tasks"], cell.meta.t0_ns, cell.meta.t1_ns)
    if ended is None or not ended.named:
        return tasks.with_columns(unread_ns=pl.lit(None, pl.Int64))
    unread = max(0, ended.cpu_ns) / ended.wall_ns * pl.col("over_ns")
    of_main = pl.when(pl.col("role") == MAIN).then(unread)
    return tasks.with_columns(unread_ns=of_main.cast(pl.Int64))


def _with_births(reads: pl.DataFrame, t0: int) -> pl.DataFrame:
    """Adds a row of zeros at the birth of each task that was born inside the window.

    Its start time counts from boot; our clock counts from boot less suspended time (CLOCK_MONOTONIC). If
    the machine was suspended the two do not fit: the birth is after the first read, or too late for the
    time read there.
    """
    first = reads.sort("at_ns").unique(TASK, keep="first", maintain_order=True)
    birth, lived = pl.col("start_ticks") * TICK_NS, pl.sum_horizontal(_SURE)
    # Start times are rounded down to a tick, so a task may have lived one tick longer than they say.
    fits = (birth > t0) & (birth <= pl.col("at_ns")) & (lived <= pl.col("at_ns") - birth + TICK_NS)
    fits &= (lived > 0) | (pl.col("state") == "R").fill_null(True)  # else that read is its birth
    zeros = [
        pl.when(pl.col(n).is_not_null()).then(0).cast(reads.schema[n]).alias(n) for n in (*_SURE, *_MORE)
    ]
    births = first.filter(fits)
    if births.is_empty():
        return reads
    return pl.concat([births.with_columns(*zeros, at_ns=birth, state=pl.lit("S")), reads])


def _with_waits(reads: pl.DataFrame) -> pl.DataFrame:
    """Adds the wait in progress at each read to the run queue.

    The kernel books a wait in the run queue when it ends. The reader reads a task that was ready to run
    again until its figures have moved; until then it waited or ran. So time that is booked by then, beyond
    the time since the first read, had been waited before it.
    """
    reads = reads.sort("at_ns", maintain_order=True)
    since = {n: pl.col(n).shift(-1).over(TASK) - pl.col(n) for n in ("at_ns", *_SURE)}
    beyond = pl.sum_horizontal(since[n] for n in _SURE) - since["at_ns"]
    waited = pl.min_horizontal(beyond, since["runq_ns"]).clip(0)  # run time is also booked up to a tick late
    again = (pl.col("state") == "R") & (since["at_ns"] <= AGAIN_NS)
    return reads.with_columns(pl.col("runq_ns") + pl.when(again).then(waited).otherwise(0).fill_null(0))


def _own(reads: pl.DataFrame) -> pl.DataFrame:
    """Sets the role of processes that reuse a session's pid to other."""
    backend = (pl.col("role") == "session") & ~pl.col("worker")
    first = pl.col("start_ticks").sort_by("at_ns").first().over("pid", "tid", "session")
    stranger = backend & (pl.col("start_ticks") != first).fill_null(False)
    return reads.with_columns(
        pl.when(stranger).then(pl.lit("other")).otherwise("role").alias("role"),
        pl.when(stranger).then(None).otherwise("session").alias("session"),
    )


def _too_brief(cell: RawCell, read: pl.DataFrame) -> pl.DataFrame:
    """Returns sessions whose reads are too close for a difference, though samples saw them for longer."""
    brief = read.filter((pl.col("role") == "session") & ~pl.col("worker") & pl.col("partial"))
    brief = brief.filter(pl.col("status") == "too short")
    if brief.is_empty():
        return brief
    seen = brief.join(seen_spans(cell), on=["session", "pid", "tid"])
    return seen.filter(pl.col("seen_to") - pl.col("seen_from") > pl.col("wall_ns"))


def _unread(cell: RawCell, read: pl.DataFrame) -> pl.DataFrame:
    """Returns sessions and other roles without a good read; the status is that of the attempts.

    W of a session of a driven load is the window. W of one that came and went in an observation is the
    time that its samples stand for.
    """
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    tasks = fold(cell.tables["tasks"], workers(cell))
    tries = tasks.filter((pl.col("status") != "ok") & ~pl.col("worker"))
    missing = sessions_of(cell).join(read.filter(pl.col("role") == "session"), on="session", how="anti")
    if is_tree(cell):
        missing = missing.clear()  # its processes come and go; it may have had none
    others = tries.filter(pl.col("role") != "session").join(read, on="role", how="anti")
    if missing.is_empty() and others.is_empty():
        return read.clear()
    why = tries.group_by("session").agg(pl.col("status").sort_by("before_ns").last())
    missing = missing.join(why, on="session", how="left").with_columns(role=pl.lit("session"))
    others = others.group_by("role", maintain_order=True).agg(
        pl.col("pid", "session", "status", "start_ticks").first()
    )
    none_of_server = tasks["role"].is_in(["driver", "dbdyno"]).all()  # no task of the server was to be read
    nobody = pl.lit("off" if none_of_server else "lost")
    both = pl.concat([missing, others.select(missing.columns)])
    seen = both.join(_lives(cell), on=["session", "pid"], how="left", maintain_order="left")
    return seen.select(
        pl.col("pid").fill_null(0),
        pl.col("pid").fill_null(0).alias("tid"),
        "start_ticks",
        "session",
        pl.coalesce("status", pl.when("gone").then(pl.lit("vanished")), nobody).alias("status"),
        "role",
        worker=pl.lit(False),
        partial=pl.col("gone").fill_null(False),
        from_ns=pl.col("seen_from").fill_null(t0),
        to_ns=pl.col("seen_to").fill_null(t1),
        wall_ns=(pl.col("seen_to") - pl.col("seen_from")).fill_null(t1 - t0),
        over_ns=pl.lit(t1 - t0),
    )


def _lives(cell: RawCell) -> pl.DataFrame:
    """Returns for an observation the time in which samples saw each session."""
    by_task = seen_spans(cell, pl.lit(cell.tables["sessions"].is_empty()))
    spans = by_task.group_by("session", "pid", maintain_order=True).agg(
        pl.col("seen_from").min(), pl.col("seen_to").max()
    )
    late = pl.col("seen_from") > cell.meta.t0_ns + NEAR_NS
    early = pl.col("seen_to") < cell.meta.t1_ns - NEAR_NS
    return spans.with_columns(gone=late | early)
