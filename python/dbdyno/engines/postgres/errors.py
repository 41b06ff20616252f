"""Turns errors of libpq and of the server into dbdyno's errors, with cures and without credentials.

Also identifies other services that answer at an address where PostgreSQL was expected.
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
from psycopg import pq

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
    did_you_mean,
)

COMPARE_VALUES = "to compare values, make each a variant of a recipe: dbdyno help variants"
"""Cure of a list of values for a setting that has one."""
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
    "28ROL": (AuthenticationFailed, "create the role, or name another one: user= in the DSN, or PGUSER"),
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
# Messages of libpq itself, in English. Before version 18 libpq does not report the server's SQLSTATE: then
# the server's message is matched, if it is English.
_NO_ROLE = "role .* does not exist"
_WORDS: tuple[tuple[str, str], ...] = (
    ("authentication method requirement|channel binding", "28ASK"),
    ("password authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("pg_hba.conf", "28"),
    ("authentication failed", "28"),
    ("authentication method", "28"),
    (_NO_ROLE, "28ROL"),
    ("role .* is not permitted to log in", "28"),
    ("database .* does not exist", "3D000"),
    ("permission denied for database", "42501"),
    ("too many (clients|connections)|remaining connection slots", "53300"),
    ("the database system is (starting|shutting|not)", "57P03"),
)
_UNLIKELY = 6  # so many characters, not all letters, occur in a message only as the password
_NOBODY = (
    "Connection refused|No such file|host name|Name or service|[Nn]etwork is|No route to host|certificate"
)
_LISTENS = "is the server up, and does it listen there? Check host and port"
_UNREACHABLE: tuple[tuple[str, str], ...] = (
    ("Connection refused", _LISTENS),
    ("No such file", f"{_LISTENS}; dbdyno server start starts the embedded one"),
    ("could not translate host name|Name or service", "check the host's name"),
    ("timeout expired|timed out", "is the host right, does a firewall drop the packets?"),
    ("SSL|certificate", "check sslmode, sslrootcert, sslcert and sslkey"),
)


def connect_error(
    error: psycopg.Error, password: str | None, stranger: Callable[[], str | None] = lambda: None
) -> DbdynoError:
    """Returns the error for a failed connection. ``stranger`` is asked which service other than PostgreSQL
    answers there."""
    words = _one_line(error, password)
    if re.search(
        r"invalid (integer|port|sslmode|URI|connection option)|definition of service|service file", words
    ):
        # A password with '/' or '@' in a URI lands in another field: libpq would quote it here.
        if "definition of service" in words:
            return UsageError(words, "name one of ~/.pg_service.conf, or of the file named by PGSERVICEFILE")
        return UsageError(f"the DSN is not valid: {_without_quotes(words)}", DSN_CURE)
    state = error.sqlstate or next((s for w, s in _WORDS if re.search(w, words)), None)
    if state == "28000" and re.search(_NO_ROLE, words):
        state = "28ROL"
    kind, cure = _lookup(state)
    if kind is not None:
        return kind(words, cure)
    if state is not None:
        return TargetError(words, _AT_START.get(state, "the server answers and refuses: see its log"))
    cure = next((c for w, c in _UNREACHABLE if re.search(w, words)), "check host and port")
    if not re.search(_NOBODY, words) and (service := stranger()) is not None:
        return Unreachable(f"{service} ({words})", "check host and port")
    return Unreachable(words, cure)


def dsn_error(error: psycopg.Error, dsn: str) -> UsageError:
    """Returns the error for a DSN that libpq cannot read. Quotes nothing of it but the name of an option, and
    that only if it cannot be a part of a password with a blank."""
    words = str(error).strip()
    option = re.fullmatch(r'invalid (?:connection option|URI query parameter):? "(\w+)"', words)
    if option is None or "password" in dsn:
        return UsageError(f"the DSN is not valid: {_without_quotes(words)}", DSN_CURE)
    known = [each.keyword.decode() for each in pq.Conninfo.get_defaults()]
    return UsageError(f"the DSN is not valid: {words}", did_you_mean(option[1], known))


def check_dsn(given: Mapping[str, Any]) -> None:
    """Raises :class:`UsageError` if a password with a slash, a colon or an at sign in a URI was read as
    port or host. Does not quote it, and libpq does not look it up."""
    if not all(port == "" or number(port) is not None for port in str(given.get("port", "")).split(",")):
        raise UsageError("the DSN is not valid: its port is not a number", DSN_CURE)
    hosts = str(given.get("host", "")).split(",")
    if any("@" in host[1:] and not host.startswith("/") for host in hosts):
        raise UsageError("the DSN is not valid: its host has an @ in it", DSN_CURE)


def server_error(error: psycopg.Error, doing: str, cure: str | None = None) -> DbdynoError:
    """Returns the error of an open connection, while ``doing`` something."""
    # libpq adds to its own message two lines on what it "probably means"
    message = error.diag.message_primary or next(iter(str(error).strip().splitlines()), "")
    if error.diag.message_detail:
        message += f" ({error.diag.message_detail})"
    kind, default_cure = _lookup(error.sqlstate)
    if kind is None and error.sqlstate is None:
        kind, default_cure = ServerLost, "see the server's log"
    return (kind or TargetError)(f"{doing}: {message}", cure or default_cure or error.diag.message_hint)


def core_error(error: DriverError) -> Exception:
    """Returns the core's error with the cure for its SQLSTATE; without SQLSTATE the error itself."""
    _, message, state, _ = error.args
    kind, cure = _lookup(state)
    return error if kind is None else kind(message, cure)


def _lookup(state: str | None) -> tuple[type[DbdynoError] | None, str]:
    for length in (5, 3, 2):
        if state is not None and state[:length] in _STATES:
            return _STATES[state[:length]]
    return None, ""


def _one_line(error: psycopg.Error, password: str | None) -> str:
    """Returns the message in one line. Removes repetitions, as libpq tries with and without TLS."""
    lines = (" ".join(line.split()) for line in str(error).splitlines())
    words = "; ".join(dict.fromkeys(line.removeprefix("connection failed: ") for line in lines if line))
    return masked(words, password)


def masked(words: str, password: str | None) -> str:
    """Returns the message without the password. A password that may be a word is replaced only where a
    value stands: elsewhere that would spoil the message, and reveal the password."""
    if not password:
        return words
    if len(password) >= _UNLIKELY and not password.isalpha():
        return words.replace(password, "***")
    return re.sub(rf"(?<=[\"'=:]){re.escape(password)}(?=[\"'@\s;,)]|$)", "***", words)


def _without_quotes(words: str) -> str:
    return re.sub(r'"[^"]*"', '"..."', words)


# Identifies the service at an address that is not PostgreSQL, after libpq gave up, or while it waits.
#
# PostgreSQL's protocol (54.2.10): a server answers an SSLRequest with one byte, S or N. Others greet first
# (MySQL, SSH, FTP), or expect a line (HTTP), or send nothing.

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
    """Address that libpq connects to: a host name or address, or the directory of a unix socket."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self._path}" if self.host.startswith("/") else f"{self.host}:{self.port}"

    @property
    def _path(self) -> str:
        return f"{self.host}/.s.PGSQL.{self.port}"

    def connect(self, timeout_s: float) -> socket.socket:
        """Connects to it. Raises :class:`OSError`."""
        if not self.host.startswith("/"):
            return socket.create_connection((self.host, self.port), timeout_s)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout_s)
        connection.connect(self._path)
        return connection


def single_address(given: Mapping[str, Any]) -> tuple[Address | None, float]:
    """Returns the address that libpq connects to, None unless exactly one is given, and its time limit in
    seconds."""
    host = str(given.get("hostaddr") or given.get("host") or os.environ.get("PGHOST", ""))
    port = str(given.get("port") or os.environ.get("PGPORT", "") or PORT)
    timeout = str(given.get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT", ""))
    port_number = number(port) or 0
    address = (
        Address(host, port_number) if host and "," not in host and 0 < port_number <= _MOST_PORT else None
    )
    return address, float(min(number(timeout) or 0, _LONGEST_DOUBT_S))


class Doubt:
    """Identifies the service at an address when half the time of a connection attempt is over, so that the
    answer is there when the attempt times out."""

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
        """Returns the service; see :func:`stranger`."""
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
    """Returns a sentence on the service at the address, within about a second. None if it is PostgreSQL,
    or accepts no connections."""
    try:
        reply = _reply(address, b"") or _reply(address, _SSL_REQUEST)
        if reply in (b"S", b"N") or (reply[:1] == b"E" and _postgres_error(reply)):
            return None
        reply = reply or _reply(address, _LINE)
    except OSError:
        return None
    if not reply:
        return f"{address} accepts connections and sends nothing: not PostgreSQL, or it hangs"
    return f"{address} is {service_name(reply)}, not PostgreSQL"


def service_name(reply: bytes) -> str:
    """Returns the name of the service that sends this."""
    if (mysql := _mysql(reply)) is not None:
        return mysql
    for pattern, name in _SPEECH:
        if re.match(pattern, reply, re.DOTALL):
            return name
    return f"something that sends {repr(reply[:_SHOWN])[1:]}"


def _reply(address: Address, request: bytes) -> bytes:
    """Returns the first bytes of the service, or its answer to ``request``. Empty if it sends nothing."""
    reply = b""
    with address.connect(_ANSWER_S) as connection:
        connection.settimeout(_ANSWER_S if request else _GREETING_S)
        with suppress(TimeoutError, ConnectionError):
            if request:
                connection.sendall(request)
            reply = connection.recv(256)
    return reply


def _postgres_error(reply: bytes) -> bool:
    """Returns whether it is an ErrorResponse. A server of protocol 3 sends a length next, an older one
    text."""
    return len(reply) > 5 and (struct.unpack(">i", reply[1:5])[0] < 30_000 or reply[1:2].isalpha())


def _mysql(reply: bytes) -> str | None:
    """Returns name and version of a MySQL server, None for other services.

    MySQL, "Protocol::HandshakeV10": 3 bytes length, 1 byte sequence number, 10, version; or an error packet.
    """
    if len(reply) < 6 or reply[3] != 0 or int.from_bytes(reply[:3], "little") < 5:
        return None
    if reply[4] == _MYSQL_10:
        version = reply[5:].split(b"\0")[0].decode("ascii", "replace")
        number = version.removeprefix("5.5.5-").split("-")[0]  # MariaDB's prefix for old clients
        return f"{'MariaDB' if 'MariaDB' in version else 'MySQL'} {number}"
    return "MySQL or MariaDB, which refuses this host" if reply[4] == _MYSQL_ERROR else None


@contextmanager
def protocol_checked() -> Iterator[None]:
    """Raises :class:`TargetError` if the first answers do not have the form of PostgreSQL's: other
    products speak its protocol, too."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AssertionError) as e:
        raise TargetError(
            f"looking at the server: it does not answer as PostgreSQL does ({str(e) or type(e).__name__})",
            "check host and port: connect to PostgreSQL itself",
        ) from None


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Raises errors of the server as dbdyno's, with the present action."""
    try:
        yield
    except psycopg.Error as e:
        raise server_error(e, what) from None
