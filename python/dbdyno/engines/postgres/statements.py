"""Counters and texts of single statements, from the extension pg_stat_statements (1.9 to 1.12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import psycopg
from psycopg.rows import tuple_row

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.data_sources.statements import KEY, active
from dbdyno.model.tables import conform, empty

EXTENSION = "pg_stat_statements"
OLDEST = (1, 9)  # of PostgreSQL 14
_FILES = {(1, 11): "statements_1_11", (1, 10): "statements_1_10", OLDEST: "statements_1_9"}
_READS, _TEXTS = "statement_reads", "statement_texts"


class Statements:
    """Of one run: each text is asked for once."""

    def __init__(self) -> None:
        self._known: set[int] = set()  # their texts were asked for
        self._own: set[int] = set()  # dbdyno's

    def read(self, connection: Connection, phase: str, now_ns: Callable[[], int]) -> pl.DataFrame:
        """Table ``statement_reads``; empty where nothing is counted or may be read.

        Statements that are hidden from this role have no id: those of one role are one row.

        Raises :class:`psycopg.Error` where the connection is lost.
        """
        if (place := _place(connection)) is None:
            return empty(_READS)
        schema, version = place
        file = next((f for since, f in _FILES.items() if version >= since), None)
        if file is None:
            return empty(_READS)
        before_ns = now_ns()
        found = _asked(connection, sql.fill(file, schema=schema))
        after_ns = now_ns()
        read = {"before_ns": before_ns, "after_ns": after_ns, "phase": phase, "status": "ok"}
        return _by_key(conform(_READS, found.with_columns(**{k: pl.lit(v) for k, v in read.items()})))

    def executed(
        self, connection: Connection, first: pl.DataFrame, last: pl.DataFrame
    ) -> dict[str, pl.DataFrame]:
        """Between two reads, both tables; a text is asked for once in a run. Raises as :meth:`read`."""
        found = active(first, last)
        texts = self._texts(connection, found["query_id"].drop_nulls())
        own = pl.col("query_id").is_in(list(self._own)).fill_null(value=False)
        return {_READS: found.filter(~own), _TEXTS: texts.filter(~own)}

    def _texts(self, connection: Connection, query_ids: pl.Series) -> pl.DataFrame:
        wanted = sorted(set(query_ids) - self._known)
        if not wanted or (place := _place(connection)) is None:
            return empty(_TEXTS)
        found = _asked(connection, sql.fill(_TEXTS, schema=place[0]), [wanted])
        self._known |= set(wanted)
        if found.is_empty():
            return empty(_TEXTS)
        self._own |= set(found.filter(pl.col("text").str.ends_with(sql.OWN))["query_id"])
        return conform(_TEXTS, found)


def _place(connection: Connection) -> tuple[str, tuple[int, ...]] | None:
    """Schema and version of the extension in this database."""
    cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
    row = cursor.execute(sql.text("extension_version").encode(), [EXTENSION]).fetchone()
    return (row[0], tuple(int(n) for n in row[1].split("."))) if row else None


def _asked(connection: Connection, text: str, parameters: Sequence[Any] = ()) -> pl.DataFrame:
    """The rows; none where the library is not loaded or a right is missing."""
    try:
        cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
        cursor.execute(text.encode(), parameters)
        names = [c.name for c in cursor.description or ()]
        return pl.DataFrame(cursor.fetchall(), schema=names, orient="row", infer_schema_length=None)
    except psycopg.Error as e:
        if connection.closed or e.sqlstate is None:
            raise
        return pl.DataFrame()


def _by_key(read: pl.DataFrame) -> pl.DataFrame:
    """Statements without an id in sum, a row a role and database."""
    hidden = read.filter(pl.col("query_id").is_null())
    if hidden.is_empty():
        return read
    key = [c.name for c in KEY]
    sums = [c for c in read.columns if c not in key and read.schema[c] == pl.Int64 and c != "evictions"]
    kept = [c for c in read.columns if c not in (*key, *sums)]
    ends = ("before_ns", "after_ns")
    made = hidden.group_by(key, maintain_order=True).agg(
        *(pl.col(c).first() if c in ends else _known_sum(c) for c in sums), *(pl.col(c).first() for c in kept)
    )
    made = made.with_columns(since_s=pl.lit(None, pl.Float64))
    return pl.concat([read.drop_nulls("query_id"), made.select(read.columns)])


def _known_sum(column: str) -> pl.Expr:
    return pl.when(pl.col(column).null_count() < pl.len()).then(pl.col(column).sum()).alias(column)
