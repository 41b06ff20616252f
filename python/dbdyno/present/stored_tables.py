"""Builds documents of a run's stored tables: the list of them, and some rows of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.text.visible import shortened
from dbdyno.present.document.document import (
    Block,
    Cell,
    Column,
    Document,
    Paragraph,
    Row,
    Section,
    Table,
    numeric,
    texts,
    word,
)

_LONGEST = 200
"""Most characters of a text in a row; a page shows the rest on demand."""
_SOME = 12
"""Columns of a table that the list names."""


class Shown(NamedTuple):
    """A column as its schema describes it."""

    name: str
    unit: str
    doc: str


class Rows(NamedTuple):
    """Some rows of a table. ``first`` counts from 0, ``of`` is the number of all rows."""

    table: str
    kind: str
    columns: Sequence[Shown]
    frame: pl.DataFrame
    first: int
    of: int
    cells: Sequence[str] = ()
    left_out: Sequence[str] = ()


class Listed(NamedTuple):
    """A table in the list."""

    name: str
    kind: str
    rows: int
    columns: Sequence[str]
    page: str = ""
    """The address of its rows, if a server shows the list."""


def listed(run: str, tables: Sequence[Listed]) -> Document:
    """Returns the list of the tables of a run that have rows."""
    columns = [Column("table"), numeric("rows"), Column("columns", wraps=True, rank=1)]
    blocks: list[Block] = []
    for kind, title in _TITLES.items():
        rows = [
            Row([Cell(t.name, t.name, target=t.page), Cell(f"{t.rows:,}", t.rows), word(_names(t.columns))])
            for t in tables
            if t.kind == kind
        ]
        blocks += [Section(title, [Table("", columns, rows)], kind)] if rows else []
    nothing = [] if tables else [Paragraph("Nothing was measured yet.", "muted")]
    return Document(f"Tables of {run}", [*nothing, *blocks])


_TITLES: Mapping[str, str] = {
    "derived": "Derived tables, from which the page is made",
    "raw": "Raw tables, as they were measured",
}


def _names(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - _SOME} more" if len(columns) > _SOME else ""
    return ", ".join(columns[:_SOME]) + more


def some_rows(run: str, shown: Rows) -> Document:
    """Returns rows of a table, with the meaning of its columns."""
    last = shown.first + shown.frame.height
    count = f"Rows {shown.first + 1:,} to {last:,} of {shown.of:,}" if shown.frame.height else "No rows"
    about = f", only of {_names(shown.cells)}" if shown.cells else ""
    lead = [
        Paragraph(f"{count} of this {shown.kind} table{about}."),
        *(Paragraph(t, "warning") for t in shown.left_out),
    ]
    meanings = texts("", ("column", "unit", "meaning"), [(c.name, c.unit, c.doc) for c in shown.columns])
    blocks = [Section("Rows", [_table(shown)], "rows")] if shown.frame.height else []
    return Document(
        f"Table {shown.table} of {run}",
        [*blocks, Section("Meaning of the columns", [meanings], "columns")],
        lead=lead,
    )


def _table(shown: Rows) -> Table:
    columns = [
        Column(c.name, number=shown.frame.schema[c.name].is_numeric(), note=_note(c)) for c in shown.columns
    ]
    rows = [Row([_cell(v) for v in row]) for row in shown.frame.select(c.name for c in shown.columns).rows()]
    return Table("", columns, rows, named=True)


def _note(column: Shown) -> str:
    return f"{column.doc} ({column.unit})" if column.unit else column.doc


def _cell(value: Any) -> Cell:
    """Returns a figure with all its digits; nothing for NULL."""
    if value is None:
        return Cell("")
    if isinstance(value, bool):
        return word(str(value).lower())
    if isinstance(value, int | float):
        return Cell(str(value) if isinstance(value, int) else f"{value:.9g}", float(value))
    text = str(value)
    return word(text) if len(text) <= _LONGEST else Cell(shortened(text, _LONGEST), text, whole=text)
