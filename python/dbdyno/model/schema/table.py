"""A derived table as one record: its columns, and what whoever derives, stores or shows it goes by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from dbdyno.model.schema.column import Column

DATABASE = "database"
"""Kind of runs: a load of our own on a database."""
DRIVEN = "driven"
"""Tag of kinds of runs: dbdyno itself makes the load."""
SERVED = "served"
"""Tag of kinds of runs: a server serves the sessions."""


class Method(NamedTuple):
    """How a figure of a table is obtained, as the page explains it.

    ``key``: the column, account or row that the figure is; "" where all rows are meant. ``text`` with slots
    for nouns. ``kinds`` of runs, or their tags, that have the figure; empty: all.
    """

    figure: str
    key: str
    text: str
    kinds: tuple[str, ...] = ()


class Table(NamedTuple):
    """A derived table.

    ``shown``: it is part of a run's results; else conclusions are drawn from it, and it is not stored with
    them. ``sessions``: whether it has rows of single sessions or processes (``who`` is ``session``), which
    stay in the stored parts; ``all``: it has no other rows, or rows of stacks. ``together``: it has rows of
    all repeats of a load together, too (cell ``all``). ``json``: the JSON document has its rows, without
    those of single sessions where it has ``some``. ``options`` of ``dbdyno show`` that show it. ``older``:
    names that it had in stored runs.
    """

    name: str
    columns: tuple[Column, ...]
    shown: bool = True
    sessions: Literal["none", "some", "all"] = "none"
    together: bool = False
    json: bool = True
    options: tuple[str, ...] = ()
    methods: tuple[Method, ...] = ()
    older: tuple[str, ...] = ()


_REGISTERED: dict[str, Table] = {}


def register(*tables: Table) -> None:
    """Adds tables, in the order in which they are listed. Raises ValueError if there is one of that name."""
    for table in tables:
        if table.name in _REGISTERED:
            raise ValueError(f"two tables {table.name}")
        _REGISTERED[table.name] = table


REGISTERED: Mapping[str, Table] = MappingProxyType(_REGISTERED)
"""All derived tables by name."""


def sessions_in(table: str) -> Literal["none", "some", "all"]:
    """Returns whether a table has rows of single sessions; one without a record has none."""
    record = _REGISTERED.get(table)
    return "none" if record is None else record.sessions


class Columns(Mapping[str, tuple[Column, ...]]):
    """The columns of the tables that are shown, or of all, by name, as they are registered by now."""

    def __init__(self, *, every: bool = False) -> None:
        self._every = every

    def __getitem__(self, name: str) -> tuple[Column, ...]:
        table = _REGISTERED[name]
        if not (self._every or table.shown):
            raise KeyError(name)
        return table.columns

    def __iter__(self) -> Iterator[str]:
        return (t.name for t in _REGISTERED.values() if self._every or t.shown)

    def __len__(self) -> int:
        return sum(1 for _ in self)
