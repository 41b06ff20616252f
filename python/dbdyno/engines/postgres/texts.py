"""Encodings of a control connection: the bytes it sends, and how it reads those it receives.

Its client_encoding is the database's, so that the server converts nothing: it would refuse a row with a text
in another encoding, such as shared names and statements of other databases. SQL_ASCII allows any bytes, which
are read as UTF-8.
"""

from __future__ import annotations

import codecs
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql as pgsql
from psycopg._encodings import pg2pyenc
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader

from dbdyno.engines.postgres.activity_view import adapted
from dbdyno.model.errors import UsageError

TYPES = (0, "text", "name", "varchar", "bpchar", '"char"')  # 0: types unknown to psycopg
UNKNOWN = ("EUC_TW", "MULE_INTERNAL")  # encodings that Python lacks
_UTF_8 = "utf-8"
_AROUND = 30  # characters shown before and behind a wrong one
_SINGLE_BYTE = ("iso8859", "koi8", "cp125", "cp866", "cp874")


def encoding_of(connection: psycopg.Connection[Any]) -> str:
    """Returns the codec for texts that are sent."""
    encoding = connection.info.encoding
    return _UTF_8 if encoding == "ascii" else encoding


def encoded(connection: psycopg.Connection[Any], text: str) -> bytes:
    """Returns the bytes of a text. Raises :class:`UsageError` for a character that the database's encoding
    lacks."""
    with _encoding_checked(connection):
        return text.encode(encoding_of(connection))


def own_name(connection: psycopg.Connection[Any]) -> str:
    """Returns the name of the connection's database, decoded so that encoding it gives the server's bytes
    again."""
    return connection.pgconn.db.decode(encoding_of(connection), "replace")


def database_name(raw: bytes, encoding: str) -> str:
    """Returns a name that any database shows: names are bytes in the encoding of the client that chose them.
    ``encoding`` is that of the named database, as the server calls it.

    >>> database_name(b"db\\xe9", "LATIN1")
    'dbé'
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        try:
            return raw.decode(pg2pyenc(encoding.encode()), "replace")
        except (psycopg.NotSupportedError, LookupError):
            return raw.decode(errors="replace")


@contextmanager
def _encoding_checked(connection: psycopg.Connection[Any]) -> Generator[None]:
    try:
        yield
    except UnicodeEncodeError as e:
        around = error_line(e)
        raise UsageError(f"{refusal(connection, e)}: {around}", CURE) from None


CURE = "leave it out, or connect to a database with the encoding UTF8"


def refusal(connection: psycopg.Connection[Any], error: UnicodeEncodeError) -> str:
    """Returns a message with the character that the encoding lacks."""
    encoding = connection.info.parameter_status("server_encoding")
    return f"the database's encoding {encoding} has no character {error.object[error.start]!r}"


def error_line(error: UnicodeEncodeError) -> str:
    """Returns the part of the line around the character."""
    begin = error.object.rfind("\n", 0, error.start) + 1
    return error.object[max(begin, error.start - _AROUND) :].partition("\n")[0][: 2 * _AROUND]


class _EncodingCursor:
    """A mixin for cursors: accepts statements as UTF-8 or str, and sends them in the connection's
    encoding."""

    def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
        connection = self.connection  # type: ignore[attr-defined]
        encoding = encoding_of(connection)
        if lacks := getattr(connection, "lacking", None):
            query = _adapted(query, lacks)
        with _encoding_checked(connection):
            if isinstance(query, pgsql.Composable) and connection.info.encoding != encoding:
                query = query.as_string()
            elif isinstance(query, bytes) and encoding != _UTF_8:
                query = query.decode()
            if isinstance(query, str):
                query = query.encode(encoding)
            return super().execute(query, params, **more)  # type: ignore[misc]


def _adapted(query: Any, lacks: Mapping[str, str]) -> Any:
    """Returns a statement for a server whose activity view lacks columns."""
    if isinstance(query, bytes):
        return adapted(query.decode(), lacks).encode()
    return adapted(query, lacks) if isinstance(query, str) else query


class Cursor(_EncodingCursor, psycopg.Cursor[Any]):
    """The cursor of a control connection."""


class RawCursor(_EncodingCursor, psycopg.RawCursor[Any]):
    """A cursor with ``$1``, ``$2`` ... for parameters."""


class Text(Loader):
    """Decodes texts, with replacement characters for what is not valid. In a database with a single-byte
    encoding, valid UTF-8 was written by another database: hardly any text is valid in both."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        encoding = self.connection.info.encoding if self.connection else _UTF_8
        self._encoding = _UTF_8 if encoding == "ascii" else encoding
        self._one_byte = codecs.lookup(self._encoding).name.startswith(_SINGLE_BYTE)

    def load(self, data: Buffer) -> str:
        raw = bytes(data)
        if self._one_byte:
            try:
                return raw.decode()
            except UnicodeDecodeError:
                pass
        return raw.decode(self._encoding, "replace")
