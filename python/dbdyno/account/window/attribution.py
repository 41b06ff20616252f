"""Attributes processes to sessions: by their pid, and parallel workers by their leader."""

from __future__ import annotations

import polars as pl

from dbdyno.model.results.raw import RawCell, once_each
from dbdyno.model.sources.wait_families import Family


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

    A sample or the server's list of processes showed each together with its leader, or the trace followed
    it (:func:`_unmet_workers`).
    """
    led_by = pl.col("pid") != pl.col("leader_pid")
    listed = cell.tables["backends"].select("pid", "leader_pid", start_ticks=pl.lit(None, dtype=pl.Int64))
    led = pl.concat([cell.led, listed.filter(led_by)]).unique(maintain_order=True)
    leaders = sessions_of(cell).drop_nulls("pid").unique("pid", keep="last")
    leaders = leaders.select(leader_pid="pid", leader="session")
    known = led.join(leaders, on="leader_pid", maintain_order="left").select("pid", "start_ticks", "leader")
    return pl.concat([known, _unmet_workers(cell, known)])


def _unmet_workers(cell: RawCell, known: pl.DataFrame) -> pl.DataFrame:
    """Returns parallel workers that came and went between two samples.

    They are the processes without a role that executed a statement of a session and never waited for a
    client, as every client's process does. Each is counted for a session that executes its statement; if
    several do, they get such workers in turn, so sums over all sessions are exact and those of one session
    are an estimate.
    """
    process = ["pid", "start_ticks"]
    waits = cell.tables["waits"]
    executed = waits.filter(pl.col("query_id").is_not_null())
    sessions = executed.filter(pl.col("role") == "session").select("query_id", leader="session").unique()
    sessions = sessions.drop_nulls().sort("leader").group_by("query_id").agg("leader")
    clients = waits.filter(cell.meta.wait_families.among(Family.CLIENT))
    unmet = executed.filter(pl.col("role") == "other").unique(process, keep="first", maintain_order=True)
    unmet = unmet.join(known, on="pid", how="anti").join(clients, on=process, how="anti", nulls_equal=True)
    unmet = unmet.join(sessions, on="query_id").sort(process)
    turn = pl.int_range(pl.len()).over("query_id") % pl.col("leader").list.len()
    return unmet.select(*process, leader=pl.col("leader").list.get(turn))


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
