"""Columns of the raw tables, read from ``raw.toml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dbdyno.model.schema.column import Column, Type

FILE = Path(__file__).with_name("raw.toml")
_AREAS = ("[core.", "[python.")
_TYPES: Mapping[str, Type] = {"i64": "i64", "f64": "f64", "str": "str", "bool": "bool"}


class RawTables(Mapping[str, tuple[Column, ...]]):
    """The columns of each table, in the order of the file.

    A table is read at its first use, without tomllib and without patterns: every start of the program needs
    a few of them, and to compile a pattern takes longer than to read them. Raises ValueError if a line does
    not follow the rules in the head of ``raw.toml``.
    """

    def __init__(self, text: str) -> None:
        self._sections: dict[
            str, tuple[int, list[str]]
        ] = {}  # number of the table's line, the lines below it
        self._read: dict[str, tuple[Column, ...]] = {}
        lines: list[str] = []
        for number, line in enumerate(text.split("\n"), 1):
            if line.startswith(_AREAS) and line.endswith("]"):
                table = line[line.index(".") + 1 : -1]
                if table in self._sections:
                    raise _fault(number, f"a second {table}")
                lines = []
                self._sections[table] = (number, lines)
            elif self._sections or not line or line.startswith("#"):
                lines.append(line)
            else:
                raise _fault(number, f"neither a table nor a column: {line}")

    def __getitem__(self, table: str) -> tuple[Column, ...]:
        if table not in self._read:
            self._read[table] = self._columns_in(*self._sections[table])
        return self._read[table]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sections)

    def __len__(self) -> int:
        return len(self._sections)

    def _columns_in(self, first: int, lines: Sequence[str]) -> tuple[Column, ...]:
        columns: dict[str, Column] = {}
        for number, line in enumerate(lines, first + 1):
            if not line or line.startswith("#"):
                continue
            name, _, value = line.partition(" = ")
            if name in columns:
                raise _fault(number, f"a second {name}")
            column = _own(name, value) or self._like(name, value, first)
            if isinstance(column, str):
                raise _fault(number, column or f"neither a table nor a column: {line}")
            columns[name] = column
        return tuple(columns.values())

    def _like(self, name: str, value: str, first: int) -> Column | str:
        """Returns the column of a table above that ``value`` names, or the fault."""
        table, _, like = value.strip('"').partition(".")
        if value != f'"{table}.{like}"' or not like.isidentifier():
            return ""
        above = table in self._sections and self._sections[table][0] < first
        by_name = {c.name: c for c in self[table]} if above and like == name else {}
        return by_name.get(name, f"no column {table}.{like} above that {name} could be")


def _own(name: str, value: str) -> Column | None:
    """Returns the column that ``value`` describes; None if it has another form."""
    head, _, doc = value.partition(' doc = "')
    null = head.endswith(" null = true,")
    kind = head.removesuffix(" null = true,").removeprefix('{ type = "').removesuffix('",')
    doc = doc.removesuffix('" }')
    form = f'{{ type = "{kind}",{" null = true," if null else ""} doc = "{doc}" }}'
    if value != form or kind not in _TYPES or not name.isidentifier() or {'"', "\\"} & set(doc):
        return None
    return Column(name, _TYPES[kind], null, doc)


def _fault(number: int, reason: str) -> ValueError:
    return ValueError(f"{FILE.name}, line {number}: {reason}")


TABLES = RawTables(FILE.read_text(encoding="utf-8"))
"""Columns by table."""


def columns(table: str, *names: str) -> tuple[Column, ...]:
    """Returns these columns of a table. Raises KeyError if it lacks one of them."""
    by_name = {c.name: c for c in TABLES[table]}
    return tuple(by_name[name] for name in names)
