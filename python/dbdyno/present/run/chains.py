"""Shows wait chains: who makes whom wait for locks, the activity and owners of the roots, and the locked
objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.blocking import LOCK_WAITS
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.source import HIDDEN_STATUS
from dbdyno.model.text.visible import visible
from dbdyno.model.units import NS_PER_S, counted, format_ns
from dbdyno.present.document.document import (
    Block,
    Cell,
    Column,
    Paragraph,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.figures.figures import percent
from dbdyno.present.figures.selection import Pick, rows_of
from dbdyno.present.run.statements import statement

SHOWN = 10
"""Most rows of a table; the export has more."""
_NONE_MET = "no sample met a session that waited for a lock"
_METHOD = (
    "Seconds are the ledger's sleep in these events, divided as samples of the lock table were; the interval "
    "is of sampling. A chain runs from who waits to its root, which waits for no lock. A root whose process "
    "is runnable is on a CPU or in the run queue (CPU WAIT): its time is divided as that of its process over "
    "the whole window. Who holds a lightweight lock is not recorded by the server: such waits are not here."
)
_TITLES = {
    "doing": "What the roots of lock waits do",
    "chain": "Chains of lock waits",
    "statement": "Statements of the roots of lock waits",
    "object": "What is locked",
}
_Row = dict[str, Any]


def sampled(results: Results) -> bool:
    """Returns whether samples found sessions that waited for locks."""
    return bool(results.tables.get("wait_chains", empty("wait_chains")).height)


def wait_chains(results: Results, pick: Pick) -> list[Block]:
    """Returns lock waits by activity of the root, by chain, by the root's statement, and by locked object."""
    frame = rows_of(results, "wait_chains", pick)
    if frame.is_empty():
        lacking = _details(results, lacking=True)
        why = lacking or _details(results) or _NONE_MET
        return [
            Paragraph(f"{'Lock waits unknown' if lacking else 'No lock waits'} {pick.at}: {why}.", "muted")
        ]
    texts = results.tables.get("statement_texts", empty("statement_texts"))
    known_texts = dict(texts.select("query_id", "text").iter_rows())
    tables: list[Block] = []
    for by, title in _TITLES.items():
        rows = frame.filter(pl.col("by") == by).sort("rank").to_dicts()
        for row in rows:
            row["text"] = known_texts.get(row["query_id"])
        columns = (_FIRST[by], *((_SQL,) if by == "statement" else ()), *_COLUMNS)
        tables.append(table(f"{title} {pick.at}", columns, rows[:SHOWN], named=True))
        if len(rows) > SHOWN:
            tables += remarks(
                [f"{counted(len(rows) - SHOWN, 'more row')}: see the export, table wait_chains."]
            )
    return [*tables, *remarks([_METHOD, *_hidden(results, frame)])]


def _details(results: Results, *, lacking: bool = False) -> str:
    """Returns the detail of the source of lock waits, empty without one; with ``lacking`` only if the source
    is not read in full."""
    details = results.tables["sources"].filter((pl.col("name") == LOCK_WAITS) & (pl.col("detail") != ""))
    details = details.filter(pl.col("status") != "ok") if lacking else details
    return str(details["detail"][0]) if details.height else ""


def _hidden(results: Results, frame: pl.DataFrame) -> list[str]:
    """Returns a note on roots whose activity the role may not see, with the cure."""
    hidden = not frame.filter(pl.col("name").str.contains(HIDDEN_STATUS, literal=True)).is_empty()
    return [f"What some roots do is hidden: {_details(results) or _NONE_MET}."] if hidden else []


def _interval(row: _Row) -> Cell:
    return word(f"{_time(row['low'])} to {_time(row['high'])}")


def _time(seconds: float) -> str:
    return format_ns(seconds * NS_PER_S)


def _share(name: str) -> Callable[[_Row], Cell]:
    def cell(row: _Row) -> Cell:
        share = row[name]
        bar = () if share is None else ((min(1.0, share), "accent"),)
        return known(share, lambda v: percent(v, digits=1))._replace(bar=bar)

    return cell


def _name(row: _Row) -> Cell:
    return word(visible(row["name"]))


def _sql(row: _Row) -> Cell:
    number = row["query_id"]
    if number is None:
        return Cell("query id unknown")
    return word(statement(row) if row["text"] else f"query id {number}", f"Query id {number}")


_FIRST = {
    "doing": (Column("root", shortens=True), _name),
    "chain": (Column("chain", wraps=True), _name),
    "statement": (Column("root", shortens=True), _name),
    "object": (Column("locked", shortens=True), _name),
}
_SQL = (Column("statement", shortens=True), _sql)
_COLUMNS: tuple[tuple[Column, Callable[[_Row], Cell]], ...] = (
    (numeric("time"), lambda r: known(r["seconds"], _time, "s")),
    (numeric("% DB time"), _share("share")),
    (numeric("% of lock waits", 1), _share("lock_share")),
    (numeric("95 % interval", 2), _interval),
    (numeric("longest", 3), lambda r: known(r["longest_s"], _time, "s")),
    (numeric("samples", 4), lambda r: known(r["samples"], lambda n: f"{n:,}")),
)
