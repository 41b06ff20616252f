"""The devices of the server's directories in the latest seconds, for a live view."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from dbdyno.model.results import device_reads
from dbdyno.model.schema.tables import Tables
from dbdyno.model.units import NS_PER_S

NEEDED = {
    "places": ("device", "below"),
    "devices": ("after_ns", "device", *device_reads.FIGURES, "status"),
}
"""Tables and columns that are read."""


class DevicesNow(NamedTuple):
    """Sums over the devices between the first and the last read of each."""

    reads_per_s: float
    writes_per_s: float
    bytes_per_s: float
    await_ns: float | None  # mean response time of reads and writes; None without any
    in_flight: float


def devices_now(recent: Tables) -> DevicesNow | None:
    """Returns the sums; None if a device was not read twice, or a counter went back."""
    if "places" not in recent or recent["places"].is_empty():
        return None
    chosen = device_reads.counted_devices(recent["places"])
    reads = recent["devices"].filter(pl.col("device").is_in(chosen) & (pl.col("status") == "ok"))
    steps = device_reads.steps(reads.with_columns(at_ns="after_ns")).drop_nulls("before_at_ns")
    if not chosen or steps["device"].n_unique() < len(chosen) or steps["back"].any():
        return None
    wall_s = steps.group_by("device").agg(s=(pl.col("after_ns") - pl.col("before_at_ns")).sum())["s"].max()
    sums = steps.select(pl.col(device_reads.FIGURES).sum()).row(0, named=True)
    seconds = wall_s / NS_PER_S  # type: ignore[operator]
    requests = sums["reads"] + sums["writes"]
    return DevicesNow(
        sums["reads"] / seconds,
        sums["writes"] / seconds,
        (sums["read_bytes"] + sums["written_bytes"]) / seconds,
        (sums["read_ns"] + sums["write_ns"]) / requests if requests else None,
        sums["weighted_ns"] / NS_PER_S / seconds,
    )
