"""Texts of a control connection: the bytes that are sent, and how those that come are read.

Its client_encoding is the database's own, so that the server converts nothing: it refuses a row where a text
is in another encoding, such as names that all databases share and statements of others. SQL_ASCII takes and
gives any bytes: they are taken for UTF-8.
"""

from __future__ import annotations

import codecs
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql as pgsql
from psycopg._encodings import pg2pyenc
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader

from dbdyno.model.errors import UsageError

TYPES = (0, "text", "name", "varchar", "bpchar", '"char"')  # 0: types of which psycopg knows nothing
UNKNOWN = ("EUC_TW", "MULE_INTERNAL")  # to Python
_UTF_8 = "utf-8"
_AROUND = 30  # characters before and behind one that is named
_SINGLE_BYTE = ("iso8859", "koi8", "cp125", "cp866", "cp874")


def encoding_of(connection: psycopg.Connection[Any]) -> str:
    """The codec of texts that are sent."""
    encoding = connection.info.encoding
    return _UTF_8 if encoding == "ascii" else encoding


def encoded(connection: psycopg.Connection[Any], text: str) -> bytes:
    """Raises :class:`UsageError` for a character that the database's encoding lacks."""
    with _in_encoding(connection):
        return text.encode(encoding_of(connection))


def own_name(connection: psycopg.Connection[Any]) -> str:
    """The name of the connection's database, so that it leaves in the bytes that the server knows it by."""
    return connection.pgconn.db.decode(encoding_of(connection), "replace")


def database_name(raw: bytes, encoding: str) -> str:
    """A name as another database knows it: names are kept as bytes, in the encoding of whoever gave them.
    ``encoding``: that database's, as the server names it.

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
def _in_encoding(connection: psycopg.Connection[Any]) -> Generator[None]:
    try:
        yield
    except UnicodeEncodeError as e:
        around = error_line(e)
        raise UsageError(f"{refusal(connection, e)}: {around}", CURE) from None


CURE = "leave it out, or connect to a database with the encoding UTF8"


def refusal(connection: psycopg.Connection[Any], error: UnicodeEncodeError) -> str:
    """The character that the encoding lacks."""
    encoding = connection.info.parameter_status("server_encoding")
    return f"the database's encoding {encoding} has no character {error.object[error.start]!r}"


def error_line(error: UnicodeEncodeError) -> str:
    """Part of the line with the character."""
    begin = error.object.rfind("\n", 0, error.start) + 1
    return error.object[max(begin, error.start - _AROUND) :].partition("\n")[0][: 2 * _AROUND]


class _Sending:
    """Of cursors: statements come as UTF-8 or text, and leave in the connection's encoding."""

    def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
        connection = self.connection  # type: ignore[attr-defined]
        encoding = encoding_of(connection)
        with _in_encoding(connection):
            if isinstance(query, pgsql.Composable) and connection.info.encoding != encoding:
                query = query.as_string()
            elif isinstance(query, bytes) and encoding != _UTF_8:
                query = query.decode()
            if isinstance(query, str):
                query = query.encode(encoding)
            return super().execute(query, params, **more)  # type: ignore[misc]


class Cursor(_Sending, psycopg.Cursor[Any]):
    """Of a control connection."""


class RawCursor(_Sending, psycopg.RawCursor[Any]):
    """The same with ``$1``, ``$2`` ... for parameters."""


class Text(Loader):
    """What is no text in its encoding gets replacement characters. In a database with one byte a character,
    what is UTF-8 was written by another database: hardly any text is both."""

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
