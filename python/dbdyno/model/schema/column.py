"""A column of a table's schema."""

from __future__ import annotations

from typing import Literal, NamedTuple

SCHEMA_VERSION = 2
"""Version of the schema in :mod:`dbdyno.model.schema.tables`."""
DERIVED_VERSION = 24
"""Version of the criteria, sentences and layout of derived data. Data derived by another version are derived
again."""

Type = Literal["i64", "f64", "str", "bool"]


class Column(NamedTuple):
    name: str
    type: Type
    null: bool
    doc: str


def column(name: str, type: Type, doc: str, *, null: bool = False) -> Column:
    return Column(name, type, null, doc)


CELL = (
    column("cell", "str", "cell id"),
    column("workload", "str", "workload"),
    column("variant", "str", "variant"),
    column("sessions", "i64", "load level: number of sessions of the plan"),
    column("repeat", "i64", "1..repeats"),
)
