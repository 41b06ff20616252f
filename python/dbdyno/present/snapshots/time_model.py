"""Snapshots joined with what was measured: where session time went in between, objects per call."""

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

_SHOWN = 15


def section(found: TimeModel | None, seconds: float) -> list[Section]:
    """``seconds``: of the interval. Empty: nothing was observed."""
    if found is None:
        return []
    aas = (
        f", {format_average(found.db_time_s / found.covered_s)} average active sessions"
        if found.covered_s
        else ""
    )
    of = f"{format_ns(found.covered_s * NS_PER_S)} of {format_ns(seconds * NS_PER_S)}"
    told = (
        f"Observed {of} ({counted(found.windows, 'window')} of {', '.join(found.runs)}): DB time "
        f"{format_ns(found.db_time_s * NS_PER_S)}{aas}."
    )
    rows = table("", _COLUMNS, found.parts.head(_SHOWN).to_dicts())
    return [Section("Time model", [Paragraph(told), rows], "time")]


def record(found: TimeModel | ObjectUse | None) -> dict[str, Any] | None:
    """docs/json.md says what each key means."""
    return None if found is None else dict(jsondoc.plain(found))


def _ends(row: dict[str, Any]) -> str:
    if row["low"] is None or row["high"] is None or row["low"] == row["high"]:
        return ""
    return " to ".join(format_ns(row[end] * NS_PER_S) for end in ("low", "high"))


_COLUMNS = (
    (Column("session time"), lambda r: word(r["name"])),
    (numeric("time"), lambda r: known(r["seconds"], lambda v: format_ns(v * NS_PER_S), "s")),
    (numeric("% of DB time"), lambda r: optional(r["share"], percent)),
    (Column("95 % interval", rank=1), lambda r: word(_ends(r))),
    (numeric("waits", 1), lambda r: optional(r["waits"], format_count)),
    (numeric("sleeps", 3), lambda r: optional(r["sleeps"], format_count)),
    (Column("source", rank=2, shortens=True), lambda r: word(r["source"])),
)


# Objects that a measurement used.


def object_use(found: ObjectUse) -> list[Block]:
    """Tables, then indexes."""
    of = f"per {found.per} of {found.cell}"
    frames = (("Tables", found.tables, "rows read"), ("Indexes", found.indexes, "entries"))
    made: list[Block] = []
    for title, frame, read in frames:
        work = [(numeric(f"blocks/{found.work}"), _each("blocks_per_work"))] if found.work else []
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
        made.append(table(f"{title}, {of}", columns, frame.head(_SHOWN).to_dicts()))
    return made


def _each(name: str) -> Callable[[dict[str, Any]], Cell]:
    return lambda row: optional(row[name], format_rate)
