"""Top SQL: which statements took the time, and what each execution of them costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.tables import empty
from dbdyno.model.units import NS_PER_S, format_ns, format_rate, significant
from dbdyno.present.document import (
    UNKNOWN,
    Block,
    Cell,
    Column,
    Paragraph,
    Section,
    Verbatim,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.figures import grouped, percent
from dbdyno.present.selection import Pick, rows_of

SHOWN = 20
"""Statements in a table; the export holds more."""
_SHORT = 120
"""Characters of a statement in a line."""
_LIO = ("shared_blks_hit", "shared_blks_read", "local_blks_hit", "local_blks_read")
_READS = ("shared_blks_read", "local_blks_read")
_LOWER = "lower bound"
SOURCE = "statement counters"


def there(results: Results) -> bool:
    """Whether statements were counted, or met by samples."""
    return bool(results.tables.get("statements", empty("statements")).height)


def top_sql(results: Results, pick: Pick) -> list[Block]:
    """The statements of most time, those of most LIO and calls among them; their texts, folded."""
    frame = rows_of(results, "statements", pick)
    if frame.is_empty():
        return [Paragraph(f"No Top SQL: {_why(results)}.", "muted")]
    texts = dict(results.tables["statement_texts"].select("query_id", "text").iter_rows())
    rows = [r | {"text": texts.get(r["query_id"])} for r in _chosen(frame).to_dicts()]
    made = table(f"Top SQL {pick.at} by time", _COLUMNS, rows)
    return [made, *_whole(rows), *remarks(_notes(frame, rows))]


def _chosen(frame: pl.DataFrame) -> pl.DataFrame:
    """The first by time, and the first few by LIO and by calls, in the order of time."""
    one = frame.filter(pl.col("others").is_null())
    by = {"lio": pl.sum_horizontal(*_LIO), "calls": pl.col("calls")}
    more = [one.sort(key, descending=True, nulls_last=True)["rank"].head(SHOWN // 4) for key in by.values()]
    chosen = pl.concat([one.sort("rank")["rank"].head(SHOWN), *more]).unique().implode()
    return one.filter(pl.col("rank").is_in(chosen)).sort("rank")


def statement(row: dict[str, Any]) -> str:
    """In one line."""
    if row["query_id"] is None:
        return f"statements of {row['user'] or 'other users'}, hidden from this role"
    text = " ".join((row["text"] or f"query id {row['query_id']}, text unknown").split())
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


def _whole(rows: list[dict[str, Any]]) -> list[Block]:
    """The whole texts, for those that a line shortens."""
    shown = [
        block
        for r in rows
        if r["text"] is not None and r["text"] != statement(r)
        for block in (Paragraph(f"{r['rank']}. query id {r['query_id']}", "muted"), Verbatim(r["text"]))
    ]
    return [Section("Texts of the statements", shown, folded=True)] if shown else []


def _why(results: Results) -> str:
    told = results.tables["sources"].filter((pl.col("name") == SOURCE) & (pl.col("status") != "ok"))
    if told.height:
        return str(told["detail"][0]) or str(told["status"][0])
    return "no statement was executed, or the run has no counters of statements"


def _notes(frame: pl.DataFrame, rows: list[dict[str, Any]]) -> list[str]:
    left = frame.height - len(rows)
    notes = [f"{left} further rows of table statements are in the export."] if left > 0 else []
    notes += [
        f"{why}: the figures of {n} statements are lower bounds."
        for why, n in ((why.partition(": ")[2].capitalize(), len(of)) for why, of in _lower(frame).items())
    ]
    if (
        frame["query_id"].is_null().any()
        and frame.filter(pl.col("query_id").is_null())["others"].is_null().any()
    ):
        notes.append(
            "Texts of statements of other users are hidden: dbdyno doctor shows the right that it needs."
        )
    if not all(r["toplevel"] for r in rows):
        notes.append(
            "Statements inside functions are marked; their time is part of the caller's, and so is no share."
        )
    if frame["db_time_s"].is_not_null().any():
        notes.append("DB time, CPU WAIT and wait are from samples; calls, time and blocks are counted.")
    return notes


def _lower(frame: pl.DataFrame) -> dict[str, list[str]]:
    found = frame.filter(pl.col("status").str.starts_with(_LOWER)).select("status", "rank").iter_rows()
    return grouped((status, str(rank)) for status, rank in found)


_Row = dict[str, Any]
_Number = Callable[[_Row], float | None]


def _per_call(*names: str) -> Callable[[dict[str, Any]], float | None]:
    def value(row: dict[str, Any]) -> float | None:
        found = [row[n] for n in names]
        return None if None in found or not row["calls"] else sum(found) / row["calls"]

    return value


def _figure(value: _Number, text: Callable[[float], str], unit: str = "") -> Callable[[_Row], Cell]:
    def cell(row: dict[str, Any]) -> Cell:
        found = value(row)
        lower = row["status"].startswith(_LOWER)
        return known(
            found, lambda v: f"{'>= ' if lower else ''}{text(v)}", unit, row["status"] if lower else ""
        )

    return cell


def _name(row: dict[str, Any]) -> Cell:
    inside = "" if row["toplevel"] else "(inside a function) "
    text = row["text"] or ""
    return Cell(f"{inside}{statement(row)}", text or None, note=text)


def _bytes(value: float) -> str:
    text = format_rate(value)
    return f"{text}B" if value >= 1e3 else f"{text} B"


def _seconds(row: dict[str, Any]) -> float | None:
    return None if row["exec_ns"] is None else row["exec_ns"] / NS_PER_S


def _share(row: dict[str, Any]) -> Cell:
    share = row["share"]
    if share is None:
        return Cell("-" if not row["toplevel"] else UNKNOWN)
    return known(share, lambda v: percent(v, digits=1))._replace(bar=((min(1.0, share), "accent"),))


def _sampled(name: str) -> Callable[[dict[str, Any]], Cell]:
    return lambda r: Cell("-") if r[name] is None else known(r[name], significant, "s")


_COLUMNS: tuple[tuple[Column, Callable[[dict[str, Any]], Cell]], ...] = (
    (Column("statement", shortens=True), _name),
    (numeric("calls"), _figure(lambda r: r["calls"], format_rate)),
    (numeric("time"), _figure(_seconds, lambda s: format_ns(s * NS_PER_S), "s")),
    (
        numeric("%")._replace(name="% of time", note="of the time of all statements, without dbdyno's own"),
        _share,
    ),
    (numeric("mean"), _figure(_per_call("exec_ns"), format_ns, "ns")),
    (numeric("LIO/call", 1), _figure(_per_call(*_LIO), format_rate, "blocks")),
    (numeric("rows/call", 3), _figure(_per_call("rows"), format_rate)),
    (numeric("reads/call", 2), _figure(_per_call(*_READS), format_rate, "blocks")),
    (numeric("WAL/call", 4), _figure(_per_call("wal_bytes"), _bytes, "bytes")),
    (numeric("DB time", 6)._replace(note="from samples"), _sampled("db_time_s")),
    (numeric("CPU WAIT", 5)._replace(note="from samples"), _sampled("cpu_wait_s")),
    (Column("top wait", rank=7), lambda r: word(r["top_wait"] or "-")),
)
