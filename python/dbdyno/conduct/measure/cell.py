"""The parts of a measurement: clocks, marks at the ends of a window, schedule, verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import polars as pl

from dbdyno import _core, drive, observe
from dbdyno.conduct.companion import Companion
from dbdyno.model.engine.protocols import Clock, Load, Progress, Server
from dbdyno.model.errors import HostLost, ServerLost, TargetError, Unreachable
from dbdyno.model.plan.plan import LEAST_WINDOW_NS, Calibration, Cell, Plan, Workload
from dbdyno.model.results.raw import CellStatus
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import NS_PER_S

# The ends of a window: clock, and reads of the server.


class MachineClock:
    """The clock CLOCK_MONOTONIC of this machine."""

    def now_ns(self) -> int:
        return _core.now_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def clock_of(server: Server) -> Clock:
    """Returns the server's own clock if it is simulated, else the machine's."""
    return MachineClock() if server.world is None else server.world.clock()


LOST = (ServerLost, HostLost, Unreachable)
"""Errors of a lost server or connection; any other error is an answer of the server."""


@dataclass(frozen=True)
class Mark:
    counters: pl.DataFrame
    backends: pl.DataFrame
    host: pl.DataFrame = field(default_factory=lambda: empty("host"))  # per CPU, and files of counters
    statements: pl.DataFrame = field(default_factory=lambda: empty("statement_reads"))  # of an observation
    lost: str | None = None  # the error of a server that no longer answered
    refused: str | None = None  # the error of a server that refused a read

    def renamed(self, phase: str) -> Mark:
        """Returns the mark at the end of one window as the mark at the start of the next; it is read once."""
        named = {t: getattr(self, t).with_columns(phase=pl.lit(phase)) for t in ("counters", "statements")}
        return replace(self, **named)


NOTHING = Mark(empty("counters"), empty("backends"))


def note_progress(load: Load, notes: list[dict[str, int]], now_ns: int, *, always: bool) -> Progress:
    """Returns the load's progress, and adds it to ``notes`` once a second, or ``always``."""
    progress = Progress(*load.progress())
    if always or not notes or now_ns - notes[-1]["at_ns"] >= NS_PER_S:
        notes.append({"at_ns": now_ns, **dict(zip(progress._fields[:4], progress, strict=False))})
    return progress


def read_mark(server: Server, phase: str, *, statements: bool = False) -> Mark:
    """Reads the tables of a mark. A table that cannot be read is empty, and the mark has the reason."""
    lost: list[str] = []
    refused: list[str] = []

    def read_table(table: str, ask: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        if lost:
            return empty(table)
        try:
            return ask()
        except TargetError as e:
            (lost if isinstance(e, LOST) else refused).append(e.message)
            return empty(table)

    counting, listing = server.counting, server.listing
    counters = read_table("counters", lambda: counting.counters(phase) if counting else empty("counters"))
    backends = read_table("backends", lambda: listing.backends() if listing else empty("backends"))
    by_statement = server.statement_counting if statements else None
    counted = read_table(
        "statement_reads",
        lambda: by_statement.statements(phase) if by_statement else empty("statement_reads"),
    )
    host = empty("host") if server.world is not None else observe.at_end(server.machine)
    return Mark(counters, backends, host, counted, next(iter(lost), None), next(iter(refused), None))


def read_statements(server: Server, phase: str) -> pl.DataFrame:
    """Reads the table ``statement_reads``; empty if that is not possible."""
    counting = server.statement_counting
    with suppress(TargetError):
        return empty("statement_reads") if counting is None else counting.statements(phase)
    return empty("statement_reads")


def statement_tables(
    server: Server, first: pl.DataFrame, last: pl.DataFrame, seen: Collection[int] = ()
) -> Mapping[str, pl.DataFrame]:
    """Returns the statements executed between two reads, with the texts of the ids ``seen`` as well; nothing
    if a read is missing."""
    counting = server.statement_counting
    if counting is not None and first.height and last.height:
        with suppress(TargetError):
            return counting.executed(first, last, seen)
    return {}


LEAD_NS = 100_000_000  # from the order to the barrier: time to park the threads and take the first sample
LEAD_PER_SESSION_NS = 40_000

OnTick = Callable[[str, float, Progress, Mapping[str, float]], None]


@dataclass(frozen=True)
class Unit:
    """The call that a cell repeats: the workload of one variant, calibrated."""

    workload: Workload
    calibration: Calibration | None


def _silent(phase: str, elapsed_s: float, progress: Progress, shares: Mapping[str, float]) -> None: ...


@dataclass(frozen=True)
class Setting:
    """The server, plan and interrupt that all measurements of a run share."""

    server: Server
    plan: Plan
    interrupt: drive.Interrupt
    on_tick: Callable[[Cell], OnTick] = lambda _cell: _silent
    """Returns what is called with the progress of a cell that begins."""
    companions: Companion = field(default_factory=Companion)
    lost: Callable[[HostLost], str] = lambda error: error.message
    """Called with the loss of a host that drove. Returns why it was lost."""


@dataclass
class Schedule:
    """The instants of a cell's marks, on the load's clock."""

    start_ns: int
    t0_ns: int
    t1_ns: int

    @staticmethod
    def ahead(load: Load, cell: Cell) -> Schedule:
        lead_ns = LEAD_NS + cell.sessions * LEAD_PER_SESSION_NS + drive.lead_ns(load)
        start_ns = load.now_ns() + lead_ns
        t0_ns = start_ns + cell.settle_ns
        return Schedule(start_ns, t0_ns, t0_ns + cell.measure_ns)


def all_ran(sessions: pl.DataFrame) -> bool:
    """Returns whether the sessions ended because nothing was left to run; the measurement is then as long as
    that took."""
    ends = sessions["end_reason"]
    return sessions["last_end_ns"].count() > 0 and bool((ends == "limit").all())


def last_answer_ns(sessions: pl.DataFrame, t0_ns: int) -> int | None:
    """Returns the instant of the last answer of a server that stopped answering, so that every session was
    lost within a call; None if it did not stop."""
    if sessions.is_empty() or not (sessions["end_reason"] == "lost").all():
        return None
    return int(sessions.select(pl.col("last_end_ns").max()).item() or t0_ns)


def verdict(
    clock: Schedule,
    window_end_ns: int,
    sessions: pl.DataFrame,
    server_lost: str | None,
    interrupt: drive.Interrupt,
) -> tuple[CellStatus, str | None]:
    """Returns the status of the cell and, unless it is complete, the reason."""
    if window_end_ns >= clock.t1_ns:
        return "ok", None
    reason = "stopped by the user" if interrupt.stopping else _why_ended(sessions, server_lost)
    if window_end_ns - clock.t0_ns < LEAST_WINDOW_NS:
        return "invalid", f"{reason} before the window was {LEAST_WINDOW_NS / NS_PER_S:g} s long"
    return "short", reason


def _why_ended(sessions: pl.DataFrame, server_lost: str | None) -> str:
    lost = sessions.filter(pl.col("end_reason") == "lost")["end_detail"].drop_nulls()
    detail = str(lost.mode().sort()[0]) if len(lost) else server_lost
    return f"all sessions were lost: {detail}" if detail else "all sessions had ended"
