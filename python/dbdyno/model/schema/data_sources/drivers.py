"""The hosts that drive a load, if there are others than this one, and the host of each session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbdyno.model.schema.column import CELL, Column
from dbdyno.model.schema.column import column as _c

if TYPE_CHECKING:
    import polars as pl

HOSTS: tuple[Column, ...] = (
    *CELL,
    _c("host", "str", "name of the driver's host"),
    _c("host_sessions", "i64", "its sessions"),
    _c("calls", "i64", "measured calls that ended well"),
    _c("errors", "i64", "measured calls that ended in an error"),
    _c("rate_per_s", "f64", "sum of its sessions' own rates", null=True),
    _c("session_rate_per_s", "f64", "median of its sessions' own rates", null=True),
    _c("shortest_ns", "i64", "its shortest measured call", null=True),
    _c("first_call_ns", "i64", "from the barrier to the first call of its sessions", null=True),
    _c("threads", "i64", "its threads", null=True),
    _c("host_cpus", "i64", "CPUs that it may use", null=True),
    _c("driver_cpus", "f64", "CPUs that its threads used, from the barrier to the last read", null=True),
    _c("driver_starved", "f64", "their run-queue time / (run + run-queue)", null=True),
    _c("clock_bound_ns", "i64", "its times, as they are mapped, err by no more than this", null=True),
    _c("round_trip_ns", "i64", "shortest way there and back, from the host that dbdyno ran on", null=True),
    _c("status", "str", "ok | lost"),
    _c("detail", "str", "why it is lost", null=True),
)
"""Columns of the derived table ``hosts``, which has one row per driver of a measurement by several hosts."""


def with_host(sessions: pl.DataFrame, drivers: pl.DataFrame) -> pl.DataFrame:
    """Returns ``sessions``, any table with a column ``session``, with a column ``host`` added. It is NULL if
    only this host drives."""
    import polars as pl  # imported here, since schemas are needed without polars

    if drivers.is_empty():
        return sessions.with_columns(host=pl.lit(None, pl.String))
    places = drivers.select("host", session="first_session").filter(drivers["sessions"] > 0).sort("session")
    order = sessions.with_row_index("_row").sort("session", nulls_last=True)
    joined = order.join_asof(places, on="session", check_sortedness=False)
    return joined.sort("_row").drop("_row")
