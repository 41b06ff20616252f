"""The core's errors as the product's: one map, by kind and SQLSTATE (ISO/IEC 9075, PostgreSQL appendix A)."""

from __future__ import annotations

from dbdyno._core import DriverError
from dbdyno.model.errors import (
    AuthenticationFailed,
    DbdynoError,
    NotPrivileged,
    ServerLost,
    TargetError,
    TooFewConnections,
    Unreachable,
    UsageError,
)

_KINDS: dict[str, tuple[type[DbdynoError], str]] = {
    "spec": (DbdynoError, "this is a bug in dbdyno: please report it"),
    "unreachable": (
        Unreachable,
        "is the server up, and does it listen there? How many connections may it take?",
    ),
    "authentication": (
        AuthenticationFailed,
        "check user and password: ~/.pgpass, a file named by PGPASSFILE, or a service file",
    ),
    "lost": (ServerLost, "see the server's log"),
    "tls": (Unreachable, "check sslmode and the certificates"),
    "io": (TargetError, "see the message of the operating system"),
    "protocol": (TargetError, "is there a proxy between that speaks another protocol?"),
    "aborted": (TargetError, "it was broken off"),
}
_STATES: dict[str, tuple[type[DbdynoError], str]] = {
    "53300": (TooFewConnections, "use fewer sessions, or raise the server's limit"),
    "42501": (NotPrivileged, "grant that right to the user"),
    "57P01": (ServerLost, "the server was shut down, or the connection ended by an administrator"),
    "57P03": (Unreachable, "wait until the server has started"),
}


def translated(error: DriverError) -> DbdynoError:
    """``DriverError(kind, message, sqlstate, session)`` as an error that says the cure."""
    kind, message, sqlstate, session = error.args
    who = "" if session is None else f"session {session}: "
    if sqlstate in _STATES:
        made, cure = _STATES[sqlstate]
    elif sqlstate is not None and sqlstate.startswith("42"):
        made, cure = UsageError, "fix the statement"
    else:
        made, cure = _KINDS.get(kind, (TargetError, "see the server's log"))
    return made(f"{who}{message}", cure)
