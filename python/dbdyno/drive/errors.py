"""The core's errors as the product's: one map, by kind. An engine's driver sorts its codes into kinds."""

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
    "authentication": (AuthenticationFailed, "check the user and the password"),
    "lost": (ServerLost, "see the server's log"),
    "tls": (Unreachable, "check the DSN's TLS options and the certificates"),
    "io": (TargetError, "see the message of the operating system"),
    "protocol": (TargetError, "is there a proxy between that speaks another protocol?"),
    "aborted": (TargetError, "it was broken off"),
    "full": (TooFewConnections, "use fewer sessions, or raise the server's limit"),
    "forbidden": (NotPrivileged, "grant that right to the user"),
    "shut down": (ServerLost, "the server was shut down, or the connection ended by an administrator"),
    "starting": (Unreachable, "wait until the server has started"),
    "statement": (UsageError, "fix the statement"),
}


def translated(error: DriverError) -> DbdynoError:
    """``DriverError(kind, message, code, session)`` as an error that says the cure."""
    kind, message, _, session = error.args
    who = "" if session is None else f"session {session}: "
    made, cure = _KINDS.get(kind, (TargetError, "see the server's log"))
    return made(f"{who}{message}", cure)
