"""How a server authenticated a connection of libpq: read from libpq's own trace of the start-up.

PostgreSQL 18, "libpq - C Library", 32.12 (PQtrace), 32.1.2 (require_auth). Later connections to the same
place are held to what the first one met, so that nothing between can ask them for more.
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
"""The database to connect to, in place of that of the options: these are text, and a name may be no UTF-8."""


@dataclass(frozen=True)
class Authentication:
    """``method``: a name of libpq's ``require_auth``; ``bound``: with channel binding."""

    method: str
    bound: bool


class Traced(psycopg.Connection[tuple[Any, ...]]):
    """A connection that knows how it was authenticated; None: libpq does not say (before version 18)."""

    authentication: Authentication | None = None
    asked: Mapping[str, str] = {}
    """:meth:`options`, without what holds it to an earlier connection."""

    def options(self) -> dict[str, str]:
        """libpq's options with a value: the DSN's, the environment's, a service file's, defaults."""
        return {o.keyword.decode(): o.val.decode(errors="replace") for o in self.pgconn.info if o.val}

    @classmethod
    def _connect_gen(cls, conninfo: str = "", **_: Any) -> Generator[Any, Any, Traced]:
        """As psycopg's own, with a trace: all ways to connect come through here."""
        pgconn = pq.PGconn.connect_start(conninfo.encode() + _database())
        trace, received = _Trace(pgconn), Received(MOST_BYTES_TO_START)
        try:
            while (status := _polled(pgconn, received)) != pq.PollingStatus.OK:
                while not (yield pgconn.socket, _WANTED[status]):
                    pass
        except psycopg.OperationalError as e:
            if (state := refusal(trace.end())) is None:
                raise
            raise _refused(state)(str(e)) from None
        except BaseException:
            trace.end()
            raise
        met = trace.end()
        pgconn.nonblocking = 1
        made = cls(pgconn)
        made.authentication = None if met is None else read(met)
        return made


@functools.cache
def _refused(state: str) -> type[psycopg.OperationalError]:
    """A class for each SQLSTATE: of several hosts psycopg raises the last one's class anew."""
    return type("Refused", (psycopg.OperationalError,), {"sqlstate": state})


def _database() -> bytes:
    if (name := DATABASE.get()) is None:
        return b""
    return b" dbname='%s'" % name.replace(b"\\", b"\\\\").replace(b"'", b"\\'")


def _polled(pgconn: pq.abc.PGconn, received: Received) -> pq.PollingStatus:
    """Raises :class:`psycopg.OperationalError`."""
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
    """-1 while there is none."""
    try:
        return pgconn.socket
    except psycopg.OperationalError:
        return -1


@functools.cache
def _connect_poll() -> Callable[[pq.abc.PGconn], int]:
    """PQconnectPoll without Python's lock: SCRAM may compute for minutes, and psycopg's compiled
    ``connect_poll`` would keep every other thread, and the handlers of signals, from running meanwhile."""
    maps = Path("/proc/self/maps").read_text(errors="replace").split("\n")
    loaded = {line.split(maxsplit=5)[5] for line in maps if re.search(r"/libpq[-.][^/]*$", line)}
    if len(loaded) != 1:
        return lambda pgconn: pgconn.connect_poll()
    poll = ctypes.CDLL(loaded.pop()).PQconnectPoll
    poll.argtypes = [ctypes.c_void_p]
    return lambda pgconn: int(poll(cast("Any", pgconn).pgconn_ptr))


class _Trace:
    """It may hold a password, so it is kept in memory alone, and not for long."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        self._pgconn, self._file = pgconn, None
        if pq.version() >= _TRACES and pgconn.status != pq.ConnStatus.BAD:
            self._file = os.fdopen(os.memfd_create("trace"), "rb")
            pgconn.trace(self._file.fileno())
            pgconn.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS | pq.Trace.REGRESS_MODE)

    def end(self) -> str | None:
        """Returns the text, once; None: libpq writes none."""
        if self._file is None:
            return None
        self._pgconn.untrace()
        with self._file:
            self._file.seek(0)
            return self._file.read().decode(errors="replace")


def read(trace: str) -> Authentication:
    """What happened in the last attempt: libpq may make several, at other hosts or without TLS."""
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
    """The SQLSTATE of the server's last ErrorResponse; None: it sent none. Its words are in the language of
    lc_messages."""
    states = _STATE.findall(trace or "")
    return states[-1] if states else None


# -- later connections ------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Met:
    authentication: Authentication | None
    encrypted: bool
    asked: Mapping[str, str]


_first: dict[object, _Met] = {}


def _key(given: Mapping[str, Any], database: bytes | None) -> object:
    environment = sorted(item for item in os.environ.items() if item[0].startswith("PG"))
    return (tuple(sorted((k, str(v)) for k, v in given.items())), database, tuple(environment))


def note(given: Mapping[str, Any], connection: Traced, database: bytes | None = None) -> None:
    """What the first connection by these options met, later ones are held to."""
    met = _first.setdefault(
        _key(given, database),
        _Met(connection.authentication, bool(connection.pgconn.ssl_in_use), connection.options()),
    )
    connection.asked = met.asked


def held(given: Mapping[str, Any], database: bytes | None = None) -> dict[str, str]:
    """Options that hold the next connection to what the first one met."""
    met = _first.get(_key(given, database))
    if met is None:
        return {}
    weak = met.asked.get("sslmode") in ("allow", "prefer")
    options = {"sslmode": "require"} if met.encrypted and weak else {}
    if met.authentication is not None and pq.version() >= _REQUIRES:
        options["require_auth"] = met.authentication.method
        if met.authentication.bound:
            options["channel_binding"] = "require"
    return options
