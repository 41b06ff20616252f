"""Shows Top SQL between two snapshots: by time, calls, logical I/O, reads, WAL, temporary blocks and
others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results.interval import IntervalFigures
from dbdyno.model.units import counted, format_ns, format_percent, format_rate, format_size, significant
from dbdyno.present.document.document import Block, Cell, Column, Paragraph, numeric, remarks, table
from dbdyno.present.run import statements as sql
from dbdyno.present.run.statements import Columns, figure, per_call, share_of

_Row = dict[str, Any]
_PLANS = "Whether plans changed is not known: the server's own statistics do not have plans."


def top_sql(figures: IntervalFigures, most: int) -> tuple[list[Block], list[Block]]:
    """Returns the first ``most`` statements of each order, and their texts.

    An order is left out if it equals the one by time, or if it is empty.
    """
    frame = figures.statements
    if frame.is_empty():
        return [Paragraph(f"No Top SQL: {_reason(figures)}.", "muted")], []
    known_texts = {i: (t, len(t)) for i, t in figures.interval.texts.select("query_id", "text").iter_rows()}
    orders = {by: sql.ranked(frame, by, known_texts, most) for by in sql.ORDERS}
    orders["variance"] = _varying(frame, known_texts, most)
    first = orders["time"]
    columns = (*sql.COLUMNS, _GENERIC)
    useful = [(c, cell) for c, cell in columns if c.rank < 3 or any(cell(r).value for r in first)]
    several = [(c, cell) for c, cell in sql.WHOSE if frame[c.head].n_unique() > 1]
    tables: list[Block] = [table("By execution time", (*useful, *several), first)]
    shown, same = list(first), []
    for by, rows in list(orders.items())[1:]:
        rows = [r for r in rows if r["_by"]]
        if [r["rank"] for r in rows] == [r["rank"] for r in first[: len(rows)]] and len(rows) == len(first):
            same.append(_titles(by))
        elif rows:
            tables.append(table(f"By {_titles(by)}", _COLUMNS[by], rows))
            shown += rows
    return [*tables, *remarks(_notes(figures, frame, shown, same))], sql.whole_texts(shown)


def _titles(by: str) -> str:
    return sql.ORDERS[by][0] if by in sql.ORDERS else "variation of time"


def _varying(frame: pl.DataFrame, known_texts: dict[int, tuple[str, int]], most: int) -> list[_Row]:
    """Returns the statements whose executions vary most: standard deviation times calls."""
    mean = pl.col("exec_ns") / pl.col("calls") / 1e9
    spread = (pl.col("exec_square_s2") / pl.col("calls") - mean.pow(2)).clip(0.0).sqrt() * 1e9
    known = frame.with_columns(spread_ns=spread).filter(pl.col("calls") > 1)
    rows = known.with_columns(_by=pl.col("spread_ns") * pl.col("calls"))
    rows = rows.filter(pl.col("_by").is_not_null()).sort("_by", "rank", descending=[True, False]).head(most)
    return [
        {
            **r,
            "text": known_texts.get(r["query_id"], (None, None))[0],
            "length": known_texts.get(r["query_id"], (None, None))[1],
        }
        for r in rows.to_dicts()
    ]


def _reason(figures: IntervalFigures) -> str:
    missing = {**figures.interval.first.missing, **figures.interval.last.missing}
    return missing.get("statements", "no statement was executed in between")


def _notes(figures: IntervalFigures, frame: pl.DataFrame, shown: list[_Row], same: list[str]) -> list[str]:
    notes = [f"The order is the same by {', '.join(same)}."] if same else []
    rest = frame.filter(~pl.col("rank").is_in([r["rank"] for r in shown]))
    if rest.height:
        part = float(rest["share"].sum())
        notes.append(f"{counted(rest.height, 'more statement')} with {format_percent(part)} of the time.")
    hidden = frame.filter(pl.col("query_id").is_null()).height
    if hidden:
        notes.append(f"Statements of other roles are hidden from {figures.interval.last.role}.")
    if not frame["toplevel"].all():
        notes.append("Statements inside functions are marked: their time is part of the caller's.")
    missing = figures.interval.last.missing
    reason = missing.get("statements.plan_ns") or missing.get("statements.plans")
    if reason and not any(frame["plan_ns"].fill_null(0)):
        notes.append(f"By planning time: {reason}.")
    return [*notes, *sql.lost(frame), _PLANS]


def _total(name: str, text: Callable[[float], str], unit: str = "") -> Callable[[_Row], Cell]:
    return figure(lambda r: r[name], text, unit)


def _sum(head: str, text: Callable[[float], str], unit: str = "") -> tuple[Column, Callable[[_Row], Cell]]:
    return numeric(head), figure(lambda r: r["_by"], text, unit)


def _per(head: str, *names: str, text: Callable[[float], str] = format_rate, unit: str = "blocks") -> Any:
    return numeric(head, 1), figure(per_call(*names), text, unit, ratio=True)


def _percent(by: str) -> tuple[Column, Callable[[_Row], Cell]]:
    return numeric("%"), share_of(f"{by}_share")


def _variation(row: _Row) -> float | None:
    mean = row["exec_ns"] / row["calls"] if row["calls"] else 0.0
    return row["spread_ns"] / mean if mean and math.isfinite(mean) else None


def _generic(row: _Row) -> float | None:
    """Returns the share of a statement's executions with a plan for any values; None if plans are not
    counted."""
    generic, custom = row.get("generic_plans"), row.get("custom_plans")
    if generic is None or custom is None or not generic + custom:
        return None
    return float(generic / (generic + custom))


_GENERIC = (
    numeric("generic", 3)._replace(
        name="generic plans", note="of the executions, those with a plan for any values and not for their own"
    ),
    figure(_generic, format_percent, ratio=True),
)
_SHARED = ("shared_blks_read", "local_blks_read")
_COLUMNS: dict[str, Columns] = {
    **sql.FEWER_COLUMNS,
    "reads": (sql.STATEMENT, _sum("reads", format_rate, "blocks"), _percent("reads"),
              _per("reads/call", *_SHARED),
              (numeric("read time", 2), _total("blk_read_ns", format_ns, "ns"))),
    "wal": (sql.STATEMENT, _sum("WAL", format_size, "bytes"), _percent("wal"),
            _per("WAL/call", "wal_bytes", text=format_size, unit="bytes"),
            (numeric("records", 2), _total("wal_records", format_rate))),
    "temp": (sql.STATEMENT, _sum("temp", format_rate, "blocks"), _percent("temp"),
             _per("temp/call", "temp_blks_read", "temp_blks_written")),
    "planning": (sql.STATEMENT, _sum("planning", format_ns, "ns"), _percent("planning"),
                 (numeric("plans", 1), _total("plans", format_rate)), sql.MEAN),
    "jit": (sql.STATEMENT, _sum("JIT", format_ns, "ns"), _percent("jit"), sql.CALLS, sql.MEAN),
    "variance": (sql.STATEMENT, sql.CALLS, sql.MEAN,
                 (numeric("std dev"), figure(lambda r: r["spread_ns"], format_ns, "ns")),
                 (numeric("of mean", 1), figure(_variation, significant))),
}  # fmt: skip
