"""Table ``hosts``: the load and the state of each driving host of a measurement with several. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.window.cells import for_each
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.data_sources.drivers import with_host
from dbdyno.model.units import NS_PER_S

_OWN_NS = pl.col("last_end_ns") - pl.col("first_start_ns")
_RATE = pl.when(_OWN_NS > 0).then(pl.col("calls") * NS_PER_S / _OWN_NS)
"""A session's calls per second of its own time, from its first start to its last end."""

_READ_SPAN_NS = pl.col("read_ns") - pl.col("barrier_ns")


@makes("hosts")
def hosts(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns the derived table ``hosts``. A measurement by one host has no rows."""
    return for_each("hosts", cells, _host_rows)


def _host_rows(cell: RawCell) -> pl.DataFrame | None:
    """Returns one row per host; None if one host drove the cell."""
    drivers = cell.tables.get("drivers")
    if drivers is None or drivers.is_empty():
        return None
    sessions = with_host(cell.tables["sessions"], drivers).with_columns(rate=_RATE)
    load = sessions.group_by("host").agg(
        pl.col("calls", "errors").sum(),
        rate_per_s=pl.when(pl.col("rate").is_not_null().any()).then(pl.col("rate").sum()),
        session_rate_per_s=pl.col("rate").median(),
        shortest_ns=pl.col("min_ns").min(),
        began_ns=pl.col("began_ns").min(),
    )
    wanted = pl.col("run_ns") + pl.col("runq_ns")
    drivers_with_load = drivers.join(load, on="host", how="left", maintain_order="left")
    return drivers_with_load.select(
        "host",
        pl.col("sessions").alias("host_sessions"),
        pl.col("calls", "errors").fill_null(0),
        "rate_per_s",
        "session_rate_per_s",
        "shortest_ns",
        (pl.col("began_ns") - pl.col("barrier_ns")).alias("first_call_ns"),
        "threads",
        pl.col("cpus").alias("host_cpus"),
        pl.when(_READ_SPAN_NS > 0).then(pl.col("run_ns") / _READ_SPAN_NS).alias("driver_cpus"),
        pl.when(wanted > 0).then(pl.col("runq_ns") / wanted).alias("driver_starved"),
        "clock_bound_ns",
        "round_trip_ns",
        "status",
        "detail",
    )
