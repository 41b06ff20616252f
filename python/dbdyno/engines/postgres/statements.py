"""Counters and texts of statements, from the extension pg_stat_statements (1.9 to 1.12, and 1.13 as its
published sources describe it)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from string import Template
from typing import Any, NamedTuple

import polars as pl
import psycopg
from psycopg.rows import tuple_row

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.enabling import OLDEST_STATEMENTS, STATEMENTS, version_of
from dbdyno.model.schema.data_source import Step
from dbdyno.model.schema.data_sources.statements import KEY, active
from dbdyno.model.schema.tables import conform, empty, sum_of_known

_OLD_IO = {"read_ms": "s.blk_read_time", "write_ms": "s.blk_write_time", "since": "null::timestamptz"}
_NEW_IO = {
    "read_ms": "s.shared_blk_read_time + s.local_blk_read_time",
    "write_ms": "s.shared_blk_write_time + s.local_blk_write_time",
    "since": "s.stats_since",
}
_JIT_MS = " + ".join(f"s.jit_{what}_time" for what in ("generation", "inlining", "optimization", "emission"))
_NEW = {**_NEW_IO, "jit_ms": f"{_JIT_MS} + s.jit_deform_time"}
_NO_PLANS = {"generic_plans": "null::int8", "custom_plans": "null::int8"}
NAMES: Mapping[tuple[int, ...], Mapping[str, str]] = {
    (1, 13): {**_NEW, "generic_plans": "s.generic_plan_calls", "custom_plans": "s.custom_plan_calls"},
    (1, 11): {**_NEW, **_NO_PLANS},
    (1, 10): {**_OLD_IO, **_NO_PLANS, "jit_ms": _JIT_MS},
    OLDEST_STATEMENTS: {**_OLD_IO, **_NO_PLANS, "jit_ms": "null::float8"},
}
"""Column names by version of the extension, the latest first."""
_READS, _TEXTS = "statement_reads", "statement_texts"
_ROOM, _SHORT = 16_000_000, 4_000
"""Bytes of texts requested at once, and the length in characters to which further texts are cut."""
_UNREADABLE = (psycopg.errors.CharacterNotInRepertoire, psycopg.errors.UntranslatableCharacter)
_PASSWORD = re.compile(r"(\bpassword\s*+(?:=\s*+)?)(?:e|u&)?'(?:[^']|'')*'?", re.IGNORECASE)
_CONNECTION = re.compile(r"(\bpassword\s*=\s*|://[^:/@\s']*:)[^\s'@]+", re.IGNORECASE)


class Statements:
    """Reads the statements of one run. Requests each text only once."""

    def __init__(self) -> None:
        self._known: set[int] = set()  # ids whose texts were requested
        self.own: set[int] = set()  # ids of dbdyno's statements
        self._own_known = False
        self.trouble = ""  # why the latest read failed

    def find_own(self, connection: Connection) -> None:
        """Notes once which counted statements are dbdyno's, including those whose texts the store already
        has. Raises :class:`psycopg.Error` if the connection is lost."""
        if self._own_known:
            return
        schema, version = _extension(connection)
        if version:
            ids = _frame(connection, sql.fill("own_statements", schema=schema, own=sql.OWN))
            self.own |= set(ids["query_id"]) if ids.width else set()
        self._own_known = True

    def read(self, connection: Connection, phase: str, now_ns: Callable[[], int]) -> pl.DataFrame:
        """Returns the table ``statement_reads``, empty if nothing is counted or may be read.

        Statements hidden from this role have no id; those of the same role and database form one row. Raises
        :class:`psycopg.Error` if the connection is lost.
        """
        text = statement(connection)
        if text is None:
            return empty(_READS)
        before_ns = now_ns()
        try:
            rows = _rows(connection, text)
        except psycopg.Error as e:
            _check_alive(connection, e)
            self.trouble = e.diag.message_primary or str(e)
            return empty(_READS)
        self.trouble = ""
        after_ns = now_ns()
        read = {"before_ns": before_ns, "after_ns": after_ns, "phase": phase, "status": "ok"}
        return by_key(conform(_READS, rows.with_columns(**{k: pl.lit(v) for k, v in read.items()})))

    def executed(
        self, connection: Connection, first: pl.DataFrame, last: pl.DataFrame, seen: Collection[int] = ()
    ) -> dict[str, pl.DataFrame]:
        """Returns both tables for the statements executed between two reads, with the texts of the ids
        ``seen`` as well. Texts that were requested before are left out. Raises as :meth:`read`."""
        changed = active(first, last)
        new_ids = {*changed["query_id"].drop_nulls(), *seen} - self._known
        texts = self.texts(connection, new_ids)
        self._known |= new_ids
        own = pl.col("query_id").is_in(list(self.own)).fill_null(value=False)
        users = changed.filter(~own)
        if users.height and "t0" not in users["phase"]:
            users = pl.concat(
                [first.head(1), users]
            )  # has the time of the first read, and evictions before it
        return {_READS: users, _TEXTS: texts.filter(~own)}

    def texts(self, connection: Connection, ids: Collection[int]) -> pl.DataFrame:
        """Returns the table ``statement_texts`` for these ids. Adds to ``own`` those that are dbdyno's."""
        schema, version = _extension(connection) if ids else ("", ())
        if not version:
            return empty(_TEXTS)
        limits = {"room": _ROOM, "short": _SHORT, "own": sql.OWN}
        rows = _frame(connection, sql.fill(_TEXTS, schema=schema, **limits), [sorted(ids)])
        if rows.is_empty():
            return empty(_TEXTS)
        self.own |= set(rows.filter("own")["query_id"])
        return conform(
            _TEXTS, rows.drop("own").with_columns(pl.col("text").map_elements(without_passwords, pl.String))
        )


class Texts(NamedTuple):
    """Whether the texts of all statements can be read."""

    error: str = ""  # the server's error message if they cannot
    cure: tuple[Step, ...] = ()


def readable(connection: Connection) -> Texts | None:
    """Returns whether the texts can be read. None if statements are not counted, or hidden from this role.

    When any text is read, the server converts all texts into this database's encoding, and fails at one that
    it cannot convert (PostgreSQL, contrib/pg_stat_statements, pg_stat_statements_internal). This is tried
    only if there are statements of databases with another encoding, since it reads the file of all texts.

    Raises :class:`psycopg.Error` if the connection is lost.
    """
    schema, version = _extension(connection)
    if not version:
        return None
    databases: Sequence[tuple[int]] = ()
    try:
        databases = connection.execute(sql.fill("foreign_encodings", schema=schema).encode()).fetchall()
        if databases:
            connection.execute(
                f"select pg_catalog.count(*) from {schema}.pg_stat_statements(true){sql.OWN}".encode()
            )
    except _UNREADABLE as e:
        reset = f"SELECT {schema}.pg_stat_statements_reset(0, {{}}, 0);"
        return Texts(str(e.diag.message_primary), tuple(Step(reset.format(oid)) for (oid,) in databases))
    except psycopg.Error as e:
        _check_alive(connection, e)
        return None
    return Texts()


def statement(connection: Connection, more: str = "") -> str | None:
    """Returns the statement that reads all counters, with ``more`` columns. None if nothing is counted or
    may be read."""
    return for_version(connection, "statements", more=more)


def for_version(connection: Connection, file: str, more: str = "", **values: str) -> str | None:
    """Returns the statement in ``FILE.sql`` for this version of the extension, whose names may occur in
    ``more``, too. None as in :func:`statement`."""
    schema, version = _extension(connection)
    names = next((names for since, names in NAMES.items() if version >= since), None)
    if names is None:
        return None
    return sql.fill(file, schema=schema, more=Template(more).substitute(names), **names, **values)


def without_passwords(text: str) -> str:
    """Returns the text without passwords: statements that define roles and subscriptions keep their
    constants."""
    kept = _PASSWORD.sub(r"\1'...'", text)
    return _CONNECTION.sub(r"\1...", kept) if "subscription" in kept.lower() else kept


def _extension(connection: Connection) -> tuple[str, tuple[int, ...]]:
    """Returns schema and version of the extension in this database, no version if it cannot be read."""
    cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
    row = cursor.execute(sql.text("extension").encode(), [STATEMENTS]).fetchone()
    return (row[0], version_of(row[1])) if row else ("", ())


def _frame(connection: Connection, text: str, parameters: Sequence[Any] = ()) -> pl.DataFrame:
    """Returns the rows, none if the server reports an error."""
    try:
        return _rows(connection, text, parameters)
    except psycopg.Error as e:
        _check_alive(connection, e)
        return pl.DataFrame()


def _rows(connection: Connection, text: str, parameters: Sequence[Any] = ()) -> pl.DataFrame:
    cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
    cursor.execute(text.encode(), parameters)
    names = [c.name for c in cursor.description or ()]
    return pl.DataFrame(cursor.fetchall(), schema=names, orient="row", infer_schema_length=None)


def _check_alive(connection: Connection, error: psycopg.Error) -> None:
    """Raises the error if the connection is lost."""
    if connection.closed or error.sqlstate is None:
        raise error


def by_key(read: pl.DataFrame) -> pl.DataFrame:
    """Sums the statements without an id, by role and database."""
    hidden = read.filter(pl.col("query_id").is_null())
    if hidden.is_empty():
        return read
    key = [c.name for c in KEY]
    sums = [c for c in read.columns if c not in key and read.schema[c] == pl.Int64 and c != "evictions"]
    kept = [c for c in read.columns if c not in (*key, *sums)]
    ends = ("before_ns", "after_ns")
    sums_by_key = hidden.group_by(key, maintain_order=True).agg(
        *(pl.col(c).first() if c in ends else sum_of_known(c) for c in sums),
        *(pl.col(c).first() for c in kept),
    )
    times = [c for c in kept if read.schema[c] == pl.Float64 and c != "reset_s"]
    sums_by_key = sums_by_key.with_columns(pl.lit(None, pl.Float64).alias(c) for c in times)
    return pl.concat([read.drop_nulls("query_id"), sums_by_key.select(read.columns)])
