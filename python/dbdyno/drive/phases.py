"""The phases of a load, each waited for in short steps, so that an interrupt is heard; the core's errors.

Ctrl-C, SIGTERM or SIGHUP once: no further call starts, what was measured is kept. Twice: at once.
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

_REST_S = 0.1


class Interrupt:
    """Counts SIGINT, SIGTERM and SIGHUP. The first is heard at the next safe place, the second raises.

    A terminal that is closed may send more than one SIGHUP (the shell's, the kernel's): together they are
    one, and what follows (putting back, the report) is not disturbed by another.
    """

    def __init__(self, heard: Callable[[int], None] = lambda _count: None) -> None:
        self.count = 0
        self._heard = heard

    @property
    def stopping(self) -> bool:
        return self.count > 0

    def request(self) -> None:
        """One more. The second raises :class:`Interrupted`; later ones must not disturb the tidying up."""
        self.count += 1
        errors.request()
        self._heard(self.count)
        if self.count == 2:
            raise Interrupted

    def check(self) -> None:
        """Raises :class:`Interrupted` if an end was asked for: between the steps of a run."""
        if self.stopping:
            raise Interrupted

    def rest(self, seconds: float, sleep: Callable[[float], None]) -> None:
        """A pause that an end cuts short; :meth:`check` before, meanwhile, and after."""
        self.check()
        while seconds > 0:
            part = min(seconds, _REST_S)
            sleep(part)
            seconds -= part
            self.check()

    @contextmanager
    def caught(self) -> Iterator[Interrupt]:
        """Within it, signals come here. Only for the main thread."""

        hung_up = False

        def handle(sign: int, _frame: FrameType | None) -> None:
            nonlocal hung_up
            if sign != signal.SIGHUP or not self.stopping:
                hung_up = hung_up or sign == signal.SIGHUP
                self.request()

        errors.reset()
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
        heard = (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {s: signal.signal(s, handle) for s in heard}
        try:
            yield self
        finally:
            errors.reset()
            for s, handler in before.items():
                signal.signal(s, signal.SIG_IGN if s == signal.SIGHUP and hung_up else handler)


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


def lead_ns(load: Load) -> int:
    """How much longer than here an order to start may take: 0, or what a load on other hosts says."""
    found: int = getattr(load, "lead_ns", 0)
    return found


def asking(load: Load) -> Callable[[int], bool]:
    """Whether it is time, at an instant in ns, to ask how far ``load`` is: always, or as often as a load says
    whose answers are messages of other hosts."""
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
    """The load's tables, checked against the schema; of those that each load has, absent ones are empty."""
    found = {name: from_core(name, table) for name, table in load.tables().items()}
    return {name: empty(name) for name in TABLES if name not in found} | found


def window_frames(load: Windowed, window: int) -> dict[str, pl.DataFrame]:
    """The same of one of the windows that its measurement was cut into, from 0."""
    found = {name: from_core(name, table) for name, table in load.window_tables(window).items()}
    return {name: empty(name) for name in TABLES if name not in found} | found


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
