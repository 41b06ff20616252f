"""What each measurement left behind in the tables that it used, and how data were brought back before it."""

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


def there(results: Results) -> bool:
    """Whether any measurement changed rows, or data were brought back."""
    grown = results.tables.get("grown", empty("grown"))
    return bool(grown.select(pl.sum_horizontal(*_SUMS[:3]).sum()).item() or _done(results).height)


def blocks(results: Results, title: str = TITLE) -> list[Block]:
    """A row for each measurement whose growth is known; what it took to bring data back."""
    if not there(results):
        return []
    frame = results.tables["grown"].group_by("cell").agg(
        *(pl.col(c).sum() for c in _SUMS), size=_ENDS["start"].sum(), end=_ENDS["end"].sum()
    )  # fmt: skip
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
    said = remarks(t for t in (_reset(results), what if rows else "") if t)
    return [*([table(title, columns, rows)] if rows else []), *said]


def _count(name: str) -> Callable[[_Row], Cell]:
    return lambda r: known(r[name], format_count)


def _growth(row: _Row) -> Cell:
    if row["size"] is None:
        return known(None, format_size)
    more = row["end"] - row["size"]
    share = f" ({figures.percent(more, row['size'], digits=1)} %)" if row["size"] else ""
    return word(f"{format_size(more)}{share}")


def _done(results: Results) -> pl.DataFrame:
    return results.tables.get("resets_done", empty("resets_done"))


def _reset(results: Results) -> str:
    """One sentence; empty: data were never brought back."""
    loaded = _done(results).filter(pl.col("how") == "loaded")["duration_ns"] / NS_PER_S
    if loaded.is_empty():
        return _cold(results).strip()
    total, each = float(loaded.sum()), float(loaded.mean())  # type: ignore[arg-type]
    if len(loaded) == 1:
        return f"Data were brought back once, in {significant(total)} s (docs/resets.md).{_cold(results)}"
    often = f"{counted(len(loaded), 'time')}, {significant(each)} s each, {significant(total)} s in all"
    return f"Data were brought back {often} (docs/resets.md).{_cold(results)}"


def _cold(results: Results) -> str:
    """What was dropped from the caches; empty: they were not dropped."""
    done = _done(results).filter(pl.col("cache") == "dropped")
    if done.is_empty():
        return ""
    left, stays = (done.select(pl.col(c).max()).item() for c in ("cache_left_share", "page_cache_left_share"))
    page = done.filter(pl.col("page_cache") != "dropped")["page_cache"]
    if len(page):
        beside = f"the page cache was not dropped: {page[0]}"
    elif stays is None:
        beside = "what stayed in the page cache is unknown"
    else:
        beside = f"{figures.percent(stays, digits=1)} % in the page cache"
    most = f"at most {figures.percent(left, digits=1)} % of the pages stayed in the server's cache"
    return f" Caches were dropped {counted(len(done), 'time')}: {most}; {beside}."
