"""The hosts that drove a load, where there are others than this one; and which of them a session was on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbdyno.model.schema.column import CELL, Column
from dbdyno.model.schema.column import column as _c

if TYPE_CHECKING:
    import polars as pl

DRIVERS: dict[str, tuple[Column, ...]] = {
    "drivers": (
        _c("host", "str", "name of the driver's host"),
        _c("first_session", "i64", "number of its first session"),
        _c("sessions", "i64", "how many it has, from that number on"),
        _c("threads", "i64", "its threads; NULL: unknown", null=True),
        _c("cpus", "i64", "CPUs that it may use; NULL: unknown", null=True),
        _c("run_ns", "i64", "CPU time of its threads from the barrier to read_ns", null=True),
        _c("runq_ns", "i64", "time for which they were in its run queue meanwhile", null=True),
        _c("read_ns", "i64", "when that was read last: about once a second", null=True),
        _c(
            "clock_offset_ns",
            "i64",
            "its clock less that of the host that dbdyno runs on, at the end; NULL: the same clock",
            null=True,
        ),
        _c("clock_drift", "f64", "seconds that its clock gains in one, over the measurement", null=True),
        _c("clock_bound_ns", "i64", "its times, as they are mapped, err by no more than this", null=True),
        _c("round_trip_ns", "i64", "shortest way there and back of a question for the time", null=True),
        _c("barrier_ns", "i64", "when calls were to begin; NULL: not started", null=True),
        _c("status", "str", "ok | lost (its sessions are in no table)"),
        _c("detail", "str", "why it is lost", null=True),
    )
}
"""One row for each driver of a load on several hosts; absent where this host drove alone."""


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
"""Derived table ``hosts``: one row for each driver of a measurement by several hosts."""


def with_host(sessions: pl.DataFrame, drivers: pl.DataFrame) -> pl.DataFrame:
    """``sessions``, any table with column ``session``, with column ``host``; NULL: this host alone."""
    import polars as pl  # here, as schemas are read without it

    if drivers.is_empty():
        return sessions.with_columns(host=pl.lit(None, pl.String))
    places = drivers.select("host", session="first_session").filter(drivers["sessions"] > 0).sort("session")
    order = sessions.with_row_index("_row").sort("session", nulls_last=True)
    joined = order.join_asof(places, on="session", check_sortedness=False)
    return joined.sort("_row").drop("_row")
