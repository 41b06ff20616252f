"""libpq's and the server's errors as the product's: one map, with cures and without credentials."""

from __future__ import annotations

import re
from collections.abc import Callable

import psycopg

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
    "53300": (TooFewConnections, "close other connections, or raise max_connections"),
    "57014": (TargetError, "look for locks that it waits for (pg_locks), or for an overloaded server"),
    "57P03": (Unreachable, "wait until the server has started"),
    "57P": (ServerLost, "see the server's log"),
    "08": (ServerLost, "see the server's log"),
}
# libpq gives no SQLSTATE before the server has answered, and old servers' answers lose theirs: by words.
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
    cure = next((c for w, c in _UNREACHABLE if re.search(w, words)), "check host and port")
    if not re.search(_NOBODY, words) and (who := stranger()) is not None:
        return Unreachable(f"{who} ({words})", "check host and port")
    return Unreachable(words, cure)


def dsn_error(error: psycopg.Error) -> UsageError:
    """A DSN that libpq cannot read; nothing of it is repeated, for it may hold a password."""
    return UsageError(f"the DSN is not valid: {_unquoted(str(error).strip())}", DSN_CURE)


def server_error(error: psycopg.Error, doing: str, cure: str | None = None) -> DbdynoError:
    """An error of an open connection, while ``doing`` something."""
    message = error.diag.message_primary or str(error).strip()
    if error.diag.message_detail:
        message += f" ({error.diag.message_detail})"
    made, usual = _lookup(error.sqlstate)
    if made is None and error.sqlstate is None:
        made, usual = ServerLost, "see the server's log"
    return (made or TargetError)(f"{doing}: {message}", cure or usual or error.diag.message_hint)


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
