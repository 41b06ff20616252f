"""Joins snapshots with measurements: where session time went in between, and objects per call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dbdyno.model.results.interval import ObjectUse, TimeModel
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import NS_PER_S, counted, format_average, format_count, format_ns, format_rate
from dbdyno.present.document.document import (
    Block,
    Cell,
    Column,
    Paragraph,
    Section,
    known,
    numeric,
    optional,
    table,
    word,
)
from dbdyno.present.figures import jsondoc
from dbdyno.present.figures.figures import percent
from dbdyno.present.snapshots.snapshot_parts import share_bar

_SHOWN = 15


def section(model: TimeModel | None, seconds: float) -> list[Section]:
    """Returns the section of the time model; empty if nothing was observed. ``seconds`` is the whole
    interval."""
    if model is None:
        return []
    aas = (
        f", {format_average(model.db_time_s / model.covered_s)} average active sessions"
        if model.covered_s
        else ""
    )
    covered = f"{format_ns(model.covered_s * NS_PER_S)} of {format_ns(seconds * NS_PER_S)}"
    text = (
        f"Observed {covered} ({counted(model.windows, 'window')} of {', '.join(model.runs)}): DB time "
        f"{format_ns(model.db_time_s * NS_PER_S)}{aas}."
    )
    rows = table("", _COLUMNS, model.parts.head(_SHOWN).to_dicts())
    return [Section("Time model", [Paragraph(text), rows], "time")]


def record(model: TimeModel | ObjectUse | None) -> dict[str, Any] | None:
    """Returns the time model or the use of objects as JSON; docs/json.md explains each key."""
    return None if model is None else dict(jsondoc.plain(model))


def _ends(row: dict[str, Any]) -> str:
    if row["low"] is None or row["high"] is None or row["low"] == row["high"]:
        return ""
    return " to ".join(format_ns(row[end] * NS_PER_S) for end in ("low", "high"))


_COLUMNS = (
    (Column("session time"), lambda r: word(r["name"])),
    (numeric("time"), lambda r: known(r["seconds"], lambda v: format_ns(v * NS_PER_S), "s")),
    (numeric("% of DB time"), lambda r: optional(r["share"], percent)._replace(bar=share_bar(r["share"]))),
    (Column("95 % interval", rank=1), lambda r: word(_ends(r))),
    (numeric("waits", 1), lambda r: optional(r["waits"], format_count)),
    (numeric("sleeps", 3), lambda r: optional(r["sleeps"], format_count)),
    (Column("source", rank=2, shortens=True), lambda r: word(r["source"])),
)


def object_use(use: ObjectUse) -> list[Block]:
    """Returns tables, then indexes, that a measurement used."""
    scope = f"per {use.per} of {use.cell}"
    frames = (("Tables", use.tables, "rows read"), ("Indexes", use.indexes, "entries"))
    blocks: list[Block] = []
    for title, frame, read in frames:
        work = [(numeric(f"blocks/{use.work}"), _each("blocks_per_work"))] if use.work else []
        written = [(numeric("rows written"), _each("rows_written"))] if title == "Tables" else []
        columns = (
            (Column("name", shortens=True), lambda r: word(one_line(r["name"]))),
            (numeric("blocks"), _each("blocks")),
            (numeric("not in cache"), _each("blocks_read")),
            (numeric("scans"), _each("scans")),
            (numeric(read), _each("rows_read")),
            *written,
            *work,
        )
        blocks.append(table(f"{title}, {scope}", columns, frame.head(_SHOWN).to_dicts()))
    return blocks


def _each(name: str) -> Callable[[dict[str, Any]], Cell]:
    return lambda row: optional(row[name], format_rate)
