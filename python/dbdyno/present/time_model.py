"""Where session time went between two snapshots, from observations in between."""

from __future__ import annotations

from typing import Any

from dbdyno.model.interval import TimeModel
from dbdyno.model.units import NS_PER_S, counted, format_count, format_ns
from dbdyno.present import jsondoc
from dbdyno.present.document import Column, Paragraph, Section, known, numeric, optional, table, word
from dbdyno.present.figures import percent

_SHOWN = 15


def section(found: TimeModel | None, seconds: float) -> list[Section]:
    """``seconds``: of the interval. Empty: nothing was observed."""
    if found is None:
        return []
    aas = f", {found.db_time_s / found.covered_s:.3g} average active sessions" if found.covered_s else ""
    of = f"{format_ns(found.covered_s * NS_PER_S)} of {format_ns(seconds * NS_PER_S)}"
    told = (
        f"Observed {of} ({counted(found.windows, 'window')} of {', '.join(found.runs)}): DB time "
        f"{format_ns(found.db_time_s * NS_PER_S)}{aas}."
    )
    rows = table("", _COLUMNS, found.parts.head(_SHOWN).to_dicts())
    return [Section("Time model", [Paragraph(told), rows], "time")]


def record(found: TimeModel | None) -> dict[str, Any] | None:
    """docs/json.md says what each key means."""
    return None if found is None else dict(jsondoc.plain(found))


def _ends(row: dict[str, Any]) -> str:
    if row["low"] is None or row["high"] is None or row["low"] == row["high"]:
        return ""
    return " to ".join(format_ns(row[end] * NS_PER_S) for end in ("low", "high"))


_COLUMNS = (
    (Column("session time"), lambda r: word(r["name"])),
    (numeric("seconds"), lambda r: known(r["seconds"], lambda v: format_ns(v * NS_PER_S), "s")),
    (numeric("% of DB time"), lambda r: optional(r["share"], percent)),
    (Column("95 % interval", rank=1), lambda r: word(_ends(r))),
    (numeric("waits", 1), lambda r: optional(r["waits"], format_count)),
    (Column("source", rank=2, shortens=True), lambda r: word(r["source"])),
)
