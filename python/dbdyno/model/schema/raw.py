"""Columns of the raw tables, read from ``raw.toml``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

from dbdyno.model.schema.column import Column, Type

FILE = Path(__file__).with_name("raw.toml")
_TABLE = r"\[(?:core|python)\.(?P<table>\w+)\]"
_OWN = r'\{ type = "(?P<type>i64|f64|str|bool)",(?P<null> null = true,)? doc = "(?P<doc>[^"\\]*)" \}'
_LIKE = r'"(?P<of>\w+)\.(?P<like>\w+)"'
_LINE = re.compile(rf"{_TABLE}|(?P<name>\w+) = (?:{_OWN}|{_LIKE})")


def read(text: str) -> dict[str, tuple[Column, ...]]:
    """Returns the columns of each table. Raises ValueError if a line does not follow the rules in the head
    of ``raw.toml``.

    Reads the file line by line, because every start of the program needs some columns and tomllib takes ten
    times as long.
    """
    tables: dict[str, dict[str, Column]] = {}
    columns: dict[str, Column] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{FILE.name}, line {number}: neither a table nor a column: {line}")
        table, name, kind, null, doc, of, like = match.groups()
        if name in columns or table in tables:
            raise ValueError(f"{FILE.name}, line {number}: a second {table or name}")
        if kind:
            columns[name] = Column(name, cast(Type, kind), null is not None, doc)
        elif table:
            columns = tables[table] = {}
        elif like == name and name in tables.get(of, ()):
            columns[name] = tables[of][name]
        else:
            raise ValueError(f"{FILE.name}, line {number}: no column {of}.{like} above that {name} could be")
    return {table: tuple(columns.values()) for table, columns in tables.items()}


TABLES = read(FILE.read_text(encoding="utf-8"))
"""Columns by table, in the order of the file."""


def columns(table: str, *names: str) -> tuple[Column, ...]:
    """Returns these columns of a table. Raises KeyError if it lacks one of them."""
    by_name = {c.name: c for c in TABLES[table]}
    return tuple(by_name[name] for name in names)
