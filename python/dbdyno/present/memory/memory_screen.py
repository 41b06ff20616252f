"""Shows where the memory of a running server is: as a screen, and as JSON."""

from __future__ import annotations

from typing import Any

from dbdyno.model.results.memory_now import CELL, NOW, MemoryNow
from dbdyno.model.schema.data_sources.memory import MEMORY_TABLES
from dbdyno.model.sources.source import Source
from dbdyno.model.units import NS_PER_S, format_ns
from dbdyno.present.document.document import Block, Paragraph, Section, Statement, Statements, remarks
from dbdyno.present.figures import jsondoc
from dbdyno.present.memory.memory import SHOWN, blocks, rows_at

_IN_TABLES = ("pages-held-twice",)
"""Claims that repeat the answer or the tables."""


def now(read: MemoryNow, most: int | None = SHOWN) -> list[Block]:
    """Returns the answer, then tables; ``most`` limits the relations, None shows all."""
    answer, *claims = read.claims
    statements = [
        Statement(c.text, "", "", c.severity, c.id, c.advice) for c in claims if c.id not in _IN_TABLES
    ]
    further: list[Block] = [Section("Claims", [Statements(statements)])] if statements else []
    missing = [s.detail if s.detail else f"{s.name}: {s.status}" for s in read.sources if _lacks(s)]
    took = f"{read.server}, {read.taken:%Y-%m-%d %H:%M:%S} UTC; read in {format_ns(read.took_s * NS_PER_S)}."
    shown = blocks(rows_at(read.tables, CELL, NOW), most)
    unknown = [Section("Not known", remarks(missing))] if missing else []
    return [Paragraph(answer.text, lead=True), *shown, *further, *unknown, *remarks([took])]


def _lacks(source: Source) -> bool:
    """Returns whether a source lacks something; an ``ok`` one may lack a part, which its detail names."""
    return bool(source.detail) or source.status != "ok"


def record(read: MemoryNow) -> dict[str, Any]:
    """Returns memory as JSON; docs/memory.md explains each key."""
    tables = jsondoc.by_name(MEMORY_TABLES, read.tables)
    return {
        "format": jsondoc.FORMAT,
        "server": read.server,
        "taken": read.taken.isoformat(),
        "took_s": read.took_s,
        **tables,
        "findings": [jsondoc.finding(c) for c in read.claims],
        "sources": [s.model_dump(mode="json") for s in read.sources],
    }
