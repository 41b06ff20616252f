"""Compares the memory of all measurements of a run: as stacked bars, and as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.plan.kinds import SERVED
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.memory import GROWTH, PARTS
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import format_size
from dbdyno.present.charts.chart import Spec, channel, chart, coloured, encoded, layer, tips
from dbdyno.present.document.document import (
    Block,
    Cell,
    Chart,
    Column,
    Key,
    known,
    numeric,
    optional,
    table,
    word,
)
from dbdyno.present.document.palette import var
from dbdyno.present.figures import figures
from dbdyno.present.figures.selection import Pick

_PAINTS = dict(
    zip(
        PARTS,
        ("run", "sleep-1", "sleep-3", "series-7", "sleep-2", "sleep-4", "unaccounted", "client"),
        strict=True,
    )
)
_MOST = 60
"""Most bars of a chart; of more measurements, evenly spaced ones are drawn."""
_GIB = 1 << 30
_Row = dict[str, Any]


def charts(results: Results) -> list[Chart]:
    """Returns a bar per measurement: the machine's memory at its end, by use."""
    places = _places(results)
    parts = results.tables.get("memory_parts", empty("memory_parts"))
    ended = parts.filter(
        (pl.col("phase") == "end") & pl.col("part").is_in(PARTS) & pl.col("bytes").is_not_null()
    )
    rows = places.join(ended.select("cell", "part", "bytes", "share"), on="cell", maintain_order="left")
    if rows.is_empty():
        return []
    order = pl.col("part").replace_strict({p: n for n, p in enumerate(PARTS)}, return_dtype=pl.Int64)
    drawn = rows.with_columns(order=order, gib=pl.col("bytes") / _GIB).drop("bytes", "cell")
    used = [p for p in PARTS if rows.filter((pl.col("part") == p) & (pl.col("bytes") != 0)).height]
    axis: Spec = {"labelAngle": 0, "labelOverlap": "greedy", "ticks": False}
    bars = encoded(
        layer(drawn.filter(pl.col("part").is_in(used)), "bar"),
        x=channel(
            "place:O", title="measurement", sort=None, axis=axis, scale={"type": "band", "padding": 0.1}
        ),
        y=channel("gib:Q", title="GiB", stack="zero"),
        color=coloured("part", used, [var(_PAINTS[p]) for p in used]),
        order=channel("order:O"),
        tooltip=tips("place:N", "part:N", ("gib:Q", ",.3~r", "GiB"), ("share:Q", ".1%", "of the total")),
    )
    caption = (
        "The machine's memory at the end of each measurement, from the kernel at the bottom to free memory."
    )
    keys = [Key(p, var(_PAINTS[p]), "fill") for p in used]
    title = "The machine's memory"
    return [chart("stack", title, caption, [bars], f"{title}, stacked, in GiB", drawn, legend=keys)]


def _places(results: Results) -> pl.DataFrame:
    """Returns cell and label (place) of the measurements whose memory was read."""
    read = set(results.tables.get("memory_parts", empty("memory_parts"))["cell"])
    windows = results.tables["windows"].filter(pl.col("cell").is_in(sorted(read))).sort("t0_ns")
    step = -(-len(windows) // _MOST) or 1
    some = windows.gather_every(step).to_dicts()
    load = figures.load_of(results)
    several = {n: len({w[n] for w in some}) > 1 for n in ("variant", "repeat")}

    def label(row: _Row) -> str:
        if figures.is_observation(results):
            return f"window {row['repeat']}"
        variant = f", {row['variant']}" if several["variant"] else ""
        again = f", repeat {row['repeat']}" if several["repeat"] else ""
        return f"{figures.load_text(load, row[load.column])}{variant}{again}"

    labelled = [{"cell": w["cell"], "place": label(w)} for w in some]
    return pl.DataFrame(labelled, schema={"cell": pl.String, "place": pl.String})


_FIGURES = {
    "data_both_bytes": Column("held twice", number=True, kinds=(SERVED,)),
    "data_cached_bytes": Column("server's cache", number=True, kinds=(SERVED,)),
    "data_page_cache_bytes": numeric("page cache"),
    "page_tables_bytes": numeric("page tables", 1),
    "swapped_bytes": numeric("swapped", 2),
    "pressure_some_ns": numeric("waited for memory", 3),
}


def blocks(results: Results) -> list[Block]:
    """Returns one row per measurement; empty for a single one, whose figures are in its own tables."""
    places = _places(results)
    if len(places) < 2:
        return []
    figures_at_end = results.tables["memory_figures"].filter(pl.col("phase").is_in(["end", GROWTH]))
    by_cell: dict[str, dict[str, _Row]] = {}
    for row in figures_at_end.to_dicts():
        by_cell.setdefault(row["cell"], {})[row["key"]] = row
    rows = [{"place": place, **by_cell.get(cell, {})} for cell, place in places.rows()]
    for row in rows:
        ways = [row.get(f"swapped_{way}_bytes", {}) for way in ("in", "out")]
        known_ways = [w["value"] for w in ways if w.get("value") is not None]
        if len(known_ways) == len(ways):
            row["swapped_bytes"] = {"value": sum(known_ways), "status": "ok"}
    columns = (
        (Column("measurement", shortens=True), lambda r: word(r["place"])),
        *((column, _cell(key)) for key, column in _FIGURES.items()),
    )
    return [table("Data in memory and page tables at the end of each measurement", columns, rows)]


def all_measurements(results: Results, _pick: Pick) -> list[Block]:
    """Returns :func:`blocks`, for an option that also shows a single measurement."""
    return blocks(results)


def _cell(key: str) -> Callable[[_Row], Cell]:
    if key == "pressure_some_ns":
        return lambda r: optional(r.get(key, {}).get("share"), lambda v: f"{figures.percent(v, digits=1)} %")
    return lambda r: _size(r.get(key, {}))


def _size(figure: _Row) -> Cell:
    """Returns a size, marked as a lower bound if a part is unknown."""
    cell = known(figure.get("value"), format_size, "bytes")
    partly = figure.get("status", "ok") != "ok" and figure["value"] is not None
    return cell._replace(text=f">= {cell.text}") if partly else cell
