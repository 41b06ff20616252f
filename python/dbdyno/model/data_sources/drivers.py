"""The hosts that drove a load, where there are others than this one; and which of them a session was on."""

from __future__ import annotations

import polars as pl

from dbdyno.model.column import Column
from dbdyno.model.column import column as _c

DRIVERS: dict[str, tuple[Column, ...]] = {
    "drivers": (
        _c("host", "str", "name of the driver's host"),
        _c("first_session", "i64", "number of its first session"),
        _c("sessions", "i64", "how many it has, from that number on"),
        _c("threads", "i64", "its threads; NULL: unknown", null=True),
        _c("cpus", "i64", "CPUs that it may use; NULL: unknown", null=True),
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


def with_host(sessions: pl.DataFrame, drivers: pl.DataFrame) -> pl.DataFrame:
    """``sessions``, any table with column ``session``, with column ``host``; NULL: this host alone."""
    if drivers.is_empty():
        return sessions.with_columns(host=pl.lit(None, pl.String))
    places = drivers.select("host", session="first_session").filter(drivers["sessions"] > 0).sort("session")
    order = sessions.with_row_index("_row").sort("session", nulls_last=True)
    joined = order.join_asof(places, on="session", check_sortedness=False)
    return joined.sort("_row").drop("_row")
