"""The phases of a load, each waited for in short steps, so that an interrupt is heard; the core's errors."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from dbdyno._core import DriverError
from dbdyno.drive.interrupt import Interrupt
from dbdyno.model.errors import (
    AuthenticationFailed,
    DbdynoError,
    Interrupted,
    NotPrivileged,
    ServerLost,
    TargetError,
    TooFewConnections,
    Unreachable,
    UsageError,
    requests,
)
from dbdyno.model.protocols import Load
from dbdyno.model.tables import empty, from_core

# The core's errors as the product's: one map, by kind. An engine's driver sorts its codes into kinds.

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


STEP_S = 0.1
TABLES = ("sessions", "histogram", "errors", "calls", "counters")


def connect(load: Load, interrupt: Interrupt) -> None:
    """All sessions connected, prepared, probed and parked on the barrier."""
    load.connect()
    _patiently(load, interrupt)


def run(
    load: Load, start_ns: int, t0_ns: int, t1_ns: int, interrupt: Interrupt, tick: Callable[[], None]
) -> int:
    """From the barrier until the last session has ended; ``tick`` about ten times a second.

    Returns the end of the window as it came to be: ``t1_ns``, or earlier when it was interrupted or all
    sessions were gone before (CLOCK_MONOTONIC, or the load's virtual clock).
    """
    load.start(start_ns, t0_ns, t1_ns)
    window_end_ns = t1_ns
    while not _over(load):
        if interrupt.stopping and window_end_ns == t1_ns:
            load.stop()
            window_end_ns = min(t1_ns, load.now_ns())
        tick()
    tick()
    return min(window_end_ns, load.now_ns())


def finish(load: Load) -> None:
    """Last probes, then closed. A Ctrl-C while that lasts leaves them out."""
    before = requests()
    load.finish()
    while not _over(load):
        if requests() > before:
            load.abort()


def frames(load: Load) -> dict[str, pl.DataFrame]:
    """The load's tables, checked against the schema; those that it has not are empty."""
    found = load.tables()
    return {name: from_core(name, found[name]) if name in found else empty(name) for name in TABLES}


def _patiently(load: Load, interrupt: Interrupt) -> None:
    while not _over(load):
        if interrupt.stopping:
            load.abort()
            raise Interrupted


def _over(load: Load) -> bool:
    try:
        return load.wait(STEP_S)
    except DriverError as e:
        raise translated(e) from None
