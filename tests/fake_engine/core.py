"""Tables in the form in which the Rust core hands them over."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from dbdyno.model.column import Column
from dbdyno.model.tables import TABLES, CoreColumn

_CODES = {"i64": "q", "f64": "d", "bool": "B"}


def core_table(table: str, records: Sequence[Mapping[str, Any]]) -> dict[str, CoreColumn]:
    """Records (dicts) of ``table``, column by column; an absent value is NULL."""
    return {c.name: _column(c, [r.get(c.name) for r in records]) for c in TABLES[table]}


def _column(column: Column, values: list[Any]) -> CoreColumn:
    if column.type == "str":
        return ("str", values, None)
    payload = array(_CODES[column.type], [0 if v is None else v for v in values]).tobytes()
    known = bytes(v is not None for v in values)
    return (column.type, payload, None if all(known) else known)
