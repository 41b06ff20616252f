"""Descriptions of tables (``load.toml`` in a workload's folder; docs/loader.md), and their form for the
core."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dbdyno import _core
from dbdyno.model.errors import UsageError

Type = Literal["smallint", "integer", "bigint", "numeric", "double", "boolean", "date", "timestamp", "text"]


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Column(_Data):
    """A column. ``scale`` is the number of decimals of a numeric or double, ``nulls`` the share of NULLs,
    ``key`` an expression that seeds the random numbers, by default ``:row``."""

    name: str
    type: Type
    scale: int = Field(default=0, ge=0, le=18)
    nulls: float = Field(default=0.0, ge=0, le=1)
    key: str | None = None

    def core(self) -> dict[str, Any]:
        """Returns the column as the core's loader takes it."""
        spec = self.model_dump(include={"name", "type", "scale", "nulls", "key"})
        return spec | {"content": self.content()}

    def content(self) -> dict[str, Any]:
        raise NotImplementedError


class Serial(_Column):
    """The integers ``start``, ``start + step``, ... by row."""

    kind: Literal["serial"]
    start: int = 1
    step: int = 1

    def content(self) -> dict[str, Any]:
        plain = self.start == self.step == 1
        return {"expression": ":row" if plain else f"{self.start} + (:row - 1) * {self.step}"}


class Uniform(_Column):
    """An integer from ``low`` to ``high``, both included, which may be expressions. Also a foreign key to
    a serial."""

    kind: Literal["uniform"]
    low: int | str
    high: int | str

    def content(self) -> dict[str, Any]:
        return {"expression": f"random({self.low}, {self.high})"}


class Zipf(_Column):
    """Like uniform, but the k-th value has a probability proportional to k to the power of -``exponent``."""

    kind: Literal["zipf"]
    low: int | str
    high: int | str
    exponent: float = Field(ge=1.001, le=1000)

    def content(self) -> dict[str, Any]:
        return {"expression": f"random_zipfian({self.low}, {self.high}, {self.exponent!r})"}


class Expression(_Column):
    """An integer, a boolean or NULL. ``of`` is an expression in pgbench's language over :row, :parent,
    :child, :children, earlier columns, parameters and :default_seed."""

    kind: Literal["expression"]
    of: str

    def content(self) -> dict[str, Any]:
        return {"expression": " ".join(self.of.split())}


class Constant(_Column):
    """The value ``value``, NULL by default."""

    kind: Literal["constant"]
    value: int | str | None = None

    def content(self) -> dict[str, Any]:
        if isinstance(self.value, int) and self.type != "text":
            return {"expression": str(int(self.value))}
        return {"constant": None if self.value is None else str(self.value)}


class Choice(_Column):
    """One of the texts ``values``, drawn by ``weights``."""

    kind: Literal["choice"]
    values: tuple[str, ...] = Field(min_length=1)
    weights: tuple[float, ...] | None = None

    def content(self) -> dict[str, Any]:
        weights = self.weights or (1.0,) * len(self.values)
        if len(weights) != len(self.values):
            raise UsageError(f"column {self.name}: {len(weights)} weights for {len(self.values)} values")
        return {"choice": list(zip(self.values, weights, strict=True))}


class Words(_Column):
    """From ``count[0]`` to ``count[1]`` words out of ``words``, separated by spaces."""

    kind: Literal["words"]
    words: tuple[str, ...] = Field(min_length=1)
    count: tuple[int, int] = (1, 1)

    def content(self) -> dict[str, Any]:
        return {"words": [self.words, *self.count]}


class Characters(_Column):
    """From ``length[0]`` to ``length[1]`` characters out of ``alphabet`` (ASCII)."""

    kind: Literal["characters"]
    alphabet: str = "abcdefghijklmnopqrstuvwxyz"
    length: tuple[int, int]

    def content(self) -> dict[str, Any]:
        return {"characters": [self.alphabet, *self.length]}


class Template(_Column):
    """A text with expressions in braces: ``user{:row}@example.com``."""

    kind: Literal["template"]
    text: str

    def content(self) -> dict[str, Any]:
        return {"template": self.text}


class Range(_Column):
    """A date or timestamp from ``first`` to ``last``, uniformly distributed."""

    kind: Literal["range"]
    first: datetime | date
    last: datetime | date

    def content(self) -> dict[str, Any]:
        first, last = (_since_2000(t, self.type) for t in (self.first, self.last))
        return {"expression": f"random({first}, {last})"}


Column = Annotated[
    Serial | Uniform | Zipf | Expression | Constant | Choice | Words | Characters | Template | Range,
    Field(discriminator="kind"),
]


class Table(_Data):
    """A table. ``rows`` is an expression over the parameters.

    With ``parent``, an earlier table, each row of that has ``per_parent`` rows here, an expression over
    ``:parent``. ``ddl`` is a file that creates the table. ``after`` are files of statements to execute when
    all tables are loaded, each on a connection of its own. ``freeze`` loads the table by one connection and
    freezes its rows: for a table that is small or is loaded alone. ``partitions`` is the number of partitions
    that ``ddl`` creates, named by the table and their number, from 1.
    """

    name: str
    ddl: str
    rows: int | str | None = None
    parent: str | None = None
    per_parent: str | None = None
    freeze: bool = False
    partitions: int = Field(default=0, ge=0, le=1000)
    after: tuple[str, ...] = ()
    columns: tuple[Column, ...] = Field(min_length=1)

    def core(self, sql: str, rows: tuple[int, int], parameters: Mapping[str, int]) -> dict[str, Any]:
        """Returns the table as the core's loader takes it. ``sql`` is its name in SQL. ``rows`` are the
        first and last row, those of the parent if it has one."""
        return {
            "name": self.name,
            "sql": sql,
            "rows": rows,
            "per_parent": self.per_parent,
            "parameters": dict(parameters),
            "columns": [column.core() for column in self.columns],
            "freeze": self.freeze,
        }

    def checksum_sql(self, sql: str) -> str:
        """Returns a query for the row count and the checksum as the loader computes it."""
        hashed = "0"
        for column in self.columns:
            hashed = _hash(column, hashed)
        return (
            f"select pg_catalog.count(*), mod(mod(coalesce(pg_catalog.sum({hashed}), 0), {2**64}) + {2**64}, "
            f"{2**64}) from {sql}"
        )


class Description(_Data):
    """Contents of ``load.toml``. ``parameters`` are integers with their defaults. With ``own_schema`` the
    tables are in dbdyno's schema, else where unqualified names lead."""

    version: int
    own_schema: bool = False
    parameters: dict[str, int] = Field(default_factory=dict)
    tables: tuple[Table, ...] = Field(min_length=1)

    def row_counts(self, parameters: Mapping[str, int]) -> dict[str, int]:
        """Returns the number of rows by table; for a table with a parent, the parent's."""
        counts: dict[str, int] = {}
        for table in self.tables:
            if table.parent is not None and table.parent not in counts:
                raise UsageError(f"table {table.name}: its parent {table.parent} does not stand before it")
            rows = table.rows if table.parent is None else counts[table.parent]
            counts[table.name] = number(rows or 0, parameters)
        return counts


def names() -> list[str]:
    """Returns the workloads that have tables."""
    folder = resources.files("dbdyno.engines.postgres") / "workloads"
    return sorted(d.name for d in folder.iterdir() if (d / "load.toml").is_file())


def description(workload: str) -> Description:
    """Returns the tables of a workload. Raises :class:`UsageError` if it has none."""
    file = resources.files("dbdyno.engines.postgres") / "workloads" / workload / "load.toml"
    if not file.is_file():
        raise UsageError(f"workload {workload!r} has no tables to prepare", "dbdyno workload list")
    return Description.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))


def steps(
    tables: Sequence[tuple[Table, str]], counts: Mapping[str, int], parameters: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Returns one step that loads these tables, each with its name in SQL."""
    filled = [table.core(sql, (1, counts[table.name]), parameters) for table, sql in tables]
    return [{"name": "load", "tables": filled}]


def number(text: int | str, parameters: Mapping[str, int]) -> int:
    """Returns the value of an integer expression over the parameters, in pgbench's language.

    >>> number("100000 * :scale / 2", {"scale": 3})
    150000
    """
    values = {name: str(value) for name, value in parameters.items()}
    try:
        return int(_core.evaluate_script(f"\\set number {text}", values, 0)["number"])
    except ValueError as e:
        raise UsageError(f"`{text}` is no integer expression: {e}", "parameters are written :name") from None


def _since_2000(moment: datetime | date, kind: Type) -> int:
    at = datetime(moment.year, moment.month, moment.day)
    if isinstance(moment, datetime):
        at = moment.replace(tzinfo=None)
    elapsed = at - datetime(2000, 1, 1)
    return elapsed.days if kind == "date" else (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000


def _hash(column: _Column, seed: str) -> str:
    name = '"' + column.name.replace('"', '""') + '"'
    if column.type == "text":
        return f"pg_catalog.hashtextextended(coalesce({name}::text, '\\N') collate \"C\", {seed})"
    as_integer = {
        "numeric": f"({name} * {10**column.scale})::bigint",
        "double": f"({name} * {10**column.scale})::bigint",
        "boolean": f"{name}::int::bigint",
        "date": f"({name} - date '2000-01-01')::bigint",
        "timestamp": f"(extract(epoch from {name} - timestamp '2000-01-01') * 1000000)::bigint",
    }.get(column.type, f"{name}::bigint")
    return f"pg_catalog.hashint8extended(coalesce({as_integer}, {-(2**63)}), {seed})"
