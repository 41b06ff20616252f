"""Shows two intervals between snapshots side by side: as a document, and as JSON-ready data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from dbdyno.model.engine.snapshot import SnapshotInfo
from dbdyno.model.results.interval import ALL
from dbdyno.model.results.interval_comparison import IntervalComparison, IntervalSide
from dbdyno.model.text.nouns import capital
from dbdyno.model.text.visible import one_line, shortened
from dbdyno.model.units import (
    NS_PER_S,
    format_ns,
    format_rate,
    format_size,
    quantity,
    shown_second,
    significant,
)
from dbdyno.present.charts.chart import (
    LETTERS,
    ROUNDED,
    channel,
    chart,
    coloured,
    encoded,
    layer,
    tips,
)
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Key,
    Paragraph,
    Section,
    facts,
    numeric,
    optional,
    remarks,
    table,
    word,
)
from dbdyno.present.document.palette import var
from dbdyno.present.figures import jsondoc
from dbdyno.present.snapshots.snapshots import LINES, extent

FORMAT = 1
SHOWN = 20
"""Most statements and tables in a document; the JSON has all."""
_TEXT = 120
_DRAWN, _LABEL, _ROW_PX, _VISIBLE = 8, 40, 36, 0.005
"""Most statements or tables of a chart; characters of their labels; height of one in pixels; least share of
the largest bar that can be seen."""
_COLOURS = {"A": "muted", "B": "accent"}
"""Colours of A and B, as the lab's chart over time marks them."""
_LEAST = 0.001
"""Smaller ratios are shown as smaller than this."""
_ANSWERS = ("interval-transactions", "interval-statement")
_MAIN = ("transactions", "rollbacks", "logical_reads", "blocks_read", "rows_fetched", "rows_inserted",
         "rows_updated", "rows_deleted", "active_ns", "temporary_bytes", "deadlocks")  # fmt: skip
"""Figures of the load that are shown for each database."""
_Row = dict[str, Any]
_Columns = tuple[tuple[Column, Callable[[_Row], Cell]], ...]


def document(comparison: IntervalComparison) -> Document:
    """Returns the answer, both loads, statements and tables."""
    names = tuple(_named(s) for s in (comparison.a, comparison.b))
    first = [c for c in comparison.claims if c.id.startswith(_ANSWERS)]
    lead = [Paragraph(c.text, "warning" if c.severity == "warning" else "", lead=True) for c in first]
    rest = [c for c in comparison.claims if c not in first]
    notes = [f"{c.text} {capital(c.advice)}." if c.advice else c.text for c in rest]
    about = [(n, _side(s)) for n, s in zip("AB", (comparison.a, comparison.b), strict=True)]
    sides = replace(facts("", [(f"{n}:", text) for n, text in about]), in_title_block=True)
    blocks: list[Block] = [
        sides,
        Section("Most time and most blocks", _charts(comparison), "charts", detail=True),
        Section("Load profile", list(_load(comparison.load)), "load"),
        Section("Statements, largest change of time first", _statements(comparison.statements), "statements"),
        Section("Tables, largest change of logical reads first", _relations(comparison.relations), "tables"),
        Section("Notes", remarks(notes), "method", minor=True),
    ]
    return Document(f"{names[1]} (B) against {names[0]} (A)", blocks, lead=lead, about=about)


def _charts(comparison: IntervalComparison) -> list[Chart]:
    """Returns the statements with the most time and the tables with the most blocks, A above B."""
    statements, tables = comparison.statements.to_dicts(), comparison.relations.to_dicts()
    drawn = (
        (
            "statements",
            "Time of statements, s/s",
            [(_text(r).note, *_sides(r, "time_per_s")) for r in statements],
        ),
        (
            "tables",
            "Blocks of tables, blocks/s",
            [(r["name"], *_sides(r, "logical_reads_per_s")) for r in tables],
        ),
    )
    return [c for c in (_side_by_side(*figure) for figure in drawn) if c is not None]


def _sides(row: _Row, name: str) -> tuple[float | None, float | None]:
    return row[f"{name}_a"], row[f"{name}_b"]


def _side_by_side(
    name: str, title: str, figures: Sequence[tuple[str, float | None, float | None]]
) -> Chart | None:
    """Returns a bar of each side for the largest; None if all are 0 or unknown."""
    largest = sorted(figures, key=lambda f: -max(f[1] or 0.0, f[2] or 0.0))[:_DRAWN]
    least = _VISIBLE * max((v or 0.0 for f in largest for v in f[1:]), default=0.0)
    texts = [one_line(f[0]) for f in largest]
    names = [f"{n}. {t if len(t) <= _LABEL else f'{t[:_LABEL]}…'}" for n, t in enumerate(texts, 1)]
    rows = [
        {"name": label, "side": side, "value": value, "whole": one_line(f[0])[:300]}
        for label, f in zip(names, largest, strict=True)
        for side, value in zip("AB", f[1:], strict=True)
        if value is not None and max(f[1] or 0.0, f[2] or 0.0) > least
    ]
    if not rows:
        return None
    limit = {"expr": "min(320, 0.35 * windowSize()[0])"}  # a phone has room for bars, too
    axis = {"ticks": False, "labelLimit": limit, "labelPadding": 6}
    shown = [n for n in names if any(r["name"] == n for r in rows)]
    bars = encoded(
        layer(rows, "bar"),
        x=channel("value:Q", title=title.rpartition(", ")[2], axis={**LETTERS, "tickCount": 6}),
        y=channel("name:N", title=None, sort=shown, axis=axis),
        yOffset=channel("side:N", sort=["A", "B"]),
        color=coloured("side", _COLOURS, map(var, _COLOURS.values())),
        tooltip=tips(("whole:N", "", "name"), "side:N", ("value:Q", ROUNDED, title.rpartition(", ")[2])),
    )
    caption = "The largest of both intervals; a missing bar is 0, unknown or too small to be seen."
    keys = [Key(side, var(colour), "fill") for side, colour in _COLOURS.items()]
    drawn = chart(f"sides-{name}", title, caption, [bars], f"{title}, A and B", rows, legend=keys, wide=True)
    drawn.spec["height"] = max(120, _ROW_PX * len(shown))
    return drawn


def record(comparison: IntervalComparison) -> dict[str, Any]:
    """Returns the comparison as JSON; docs/json.md explains each key."""
    frames = {"load": comparison.load, "statements": comparison.statements, "tables": comparison.relations}
    return {
        "format": FORMAT,
        "kind": "intervals",
        **{n: _side_record(s) for n, s in zip("ab", (comparison.a, comparison.b), strict=True)},
        **{name: [jsondoc.plain(row) for row in frame.to_dicts()] for name, frame in frames.items()},
        "claims": [jsondoc.finding(c) for c in comparison.claims],
    }


def _side_record(side: IntervalSide) -> dict[str, Any]:
    interval = side.figures.interval
    return {
        "first": interval.first.id,
        "last": interval.last.id,
        "seconds": interval.seconds,
        "server": interval.last.server,
        "version": interval.last.version,
        "blocks": len(side.blocks),
        "restarted": interval.restarted is not None,
        "evictions": interval.evictions,
    }


def _name(info: SnapshotInfo) -> str:
    return one_line(info.name) if info.name else f"{shown_second(info.server_time):%Y-%m-%d %H:%M:%S}"


def _named(side: IntervalSide) -> str:
    interval = side.figures.interval
    return f"{_name(interval.first)} to {_name(interval.last)}"


def _side(side: IntervalSide) -> str:
    interval = side.figures.interval
    first, last = interval.first, interval.last
    names = f"{_named(side)}: " if first.name or last.name else ""
    length = format_ns(interval.seconds * NS_PER_S)
    blocks = f", {len(side.blocks)} blocks" if len(side.blocks) > 1 else ""
    where = f"{last.address}, version {last.version}"
    return f"{names}{extent(first, last)}, {length}, {where}{blocks} ({first.id}..{last.id})"


def _rate(name: str, head: str, rank: int = 0) -> tuple[Column, Callable[[_Row], Cell]]:
    return numeric(head, rank), lambda r: optional(r[name], format_rate)


def _load_figure(name: str, head: str, rank: int = 0) -> tuple[Column, Callable[[_Row], Cell]]:
    return numeric(head, rank), lambda r: optional(r[name], lambda v: _amount(v, r["unit"]))


def _amount(value: float, unit: str) -> str:
    """Returns a duration or a size with its unit, and any other value as a plain rate."""
    if unit == "s":
        return quantity(value, unit)
    return format_size(value) if unit == "bytes" else format_rate(value)


def _ratio(name: str, rank: int = 0) -> tuple[Column, Callable[[_Row], Cell]]:
    def cell(row: _Row) -> Cell:
        ends = "" if row.get("low") is None else f"{significant(row['low'])} to {significant(row['high'])}"
        return optional(row[name], _times)._replace(note=ends)

    return numeric("B/A", rank), cell


def _times(ratio: float) -> str:
    return f"< {_LEAST:g}" if 0 < ratio < _LEAST else significant(ratio)


def _load(load: pl.DataFrame) -> Iterator[Block]:
    for database in load["database"].unique(maintain_order=True):
        rows = load.filter(pl.col("database") == database)
        if database != ALL:
            rows = rows.filter(pl.col("figure").is_in(_MAIN))
        shown = table(one_line(database), _LOAD, rows.to_dicts(), named=True)
        yield shown if database == ALL else Section("", [shown], minor=True)


def _figure(row: _Row) -> Cell:
    column = row["figure"]
    name = column.removesuffix("_ns").removesuffix("_bytes").replace("_", " ").replace("wal", "WAL")
    plain = name if row["unit"] in ("count", "s", "bytes") else f"{name} ({row['unit']})"
    return word(_NAMES.get(column, plain))


_NAMES = {column: name for name, column, _ in LINES}


_LOAD: _Columns = (
    (Column("per second"), _figure),
    _load_figure("per_s_a", "A"),
    _load_figure("per_s_b", "B"),
    _ratio("per_s_ratio"),
    _load_figure("per_transaction_a", "A per transaction", 1),
    _load_figure("per_transaction_b", "B per transaction", 1),
    (numeric("B/A per transaction", 1), lambda r: optional(r["per_transaction_ratio"], _times)),
)


def _time(name: str, head: str, rank: int = 0) -> tuple[Column, Callable[[_Row], Cell]]:
    return numeric(head, rank), lambda r: optional(r[name], lambda v: format_ns(v * NS_PER_S), "s")


def _mean(side: str) -> tuple[Column, Callable[[_Row], Cell]]:
    return numeric(f"mean {side.upper()}"), lambda r: optional(r[f"mean_ns_{side}"], format_ns, "ns")


def _interval(row: _Row) -> Cell:
    return word("" if row["low"] is None else f"{significant(row['low'])} to {significant(row['high'])}")


def _change(row: _Row) -> Cell:
    return word(row["change"], "executed in too few blocks to tell" if row["change"] == UNKNOWN else "")


def _text(row: _Row) -> Cell:
    text = " ".join((row["text"] or f"query id {row['query_id']}").split())
    return word(shortened(one_line(text), _TEXT, 1), note=one_line(text)[:1000])


_STATEMENTS: _Columns = (
    (Column("statement", wraps=True), _text),
    (Column("change"), _change),
    _time("time_per_s_a", "time/s A"),
    _time("time_per_s_b", "time/s B"),
    _mean("a"),
    _mean("b"),
    _ratio("mean_ns_ratio"),
    (Column("95 % interval", rank=1), _interval),
    _rate("calls_per_s_a", "calls/s A", 2),
    _rate("calls_per_s_b", "calls/s B", 2),
    _time("time_per_transaction_a", "per transaction A", 3),
    _time("time_per_transaction_b", "per transaction B", 3),
    (Column("database", rank=4), lambda r: word(one_line(r["database"] or ""))),
    (Column("remark", rank=4), lambda r: word("" if r["status"] == "ok" else r["status"])),
)
_RELATIONS: _Columns = (
    (Column("table", shortens=True), lambda r: word(one_line(r["name"]))),
    (Column("database", rank=2), lambda r: word(one_line(r["database"] or ""))),
    (Column("change"), lambda r: word("" if r["change"] == "both" else r["change"])),
    _rate("logical_reads_per_s_a", "blocks/s A"),
    _rate("logical_reads_per_s_b", "blocks/s B"),
    _ratio("logical_reads_per_s_ratio"),
    _rate("logical_reads_per_transaction_a", "per transaction A", 3),
    _rate("logical_reads_per_transaction_b", "per transaction B", 3),
    _rate("rows_read_per_s_a", "rows read/s A", 1),
    _rate("rows_read_per_s_b", "rows read/s B", 1),
    _rate("rows_written_per_s_a", "rows written/s A", 1),
    _rate("rows_written_per_s_b", "rows written/s B", 1),
)


def _statements(frame: pl.DataFrame) -> list[Block]:
    if frame.is_empty():
        return [Paragraph("No statement was counted in either interval.", "muted")]
    shown = table("", _STATEMENTS, frame.head(SHOWN).to_dicts()).without_unknown()
    return [shown, *_left(frame)]


def _relations(frame: pl.DataFrame) -> list[Block]:
    if frame.is_empty():
        return [Paragraph("No table was accessed in either interval.", "muted")]
    return [table("", _RELATIONS, frame.head(SHOWN).to_dicts()), *_left(frame)]


def _left(frame: pl.DataFrame) -> list[Paragraph]:
    more = frame.height - SHOWN
    return remarks([f"{more:,} more in the JSON."]) if more > 0 else []
