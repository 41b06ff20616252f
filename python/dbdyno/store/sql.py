"""Runs one SQL query over the tables of a store's runs. It reads the tables it names, and can change
nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbdyno.kernel.extras import check_extra
from dbdyno.model.errors import DbdynoError, UsageError, did_you_mean
from dbdyno.model.text.visible import shortened
from dbdyno.store.listing import Listed
from dbdyno.store.view_files import views
from dbdyno.store.views import fill

if TYPE_CHECKING:
    import duckdb

_BATCH = 2_000
_TABLES = "tables and their columns: dbdyno sql --tables"
_UNKNOWN_TABLE = re.compile(r"Table with name (.+?) does not exist")
_TABLE_NAME = re.compile(r'"table_name":"([^"]*)"')
_LONGEST = 600  # of a message


@dataclass(frozen=True)
class Answer:
    names: Sequence[str]  # distinct: a second column of the same name is NAME_1
    is_number: Sequence[bool]
    rows: Iterator[tuple[Any, ...]]  # read lazily; raises as query() does
    warnings: Sequence[str]  # notes on data that was left out


def check_installed() -> None:
    """Raises :class:`UsageError` without the extra ``sql``."""
    check_extra("sql", "dbdyno sql", "duckdb")


def query(
    sql: str, runs: Sequence[Listed], warnings: Sequence[str] = (), roots: Sequence[Path] = ()
) -> Answer:
    """Runs one SELECT over the views of ``runs`` (:func:`dbdyno.store.view_files.views`) and of snapshots.

    Snapshots are those in the directories ``roots``. Raises :class:`UsageError` if the query is wrong or
    no query, and without the extra ``sql``.
    """
    check_installed()
    import duckdb

    with ExitStack() as opened:
        connection = opened.enter_context(duckdb.connect())  # also parses, as a connection costs 15 ms
        sql = _select(connection, sql)
        named, no_other = _named_views(connection, sql)
        declared = named if no_other else views()
        left_out = fill(connection, runs, named, roots, opened, declared)
        try:
            result = connection.execute(sql)
        except (duckdb.Error, RuntimeError) as error:
            raise _explained(error, named) from error
        needed = opened.pop_all()
    described = result.description or []
    return Answer(
        names=_distinct([str(d[0]) for d in described]),
        is_number=[_is_number(str(d[1])) for d in described],
        rows=_rows(connection, named, needed),
        warnings=[*warnings, *left_out],
    )


def _rows(
    connection: duckdb.DuckDBPyConnection, named: set[str], needed: ExitStack
) -> Iterator[tuple[Any, ...]]:
    import duckdb

    with needed:
        try:
            while batch := connection.fetchmany(_BATCH):
                yield from batch
        except (duckdb.Error, RuntimeError) as error:
            raise _explained(error, named) from error


def _select(parser: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Returns the single statement, if it only reads. Raises UsageError otherwise."""
    import duckdb

    try:
        statements = parser.extract_statements(sql)
    except duckdb.Error as error:
        raise UsageError(_syntax(parser, sql, str(error)), _TABLES) from error
    if not statements:
        raise UsageError("there is no query", 'dbdyno sql "select run_id, status from runs"')
    if len(statements) > 1:
        raise UsageError(f"{len(statements)} statements were given", "give one; WITH ... SELECT joins them")
    kind = statements[0].type.name
    if kind == "MULTI":
        raise UsageError("this PIVOT would be several statements", "list its values: ON sessions IN (1, 2)")
    if kind != "SELECT":
        cure = "only queries are possible: SELECT, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE, SHOW TABLES"
        raise UsageError(f"{kind} is not a query", cure)
    return str(statements[0].query)


def _syntax(parser: duckdb.DuckDBPyConnection, sql: str, message: str) -> str:
    """Adds line and column to a message: DuckDB shows only part of a long line."""
    first, _, shown = message.removeprefix("Parser Error: ").partition("\n")
    position = re.search(r'"position":"(\d+)"', _tree(parser, sql))
    if position is not None:
        before = sql.encode()[: int(position[1])].decode(errors="replace").split("\n")
        first += f" (line {len(before)}, column {len(before[-1]) + 1})"
    return shortened(f"SQL: {first}\n{shown.strip(chr(10))}".rstrip(), _LONGEST)


def _tree(parser: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Returns the parsed query as JSON; empty if DuckDB cannot serialise it."""
    import duckdb

    try:
        row = parser.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
    except duckdb.Error:
        return ""
    return str(row[0]) if row else ""


def _named_views(parser: duckdb.DuckDBPyConnection, sql: str) -> tuple[set[str], bool]:
    """Returns the views that the query may read, and whether it can read no others.

    They are the tables that it names, or, where parsing is not conclusive, the views that occur as words.
    A query that lists tables may read others.
    """
    words = set(views()) & set(re.findall(r"\w+", sql.casefold()))
    tree = _tree(parser, sql)
    if '"error":false' not in tree or re.search(r"\bquery(_table)?\b", sql, re.IGNORECASE):
        return words, False
    named = {name.casefold() for name in _TABLE_NAME.findall(tree)}
    return words & named, named <= words and "TABLE_FUNCTION" not in tree


def _explained(error: Exception, named: set[str]) -> BaseException:
    """Converts an error of DuckDB to one of ours with a cure."""
    import duckdb

    text = str(error)
    message = shortened(text.partition(": ")[2] or text, _LONGEST)
    if isinstance(error, duckdb.InterruptException) or "interrupted" in text.lower():
        return KeyboardInterrupt()
    if (unknown := _UNKNOWN_TABLE.search(text)) is not None:
        name = unknown[1].strip('"')
        return UsageError(f"no table {shortened(name, 80)!r}", f"{did_you_mean(name, views())}; {_TABLES}")
    if isinstance(error, duckdb.PermissionException):
        return UsageError(message, "SQL reaches the tables of the store only, no file and no network")
    if isinstance(error, duckdb.OutOfMemoryException):
        return UsageError(message, "select fewer runs (--run), fewer columns, or aggregate")
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        return DbdynoError(message)
    cure = f"columns: dbdyno sql --tables {' '.join(sorted(named))}" if named else _TABLES
    return UsageError(f"SQL: {message}", cure)


def _distinct(names: Sequence[str]) -> list[str]:
    distinct: list[str] = []
    for name in names:
        new, count = name, 0
        while new in distinct:
            count += 1
            new = f"{name}_{count}"
        distinct.append(new)
    return distinct


def _is_number(kind: str) -> bool:
    return re.match(r"U?(TINY|SMALL|BIG|HUGE)?INT|INTEGER|DOUBLE|FLOAT|DECIMAL|NUMBER", kind) is not None
