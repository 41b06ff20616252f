"""Tasks cut to the window: deltas between the reads nearest to t0 and t1 of each task.

A task is known by pid, tid and start time, so a pid that is used again is another task. Its W is the
wall time between its own two reads. One that appeared or vanished inside the window keeps its own,
shorter bracket and is marked partial.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.model.raw import RawCell
from dbdyno.window.spans import SHORTEST_NS, for_each, middle

NEAR_NS = 200_000_000
"""A task whose reads end this much before those of others has vanished (all tasks are read within less)."""

_KEY = ("pid", "tid", "start_ticks")
_FIGURES = ("run_ns", "runq_ns", "user_ns", "system_ns")


def cut_tasks(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_tasks``. Every session has a row; one that was never read has its status and no figures."""
    return for_each("cut_tasks", cells, _cut)


def workers(cell: RawCell) -> pl.DataFrame:
    """Parallel workers as far as samples saw them: pid, session of their leader."""
    leaders = cell.tables["sessions"].select(pl.col("backend_pid").alias("leader_pid"), leader="session")
    found = cell.tables["samples"].select("pid", "leader_pid").filter(pl.col("pid") != pl.col("leader_pid"))
    return (
        found.unique(maintain_order=True).join(leaders.drop_nulls(), on="leader_pid").select("pid", "leader")
    )


def fold(frame: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with the workers' rows in role session, their leader's number, and column ``worker``."""
    worker = pl.col("leader").is_not_null() & (pl.col("role") != "session")
    return frame.join(found.unique("pid"), on="pid", how="left").with_columns(
        pl.when(worker).then(pl.lit("session")).otherwise("role").alias("role"),
        pl.when(worker).then("leader").otherwise("session").alias("session"),
        worker.alias("worker"),
    )


def _cut(cell: RawCell) -> pl.DataFrame:
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    tasks = fold(cell.tables["tasks"].with_columns(middle().alias("at_ns")), workers(cell))
    reads = _own(tasks.filter((pl.col("status") == "ok") & pl.col("run_ns").is_not_null()))
    deltas = _deltas(reads, t0, t1)
    return pl.concat([deltas, _unread(cell, tasks, deltas)], how="diagonal_relaxed")


def _own(reads: pl.DataFrame) -> pl.DataFrame:
    """A session's pid that somebody else uses later is no longer the session's."""
    if reads.is_empty():
        return reads
    backend = (pl.col("role") == "session") & ~pl.col("worker")
    first = pl.col("start_ticks").sort_by("at_ns").first().over("pid", "tid")
    stranger = backend & (pl.col("start_ticks") != first).fill_null(False)
    return reads.with_columns(
        pl.when(stranger).then(pl.lit("other")).otherwise("role").alias("role"),
        pl.when(stranger).then(None).otherwise("session").alias("session"),
    )


def _deltas(reads: pl.DataFrame, t0: int, t1: int) -> pl.DataFrame:
    def nearest(name: str, to: int) -> pl.Expr:
        return pl.col(name).sort_by((pl.col("at_ns") - to).abs(), maintain_order=True).first()

    def inside() -> pl.Expr:
        return pl.col("at_ns").is_between(nearest("at_ns", t0), nearest("at_ns", t1))

    ends = [
        nearest(name, to).alias(f"{name}_{end}")
        for name in (*_FIGURES, "at_ns")
        for end, to in (("a", t0), ("b", t1))
    ]
    falls = [
        (pl.col(name).filter(inside()).sort_by(pl.col("at_ns").filter(inside())).diff() < 0).any()
        for name in ("run_ns", "runq_ns")
    ]
    who = [pl.col(name).first() for name in ("role", "session", "worker")]
    grouped = reads.group_by(_KEY, maintain_order=True).agg(
        *who, *ends, pl.any_horizontal(*falls).alias("reset")
    )
    return _figures(grouped, t0, t1)


def _figures(grouped: pl.DataFrame, t0: int, t1: int) -> pl.DataFrame:
    """Brackets, partial or not, and the differences where they can be trusted."""
    first_ns, last_ns = grouped["at_ns_a"].min(), grouped["at_ns_b"].max()
    wall = pl.col("at_ns_b") - pl.col("at_ns_a")
    late = pl.col("at_ns_a") > pl.max_horizontal(pl.lit(first_ns), pl.lit(t0)) + NEAR_NS
    early = pl.col("at_ns_b") < pl.min_horizontal(pl.lit(last_ns), pl.lit(t1)) - NEAR_NS
    partial = late | early
    once = (wall == 0) & ~partial  # it was there, but a single read tells no difference: as if unread
    status = pl.when(wall < SHORTEST_NS).then(pl.lit("too short")).when("reset").then(pl.lit("reset"))
    known = (wall >= SHORTEST_NS) & ~pl.col("reset")
    deltas = [
        pl.when(known).then(pl.col(f"{n}_b") - pl.col(f"{n}_a")).cast(pl.Int64).alias(n) for n in _FIGURES
    ]
    return grouped.select(
        *_KEY,
        *("role", "session", "worker"),
        *deltas,
        from_ns=pl.when(once).then(pl.lit(t0)).otherwise("at_ns_a"),
        to_ns=pl.when(once).then(pl.lit(t1)).otherwise("at_ns_b"),
        wall_ns=pl.when(once).then(pl.lit(t1 - t0)).otherwise(wall),
        over_ns=pl.when(partial | once).then(pl.lit(t1 - t0)).otherwise(wall),
        partial=partial,
        status=status.otherwise(pl.lit("ok")),
    )


def _unread(cell: RawCell, tasks: pl.DataFrame, read: pl.DataFrame) -> pl.DataFrame:
    """Sessions and other roles without a good read: W is the window, the status that of the tries."""
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    nobody = pl.lit("off" if tasks.is_empty() else "lost")
    tries = tasks.filter((pl.col("status") != "ok") & ~pl.col("worker"))
    why = tries.group_by("session").agg(pl.col("status").first())
    missing = cell.tables["sessions"].select("session", pid="backend_pid", role=pl.lit("session"))
    missing = missing.join(read.filter(pl.col("role") == "session"), on="session", how="anti")
    missing = missing.join(why, on="session", how="left")
    others = tries.filter(pl.col("role") != "session").join(read, on="role", how="anti")
    others = others.group_by("role", maintain_order=True).agg(pl.col("pid", "session", "status").first())
    return pl.concat([missing, others.select(missing.columns)]).select(
        pl.col("pid").fill_null(0),
        pl.col("pid").fill_null(0).alias("tid"),
        "session",
        pl.col("status").fill_null(nobody),
        "role",
        worker=pl.lit(False),
        partial=pl.lit(False),
        from_ns=pl.lit(t0),
        to_ns=pl.lit(t1),
        wall_ns=pl.lit(t1 - t0),
        over_ns=pl.lit(t1 - t0),
    )
