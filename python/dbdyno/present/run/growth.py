"""Shows the rows and bytes that each measurement left behind in its tables, and resets of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import NS_PER_S, counted, format_count, format_size, significant
from dbdyno.present.document.document import Block, Cell, Column, known, numeric, remarks, table, word
from dbdyno.present.figures import figures

TITLE = "What each measurement left behind"
_Row = dict[str, Any]
_ENDS = {end: pl.sum_horizontal(f"table_bytes_{end}", f"index_bytes_{end}") for end in ("start", "end")}
_SUMS = ("rows_inserted", "rows_updated", "rows_deleted", "dead_rows_end")


def _changed(results: Results) -> bool:
    """Returns whether a measurement changed rows, or data were reset."""
    grown = results.tables.get("growth", empty("growth"))
    return bool(grown.select(pl.sum_horizontal(*_SUMS[:3]).sum()).item() or _resets(results).height)


def blocks(results: Results, title: str = TITLE) -> list[Block]:
    """Returns one row per measurement with known growth, and notes on resets of the data."""
    if not _changed(results):
        return []
    frame = (
        results.tables["growth"]
        .group_by("cell")
        .agg(*(pl.col(c).sum() for c in _SUMS), size=_ENDS["start"].sum(), end=_ENDS["end"].sum())
    )
    cells = results.tables["windows"].select("cell", "variant", "sessions", "rate_per_s", "repeat")
    rows = cells.join(frame, on="cell").sort("cell").to_dicts()
    load = figures.load_of(results)
    optional: list[tuple[Column, Callable[[_Row], Cell]]] = []
    if cells["variant"].n_unique() > 1:
        optional.append((Column("variant", shortens=True), lambda r: word(r["variant"])))
    if cells["repeat"].n_unique() > 1:
        optional.append((numeric("repeat"), lambda r: known(r["repeat"], format_count)))
    columns = (
        (numeric("load"), lambda r: known(r[load.column], lambda v: figures.load_text(load, v))),
        *optional,
        (numeric("inserted"), _count("rows_inserted")),
        (numeric("updated", 2), _count("rows_updated")),
        (numeric("deleted", 4), _count("rows_deleted")),
        (numeric("dead rows", 3), _count("dead_rows_end")),
        (numeric("data before"), lambda r: known(r["size"], format_size, "bytes")),
        (numeric("growth"), _growth),
    )
    what = "Rows of all tables that calls used, warm-up included; sizes with indexes."
    notes = remarks(t for t in (_reset(results), what if rows else "") if t)
    return [*([table(title, columns, rows)] if rows else []), *notes]


def _count(name: str) -> Callable[[_Row], Cell]:
    return lambda r: known(r[name], format_count)


def _growth(row: _Row) -> Cell:
    if row["size"] is None:
        return known(None, format_size)
    more = row["end"] - row["size"]
    share = f" ({figures.percent(more, row['size'], digits=1)} %)" if row["size"] else ""
    return word(f"{format_size(more)}{share}")


def _resets(results: Results) -> pl.DataFrame:
    return results.tables.get("resets", empty("resets"))


def _reset(results: Results) -> str:
    """Returns a sentence on resets of the data and their duration; empty without any."""
    loaded = _resets(results).filter(pl.col("how") == "loaded")["duration_ns"] / NS_PER_S
    if loaded.is_empty():
        return _cold(results).strip()
    total, each = float(loaded.sum()), float(loaded.mean())  # type: ignore[arg-type]
    if len(loaded) == 1:
        return f"Data were brought back once, in {significant(total)} s (dbdyno help resets).{_cold(results)}"
    often = f"{counted(len(loaded), 'time')}, {significant(each)} s each, {significant(total)} s in all"
    return f"Data were brought back {often} (dbdyno help resets).{_cold(results)}"


def _cold(results: Results) -> str:
    """Returns a sentence on dropped caches and what remained in them; empty if they were not dropped."""
    dropped = _resets(results).filter(pl.col("cache") == "dropped")
    if dropped.is_empty():
        return ""
    left, stays = (
        dropped.select(pl.col(c).max()).item() for c in ("cache_left_share", "page_cache_left_share")
    )
    page = dropped.filter(pl.col("page_cache") != "dropped")["page_cache"]
    if len(page):
        beside = f"the page cache was not dropped: {page[0]}"
    elif stays is None:
        beside = "what stayed in the page cache is unknown"
    else:
        beside = f"{figures.percent(stays, digits=1)} % in the page cache"
    most = f"at most {figures.percent(left, digits=1)} % of the pages stayed in the server's cache"
    return f" Caches were dropped {counted(len(dropped), 'time')}: {most}; {beside}."
