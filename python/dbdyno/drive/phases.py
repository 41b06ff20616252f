"""The phases of a load. Each is awaited in short steps, so that an interrupt is noticed. Also maps the
core's errors.

The first Ctrl-C, SIGTERM or SIGHUP starts no further call and keeps the measurements. The second stops at
once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import polars as pl

from dbdyno._core import DriverError
from dbdyno.model import errors
from dbdyno.model.engine.protocols import Load
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
from dbdyno.model.plan.phases import Windowed
from dbdyno.model.schema.tables import empty, from_core

# short enough for a person at the keyboard
_REST_S = 0.1


class Interrupt:
    """Counts SIGINT, SIGTERM and SIGHUP. The first takes effect at the next safe place, the second raises.

    A terminal that is closed may send several SIGHUPs, from the shell and from the kernel. They count as
    one, and a further one does not disturb the restoration of the server and the report.
    """

    def __init__(self, on_signal: Callable[[int], None] = lambda _count: None) -> None:
        self.count = 0
        self._on_signal = on_signal

    @property
    def stopping(self) -> bool:
        return self.count > 0

    def request(self) -> None:
        """Counts one signal. The second raises :class:`Interrupted`. Later ones do not, because they must
        not disturb the restoration."""
        self.count += 1
        errors.request()
        self._on_signal(self.count)
        if self.count == 2:
            raise Interrupted

    def request_once(self) -> None:
        """Requests a stop unless there was a request before."""
        if not self.stopping:
            self.request()

    def check(self) -> None:
        """Raises :class:`Interrupted` if a stop was requested. It is called between the steps of a run."""
        if self.stopping:
            raise Interrupted

    def rest(self, seconds: float, sleep: Callable[[float], None]) -> None:
        """Pauses for this time. A request to stop ends the pause early with :class:`Interrupted`."""
        self.check()
        while seconds > 0:
            part = min(seconds, _REST_S)
            sleep(part)
            seconds -= part
            self.check()

    @contextmanager
    def caught(self) -> Iterator[Interrupt]:
        """Handles signals within the context. It works in the main thread only."""

        hung_up = False

        def handle(sign: int, _frame: FrameType | None) -> None:
            nonlocal hung_up
            if sign != signal.SIGHUP or not self.stopping:
                hung_up = hung_up or sign == signal.SIGHUP
                self.request()

        errors.reset()
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # started by nohup
        signals = (
            (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        )
        before = {s: signal.signal(s, handle) for s in signals}
        try:
            yield self
        finally:
            errors.reset()
            for s, handler in before.items():
                # The shell's or kernel's second SIGHUP may arrive after the context; it must not end the
                # process.
                signal.signal(s, signal.SIG_IGN if s == signal.SIGHUP and hung_up else handler)


# Maps the core's kinds of errors to dbdyno's errors. An engine's driver sorts its error codes into kinds.

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
    """Returns ``DriverError(kind, message, code, session)`` as an error with a remedy."""
    kind, message, _, session = error.args
    who = "" if session is None else f"session {session}: "
    error_class, cure = _KINDS.get(kind, (TargetError, "see the server's log"))
    return error_class(f"{who}{message}", cure)


def lead_ns(load: Load) -> int:
    """Returns the extra time that a start order takes to reach the load: 0 here, or the time that a load on
    other hosts states."""
    lead: int = getattr(load, "lead_ns", 0)
    return lead


def asking(load: Load) -> Callable[[int], bool]:
    """Returns a function that decides, at an instant in ns, whether to query the progress of ``load``. This
    is always so, unless the load limits the frequency because its answers are messages of other hosts."""
    every_ns, next_ns = getattr(load, "progress_every_ns", 0), 0

    def due(now_ns: int) -> bool:
        nonlocal next_ns
        if now_ns < next_ns:
            return False
        next_ns = now_ns + every_ns
        return True

    return due


STEP_S = 0.1
TABLES = ("sessions", "histogram", "errors", "calls", "counters")


def connect(load: Load, interrupt: Interrupt) -> None:
    """Connects, prepares and probes all sessions, until they wait at the barrier."""
    load.connect()
    _patiently(load, interrupt)


def run(
    load: Load, start_ns: int, t0_ns: int, t1_ns: int, interrupt: Interrupt, tick: Callable[[], None]
) -> int:
    """Opens the barrier and waits until the last session has ended, calling ``tick`` about ten times a
    second.

    Returns the actual end of the window: ``t1_ns``, or earlier if it was interrupted or all sessions ended
    before (CLOCK_MONOTONIC, or the load's virtual clock).
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
    """Probes the sessions a last time and closes them. A signal during this time skips the probes."""
    before = requests()
    load.finish()
    while not _over(load):
        if requests() > before:
            load.abort()


def frames(load: Load) -> dict[str, pl.DataFrame]:
    """Returns the load's tables, checked against the schema. Tables that every load has are empty if
    absent."""
    tables = {name: from_core(name, table) for name, table in load.tables().items()}
    return {name: empty(name) for name in TABLES if name not in tables} | tables


def window_frames(load: Windowed, window: int) -> dict[str, pl.DataFrame]:
    """Returns the same tables for one of the windows, counted from 0, that a measurement is divided into."""
    tables = {name: from_core(name, table) for name, table in load.window_tables(window).items()}
    return {name: empty(name) for name in TABLES if name not in tables} | tables


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
