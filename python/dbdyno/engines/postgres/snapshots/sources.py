"""Sources of a snapshot's columns (``sources.toml``): SQL expressions by version."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dbdyno.engines.postgres import sql, versions
from dbdyno.model.engine.snapshot import SINCE, TABLES
from dbdyno.model.schema.column import Type

_TYPES: Mapping[Type, str] = {"i64": "int8", "f64": "float8", "str": "text", "bool": "bool"}
_COLUMN = re.compile(r"\b(pg_(?!catalog\b)\w+)\.(\w+)")
_FACTORS = {"ms": "1e6", "s": "1e9"}  # to ns


class Origin(BaseModel):
    """The source of a column. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by_version: Mapping[int, str]
    unit: Literal["ms", "s", "time"] | None = None
    setting: str | None = None  # counts only while this setting is on
    by_row: bool = False  # the statement decides by row whether it is counted
    read_in: str | None = Field(None, alias="in")  # the statement that reads it, if not the table's own
    kept_as: str | None = Field(None, alias="as")  # unit of a figure of the server

    @model_validator(mode="before")
    @classmethod
    def _written(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"by_version": {versions.OLDEST: given}}
        return {
            "by_version": {int(k): v for k, v in given.items() if k.isdigit()},
            **{k: v for k, v in given.items() if not k.isdigit()},
        }

    def expression(self, major: int) -> str | None:
        """Returns the expression for this version, None if it has none."""
        known = [since for since in self.by_version if since <= major]
        return (self.by_version[max(known)] or None) if known else None

    def absent(self, major: int, off: Collection[str]) -> str | None:
        """Returns the first column of a view that the expression needs and the server lacks."""
        needed = (".".join(pair) for pair in _COLUMN.findall(self.expression(major) or ""))
        return next((column for column in needed if column in off), None)

    def select(self, name: str, kind: Type, major: int, off: Collection[str]) -> str:
        """Returns the column of a statement, NULL if it is not counted: ``off`` has the settings that are off
        and the columns of views that the server lacks."""
        expression = self.expression(major)
        counted = self.setting not in off or self.by_row
        if expression is None or not counted or self.absent(major, off):
            return f'null::{_TYPES[kind]} as "{name}"'
        if self.unit == "time":
            expression = f"extract(epoch from {expression})"
        elif self.unit is not None:
            expression = f"({expression}) * {_FACTORS[self.unit]}"
        return f'({expression})::{_TYPES[kind]} as "{name}"'


class TableOrigin(BaseModel):
    """The sources of a table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sql: Mapping[int, str] = {}  # statement by version
    setting: str | None = None  # of its counters
    columns: Mapping[str, Origin] = {}
    figures: Mapping[str, Origin] = {}

    def statement(self, table: str, major: int, off: Collection[str]) -> str | None:
        """Returns the statement for this version, None if it has no such table."""
        known = [since for since in self.sql if since <= major]
        if not known:
            return None
        return sql.fill(self.sql[max(known)], columns=",\n       ".join(self._columns(table, major, off)))

    def _columns(self, table: str, major: int, off: Collection[str]) -> Iterator[str]:
        kinds = {c.name: c.type for c in TABLES[table].columns}
        for name, origin in self.columns.items():
            if origin.read_in is None:
                yield origin.select(name, kinds[name], major, off)
        for name, origin in self.figures.items():
            yield origin.select(name, "i64", major, off)
        for view in _reset_views(self, major):
            at = f"extract(epoch from {view}.stats_reset)" if f"{view}.stats_reset" not in off else "null"
            yield f'{at}::float8 as "reset {view}"'


def view_of(expression: str | None) -> str | None:
    """Returns the view whose reset also resets the figure, None if it is never reset."""
    view = (expression or "").split(".")[0]
    return view if view and view != "here" else None


@cache
def all_tables() -> Mapping[str, TableOrigin]:
    """Returns all tables of the data file. Raises :class:`pydantic.ValidationError`."""
    text = resources.files(__package__).joinpath("sources.toml").read_text(encoding="utf-8")
    tables = {name: TableOrigin.model_validate(t) for name, t in tomllib.loads(text).items()}
    return {name: _with_setting(name, origin) for name, origin in tables.items()}


def _with_setting(table: str, origin: TableOrigin) -> TableOrigin:
    """Adds the table's setting to each of its counters."""
    counters = {c.name for c in TABLES[table].counters}
    columns = {
        name: column.model_copy(update={"setting": origin.setting})
        if name in counters and column.setting is None
        else column
        for name, column in origin.columns.items()
    }
    return origin.model_copy(update={"columns": columns})


class Gap(NamedTuple):
    """A figure that a server does not count, with the cure."""

    place: str  # table, or table.column
    why: str


def gaps(major: int, off: Collection[str]) -> Iterator[Gap]:
    """Yields the figures that the version or settings leave out. ``off``: see :meth:`Origin.select`."""
    if major > versions.NEWEST:
        why = f"this version of dbdyno does not know what PostgreSQL {major} counts beyond {versions.NEWEST}"
        if major in versions.PREPARED:
            why = f"not verified for PostgreSQL {major}: read as its published sources describe them"
        yield Gap("new figures", why)
    for table, origin in all_tables().items():
        if origin.sql and min(origin.sql) > major:
            yield Gap(table, f"PostgreSQL {major} has none{SINCE}{min(origin.sql)}")
            continue
        for name, column in {**origin.columns, **origin.figures}.items():
            if min(column.by_version) > versions.NEWEST:
                continue  # no version that tests have run on has it, so that none misses it
            if column.expression(major) is None:
                yield Gap(f"{table}.{name}", _other_version(column, major))
            elif lacking := column.absent(major, off):
                yield Gap(f"{table}.{name}", f"PostgreSQL {major} has no {lacking}")
            elif column.setting in off:
                yield Gap(f"{table}.{name}", f"{column.setting} is off: set {column.setting} = on")


def view_columns(major: int) -> list[tuple[str, str]]:
    """Returns the columns of system views that this version's expressions need."""
    origins = [c for t in all_tables().values() if t.sql for c in (*t.columns.values(), *t.figures.values())]
    pairs = {pair for origin in origins for pair in _COLUMN.findall(origin.expression(major) or "")}
    resets = {(view, "stats_reset") for t in all_tables().values() for view in _reset_views(t, major)}
    return sorted(pairs | resets)


def _reset_views(table: TableOrigin, major: int) -> Iterator[str]:
    yield from filter(None, dict.fromkeys(view_of(o.expression(major)) for o in table.figures.values()))


def _other_version(column: Origin, major: int) -> str:
    later = [v for v, text in column.by_version.items() if v > major and text]
    if major > versions.NEWEST and major not in versions.PREPARED:
        return f"not looked for in PostgreSQL {major}"
    return f"PostgreSQL {major} does not count it" + (f"{SINCE}{min(later)}" if later else "")
