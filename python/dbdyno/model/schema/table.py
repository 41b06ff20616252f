"""A derived table as one record: its columns, and the properties used to derive, store and show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from dbdyno.model.schema.column import Column

DATABASE = "database"
"""Kind of runs in which dbdyno puts a load on a database."""
DRIVEN = "driven"
"""Tag of kinds of runs in which dbdyno itself makes the load."""
SERVED = "served"
"""Tag of kinds of runs in which a server serves the sessions."""


class Method(NamedTuple):
    """The explanation on the page of how a figure of a table is obtained.

    ``key`` is the column, account or row that holds the figure, or "" for all rows. ``text`` may have slots
    for nouns. ``kinds`` lists the kinds of runs, or their tags, that have the figure; it is empty for all.
    """

    figure: str
    key: str
    text: str
    kinds: tuple[str, ...] = ()


class Table(NamedTuple):
    """A derived table.

    ``shown``: the table is part of a run's results; otherwise it only serves to derive claims and is not
    stored with them. ``sessions``: whether the table has rows of single sessions or processes (``who`` is
    ``session``), which stay in the stored parts; ``all`` means that it has only such rows, or rows of
    stacks. ``together``: it also has rows that combine all repeats of a load (cell ``all``). ``json``: the
    JSON document has its rows, but not those of single sessions if ``sessions`` is ``some``. ``options``:
    the options of ``dbdyno show`` that show it; their ``--json`` has its rows in any case.
    ``older``: its former names in stored runs.
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
    """Adds tables in this order. Raises ValueError if a table of the same name exists."""
    for table in tables:
        if table.name in _REGISTERED:
            raise ValueError(f"two tables {table.name}")
        _REGISTERED[table.name] = table


REGISTERED: Mapping[str, Table] = MappingProxyType(_REGISTERED)
"""All derived tables by name."""


def sessions_in(table: str) -> Literal["none", "some", "all"]:
    """Returns whether a table has rows of single sessions; "none" for a table without a record."""
    record = _REGISTERED.get(table)
    return "none" if record is None else record.sessions


class Columns(Mapping[str, tuple[Column, ...]]):
    """The columns of shown or of all registered tables, by name. Tables that are registered later are
    included."""

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
