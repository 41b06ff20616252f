"""Growth of the counters of block devices from read to read, and the rates of iostat(1) that follow."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.model.schema.data_sources.devices import SUMS
from dbdyno.model.units import NS_PER_S

WRAP_NS = 1_000_000 << 32
"""The kernel prints times as 32-bit numbers of ms (block/genhd.c, diskstats_show), which begin anew at 2^32:
with 32 requests in progress all the time, the weighted time does so every 37 hours."""
FIGURES = tuple(c.name for c in SUMS)
_TIMES = tuple(name for name in FIGURES if name.endswith("_ns"))
_WALL_S = pl.col("wall_s")
_REQUESTS = pl.col("reads") + pl.col("writes")


def _each(total: str, number: str) -> pl.Expr:
    return pl.when(pl.col(number) > 0).then(pl.col(total) / pl.col(number))


RATES = {
    "reads_per_s": pl.col("reads") / _WALL_S,
    "read_bytes_per_s": pl.col("read_bytes") / _WALL_S,
    "read_await_ns": _each("read_ns", "reads"),
    "writes_per_s": pl.col("writes") / _WALL_S,
    "written_bytes_per_s": pl.col("written_bytes") / _WALL_S,
    "write_await_ns": _each("write_ns", "writes"),
    "flushes_per_s": pl.col("flushes") / _WALL_S,
    "flush_await_ns": _each("flush_ns", "flushes"),
    "request_bytes": pl.when(_REQUESTS > 0).then(
        (pl.col("read_bytes") + pl.col("written_bytes")) / _REQUESTS
    ),
    "utilisation": pl.col("io_ns") / NS_PER_S / _WALL_S,
    "in_flight": pl.col("weighted_ns") / NS_PER_S / _WALL_S,
}
"""Rates by column, of frames with the growth of all counters and ``wall_s``. They are those of sysstat's
iostat: ``r_await``, ``w_await`` and ``f_await`` are the time of requests over their number, ``areq-sz`` is
bytes over requests, ``aqu-sz`` weighted time over wall time, ``%util`` time with a request over wall time."""


def steps(reads: pl.DataFrame) -> pl.DataFrame:
    """Returns growth from read to read of each device in place of the counters, ``before_at_ns`` and whether
    a counter went ``back``. ``reads`` are rows of the table ``devices`` with ``at_ns``. The first row of a
    device has no growth."""
    ordered = reads.sort("at_ns", maintain_order=True)
    grown = {name: pl.col(name).diff().over("device") for name in FIGURES}
    # Half of the range or more cannot pass between two reads: then the counter went back by a little.
    for name in _TIMES:
        wrapped = grown[name] + WRAP_NS
        went_round = (grown[name] < 0) & (wrapped < WRAP_NS // 2)
        grown[name] = pl.when(went_round).then(wrapped).otherwise(grown[name])
    grown_rows = ordered.with_columns(before_at_ns=pl.col("at_ns").shift(1).over("device"), **grown)
    back = pl.any_horizontal(pl.col(name) < 0 for name in FIGURES)
    return grown_rows.with_columns(back=back.fill_null(False))


def disks(places: pl.DataFrame) -> Iterator[str]:
    """Yields the disks at the bottom of the devices of ``places``, rows of that table."""
    for below in places["below"].drop_nulls():
        yield from below.split(", ")


def counted_devices(places: pl.DataFrame) -> list[str]:
    """Returns the devices that a sum adds, so that each request is in one of them: those that a directory is
    on, without one that lies on another of them, as a loop device may."""
    on = places.drop_nulls("device")
    names = dict.fromkeys(on["device"])
    return [name for name in names if not set(disks(on.filter(pl.col("device") == name))) & set(names)]
