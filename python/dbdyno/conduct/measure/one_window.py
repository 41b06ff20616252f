"""A cell with one window: its observers, and the reads of the server and the driver."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

import polars as pl

from dbdyno import drive, observe
from dbdyno.conduct.hosts.hosts import lost_in
from dbdyno.conduct.measure.cell import (
    Mark,
    Schedule,
    Setting,
    Unit,
    all_ran,
    last_answer_ns,
    note_progress,
    read_mark,
    read_statements,
    statement_tables,
    verdict,
)
from dbdyno.conduct.measure.measurement import Span
from dbdyno.conduct.measure.presence import Presence
from dbdyno.model.engine.protocols import Load, Progress, Server
from dbdyno.model.errors import HostLost, TargetError
from dbdyno.model.plan.plan import Cell, cpus_under
from dbdyno.model.results.raw import CellMeta, CellStatus, RawCell
from dbdyno.model.schema.tables import RAW, empty, raw, rows

MARKS = ("t0", "t1")
CONNECTING, BEGIN, END = "connect", "start", "end"
"""Names of the reads of counters: before the sessions connect, before the barrier with all of them parked,
and once all have left and reported. Between the last two the server's counters are exact. If sessions report
their work before the barrier only later, counters are exact from the first read on."""
LEFT_S, LEFT_STEP_S = 2.0, 0.02
"""The end waits at most this long for the sessions to leave the server."""


class _Questions:
    """Reads made besides the observers: the server at each mark, the driver once a second."""

    def __init__(self, server: Server, load: Load, *, enabled: bool) -> None:
        self._server, self._load, self._enabled = server, load, enabled
        self._marks: list[Mark] = []
        self._whole: list[pl.DataFrame] = []
        self._progress: list[dict[str, int]] = []
        self.lost: str | None = None  # the error of a server that no longer answered

    def at(self, phase: str) -> None:
        """Reads the mark of this name, once and after those before it."""
        if not self._enabled or self.lost or len(self._marks) != MARKS.index(phase):
            return
        mark = read_mark(self._server, phase)
        self.lost = mark.lost or mark.refused
        self._marks.append(mark)

    def whole(self, phase: str, leaving: Sequence[int] = ()) -> None:
        """Reads only the counters, once the processes ``leaving`` have ended."""
        if not self._enabled or self.lost or self._server.counting is None:
            return
        with suppress(TargetError):  # the counters of t0 and t1 remain
            _until_gone(self._server, leaving)
            self._whole.append(self._server.counting.counters(phase))

    def statements(self, phase: str) -> pl.DataFrame:
        """Reads the counters of statements, while no session makes calls."""
        if not self._enabled or self.lost:
            return empty("statement_reads")
        return read_statements(self._server, phase)

    def driver(self, now_ns: int, *, last: bool = False) -> Progress:
        return note_progress(self._load, self._progress, now_ns, always=last)

    def tables(self, counters: pl.DataFrame, host: pl.DataFrame) -> dict[str, pl.DataFrame]:
        """Returns the load's ``counters`` with the server's own, who was connected, and the ``host``."""
        return {
            "counters": pl.concat([counters, *(m.counters for m in self._marks), *self._whole]),
            "backends": pl.concat([empty("backends"), *(m.backends for m in self._marks)]),
            "host": pl.concat([host, *(m.host for m in self._marks)]),
            "progress": rows("progress", self._progress),
        }


def _until_gone(server: Server, pids: Sequence[int]) -> None:
    """Waits for the end of the sessions' processes: a process reports its last counters when it ends."""
    if server.listing is None or server.world is not None or not pids:
        return
    until_s = time.monotonic() + LEFT_S
    while time.monotonic() < until_s and server.listing.backends()["pid"].is_in(pids).any():
        time.sleep(LEFT_STEP_S)


class OneWindow:
    """See :class:`dbdyno.conduct.measure.measurement.Windows`."""

    def __init__(self, setting: Setting, load: Load, cell: Cell, unit: Unit) -> None:
        self._setting, self._server, self._load = setting, setting.server, load
        self._cell, self._unit = cell, unit
        self._presence = Presence(setting.server)
        self._questions = _Questions(setting.server, load, enabled=setting.plan.experiment.observe)
        self._hosts_lost: list[HostLost] = []

    def connecting(self) -> None:
        self._questions.whole(CONNECTING)

    def open(self) -> Schedule:
        self._questions.whole(BEGIN)
        how = observe.How.of(self._setting.plan.experiment)
        watch = observe.open_watch(self._server, self._load, how)
        self._first = self._questions.statements("t0")
        self._schedule = Schedule.ahead(self._load, self._cell)
        at = self._schedule
        watch.start(at.t0_ns, at.t1_ns)
        self._span = Span(self._cell, at.start_ns, at.t0_ns, at.t1_ns, watch)
        return at

    def look(self, now_ns: int) -> Span:
        if now_ns >= self._schedule.t0_ns:
            self._questions.at("t0")
        if now_ns >= self._schedule.t1_ns:
            self._questions.at("t1")
        return self._span

    def driver(self, now_ns: int) -> Progress:
        return self._questions.driver(now_ns)

    def broken_off(self) -> None:
        self._questions.at("t1")  # the window ended early

    def host_lost(self, error: HostLost) -> int:
        """Notes that a host was lost; the sessions of the others have ended."""
        self._hosts_lost.append(error)
        return min(self._load.now_ns(), self._schedule.t1_ns)

    def stop(self) -> None:
        self._span.watch.stop()

    def over(self, now_ns: int) -> None:
        self._end_ns = now_ns
        self._questions.driver(now_ns, last=True)
        # read now, since the sessions execute further statements when they leave
        self._last = self._questions.statements("t1")

    def leave(self) -> None:
        try:
            drive.finish(self._load)
        except HostLost as e:
            self._hosts_lost.append(e)

    def cells(self, end_ns: int) -> list[RawCell]:
        tables = self._tables()
        end_ns = self._window_end_ns(end_ns, tables["sessions"])
        status, reason = self._verdict(end_ns, tables["sessions"])
        at, variant = self._schedule, self._setting.plan.variant(self._cell.variant)
        if self._presence.holes(0, at.start_ns):
            unknown = (pl.lit(None, pl.Int64).alias(name) for name in ("connect_ns", "prepare_ns"))
            tables["sessions"] = tables["sessions"].with_columns(unknown)
        meta = CellMeta(
            cell=self._cell,
            workload=self._unit.workload,
            calibration=self._unit.calibration,
            start_ns=at.start_ns,
            t0_ns=at.t0_ns,
            t1_ns=end_ns,
            end_ns=self._end_ns,
            driver_threads=len(self._load.threads()),
            usable_cpus=cpus_under(variant.limits, self._setting.plan.cpus),
            status=status,
            reason=reason,
            wait_families=self._server.wait_families,
            asides=any(job.asides for job in variant.jobs),
        )
        return [RawCell(meta, {name: tables.get(name, empty(raw(name))) for name in RAW})]

    def _tables(self) -> dict[str, pl.DataFrame]:
        watch = self._span.watch
        tables = {**drive.frames(self._load), **observe.frames(watch)}
        self._questions.whole(END, tables["sessions"]["backend_pid"].drop_nulls().to_list())
        tables |= self._questions.tables(tables["counters"], tables["host"])
        tables |= statement_tables(self._server, self._first, self._last)
        enabled = self._setting.plan.experiment.observe
        tables["sources"] = observe.sources(
            self._server, tables, enabled=enabled, reported=observe.WatchState.by(watch)
        )
        return tables

    def _window_end_ns(self, end_ns: int, sessions: pl.DataFrame) -> int:
        """Returns the window's end.

        If the server stopped answering, that is the last answer. For a cell that runs once, it is the end of
        the last execution.
        """
        lost, t0_ns = self._questions.lost, self._schedule.t0_ns
        if lost and (last_ns := last_answer_ns(sessions, t0_ns)) is not None:
            end_ns = min(end_ns, last_ns)
        if self._cell.once and not self._setting.interrupt.stopping and all_ran(sessions):
            end_ns = self._schedule.t1_ns = int(sessions["last_end_ns"].max())  # type: ignore[arg-type]
        return end_ns

    def _verdict(self, end_ns: int, sessions: pl.DataFrame) -> tuple[CellStatus, str | None]:
        """Returns the status; a loss takes precedence over a short window."""
        at = self._schedule
        status, reason = verdict(at, end_ns, sessions, self._questions.lost, self._setting.interrupt)
        # including the last calls, since a session's rate is that until its last call
        if (away := self._presence.away(at.t0_ns, self._end_ns)) is not None:
            status, reason = "invalid", away
        if (unknown := lost_in(self._server, self._span.watch, at.t1_ns - at.t0_ns)) is not None:
            status, reason = "invalid", unknown
        if self._hosts_lost:
            status, reason = "invalid", "; ".join(self._setting.lost(e) for e in self._hosts_lost)
        return status, reason
