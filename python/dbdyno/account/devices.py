"""Tables ``device_io`` and ``device_time``: the devices below the server's directories. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.window.cells import for_each, middle
from dbdyno.account.window.deltas import nearest
from dbdyno.model.plan.plan import LEAST_WINDOW_NS
from dbdyno.model.results import device_reads
from dbdyno.model.results.device_reads import FIGURES, RATES
from dbdyno.model.results.ledger_rows import groups
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources.devices import ASSUMED_PLACE, DEVICES
from dbdyno.model.schema.tables import conform, empty, schema
from dbdyno.model.units import NS_PER_S

_CELL = tuple(c.name for c in CELL)


@makes("device_io")
def device_io(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``device_io`` of each cell."""
    return for_each("device_io", cells, _device_rows)


@makes("device_time")
def device_time(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``device_time``: from one read of a device to the next."""
    return for_each("device_time", cells, _steps_in_window)


@makes("device_io", stage="total")
def device_io_total(windows: pl.DataFrame, device_io: pl.DataFrame) -> pl.DataFrame:
    """Returns the same of all usable cells of a load together. Where a device is unknown in some of them, its
    figures are of the others, and the status is ``limited``."""
    parts = [empty("device_io")]
    ok = pl.col("status") == "ok"
    for head, cells in groups(windows):
        of_load = device_io.filter(pl.col("cell").is_in([w["cell"] for w in cells]))
        together = of_load.group_by("device", "places", maintain_order=True).agg(
            pl.col("layers", "below", "source").first(),
            pl.col("counted").any(),
            *(pl.when(ok.any()).then(_sum_of(name, ok)).alias(name) for name in ("wall_s", *FIGURES)),
            status=pl.when(ok.all() | ~ok.any()).then(pl.col("status").first()).otherwise(pl.lit("limited")),
        )
        parts.append(conform("device_io", together.with_columns(**RATES), head))
    return pl.concat(parts)


def _sum_of(column: str, ok: pl.Expr) -> pl.Expr:
    """Returns the sum of the rows that are ``ok``; NULL if the figure is unknown in one of them."""
    values = pl.col(column).filter(ok)
    return pl.when(values.null_count() == 0).then(values.sum())


def _device_rows(cell: RawCell) -> pl.DataFrame | None:
    """Returns one row per device, and one per directory without a device; None where nothing was asked."""
    places = cell.tables.get("places", empty("places"))
    if places.is_empty():
        return None
    growth = {row["device"]: row for row in _growth(cell).iter_rows(named=True)}
    known = places.drop_nulls("device")
    devices = list(dict.fromkeys([*known["device"], *device_reads.disks(known), *growth]))
    counted = device_reads.counted_devices(known)
    table = [
        _device_row(device, known, growth.get(device, {"status": "lost"}), devices)
        | {"counted": device in counted}
        for device in devices
    ]
    table += [
        {"places": row["place"], "counted": False, "status": row["status"]}
        for row in places.filter(pl.col("device").is_null()).iter_rows(named=True)
    ]
    columns = {name: kind for name, kind in schema("device_io").items() if name not in (*_CELL, *RATES)}
    frame = pl.DataFrame([{name: row.get(name) for name in columns} for row in table], schema=columns)
    return frame.with_columns(**RATES, source=pl.lit(DEVICES))


def _device_row(
    device: str, places: pl.DataFrame, growth: Mapping[str, Any], devices: Sequence[str]
) -> dict[str, Any]:
    on_it = places.filter(pl.col("device") == device)
    above = places.filter(pl.col("below").str.split(", ").list.contains(device)).drop_nulls("device")
    lying_on_it = [d for d in dict.fromkeys(above["device"]) if d in devices]
    return {
        "device": device,
        "places": ", ".join(dict.fromkeys(map(_held, on_it["place"], on_it["status"]))) or None,
        "layers": next(iter(on_it["layers"].drop_nulls()), None),
        "below": ", ".join(lying_on_it) or None,
        **{name: growth.get(name) for name in ("wall_s", *FIGURES)},
        "status": growth["status"],
    }


def _held(place: str, status: str) -> str:
    """Returns the name of a directory; with a mark if its device follows from mount points alone."""
    return f"{place} {ASSUMED_PLACE}" if status == "assumed" else place


def _growth(cell: RawCell) -> pl.DataFrame:
    """Returns one row per device: growth between the reads nearest to t0 and t1, and a status. If a counter
    went back or a read failed in between, the growth is unknown."""
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    reads = cell.tables.get("devices", empty("devices")).with_columns(at_ns=middle())
    first, last = (
        nearest(reads, ["device"], to).select("device", pl.col("at_ns").alias(name))
        for name, to in (("from_ns", t0), ("to_ns", t1))
    )
    between = reads.join(first, on="device").join(last, on="device")
    between = between.filter(pl.col("at_ns").is_between(pl.col("from_ns"), pl.col("to_ns")))
    failed = pl.col("status").filter(pl.col("status") != "ok").first()
    return (
        device_reads.steps(between)
        .group_by("device", maintain_order=True)
        .agg(
            *(pl.col(name).slice(1).sum().alias(name) for name in FIGURES),
            *((pl.col(name).slice(1).null_count() > 0).alias(f"{name}_unknown") for name in FIGURES),
            wall_ns=pl.col("at_ns").last() - pl.col("at_ns").first(),
            failed=failed,
            back=pl.col("back").any(),
        )
        .with_columns(
            status=pl.when(pl.col("failed").is_not_null())
            .then("failed")
            .when("back")
            .then(pl.lit("reset"))
            .when(pl.col("wall_ns") < min(LEAST_WINDOW_NS, t1 - t0) // 2)
            .then(pl.lit("too short"))
            .otherwise(pl.lit("ok"))
        )
        .with_columns(
            wall_s=pl.when(pl.col("status") == "ok").then(pl.col("wall_ns") / NS_PER_S),
            **{
                name: pl.when((pl.col("status") == "ok") & ~pl.col(f"{name}_unknown")).then(name)
                for name in FIGURES
            },
        )
    )


def _steps_in_window(cell: RawCell) -> pl.DataFrame | None:
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    reads = cell.tables.get("devices", empty("devices")).with_columns(at_ns=middle())
    if reads.is_empty():
        return None
    start, end = pl.col("before_at_ns"), pl.col("at_ns")
    half_ns = (end - start) // 2  # a step belongs to the window that has most of it
    inside = (start >= t0 - half_ns) & (end <= t1 + half_ns) & (end > start)
    steps = device_reads.steps(reads.filter(pl.col("status") == "ok")).filter(inside & ~pl.col("back"))
    timed = steps.with_columns(
        start_s=(start - t0) / NS_PER_S, end_s=(end - t0) / NS_PER_S, wall_s=(end - start) / NS_PER_S
    )
    wanted = [name for name in schema("device_time") if name not in _CELL]
    return timed.with_columns(**RATES).select(wanted)
