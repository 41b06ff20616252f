"""One cell, in its order in time: connect, watch, climb, counters at t0 and t1, close."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import polars as pl

from dbdyno import _core, drive, observe
from dbdyno.conduct.hosts.hosts import lost_in
from dbdyno.conduct.measure.presence import Presence
from dbdyno.model.engine.protocols import Clock, Load, Progress, Server, Watch
from dbdyno.model.errors import HostLost, ServerLost, TargetError, Unreachable
from dbdyno.model.plan.plan import LEAST_WINDOW_NS, Calibration, Cell, Plan, Workload, cpus_under
from dbdyno.model.results.raw import CellMeta, CellStatus, RawCell
from dbdyno.model.schema.tables import RAW, empty, rows
from dbdyno.model.units import NS_PER_S

# A window's ends: by which clock, and what is asked there.


class MachineClock:
    """CLOCK_MONOTONIC."""

    def now_ns(self) -> int:
        return _core.now_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def clock_of(server: Server) -> Clock:
    """The machine's; an engine that lives in a time of its own brings another."""
    return MachineClock() if server.world is None else server.world.clock()


PHASES = ("t0", "t1")
CONNECTING, BEGIN, END = "connect", "start", "end"
"""Before the sessions are there; before the barrier, with all of them parked; and once all have left and
reported what they did. Between the last two the server's counters are exact, unless it hears only later of
what sessions do before the barrier: then from the first on."""
LEFT_S, LEFT_STEP_S = 2.0, 0.02
"""At most so long the end waits for the sessions to leave the server."""
LOST = (ServerLost, HostLost, Unreachable)
"""What says that the server, or the way to it, is gone; any other error is an answer."""


@dataclass(frozen=True)
class Mark:
    counters: pl.DataFrame
    backends: pl.DataFrame
    host: pl.DataFrame = field(default_factory=lambda: empty("host"))  # CPU by CPU, files of counters
    statements: pl.DataFrame = field(default_factory=lambda: empty("statement_reads"))  # of an observation
    lost: str | None = None  # the error of a server that no longer answered
    refused: str | None = None  # the error of one that did, but would not tell

    def renamed(self, phase: str) -> Mark:
        """The end of one window as the start of the next, read once."""
        named = {t: getattr(self, t).with_columns(phase=pl.lit(phase)) for t in ("counters", "statements")}
        return replace(self, **named)


NOTHING = Mark(empty("counters"), empty("backends"))


def read_mark(server: Server, phase: str, *, statements: bool = False) -> Mark:
    """The tables now; what could not be had is empty, and the mark says why."""
    lost: list[str] = []
    refused: list[str] = []

    def asked(table: str, ask: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        if lost:
            return empty(table)
        try:
            return ask()
        except TargetError as e:
            (lost if isinstance(e, LOST) else refused).append(e.message)
            return empty(table)

    counting, listing = server.counting, server.listing
    counters = asked("counters", lambda: counting.counters(phase) if counting else empty("counters"))
    backends = asked("backends", lambda: listing.backends() if listing else empty("backends"))
    by_statement = server.statement_counting if statements else None
    counted = asked(
        "statement_reads",
        lambda: by_statement.statements(phase) if by_statement else empty("statement_reads"),
    )
    host = empty("host") if server.world is not None else observe.at_end(server.machine)
    return Mark(counters, backends, host, counted, next(iter(lost), None), next(iter(refused), None))


def read_statements(server: Server, phase: str) -> pl.DataFrame:
    """Table ``statement_reads`` now; empty where it cannot be had."""
    counting = server.statement_counting
    with suppress(TargetError):
        return empty("statement_reads") if counting is None else counting.statements(phase)
    return empty("statement_reads")


def statement_tables(server: Server, first: pl.DataFrame, last: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
    """What was executed between two reads; nothing where one of them is missing."""
    counting = server.statement_counting
    if counting is not None and first.height and last.height:
        with suppress(TargetError):
            return counting.executed(first, last)
    return {}


LEAD_NS = 100_000_000  # from the order to the barrier: threads parked, the first sample taken
LEAD_PER_SESSION_NS = 40_000

OnTick = Callable[[str, float, Progress, Mapping[str, float]], None]


@dataclass(frozen=True)
class Unit:
    """What a cell repeats: the workload in one variant, calibrated."""

    workload: Workload
    calibration: Calibration | None


@dataclass(frozen=True)
class Beside:
    """What else is done while all sessions are there and none makes calls: before anybody watches them, and
    before they leave. ``live`` looks at the samples in the window; without a watch, the window is over.
    ``lost``: a host that drove is; why, in words."""

    connected: Callable[[Load], None] = lambda _load: None
    leaving: Callable[[], None] = lambda: None
    live: Callable[[Watch | None, Load], None] = lambda _watch, _load: None
    lost: Callable[[HostLost], str] = lambda error: error.message


@dataclass
class Schedule:
    """When the cell's marks fall, on the load's clock."""

    start_ns: int
    t0_ns: int
    t1_ns: int

    @staticmethod
    def ahead(load: Load, cell: Cell) -> Schedule:
        lead_ns = LEAD_NS + cell.sessions * LEAD_PER_SESSION_NS + drive.lead_ns(load)
        start_ns = load.now_ns() + lead_ns
        t0_ns = start_ns + cell.settle_ns
        return Schedule(start_ns, t0_ns, t0_ns + cell.measure_ns)

    def phase(self, now_ns: int) -> str:
        if now_ns < self.t0_ns:
            return "settling"
        return "measuring" if now_ns < self.t1_ns else "last calls"


class _Asked:
    """Asked besides the observers: the server at each mark that was reached, the driver each second."""

    def __init__(self, server: Server, load: Load, *, enabled: bool) -> None:
        self._server, self._load, self._enabled = server, load, enabled
        self._marks: list[Mark] = []
        self._whole: list[pl.DataFrame] = []
        self._progress: list[dict[str, int]] = []
        self.lost: str | None = None  # the error of a server that no longer answered

    def at(self, phase: str) -> None:
        if not self._enabled or self.lost or len(self._marks) != PHASES.index(phase):
            return
        mark = read_mark(self._server, phase)
        self.lost = mark.lost or mark.refused
        self._marks.append(mark)

    def whole(self, phase: str, leaving: Sequence[int] = ()) -> None:
        """Counters alone, at :data:`BEGIN` and :data:`END`; ``leaving``: processes that must have ended."""
        if not self._enabled or self.lost or self._server.counting is None:
            return
        with suppress(TargetError):  # then there are those of t0 and t1
            _until_gone(self._server, leaving)
            self._whole.append(self._server.counting.counters(phase))

    def statements(self, phase: str) -> pl.DataFrame:
        """While no session makes calls."""
        if not self._enabled or self.lost:
            return empty("statement_reads")
        return read_statements(self._server, phase)

    def driver(self, now_ns: int, *, last: bool = False) -> Progress:
        found = Progress(*self._load.progress())
        if last or not self._progress or now_ns - self._progress[-1]["at_ns"] >= NS_PER_S:
            self._progress.append({"at_ns": now_ns, **dict(zip(found._fields[:4], found, strict=False))})
        return found

    def tables(self, counters: pl.DataFrame, host: pl.DataFrame) -> dict[str, pl.DataFrame]:
        """``counters`` of the load with the server's own, who was connected, and ``host`` CPU by CPU, too."""
        return {
            "counters": pl.concat([counters, *(m.counters for m in self._marks), *self._whole]),
            "backends": pl.concat([empty("backends"), *(m.backends for m in self._marks)]),
            "host": pl.concat([host, *(m.host for m in self._marks)]),
            "progress": rows("progress", self._progress),
        }


def _until_gone(server: Server, pids: Sequence[int]) -> None:
    """A session reports the last of what it did when it leaves."""
    if server.listing is None or server.world is not None or not pids:
        return
    until_s = time.monotonic() + LEFT_S
    while time.monotonic() < until_s and server.listing.backends()["pid"].is_in(pids).any():
        time.sleep(LEFT_STEP_S)


def measure(
    server: Server,
    plan: Plan,
    cell: Cell,
    unit: Unit,
    interrupt: drive.Interrupt,
    on_tick: OnTick,
    beside: Beside = Beside(),
) -> RawCell:
    """Runs one cell. Raises what keeps it from starting; a fault in mid-run leaves a shorter cell."""
    experiment = plan.experiment
    log_calls = experiment.log_calls or cell.driver.rounds
    load = server.load(unit.workload, cell, unit.calibration, log_calls, None)
    presence = Presence(server)
    try:
        on_tick("connecting", 0.0, Progress(0, 0, 0, 0), {})
        asked = _Asked(server, load, enabled=experiment.observe)
        asked.whole(CONNECTING)
        drive.connect(load, interrupt)
        beside.connected(load)
        return _measure(server, plan, cell, unit, load, asked, interrupt, on_tick, presence, beside)
    except BaseException:
        load.abort()
        raise


def _measure(
    server: Server,
    plan: Plan,
    cell: Cell,
    unit: Unit,
    load: Load,
    asked: _Asked,
    interrupt: drive.Interrupt,
    on_tick: OnTick,
    presence: Presence,
    beside: Beside,
) -> RawCell:
    experiment = plan.experiment
    asked.whole(BEGIN)
    watch = observe.open_watch(server, load, observe.How.of(experiment))
    first = asked.statements("t0")
    clock = Schedule.ahead(load, cell)
    watch.start(clock.t0_ns, clock.t1_ns)
    lost: list[HostLost] = []
    try:
        window_end_ns = _climb(load, watch, asked, clock, interrupt, on_tick, beside)
    except HostLost as e:  # the others' sessions have ended
        lost.append(e)
        window_end_ns = min(load.now_ns(), clock.t1_ns)
    finally:
        beside.live(None, load)
        watch.stop()
    end_ns = load.now_ns()
    asked.driver(end_ns, last=True)
    last = asked.statements("t1")  # before the sessions' own end, which has statements, too
    on_tick("closing", (end_ns - clock.start_ns) / NS_PER_S, load.progress(), {})
    beside.leaving()
    try:
        drive.finish(load)
    except HostLost as e:
        lost.append(e)
    tables = {**drive.frames(load), **observe.frames(watch)}
    asked.whole(END, tables["sessions"]["backend_pid"].drop_nulls().to_list())
    tables |= asked.tables(tables["counters"], tables["host"])
    tables |= statement_tables(server, first, last)
    tables["sources"] = observe.sources(
        server, tables, enabled=experiment.observe, reported=observe.WatchState.by(watch)
    )
    if asked.lost and (last_ns := last_answer_ns(tables["sessions"], clock.t0_ns)) is not None:
        window_end_ns = min(window_end_ns, last_ns)
    if cell.once and not interrupt.stopping and all_ran(tables["sessions"]):
        window_end_ns = clock.t1_ns = int(tables["sessions"]["last_end_ns"].max())  # type: ignore[arg-type]
    status, reason = verdict(clock, window_end_ns, tables["sessions"], asked.lost, interrupt)
    if away := presence.holes(
        clock.t0_ns, end_ns
    ):  # last calls, too: a session's rate is that until its last
        status, reason = "invalid", max(away, key=lambda h: h.stopped_ns + h.suspended_ns).words
    if (unknown := lost_in(server, watch, clock.t1_ns - clock.t0_ns)) is not None:
        status, reason = "invalid", unknown
    if lost:
        status, reason = "invalid", "; ".join(beside.lost(e) for e in lost)
    if presence.holes(0, clock.start_ns):
        tables["sessions"] = tables["sessions"].with_columns(
            pl.lit(None, pl.Int64).alias(name) for name in ("connect_ns", "prepare_ns")
        )
    meta = CellMeta(
        cell=cell,
        workload=unit.workload,
        calibration=unit.calibration,
        start_ns=clock.start_ns,
        t0_ns=clock.t0_ns,
        t1_ns=window_end_ns,
        end_ns=end_ns,
        driver_threads=len(load.threads()),
        usable_cpus=cpus_under(plan.variant(cell.variant).limits, plan.cpus),
        status=status,
        reason=reason,
        wait_families=server.wait_families,
        asides=any(job.asides for job in plan.variant(cell.variant).jobs),
    )
    return RawCell(meta, {name: tables.get(name, empty(name)) for name in RAW})


def _climb(
    load: Load,
    watch: Watch,
    asked: _Asked,
    clock: Schedule,
    interrupt: drive.Interrupt,
    on_tick: OnTick,
    beside: Beside,
) -> int:
    """From the barrier to the end of the last session; the end of the window as it came to be."""
    due = drive.asking(load)

    def tick() -> None:
        now_ns = load.now_ns()
        if clock.t0_ns <= now_ns < clock.t1_ns:
            beside.live(watch, load)
        if now_ns >= clock.t0_ns:
            asked.at("t0")
        if now_ns >= clock.t1_ns:
            asked.at("t1")
        if due(now_ns):
            elapsed_s = (now_ns - clock.start_ns) / NS_PER_S
            on_tick(clock.phase(now_ns), elapsed_s, asked.driver(now_ns), watch.latest())

    window_end_ns = drive.run(load, clock.start_ns, clock.t0_ns, clock.t1_ns, interrupt, tick)
    if window_end_ns < clock.t1_ns:
        asked.at("t1")  # at the end that came earlier
    return window_end_ns


def all_ran(sessions: pl.DataFrame) -> bool:
    """Whether sessions ended since there was nothing more to run: then the measurement is as long as that
    took."""
    ends = sessions["end_reason"]
    return sessions["last_end_ns"].count() > 0 and bool((ends == "limit").all())


def last_answer_ns(sessions: pl.DataFrame, t0_ns: int) -> int | None:
    """When a server that stopped answering last did: every session was lost with a call out. None: it did
    not stop."""
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
    """Whether the cell is whole, and if not, why."""
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
