"""Shows the block devices below the server's directories: IOPS, throughput, response time and queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

from dbdyno.model.results.device_reads import FIGURES, RATES
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.devices import ASSUMED_PLACE, DEVICE_SOURCE, DEVICES
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import format_ns, format_percent, format_rate, format_size, significant
from dbdyno.present.charts import triggers
from dbdyno.present.charts.chart import Spec, channel, chart, coloured, encoded, layer, series_keys, tips
from dbdyno.present.document.document import (
    Block,
    Cell,
    Chart,
    Column,
    known,
    numeric,
    optional,
    remarks,
    table,
    word,
)
from dbdyno.present.figures.selection import Pick, picks, rows_of
from dbdyno.present.parts import Page, Part, has_rows

TITLE = "Devices"
_MB = 1e6
_MAX_PIECES = 120
"""Most pieces of a measurement in a chart, as in the charts of throughput over time."""
_Row = dict[str, Any]
_Columns = tuple[tuple[Column, Callable[[_Row], Cell]], ...]
_HOW = (
    "Of all processes of the machine, from /proc/diskstats. Mean response times of reads, writes and flushes "
    "(await), with the queue, and requests in flight, as iostat(1) defines them. Busy: the share of the time "
    "with a request in progress; a device that serves many at once, as SSDs do, can be busy all the time and "
    "yet be far from its limit."
)


def blocks(results: Results, pick: Pick) -> list[Block]:
    """Returns one row per device, and per directory that is on none."""
    rows = rows_of(results, "device_io", pick).to_dicts()
    if not rows:
        return [*remarks([f"No devices were read {pick.at}."])]
    return [table(f"{TITLE} {pick.at}", _COLUMNS, rows), *remarks([*_notes(results, rows), _HOW])]


def by_load(results: Results, pick: Pick | None = None) -> list[Block]:  # noqa: ARG001
    """Returns the devices of the directories at every load of a ladder; empty with a single load."""
    loads = [p for p in picks(results).shown if p.rung[2]]
    rows = [
        {**row, "load": load.label}
        for load in reversed(loads)
        for row in rows_of(results, "device_io", load).filter("counted").to_dicts()
    ]
    if len(loads) < 2 or not rows:
        return []
    columns = ((numeric("load"), lambda r: word(r["load"])), *(c for c in _COLUMNS if c[0].head != "holds"))
    return [table(f"{TITLE} by load", columns, rows, along_axis=True)]


def _figure(
    name: str, text: Callable[[float], str], unit: str = "", scale: float = 1.0
) -> Callable[[_Row], Cell]:
    """Returns the function of a cell: empty where there is no device, or where none was counted. The value
    is divided by ``scale``."""

    def cell(row: _Row) -> Cell:
        if row["device"] is None or (row["status"] in ("ok", "limited") and row[name] is None):
            return optional(None, text)
        value = None if row[name] is None else row[name] / scale
        return known(value, text, unit, "" if row["status"] == "ok" else row["status"])

    return cell


_COLUMNS: _Columns = (
    (Column("device"), lambda r: word(r["device"] or "none", r["layers"] or "")),
    (Column("holds", wraps=True), lambda r: word(r["places"] or f"below {r['below']}")),
    (numeric("reads/s"), _figure("reads_per_s", format_rate)),
    (numeric("read MB/s", 2), _figure("read_bytes_per_s", significant, "MB/s", _MB)),
    (numeric("r await"), _figure("read_await_ns", format_ns, "ns")),
    (numeric("writes/s"), _figure("writes_per_s", format_rate)),
    (numeric("write MB/s", 2), _figure("written_bytes_per_s", significant, "MB/s", _MB)),
    (numeric("w await"), _figure("write_await_ns", format_ns, "ns")),
    (numeric("flushes/s", 3), _figure("flushes_per_s", format_rate)),
    (numeric("f await", 3), _figure("flush_await_ns", format_ns, "ns")),
    (numeric("request", 5), _figure("request_bytes", format_size, "bytes")),
    (numeric("in flight", 1), _figure("in_flight", significant)),
    (numeric("busy", 4), _figure("utilisation", format_percent)),
    (Column("unknown", wraps=True), lambda r: word("" if r["status"] in ("ok", "limited") else r["status"])),
)


def _notes(results: Results, rows: list[_Row]) -> Iterator[str]:
    """Yields what lies on what, what is left out, and the cure of what is not permitted."""
    layers = [row["layers"] for row in rows if row["layers"] and row["places"]]
    if layers:
        yield f"{'; '.join(layers)}. What lies below contains the figures of what lies on it."
    if any(row["status"] == "limited" for row in rows):
        yield "Measurements in which a device could not be read are left out of its figures."
    if any(ASSUMED_PLACE in (row["places"] or "") for row in rows):
        yield (
            "Unless a link: the directory may not be looked at by the user that dbdyno ran as. Its device is "
            "that of the mount point above it, or another if a link leads elsewhere."
        )
    if any(row["status"] == "not permitted" for row in rows):
        sources = results.tables["sources"].filter(name=DEVICES, status="not permitted")
        yield f"Not permitted: {next(iter(sources['detail']), DEVICE_SOURCE.cures['not permitted'])}."


_KINDS = (("read", "reads"), ("write", "writes"))


def over_time(results: Results, pick: Pick) -> list[Block]:
    """Returns charts of throughput, IOPS and response time of a measurement, read by read; empty with fewer
    than two reads of a device."""
    rows = _pieces(results, pick)
    if rows.height < 2:
        return []
    named = {
        "bytes": ("MB/s", f"Throughput of the devices over time, {pick.at}", _MB),
        "requests": ("requests/s", f"IOPS of the devices over time, {pick.at}", 1.0),
        "await": ("await, ms", f"Response time of the devices over time, {pick.at}", 1e6),
    }
    columns = {
        "bytes": ("read_bytes_per_s", "written_bytes_per_s"),
        "requests": ("reads_per_s", "writes_per_s"),
        "await": ("read_await_ns", "write_await_ns"),
    }
    drawn = (_chart(results, pick, rows, kind, columns[kind], *named[kind]) for kind in named)
    return [c for c in drawn if c is not None]


def _pieces(results: Results, pick: Pick) -> pl.DataFrame:
    """Returns the rows of table ``device_time`` of the devices of the directories, consecutive ones merged
    where there are many."""
    if pick.cell is None:
        return empty("device_time")
    counted = results.of_cell("device_io", pick.cell).filter("counted")["device"]
    rows = results.of_cell("device_time", pick.cell).filter(pl.col("device").is_in(counted.implode()))
    size = -(-rows.height // (_MAX_PIECES * max(1, rows["device"].n_unique()))) or 1
    merged = (
        rows.sort("device", "start_s", maintain_order=True)
        .with_columns(piece=pl.int_range(pl.len()).over("device") // size)
        .group_by("device", "piece", maintain_order=True)
        .agg(
            pl.col("start_s").min(),
            pl.col("end_s").max(),
            *(pl.col(name).sum() for name in FIGURES),
            wall_s=(pl.col("end_s") - pl.col("start_s")).sum(),
        )
    )
    return merged.with_columns(**RATES)


def _chart(
    results: Results,
    pick: Pick,
    rows: pl.DataFrame,
    kind: str,
    columns: tuple[str, str],
    unit: str,
    title: str,
    factor: float,
) -> Chart | None:
    """Returns a step chart with a series per device and direction; None if nothing was read or written."""
    parts = [
        rows.select(
            "start_s",
            "end_s",
            series=pl.format("{} " + f"{plural}", pl.col("device")),
            value=(pl.col(column) / factor).round(6),
        )
        for (_, plural), column in zip(_KINDS, columns, strict=True)
    ]
    known_rows = pl.concat(parts).filter(pl.col("value").is_not_null())
    if not known_rows.filter(pl.col("value") > 0).height:
        return None
    names = known_rows["series"].unique(maintain_order=True).to_list()
    ends = [float(rows.select(end).item()) for end in (pl.col("start_s").min(), pl.col("end_s").max())]
    scale = {"nice": False, "domain": ends}  # one axis for all three charts
    span: dict[str, Spec] = {
        "x": channel("start_s:Q", title="seconds since the start of the measurement", scale=scale),
        "x2": {"field": "end_s"},
    }
    tooltip = tips(
        ("start_s:Q", ".1f", "from second"),
        ("end_s:Q", ".1f", "to second"),
        "series:N",
        ("value:Q", ",.4~r", unit),
    )
    step = encoded(
        layer(known_rows, "rule", strokeWidth=2.5),
        **span,
        y=channel("value:Q", title=unit, scale={"zero": True}),
        color=coloured("series", names),
        tooltip=tooltip,
    )
    fired = triggers.of_cell(results, pick.cell)
    caption = "From one read of /proc/diskstats to the next, about one a second."
    return chart(
        f"{pick.key}-devices-{kind}",
        title,
        caption + triggers.caption_note(fired),
        [step, *triggers.marks(fired)],
        f"{title}, in {unit}",
        known_rows,
        legend=series_keys(names),
    )


def limit_note(results: Results, pick: Pick | None = None) -> list[Block]:  # noqa: ARG001
    """Returns why there is no conclusion whether a device limits throughput; empty if there can be one."""
    if len({(p.rung[2], p.rate_per_s) for p in picks(results).shown if p.rung[2]}) > 1:
        return []
    what = "whether a device is the limit takes its response times at a low load and at a higher one"
    return [*remarks([f"Unknown: {what} (dbdyno explain device-limit)."])]


def _shown(page: Page) -> list[Block]:
    return [*by_load(page.results), *limit_note(page.results), page.choice(blocks, over_time)]


PART = Part(
    "devices",
    TITLE,
    _shown,
    has_rows("device_io"),
    detail=True,
    option="devices",
    details=(blocks, by_load, limit_note),
)
