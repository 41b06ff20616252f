"""Counters and texts of single statements, from the extension pg_stat_statements (1.9 to 1.12)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
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
NAMES: Mapping[tuple[int, ...], Mapping[str, str]] = {
    (1, 11): {**_NEW_IO, "jit_ms": f"{_JIT_MS} + s.jit_deform_time"},
    (1, 10): {**_OLD_IO, "jit_ms": _JIT_MS},
    OLDEST_STATEMENTS: {**_OLD_IO, "jit_ms": "null::float8"},
}
"""What versions of the extension call otherwise, the latest first."""
_READS, _TEXTS = "statement_reads", "statement_texts"
_ROOM, _SHORT = 16_000_000, 4_000
"""Bytes of texts that are asked for at once, and characters of those beyond."""
_UNREADABLE = (psycopg.errors.CharacterNotInRepertoire, psycopg.errors.UntranslatableCharacter)
_PASSWORD = re.compile(r"(\bpassword\s*+(?:=\s*+)?)(?:e|u&)?'(?:[^']|'')*'?", re.IGNORECASE)
_CONNECTION = re.compile(r"(\bpassword\s*=\s*|://[^:/@\s']*:)[^\s'@]+", re.IGNORECASE)


class Statements:
    """One run's: each text is asked for once."""

    def __init__(self) -> None:
        self._known: set[int] = set()  # their texts were asked for
        self.own: set[int] = set()  # dbdyno's
        self._own_known = False

    def find_own(self, connection: Connection) -> None:
        """Notes once which of the counted statements are dbdyno's: also those whose texts a store has, which
        nobody asks for. Raises :class:`psycopg.Error` where the connection is lost."""
        if self._own_known:
            return
        schema, version = _place(connection)
        if version:
            found = _asked(connection, sql.fill("own_statements", schema=schema, own=sql.OWN))
            self.own |= set(found["query_id"]) if found.width else set()
        self._own_known = True

    def read(self, connection: Connection, phase: str, now_ns: Callable[[], int]) -> pl.DataFrame:
        """Table ``statement_reads``; empty where nothing is counted or may be read.

        Statements that are hidden from this role have no id: those of one role are one row.

        Raises :class:`psycopg.Error` where the connection is lost.
        """
        text = statement(connection)
        if text is None:
            return empty(_READS)
        before_ns = now_ns()
        found = _asked(connection, text)
        after_ns = now_ns()
        read = {"before_ns": before_ns, "after_ns": after_ns, "phase": phase, "status": "ok"}
        return by_key(conform(_READS, found.with_columns(**{k: pl.lit(v) for k, v in read.items()})))

    def executed(
        self, connection: Connection, first: pl.DataFrame, last: pl.DataFrame
    ) -> dict[str, pl.DataFrame]:
        """Between two reads, both tables; a text is asked for once in a run. Raises as :meth:`read`."""
        found = active(first, last)
        wanted = set(found["query_id"].drop_nulls()) - self._known
        texts = self.texts(connection, wanted)
        self._known |= wanted
        own = pl.col("query_id").is_in(list(self.own)).fill_null(value=False)
        users = found.filter(~own)
        if users.height and "t0" not in users["phase"]:
            users = pl.concat([first.head(1), users])  # when it was read, and what had been dropped by then
        return {_READS: users, _TEXTS: texts.filter(~own)}

    def texts(self, connection: Connection, wanted: Collection[int]) -> pl.DataFrame:
        """Table ``statement_texts`` of these ids; which of them are dbdyno's is known afterwards."""
        schema, version = _place(connection) if wanted else ("", ())
        if not version:
            return empty(_TEXTS)
        limits = {"room": _ROOM, "short": _SHORT, "own": sql.OWN}
        found = _asked(connection, sql.fill(_TEXTS, schema=schema, **limits), [sorted(wanted)])
        if found.is_empty():
            return empty(_TEXTS)
        self.own |= set(found.filter("own")["query_id"])
        return conform(_TEXTS, found.drop("own").with_columns(pl.col("text").map_elements(safe, pl.String)))


class Texts(NamedTuple):
    """Whether the texts of all statements can be read."""

    error: str = ""  # the server's, why they cannot
    cure: tuple[Step, ...] = ()


def readable(connection: Connection) -> Texts | None:
    """None where statements are not counted, or not for this role.

    When any text is asked for, the server converts all of them into the encoding of this database, and fails
    at one that it cannot convert (PostgreSQL, contrib/pg_stat_statements, pg_stat_statements_internal). Only
    where there are some of another encoding is that tried: it reads the file of all texts.

    Raises :class:`psycopg.Error` where the connection is lost.
    """
    schema, version = _place(connection)
    if not version:
        return None
    found: Sequence[tuple[int]] = ()
    try:
        found = connection.execute(sql.fill("foreign_encodings", schema=schema).encode()).fetchall()
        if found:
            connection.execute(f"select pg_catalog.count(*) from {schema}.pg_stat_statements(true)".encode())
    except _UNREADABLE as e:
        reset = f"SELECT {schema}.pg_stat_statements_reset(0, {{}}, 0);"
        return Texts(str(e.diag.message_primary), tuple(Step(reset.format(oid)) for (oid,) in found))
    except psycopg.Error as e:
        if connection.closed or e.sqlstate is None:
            raise
        return None
    return Texts()


def statement(connection: Connection, more: str = "") -> str | None:
    """That reads all counters, with ``more`` columns; None where nothing is counted or may be read."""
    return of_version(connection, "statements", more=more)


def of_version(connection: Connection, file: str, **values: str) -> str | None:
    """The statement in ``FILE.sql`` as this version of the extension needs it; None as above."""
    schema, version = _place(connection)
    names = next((names for since, names in NAMES.items() if version >= since), None)
    return None if names is None else sql.fill(file, schema=schema, **names, **values)


def safe(text: str) -> str:
    """Without passwords: statements that define roles and subscriptions are kept with all their constants."""
    kept = _PASSWORD.sub(r"\1'...'", text)
    return _CONNECTION.sub(r"\1...", kept) if "subscription" in kept.lower() else kept


def _place(connection: Connection) -> tuple[str, tuple[int, ...]]:
    """Schema and version of the extension in this database; no version where it cannot be read."""
    cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
    row = cursor.execute(sql.text("extension").encode(), [STATEMENTS]).fetchone()
    return (row[0], version_of(row[1])) if row else ("", ())


def _asked(connection: Connection, text: str, parameters: Sequence[Any] = ()) -> pl.DataFrame:
    """The rows; none where the server cannot give them."""
    try:
        cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
        cursor.execute(text.encode(), parameters)
        names = [c.name for c in cursor.description or ()]
        return pl.DataFrame(cursor.fetchall(), schema=names, orient="row", infer_schema_length=None)
    except psycopg.Error as e:
        if connection.closed or e.sqlstate is None:
            raise
        return pl.DataFrame()


def by_key(read: pl.DataFrame) -> pl.DataFrame:
    """Statements without an id in sum, a row a role and database."""
    hidden = read.filter(pl.col("query_id").is_null())
    if hidden.is_empty():
        return read
    key = [c.name for c in KEY]
    sums = [c for c in read.columns if c not in key and read.schema[c] == pl.Int64 and c != "evictions"]
    kept = [c for c in read.columns if c not in (*key, *sums)]
    ends = ("before_ns", "after_ns")
    made = hidden.group_by(key, maintain_order=True).agg(
        *(pl.col(c).first() if c in ends else sum_of_known(c) for c in sums),
        *(pl.col(c).first() for c in kept),
    )
    times = [c for c in kept if read.schema[c] == pl.Float64 and c != "reset_s"]
    made = made.with_columns(pl.lit(None, pl.Float64).alias(c) for c in times)
    return pl.concat([read.drop_nulls("query_id"), made.select(read.columns)])
