"""Attributes processes to sessions: by their pid, and parallel workers by their leader."""

from __future__ import annotations

import polars as pl

from dbdyno.model.results.raw import RawCell, once_each


@once_each
def pooled(cell: RawCell) -> bool:
    """Returns whether a connection pooler was in front of the server: only then are its counters read."""
    return bool((cell.tables["counters"]["scope"] == "pooler").any())


@once_each
def sessions_of(cell: RawCell) -> pl.DataFrame:
    """Returns ``session``, ``pid``, ``start_ticks`` (NULL if unknown) of all sessions of a cell.

    A driven load lists them. In an observation they are the processes that were read as sessions, and in a
    pooled cell the server connections of its pool.
    """
    driven = cell.tables["sessions"].select("session", pid="backend_pid")
    if driven.height and not pooled(cell):
        return driven.with_columns(start_ticks=pl.lit(None, dtype=pl.Int64))
    is_session = (pl.col("role") == "session") & pl.col("session").is_not_null()
    read = (cell.tables[table].filter(is_session) for table in ("tasks", "traced"))
    parts = [part.select("session", "pid", "start_ticks") for part in (*read, cell.met)]
    known = pl.concat(parts).sort(pl.col("start_ticks").is_null(), maintain_order=True)
    return known.unique(["session", "pid"], keep="first", maintain_order=True)


@once_each
def workers(cell: RawCell) -> pl.DataFrame:
    """Returns the parallel workers: ``pid``, ``start_ticks`` and ``leader``, the session they work for.
    Only workers that a sample or the server's list of processes showed together with a leader that is a
    session are known."""
    led_by = pl.col("pid") != pl.col("leader_pid")
    listed = cell.tables["backends"].select("pid", "leader_pid", start_ticks=pl.lit(None, dtype=pl.Int64))
    led = pl.concat([cell.led, listed.filter(led_by)]).unique(maintain_order=True)
    if led.is_empty():
        return led.select("pid", "start_ticks", leader="leader_pid")
    leaders = sessions_of(cell).drop_nulls("pid").unique("pid", keep="last")
    leaders = leaders.select(leader_pid="pid", leader="session")
    return led.join(leaders, on="leader_pid", maintain_order="left").select("pid", "start_ticks", "leader")


def fold(frame: pl.DataFrame, known_workers: pl.DataFrame) -> pl.DataFrame:
    """Returns ``frame`` with the workers' rows in role session, their leader's session number, and column
    ``worker``. A reused pid is another process: if both start times are known they must be equal."""
    if known_workers.is_empty():
        return frame.with_columns(worker=pl.lit(False))
    exact = known_workers.drop_nulls("start_ticks").unique(["pid", "start_ticks"])
    loose = known_workers.unique("pid", keep="last").select("pid", "start_ticks", any_leader="leader")
    joined = frame.join(exact, on=["pid", "start_ticks"], how="left", maintain_order="left").join(
        loose.rename({"start_ticks": "its_start"}), on="pid", how="left", maintain_order="left"
    )
    same = pl.col("its_start").is_null() | pl.col("start_ticks").is_null()
    leader = pl.coalesce("leader", pl.when(same).then("any_leader"))
    worker = leader.is_not_null() & (pl.col("role") != "session")
    return joined.with_columns(
        pl.when(worker).then(pl.lit("session")).otherwise("role").alias("role"),
        pl.when(worker).then(leader).otherwise("session").alias("session"),
        worker.alias("worker"),
    ).drop("leader", "any_leader", "its_start")
