"""Tables as data (``load.toml`` in a workload's folder; docs/loader.md), and as the core has them."""

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
    """``scale``: digits behind the point of a numeric or double; ``nulls``: share of NULLs; ``key``: an
    expression whose value chooses the random numbers, by default ``:row``."""

    name: str
    type: Type
    scale: int = Field(default=0, ge=0, le=18)
    nulls: float = Field(default=0.0, ge=0, le=1)
    key: str | None = None

    def core(self) -> dict[str, Any]:
        """As the core's loader has it."""
        spec = self.model_dump(include={"name", "type", "scale", "nulls", "key"})
        return spec | {"content": self.content()}

    def content(self) -> dict[str, Any]:
        raise NotImplementedError


class Serial(_Column):
    """``start``, ``start + step``, ... by row."""

    kind: Literal["serial"]
    start: int = 1
    step: int = 1

    def content(self) -> dict[str, Any]:
        plain = self.start == self.step == 1
        return {"expression": ":row" if plain else f"{self.start} + (:row - 1) * {self.step}"}


class Uniform(_Column):
    """An integer from ``low`` to ``high``, both included; they may be expressions. Also a foreign key to a
    serial."""

    kind: Literal["uniform"]
    low: int | str
    high: int | str

    def content(self) -> dict[str, Any]:
        return {"expression": f"random({self.low}, {self.high})"}


class Zipf(_Column):
    """Like uniform; the k-th value with a probability proportional to k to the power of -``exponent``."""

    kind: Literal["zipf"]
    low: int | str
    high: int | str
    exponent: float = Field(ge=1.001, le=1000)

    def content(self) -> dict[str, Any]:
        return {"expression": f"random_zipfian({self.low}, {self.high}, {self.exponent!r})"}


class Expression(_Column):
    """An integer, a boolean or NULL: ``of`` is an expression in the language of pgbench over :row, :parent,
    :child, :children, earlier columns, parameters and :default_seed."""

    kind: Literal["expression"]
    of: str

    def content(self) -> dict[str, Any]:
        return {"expression": " ".join(self.of.split())}


class Constant(_Column):
    """``value``; without it NULL."""

    kind: Literal["constant"]
    value: int | str | None = None

    def content(self) -> dict[str, Any]:
        if isinstance(self.value, int) and self.type != "text":
            return {"expression": str(int(self.value))}
        return {"constant": None if self.value is None else str(self.value)}


class Choice(_Column):
    """One of the texts ``values``, by ``weights``."""

    kind: Literal["choice"]
    values: tuple[str, ...] = Field(min_length=1)
    weights: tuple[float, ...] | None = None

    def content(self) -> dict[str, Any]:
        weights = self.weights or (1.0,) * len(self.values)
        if len(weights) != len(self.values):
            raise UsageError(f"column {self.name}: {len(weights)} weights for {len(self.values)} values")
        return {"choice": list(zip(self.values, weights, strict=True))}


class Words(_Column):
    """From ``count[0]`` to ``count[1]`` of ``words``, with spaces between."""

    kind: Literal["words"]
    words: tuple[str, ...] = Field(min_length=1)
    count: tuple[int, int] = (1, 1)

    def content(self) -> dict[str, Any]:
        return {"words": [self.words, *self.count]}


class Characters(_Column):
    """From ``length[0]`` to ``length[1]`` of the ASCII characters ``alphabet``."""

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
    """A date or timestamp, from ``first`` to ``last``, evenly."""

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
    """``rows``: an expression of the parameters. With ``parent`` (an earlier table) each of its rows has
    ``per_parent`` rows here, an expression over ``:parent``. ``ddl``: a file whose statements make the table;
    ``after``: files whose statements follow when all tables are loaded, each on a connection of its own.
    ``freeze``: loaded by one connection, its rows frozen: for one that is small or has no other beside it."""

    name: str
    ddl: str
    rows: int | str | None = None
    parent: str | None = None
    per_parent: str | None = None
    freeze: bool = False
    after: tuple[str, ...] = ()
    columns: tuple[Column, ...] = Field(min_length=1)

    def core(self, sql: str, rows: tuple[int, int], parameters: Mapping[str, int]) -> dict[str, Any]:
        """For the core. ``sql``: the table as it stands in SQL; ``rows``: first and last, of the parent where
        it has one."""
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
        """A query for rows and checksum as the loader computes them."""
        hashed = "0"
        for column in self.columns:
            hashed = _hash(column, hashed)
        return (
            f"select pg_catalog.count(*), mod(mod(coalesce(pg_catalog.sum({hashed}), 0), {2**64}) + {2**64}, "
            f"{2**64}) from {sql}"
        )


class Description(_Data):
    """``load.toml``. ``parameters``: integers with their defaults. ``own_schema``: the tables are in dbdyno's
    schema; else where unqualified names lead to."""

    version: int
    own_schema: bool = False
    parameters: dict[str, int] = Field(default_factory=dict)
    tables: tuple[Table, ...] = Field(min_length=1)

    def row_counts(self, parameters: Mapping[str, int]) -> dict[str, int]:
        """Rows by table; of one that has a parent, the parent's."""
        counts: dict[str, int] = {}
        for table in self.tables:
            if table.parent is not None and table.parent not in counts:
                raise UsageError(f"table {table.name}: its parent {table.parent} does not stand before it")
            rows = table.rows if table.parent is None else counts[table.parent]
            counts[table.name] = number(rows or 0, parameters)
        return counts


def names() -> list[str]:
    """Workloads that have tables."""
    folder = resources.files("dbdyno.engines.postgres") / "workloads"
    return sorted(d.name for d in folder.iterdir() if (d / "load.toml").is_file())


def description(workload: str) -> Description:
    """The tables of that workload. Raises :class:`UsageError` where it has none."""
    file = resources.files("dbdyno.engines.postgres") / "workloads" / workload / "load.toml"
    if not file.is_file():
        raise UsageError(f"workload {workload!r} has no tables to prepare", "dbdyno workload list")
    return Description.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))


def steps(
    tables: Sequence[tuple[Table, str]], counts: Mapping[str, int], parameters: Mapping[str, int]
) -> list[dict[str, Any]]:
    """One step that fills these tables; each with its name in SQL."""
    filled = [table.core(sql, (1, counts[table.name]), parameters) for table, sql in tables]
    return [{"name": "load", "tables": filled}]


def number(text: int | str, parameters: Mapping[str, int]) -> int:
    """An integer expression of the parameters, in pgbench's language.

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
    passed = at - datetime(2000, 1, 1)
    return passed.days if kind == "date" else (passed.days * 86_400 + passed.seconds) * 1_000_000


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
