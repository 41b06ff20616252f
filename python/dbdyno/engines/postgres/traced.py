"""Determines how a server authenticated a connection, from libpq's own trace of the start-up.

PostgreSQL 18, "libpq - C Library", 32.12 (PQtrace), 32.1.2 (require_auth). Later connections to the same
server must use the same method, so that no one in between can request more from them.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psycopg
from psycopg import pq
from psycopg.waiting import Wait

from dbdyno.engines.postgres.received import MOST_BYTES_TO_START, Received, TooMuch

_TRACES = 180000  # libpq traces authentication from this version on
_REQUIRES = 160000  # and knows require_auth from this one
_WANTED = {pq.PollingStatus.READING: Wait.R, pq.PollingStatus.WRITING: Wait.W}
_ASKED = {"CleartextPassword": "password", "MD5Password": "md5", "GSS": "gss", "SSPI": "sspi"}
_STATE = re.compile(r'^B\t\w+\tErrorResponse\t (?:S "[^"]*" )?(?:V "\w+" )?C "([0-9A-Z]{5})"', re.MULTILINE)
_LINE = re.compile(r"^([BF])\t\d+\t(\w+)(?:\t (.*))?$", re.MULTILINE)


DATABASE: ContextVar[bytes | None] = ContextVar("DATABASE", default=None)
"""Database to connect to, instead of that of the options, which are text: a name may be invalid UTF-8."""


@dataclass(frozen=True)
class Authentication:
    """An authentication. ``method`` is a name of libpq's ``require_auth``; ``bound`` means channel
    binding."""

    method: str
    bound: bool


class Traced(psycopg.Connection[tuple[Any, ...]]):
    """A connection with its authentication method, None if libpq does not report it (before version 18)."""

    authentication: Authentication | None = None
    asked: Mapping[str, str] = {}
    """:meth:`options` without those that :func:`held` added."""

    def options(self) -> dict[str, str]:
        """Returns libpq's options that have a value, from DSN, environment, service file and defaults."""
        return {o.keyword.decode(): o.val.decode(errors="replace") for o in self.pgconn.info if o.val}

    @classmethod
    def _connect_gen(cls, conninfo: str = "", **_: Any) -> Generator[Any, Any, Traced]:
        """Connects as psycopg does, with a trace. All ways to connect call this method."""
        pgconn = pq.PGconn.connect_start(conninfo.encode() + _database())
        trace, received = _Trace(pgconn), Received(MOST_BYTES_TO_START)
        try:
            while (status := _poll(pgconn, received)) != pq.PollingStatus.OK:
                while not (yield pgconn.socket, _WANTED[status]):
                    pass
        except psycopg.OperationalError as e:
            if (state := refusal(trace.end())) is None:
                raise
            raise _error_class(state)(str(e)) from None
        except BaseException:
            trace.end()
            raise
        trace_text = trace.end()
        pgconn.nonblocking = 1
        connection = cls(pgconn)
        connection.authentication = None if trace_text is None else read(trace_text)
        return connection


@functools.cache
def _error_class(state: str) -> type[psycopg.OperationalError]:
    """Returns an exception class per SQLSTATE: for several hosts psycopg raises the class of the last one
    anew."""
    return type("Refused", (psycopg.OperationalError,), {"sqlstate": state})


def _database() -> bytes:
    if (name := DATABASE.get()) is None:
        return b""
    return b" dbname='%s'" % name.replace(b"\\", b"\\\\").replace(b"'", b"\\'")


def _poll(pgconn: pq.abc.PGconn, received: Received) -> pq.PollingStatus:
    """Returns the state of connecting. Raises :class:`psycopg.OperationalError`."""
    if pgconn.status == pq.ConnStatus.BAD:
        status = pq.PollingStatus.FAILED
    else:
        fd = _socket(pgconn)
        received.before(fd)
        status = pq.PollingStatus(_connect_poll()(pgconn))
        try:
            received.after(fd)
        except TooMuch:
            most = MOST_BYTES_TO_START >> 10
            raise psycopg.OperationalError(
                f"connection failed: the server sends more than {most} KiB before it is ready"
            ) from None
    if status == pq.PollingStatus.FAILED:
        words = pgconn.get_error_message()
        raise psycopg.OperationalError(f"connection failed: {words}")
    return status


def _socket(pgconn: pq.abc.PGconn) -> int:
    """Returns the descriptor, -1 while there is none."""
    try:
        return pgconn.socket
    except psycopg.OperationalError:
        return -1


@functools.cache
def _connect_poll() -> Callable[[pq.abc.PGconn], int]:
    """Returns PQconnectPoll that releases Python's lock: SCRAM may compute for minutes, and psycopg's
    compiled ``connect_poll`` would block all other threads and signal handlers meanwhile."""
    maps = Path("/proc/self/maps").read_text(errors="replace").split("\n")
    loaded = {line.split(maxsplit=5)[5] for line in maps if re.search(r"/libpq[-.][^/]*$", line)}
    if len(loaded) != 1:
        return lambda pgconn: pgconn.connect_poll()
    poll = ctypes.CDLL(loaded.pop()).PQconnectPoll
    poll.argtypes = [ctypes.c_void_p]
    return lambda pgconn: int(poll(cast("Any", pgconn).pgconn_ptr))


class _Trace:
    """libpq's trace. It may contain a password, so it is kept in memory only, and as short as possible."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        self._pgconn, self._file = pgconn, None
        if pq.version() >= _TRACES and pgconn.status != pq.ConnStatus.BAD:
            self._file = os.fdopen(os.memfd_create("trace"), "rb")
            pgconn.trace(self._file.fileno())
            pgconn.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS | pq.Trace.REGRESS_MODE)

    def end(self) -> str | None:
        """Ends the trace and returns its text, None if libpq writes none."""
        if self._file is None:
            return None
        self._pgconn.untrace()
        with self._file:
            self._file.seek(0)
            return self._file.read().decode(errors="replace")


def read(trace: str) -> Authentication:
    """Returns the authentication of the last attempt: libpq may make several, to other hosts or without
    TLS."""
    method, bound = "none", False
    for _, message, rest in _LINE.findall(trace):
        if message == "StartupMessage":
            method, bound = "none", False
        elif message == "SASLInitialResponse":
            name = rest.split('"')[1] if rest.count('"') >= 2 else ""
            bound = name.endswith("-PLUS")
            method = "scram-sha-256" if name.startswith("SCRAM-SHA-256") else "oauth"
        elif message.startswith("Authentication"):
            method = _ASKED.get(message.removeprefix("Authentication"), method)
        elif message in ("ParameterStatus", "BackendKeyData", "ReadyForQuery") and method:
            break
    return Authentication(method, bound)


def refusal(trace: str | None) -> str | None:
    """Returns the SQLSTATE of the server's last ErrorResponse, None if it sent none. Its message depends
    on lc_messages."""
    states = _STATE.findall(trace or "")
    return states[-1] if states else None


# -- later connections ------------------------------------------------------------------------------
@dataclass(frozen=True)
class _FirstConnection:
    """How the first connection by these options was made."""

    authentication: Authentication | None
    encrypted: bool
    asked: Mapping[str, str]


_first_connections: dict[object, _FirstConnection] = {}


def _key(given: Mapping[str, Any], database: bytes | None) -> object:
    environment = sorted(item for item in os.environ.items() if item[0].startswith("PG"))
    return (tuple(sorted((k, str(v)) for k, v in given.items())), database, tuple(environment))


def remember(given: Mapping[str, Any], connection: Traced, database: bytes | None = None) -> None:
    """Records how the first connection by these options was made; :func:`required_options` requires the
    same of later ones."""
    first = _first_connections.setdefault(
        _key(given, database),
        _FirstConnection(connection.authentication, bool(connection.pgconn.ssl_in_use), connection.options()),
    )
    connection.asked = first.asked


def required_options(given: Mapping[str, Any], database: bytes | None = None) -> dict[str, str]:
    """Returns options that make the next connection as strict as the first one was."""
    first = _first_connections.get(_key(given, database))
    if first is None:
        return {}
    weak = first.asked.get("sslmode") in ("allow", "prefer")
    options = {"sslmode": "require"} if first.encrypted and weak else {}
    if first.authentication is not None and pq.version() >= _REQUIRES:
        options["require_auth"] = first.authentication.method
        if first.authentication.bound:
            options["channel_binding"] = "require"
    return options
