"""Errors of libpq and of the server as the product's: one map, with cures and without credentials.

And what answers at an address where no PostgreSQL does.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Timer
from types import TracebackType
from typing import Any, NamedTuple

import psycopg

from dbdyno._core import DriverError
from dbdyno.kernel.numbers import number
from dbdyno.model.errors import (
    AuthenticationFailed,
    DbdynoError,
    NoSuchDatabase,
    NotPrivileged,
    ServerLost,
    TargetError,
    TooFewConnections,
    Unreachable,
    UsageError,
)

DSN_CURE = (
    "write postgresql://user@host:port/database or 'host=... port=... user=... dbname=...', and keep the "
    "password in ~/.pgpass, a file named by PGPASSFILE, or a service file (in a URI write %40 for @, %2F for "
    "/ and %3A for :)"
)

# By SQLSTATE (PostgreSQL, appendix A); a shorter key is a class.
_STATES: dict[str, tuple[type[DbdynoError], str]] = {
    "28P01": (
        AuthenticationFailed,
        "check the password: ~/.pgpass, a file named by PGPASSFILE, or a service file",
    ),
    "28ASK": (
        AuthenticationFailed,
        "the server, or a proxy in between, asks for an authentication that require_auth or channel_binding "
        "excludes, or that the first connection did not meet: find out what answers there",
    ),
    "28": (AuthenticationFailed, "check user, database and address against the server's pg_hba.conf"),
    "3D000": (NoSuchDatabase, "name an existing one: dbname= in the DSN, or PGDATABASE"),
    "25006": (TargetError, "measure a server, and as a role, that may write: not a standby, not read-only"),
    "42501": (NotPrivileged, "let the owner or a superuser grant that right"),
    "53100": (TargetError, "free space where the server's data is, or make fewer rows: a smaller scale"),
    "53300": (TooFewConnections, "close other connections, or raise max_connections"),
    "57014": (TargetError, "look for locks that it waits for (pg_locks), or for an overloaded server"),
    "57P03": (Unreachable, "wait until the server has started"),
    "57P": (ServerLost, "see the server's log"),
    "08": (ServerLost, "see the server's log"),
}
_OPTIONS = (
    "check the settings that the connection asks for: options= in the DSN, PGOPTIONS, PGTZ, PGDATESTYLE"
)
_AT_START = {"22023": _OPTIONS, "42704": _OPTIONS, "42601": _OPTIONS, "55P02": _OPTIONS}
# What libpq says itself, in English. Before version 18 it does not show the server's SQLSTATE: then the
# server's own words count, where they are English.
_WORDS: tuple[tuple[str, str], ...] = (
    ("authentication method requirement|channel binding", "28ASK"),
    ("password authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("pg_hba.conf", "28"),
    ("authentication failed", "28"),
    ("authentication method", "28"),
    ("role .* (does not exist|is not permitted to log in)", "28"),
    ("database .* does not exist", "3D000"),
    ("permission denied for database", "42501"),
    ("too many (clients|connections)|remaining connection slots", "53300"),
    ("the database system is (starting|shutting|not)", "57P03"),
)
_UNLIKELY = 6  # characters: so many, not letters alone, are in a message only as a password
_NOBODY = (
    "Connection refused|No such file|host name|Name or service|[Nn]etwork is|No route to host|certificate"
)
_UNREACHABLE: tuple[tuple[str, str], ...] = (
    ("Connection refused|No such file", "is the server up, and does it listen there? Check host and port"),
    ("could not translate host name|Name or service", "check the host's name"),
    ("timeout expired|timed out", "is the host right, does a firewall drop the packets?"),
    ("SSL|certificate", "check sslmode, sslrootcert, sslcert and sslkey"),
)


def connect_error(
    error: psycopg.Error, password: str | None, stranger: Callable[[], str | None] = lambda: None
) -> DbdynoError:
    """What kept us from connecting. ``stranger``: asks what answers there, if that is no PostgreSQL."""
    words = _words(error, password)
    if re.search(
        r"invalid (integer|port|sslmode|URI|connection option)|definition of service|service file", words
    ):
        # A password with '/' or '@' in a URI lands in another field: libpq would quote it here.
        return UsageError(f"the DSN is not valid: {_unquoted(words)}", DSN_CURE)
    state = error.sqlstate or next((s for w, s in _WORDS if re.search(w, words)), None)
    made, cure = _lookup(state)
    if made is not None:
        return made(words, cure)
    if state is not None:
        return TargetError(words, _AT_START.get(state, "the server answers and refuses: see its log"))
    cure = next((c for w, c in _UNREACHABLE if re.search(w, words)), "check host and port")
    if not re.search(_NOBODY, words) and (who := stranger()) is not None:
        return Unreachable(f"{who} ({words})", "check host and port")
    return Unreachable(words, cure)


def dsn_error(error: psycopg.Error) -> UsageError:
    """A DSN that libpq cannot read; nothing of it is repeated, for it may hold a password."""
    return UsageError(f"the DSN is not valid: {_unquoted(str(error).strip())}", DSN_CURE)


def check_dsn(given: Mapping[str, Any]) -> None:
    """Raises :class:`UsageError` where a password with a slash, a colon or an at sign in a URI has become a
    port or a host: that is not repeated, and not looked up."""
    if not all(port == "" or number(port) is not None for port in str(given.get("port", "")).split(",")):
        raise UsageError("the DSN is not valid: its port is not a number", DSN_CURE)
    hosts = str(given.get("host", "")).split(",")
    if any("@" in host[1:] and not host.startswith("/") for host in hosts):
        raise UsageError("the DSN is not valid: its host has an @ in it", DSN_CURE)


def server_error(error: psycopg.Error, doing: str, cure: str | None = None) -> DbdynoError:
    """An error of an open connection, while ``doing`` something."""
    message = error.diag.message_primary or str(error).strip()
    if error.diag.message_detail:
        message += f" ({error.diag.message_detail})"
    made, usual = _lookup(error.sqlstate)
    if made is None and error.sqlstate is None:
        made, usual = ServerLost, "see the server's log"
    return (made or TargetError)(f"{doing}: {message}", cure or usual or error.diag.message_hint)


def core_error(error: DriverError) -> Exception:
    """The core's error with the cure for its SQLSTATE; one without stays as it is."""
    _, message, state, _ = error.args
    made, cure = _lookup(state)
    return error if made is None else made(message, cure)


def _lookup(state: str | None) -> tuple[type[DbdynoError] | None, str]:
    for length in (5, 3, 2):
        if state is not None and state[:length] in _STATES:
            return _STATES[state[:length]]
    return None, ""


def _words(error: psycopg.Error, password: str | None) -> str:
    """In one line; libpq says the same again where it tried with and without TLS."""
    lines = (" ".join(line.split()) for line in str(error).splitlines())
    words = "; ".join(dict.fromkeys(line.removeprefix("connection failed: ") for line in lines if line))
    return masked(words, password)


def masked(words: str, password: str | None) -> str:
    """Without the password. One that may be a word (or part of one) is looked for only where a value stands:
    to mask it elsewhere would spoil the message, and give the password away."""
    if not password:
        return words
    if len(password) >= _UNLIKELY and not password.isalpha():
        return words.replace(password, "***")
    return re.sub(rf"(?<=[\"'=:]){re.escape(password)}(?=[\"'@\s;,)]|$)", "***", words)


def _unquoted(words: str) -> str:
    return re.sub(r'"[^"]*"', '"..."', words)


# What answers at an address where no PostgreSQL does: asked after libpq gave up, or while it waits.
#
# PostgreSQL's protocol (54.2.10): a server answers an SSLRequest with one byte, S or N. Others greet first
# (MySQL, SSH, FTP), or want a line (HTTP), or say nothing.

_LONGEST_DOUBT_S, _MOST_PORT = 3600, 65_535
PORT = 5432
_SSL_REQUEST = struct.pack(">ii", 8, 80877103)
_LINE = b"GET / HTTP/1.0\r\n\r\n"
_GREETING_S = 0.25
_ANSWER_S = 0.4
_SHOWN = 40
_MYSQL_ERROR, _MYSQL_10 = 0xFF, 0x0A

_SPEECH: tuple[tuple[bytes, str], ...] = (
    (rb"HTTP/\d", "a web server (HTTP)"),
    (rb"SSH-", "an SSH server"),
    (rb"220[ -].*(?i:smtp|mail)", "a mail server (SMTP)"),
    (rb"220[ -]", "an FTP or mail server"),
    (rb"\+OK|\* OK", "a mail server (POP3 or IMAP)"),
    (rb"-(ERR|NOAUTH|DENIED)", "Redis, or something that speaks its protocol"),
    (rb"\x15\x03", "a service that speaks TLS from the first byte"),
    (rb"\x00\x00\x00?.\x00.*\(DESCRIPTION", "an Oracle listener"),
)


class Address(NamedTuple):
    """Where libpq was to connect: a host name or address, or the directory of a unix socket."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self._path}" if self.host.startswith("/") else f"{self.host}:{self.port}"

    @property
    def _path(self) -> str:
        return f"{self.host}/.s.PGSQL.{self.port}"

    def connect(self, timeout_s: float) -> socket.socket:
        """Raises :class:`OSError`."""
        if not self.host.startswith("/"):
            return socket.create_connection((self.host, self.port), timeout_s)
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(timeout_s)
        made.connect(self._path)
        return made


def single_address(given: Mapping[str, Any]) -> tuple[Address | None, float]:
    """Where libpq goes, as far as that is one place named here, and how many seconds it may take."""
    host = str(given.get("hostaddr") or given.get("host") or os.environ.get("PGHOST", ""))
    port = str(given.get("port") or os.environ.get("PGPORT", "") or PORT)
    timeout = str(given.get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT", ""))
    known = number(port) or 0
    address = Address(host, known) if host and "," not in host and 0 < known <= _MOST_PORT else None
    return address, float(min(number(timeout) or 0, _LONGEST_DOUBT_S))


class Doubt:
    """Asks who is there when half the time of a connection attempt has gone by, so that the answer has come
    when the attempt times out."""

    def __init__(self, address: Address | None, timeout_s: float) -> None:
        self._address = address
        self._answer: str | None = None
        self._asking = False
        self._timer = Timer(timeout_s / 2, self._ask) if timeout_s > 0 and address else None

    def __enter__(self) -> Doubt:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def answer(self) -> str | None:
        """Who is there; see :func:`stranger`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if not self._asking:
            self._ask()
        return self._answer

    def _ask(self) -> None:
        self._asking = True
        self._answer = None if self._address is None else stranger(self._address)


def stranger(address: Address) -> str | None:
    """What is there, a sentence, within about a second; None: PostgreSQL, or nobody takes connections."""
    try:
        heard = _hear(address, b"") or _hear(address, _SSL_REQUEST)
        if heard in (b"S", b"N") or (heard[:1] == b"E" and _postgres_error(heard)):
            return None
        heard = heard or _hear(address, _LINE)
    except OSError:
        return None
    if not heard:
        return f"{address} accepts connections and sends nothing: not PostgreSQL, or it hangs"
    return f"{address} is {named(heard)}, not PostgreSQL"


def named(heard: bytes) -> str:
    """Who speaks so."""
    if (mysql := _mysql(heard)) is not None:
        return mysql
    for pattern, name in _SPEECH:
        if re.match(pattern, heard, re.DOTALL):
            return name
    return f"something that sends {repr(heard[:_SHOWN])[1:]}"


def _hear(address: Address, say: bytes) -> bytes:
    """What comes, first of all or in answer to ``say``; an end without a word is silence."""
    heard = b""
    with address.connect(_ANSWER_S) as connection:
        connection.settimeout(_ANSWER_S if say else _GREETING_S)
        with suppress(TimeoutError, ConnectionError):
            if say:
                connection.sendall(say)
            heard = connection.recv(256)
    return heard


def _postgres_error(heard: bytes) -> bool:
    """An ErrorResponse: of a protocol 3 server a length follows, of an older one text."""
    return len(heard) > 5 and (struct.unpack(">i", heard[1:5])[0] < 30_000 or heard[1:2].isalpha())


def _mysql(heard: bytes) -> str | None:
    """MySQL, "Protocol::HandshakeV10": 3 bytes length, 1 sequence, 10, version; or an error packet."""
    if len(heard) < 6 or heard[3] != 0 or int.from_bytes(heard[:3], "little") < 5:
        return None
    if heard[4] == _MYSQL_10:
        version = heard[5:].split(b"\0")[0].decode("ascii", "replace")
        number = version.removeprefix("5.5.5-").split("-")[0]  # MariaDB says 5.5.5 to old clients
        return f"{'MariaDB' if 'MariaDB' in version else 'MySQL'} {number}"
    return "MySQL or MariaDB, which refuses this host" if heard[4] == _MYSQL_ERROR else None


@contextmanager
def recognised() -> Iterator[None]:
    """The first answers of a server that speaks the protocol, but may be another product."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AssertionError) as e:
        raise TargetError(
            f"looking at the server: it does not answer as PostgreSQL does ({str(e) or type(e).__name__})",
            "check host and port: connect to PostgreSQL itself",
        ) from None


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Errors of the server, with what we were doing."""
    try:
        yield
    except psycopg.Error as e:
        raise server_error(e, what) from None
