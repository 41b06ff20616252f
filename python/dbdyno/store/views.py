"""A run's tables as DuckDB views, named as in ``model/tables.py``; raw ones with a column ``cell``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbdyno.model.column import Column, Type
from dbdyno.model.errors import UsageError
from dbdyno.model.tables import DERIVED, RAW
from dbdyno.store.run import Run

if TYPE_CHECKING:
    import duckdb  # loaded when it is called for: few commands ask

_SQL_TYPES: dict[Type, str] = {"i64": "BIGINT", "f64": "DOUBLE", "str": "VARCHAR", "bool": "BOOLEAN"}


def connect(*runs: Run) -> duckdb.DuckDBPyConnection:
    """An in-memory database with a view for every table over all readable cells of ``runs``.

    With several runs the first column is ``run``. Damaged cells are left out (:meth:`Run.read_cells`).
    """
    import duckdb

    connection = duckdb.connect()
    readable = [(run, {cell.id for cell in run.read_cells()[0]}) for run in runs]
    for table, columns in RAW.items():
        paths = [run.path / "cells" / c / f"{table}.parquet" for run, ids in readable for c in sorted(ids)]
        _view(connection, table, columns, paths, with_cell=True, with_run=len(runs) > 1)
    for table, columns in DERIVED.items():
        paths = [run.path / "derived" / f"{table}.parquet" for run in runs]
        _view(connection, table, columns, paths, with_cell=False, with_run=len(runs) > 1)
    return connection


def query(sql: str, *runs: Run) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of one statement over the views of ``runs``. Raises :class:`UsageError`."""
    import duckdb

    with connect(*runs) as connection:
        try:
            result = connection.execute(sql)
            return [d[0] for d in result.description or ()], result.fetchall()
        except duckdb.Error as error:
            raise UsageError(
                f"the query failed: {error}", f"tables: {', '.join([*RAW, *DERIVED])}"
            ) from error


def _view(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[Column],
    paths: Sequence[Path],
    *,
    with_cell: bool,
    with_run: bool,
) -> None:
    present = [p for p in paths if p.is_file()]
    run_depth = 4 if with_cell else 3  # RUN/cells/CELL/t.parquet, RUN/derived/t.parquet
    selected = [f"string_split(filename, '/')[-{run_depth}] AS run"] if with_run else []
    selected += ["string_split(filename, '/')[-2] AS cell"] if with_cell else []
    if present:
        listed = ", ".join(_literal(_unglobbed(p)) for p in present)
        source = f"read_parquet([{listed}], filename = true, union_by_name = true)"
        select = f"SELECT {', '.join([*selected, '* EXCLUDE (filename)'])} FROM {source}"
    else:
        fields = [s.rpartition(" ")[2] for s in selected]
        typed = [f"NULL::VARCHAR AS {f}" for f in fields]
        typed += [f'NULL::{_SQL_TYPES[c.type]} AS "{c.name}"' for c in columns]
        select = f"SELECT {', '.join(typed)} WHERE false"
    connection.execute(f'CREATE VIEW "{table}" AS {select}')


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _unglobbed(path: Path) -> str:
    """DuckDB takes every path for a pattern; a bracket around a character stands for itself."""
    return re.sub(r"([*?\[])", r"[\1]", str(path.resolve()))
