"""The same quantity from every data source, and how far they differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.units import significant
from dbdyno.present import figures
from dbdyno.present.document import (
    UNKNOWN,
    Block,
    Cell,
    Column,
    Paragraph,
    Row,
    Section,
    Table,
    Tone,
    known,
    table,
    word,
)
from dbdyno.present.figures import difference, quantity
from dbdyno.present.selection import Pick, rows_of
from dbdyno.present.sources_used import in_words

MAX_COLUMNS = 60
Record = dict[str, Any]
_TONES: dict[str, Tone] = {"differs": "warning", "agrees": "good"}


def tables(results: Results, pick: Pick) -> list[Block]:
    """A row for each quantity and source; the first source of a quantity is the reference."""
    if pick.cell is None:
        return [Paragraph("Data sources are compared window by window: choose one.", "muted")]
    found = rows_of(results, "witnesses", pick).to_dicts()
    if not found:
        return [Paragraph(f"Cross-check {pick.at}: no quantity has more than one data source.", "muted")]
    order = [r["quantity"] for r in found]
    rows = sorted(found, key=lambda r: order.index(r["quantity"]))
    return [table(f"Cross-check of data sources {pick.at}{pick.which}", _COLUMNS, rows, named=True)]


def differences(results: Results) -> Section | None:
    """A row a quantity and source, a column a rung (mean of repeats) or window: how far off."""
    frame = results.tables["witnesses"].filter(pl.col("verdict") != "reference")
    if frame.is_empty():
        return None
    column, names = _columns(results, frame)
    found = {
        (q, s, c): Cell(
            UNKNOWN if value is None else difference(value), value, tone="warning" if differs else "good"
        )
        for q, s, c, value, differs in frame.with_columns(column.alias("column"))
        .group_by("quantity", "source", "column", maintain_order=True)
        .agg(pl.col("relative_difference").mean(), (pl.col("verdict") == "differs").any().alias("differs"))
        .rows()
    }
    pairs = dict.fromkeys((q, s) for q, s, _ in found)
    shown = names[:MAX_COLUMNS]
    rows = [
        Row([word(f"{quantity(q)}: {s}"), *(found.get((q, s, c), word("")) for c in shown)]) for q, s in pairs
    ]
    left = f"; {len(names) - len(shown)} more are in the export" if len(shown) < len(names) else ""
    what = "window" if figures.is_observation(results) else "load"
    title = f"Relative difference to the reference, a column a {what}{left}"
    heads = [Column("quantity: source"), *(Column(n, number=True) for n in shown)]
    return Section(f"Differences at every {what}", [Table(title, heads, rows)], folded=True)


def _columns(results: Results, frame: pl.DataFrame) -> tuple[pl.Expr, list[str]]:
    if figures.is_observation(results):
        return pl.col("repeat").cast(pl.String), [str(n) for n in frame["repeat"].unique().sort().to_list()]
    one = frame.select("workload", "variant").n_unique() == 1
    keys = frame.select("workload", "variant", "sessions").unique(maintain_order=True)
    keys = keys.sort("workload", "variant", "sessions")
    if one:
        return pl.col("sessions").cast(pl.String), keys["sessions"].cast(pl.String).to_list()
    name = pl.concat_str("variant", pl.lit(", "), pl.col("sessions").cast(pl.String))
    return name, keys.select(name).to_series().to_list()


def _difference(row: Record) -> Cell:
    reference = row["verdict"] == "reference"
    return Cell("" if reference else difference(row["relative_difference"]), row["relative_difference"])


def _why(row: Record) -> Cell:
    return word(in_words(row["status"]) if row["value"] is None else row["reason"])


_COLUMNS: tuple[tuple[Column, Callable[[Record], Cell]], ...] = (
    (Column("quantity"), lambda r: word(quantity(r["quantity"]))),
    (Column("source"), lambda r: word(r["source"])),
    (Column("value", number=True), lambda r: known(r["value"], lambda v: significant(v, 4), r["unit"])),
    (Column("unit", rank=2), lambda r: word(r["unit"])),
    (Column("difference", number=True), _difference),
    (
        Column("agrees up to", number=True, rank=3),
        lambda r: word("") if r["tolerance"] is None else known(r["tolerance"], lambda v: significant(v, 2)),
    ),
    (Column("verdict"), lambda r: word(r["verdict"])._replace(tone=_TONES.get(r["verdict"], ""))),
    (Column("why", rank=4, wraps=True), _why),
)
