"""The windows of an observation, one after the other, without a gap while the server is available.

The next watch is opened shortly before the current window ends, so that its first reads are complete when
its window begins. The reads of the server at the end of one window are those at the start of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from dbdyno import observe
from dbdyno.conduct.beside import LiveBeside
from dbdyno.conduct.companion import Companion
from dbdyno.conduct.hosts.hosts import lost_host
from dbdyno.conduct.measure.cell import LOST, NOTHING, Mark, read_mark
from dbdyno.conduct.measure.observed import (
    KNOWN_BY,
    STOPPED,
    WITH_SESSIONS,
    Closing,
    Costing,
    End,
    Numbers,
    SessionFilter,
    Window,
    closed,
)
from dbdyno.conduct.measure.presence import Presence, late_words, own_times_ns
from dbdyno.conduct.measure.progress import Look, Names, ObservationListener, backends_of
from dbdyno.conduct.measure.saving import Measurements
from dbdyno.conduct.memory.memory_beside import MemoryBeside
from dbdyno.conduct.observe.together import Together
from dbdyno.drive import Interrupt
from dbdyno.model.engine.protocols import Clock, Server, Watch, needed
from dbdyno.model.errors import Abandoned, DbdynoError, HostLost, ServerLost, TargetError
from dbdyno.model.plan.plan import LEAST_WINDOW_NS, Cell, Observation, Plan
from dbdyno.model.results.raw import RawCell
from dbdyno.model.units import NS_PER_S, counted, format_ns
from dbdyno.plan import duration_of, observed_cell, sampled_for, window_of

LEAD_NS = 500_000_000  # from opening a watch to its window: time to connect and to read once
LONGEST_LEAD_NS = 10 * NS_PER_S
STEP_NS = 100_000_000
ALIVE_NS = NS_PER_S  # interval of checks whether the server answers, once samples fail
FIRST_PAUSE_NS, LONGEST_PAUSE_NS = NS_PER_S // 2, 5 * NS_PER_S
HOST = "the server's host"
PATIENCE_NS = 120 * NS_PER_S  # a server that is away for longer is gone for good


@dataclass(frozen=True)
class ObservationSetting:
    """The server, plan and clock that all windows of an observation share."""

    server: Server
    plan: Plan
    clock: Clock
    listener: ObservationListener
    interrupt: Interrupt


class Windows:
    """The windows of an observation. They need the control connection, and a connection for the activity of
    each watch."""

    def __init__(
        self,
        setting: ObservationSetting,
        companions: Companion | None = None,
        ours: Callable[[], list[dict[str, Any]]] = list,
        memory: MemoryBeside | None = None,
        live: LiveBeside | None = None,
        together: Together | None = None,
    ) -> None:
        """``ours`` returns tasks of other processes that work for dbdyno, in the form in which a watch takes
        them. ``memory`` and ``live`` read for the live view. ``together`` joins observations of other
        servers."""
        server, plan, clock = setting.server, setting.plan, setting.clock
        self._server, self._plan, self._clock = server, plan, clock
        self._listener, self._interrupt, self._ours = setting.listener, setting.interrupt, ours
        self._companions = Companion() if companions is None else companions
        self._memory, self._live, self._together = memory, live, together
        self._chosen = plan.experiment.observation or Observation()
        self._window_ns, self._duration_ns = window_of(self._chosen), duration_of(self._chosen)
        self._sampled_for = sampled_for(plan.experiment)
        self._start_ns = clock.now_ns() + LEAD_NS
        self.over = False  # whether the requested time passed without an end before
        self._end_ns: int | None = None  # end of the requested time, known from the first window on
        self._numbers, self._names = Numbers(), Names(server, clock)
        self._filter = SessionFilter(self._chosen, setting.listener)
        self._stored = 0
        self._asked_ns = 0
        self._troubles: set[str] = set()
        self._failing: dict[str, str] | None = None  # of the previous window: data source -> reason
        self._attached_before = False
        self._before: Watch | None = None  # the previous watch, for the live view, which shows past seconds
        self.costing = Costing(clock)
        self._presence = Presence(server)

    def all(self) -> Measurements:
        """Yields each window when it is over. Raises :class:`ServerLost` if the server is gone for good."""
        while True:
            end = yield from self._windows()
            self.over = end is None
            if end is not None and end.resume:
                continue
            if end is None or not end.lost or not self._reconnect(end.who, end.reason):
                return

    # -- while the server is available ------------------------------------------------------------
    def _windows(self) -> Generator[Sequence[RawCell], None, End | None]:
        """Yields windows until the end of the time, or returns why they end before; ``None`` if the time is
        over."""
        self._companions.before(self._cell(self._stored + 1))
        try:
            now = self._open(None, None)
        except LOST as e:
            if not self._attached_before:
                raise
            return _end_by_loss(e)
        self._attached_before = True
        following: Window | None = None
        try:
            end = self._pass(now, now.t0_ns)
            now.first = NOTHING if end else self._mark("t0")
            while True:
                end = end or self._pass(now, now.t1_ns - LEAD_NS)
                before = own_times_ns()
                if end is None and (self._end_ns is None or now.t1_ns < self._end_ns):
                    following, end = self._following(now)
                end = end or self._pass(now, now.t1_ns)
                last, end = self._last_mark(end)
                end = end or self._overslept(now, before)
                yield from self._close(now, last, end, over=end is not None or following is None)
                if end is not None or following is None:
                    return end
                self._before, now, following = now.watch, following, None
                now.first = last.renamed("t0")
                if self._stored:
                    left_ns = now.t1_ns - LEAD_NS - self._clock.now_ns()
                    self._companions.between(self._cell(self._stored), left_ns)
        finally:
            for window in (now, following):
                if window is not None:
                    window.watch.stop()

    def _cell(self, number: int) -> Cell:
        return observed_cell(number, self._window_ns)

    def _following(self, now: Window) -> tuple[Window | None, End | None]:
        try:
            return self._open(now.t1_ns, now), None
        except Abandoned:
            return None, End(STOPPED, lost=False, silent=True)
        except LOST as e:
            return None, _end_by_loss(e)

    def _last_mark(self, end: End | None) -> tuple[Mark, End | None]:
        """Reads the server at the end of a window, and returns how the window ended."""
        if end and (end.lost or end.silent):
            return NOTHING, end
        last = self._mark("t1")
        if last.lost and self._interrupt.stopping:
            return NOTHING, End(STOPPED, lost=False, silent=True)
        return last, end or (End(last.lost, lost=True) if last.lost else None)

    def _open(self, t0_ns: int | None, before: Window | None) -> Window:
        """Opens the next window, at ``t0_ns``, or soon if that is None. Sessions of the previous window keep
        their numbers."""
        known = {} if before is None else self._numbers.alive(self._recent(before.watch))
        asked_ns = self._clock.now_ns()
        how = observe.How.of(self._plan.experiment).until(
            {key: self._start_ns + ns for key, ns in self._sampled_for.items()}, asked_ns
        )
        ours = self._ours()
        self.costing.helped_by(task["pid"] for task in ours)
        watch = observe.open_observation(self._server, self._chosen, known, how, ours)
        t0_ns = self._soon(asked_ns) if t0_ns is None else t0_ns
        t1_ns = self._window_end(t0_ns)
        if self._end_ns is not None and self._end_ns - t1_ns < LEAST_WINDOW_NS:
            # opening may have taken longer than the rest of the time
            t1_ns = max(self._end_ns, t0_ns + LEAST_WINDOW_NS)
        watch.start(t0_ns, t1_ns)
        return Window(watch, t0_ns, t1_ns)

    def _soon(self, asked_ns: int) -> int:
        """Returns the start of a window whose watch, open now, was requested at ``asked_ns``.

        The watch has to meet its sessions before. If opening took long, the machine is busy, and that will
        take long, too.
        """
        now_ns = self._clock.now_ns()
        t0_ns = now_ns + min(max(LEAD_NS, now_ns - asked_ns), LONGEST_LEAD_NS)
        if self._together is not None:
            t0_ns = self._together.begin(t0_ns, self._clock, lambda: self._interrupt.stopping)
        if self._end_ns is None and self._duration_ns is not None:
            self._end_ns = t0_ns + self._duration_ns
        return t0_ns

    def _window_end(self, t0_ns: int) -> int:
        """Returns the end of a window that begins at ``t0_ns``."""
        if self._together is None:
            return t0_ns + self._window_ns
        return self._together.cut(t0_ns, self._window_ns)

    def _recent(self, watch: Watch) -> dict[str, pl.DataFrame]:
        return observe.recent_frames(watch, self._clock.now_ns() - 2 * NS_PER_S, WITH_SESSIONS, KNOWN_BY)

    def _pass(self, window: Window, until_ns: int) -> End | None:
        """Waits until ``until_ns``; returns how the window ended if it ends before."""
        while (now_ns := self._clock.now_ns()) < until_ns:
            if self._interrupt.stopping:
                return End(STOPPED, lost=False)
            if now_ns - self._asked_ns >= ALIVE_NS and (gone := self._loss(window.watch)):
                return gone
            self._look(window.watch)
            self._clock.sleep(min(STEP_NS, until_ns - now_ns) / NS_PER_S)
        return None

    def _loss(self, watch: Watch) -> End | None:
        """Returns the end of the window if samples fail and the server does not answer, or its host is
        lost."""
        self._asked_ns = self._clock.now_ns()
        self._filter.look(watch, self._asked_ns, self._names)
        if (trouble := watch.trouble()) is None:
            return None
        if (lost := lost_host(watch)) is not None:
            return End(lost, lost=True, who=HOST)
        try:
            self._names.keep(backends_of(self._server))
        except Abandoned:
            return None  # the caller handles the end
        except LOST as e:
            return _end_by_loss(e)
        except TargetError as e:
            trouble = e.message
        if trouble not in self._troubles:
            self._troubles.add(trouble)
            self._listener.notice(f"activity samples fail: {trouble}")
        return None

    def _mark(self, phase: str) -> Mark:
        mark = read_mark(self._server, phase, statements=True)
        if not mark.lost:
            self._names.keep(mark.backends)
        if mark.refused and mark.refused not in self._troubles:
            self._troubles.add(mark.refused)
            self._listener.notice(mark.refused)
        return mark

    def _overslept(self, window: Window, before: tuple[int, int] | None) -> End | None:
        """Returns an end if the window's end was noticed too late for the next window.

        dbdyno was stopped or late, or the server was slow to answer. ``before``: :func:`own_times_ns`
        shortly before the window's end.
        """
        now_ns = self._clock.now_ns()
        if now_ns - window.t1_ns < LEAST_WINDOW_NS:
            return None
        over = self._end_ns is not None and self._end_ns - now_ns < LEAD_NS + LEAST_WINDOW_NS
        if away := self._presence.holes(window.t0_ns):
            return End(away[-1].words, lost=False, resume=not over)
        words = late_words(now_ns - window.t1_ns, before, own_times_ns())
        self._listener.notice(f"{words}: window {self._stored + 1} is marked")
        return End(words, lost=False, resume=not over, silent=True)

    def _close(
        self, window: Window, last: Mark, end: End | None, *, over: bool
    ) -> Iterator[Sequence[RawCell]]:
        """Closes a window. ``over``: no window follows at once, so companions are called for the last
        time."""
        window.watch.stop()
        now_ns = self._clock.now_ns()
        away = self._presence.holes(window.t0_ns, window.t1_ns)
        for hole in away:
            self._listener.notice(f"{hole.words}: window {self._stored + 1} is marked")
        closing = Closing(self._stored + 1, now_ns, last, end, away)
        raw = closed(self._server, self._plan, window, self._numbers, closing)
        self.costing.add(raw.tables["tasks"])
        short = raw.meta.t1_ns - raw.meta.t0_ns < LEAST_WINDOW_NS
        self._stored += not short
        if over and self._stored and not (end and (end.lost or end.silent)):
            self._companions.last(self._cell(self._stored))
        if short:
            return
        self._tell_changes(raw)
        yield [raw]

    def _tell_changes(self, raw: RawCell) -> None:
        """Reports rights and data sources that were gained or lost since the previous window."""
        rows = raw.tables["sources"].filter(pl.col("status") != "ok")
        failing = {
            name: f"{status}: {detail}"
            for name, status, detail in rows.select("name", "status", "detail").iter_rows()
        }
        before, self._failing = self._failing, failing
        for name in () if before is None else failing.keys() - before.keys():
            self._listener.notice(f"{name}: {failing[name]}")
        for name in () if before is None else before.keys() - failing.keys():
            self._listener.notice(f"{name}: ok again")

    def _open_beside(self, how: observe.How) -> Watch:
        """Opens a second watch over the same sessions."""
        return observe.open_observation(self._server, self._chosen, {}, how, self._ours())

    def _look(self, watch: Watch) -> None:
        self._companions.look(watch, self._open_beside, None)
        since_s = max(0, self._clock.now_ns() - self._start_ns) / NS_PER_S
        left_s = None if self._end_ns is None else (self._end_ns - self._clock.now_ns()) / NS_PER_S
        self._listener.tick(
            Look(
                self._stored,
                since_s,
                left_s,
                watch,
                self._before,
                self._names,
                self._clock,
                self._server.wait_families,
                self._memory,
                self._live,
                self.costing.helpers,
            )
        )

    # -- while the server is not available --------------------------------------------------------
    def _reconnect(self, who: str, reason: str) -> bool:
        """Tries to reach the server and its host again. Returns False if the user ends the observation.

        Raises :class:`ServerLost`.
        """
        self._listener.notice(f"{who} is away: {reason}")
        since_ns, pause_ns, attempts, last = self._clock.now_ns(), FIRST_PAUSE_NS, 0, ""
        while self._rest(pause_ns):
            away, attempts = format_ns(self._clock.now_ns() - since_ns), attempts + 1
            try:
                needed(self._server.watching, "observe an existing workload").reconnect()
            except TargetError as e:
                self._check_patience(who, since_ns, attempts)
                pause_ns = min(2 * pause_ns, LONGEST_PAUSE_NS)
                if e.message != last:
                    self._listener.notice(f"{who} is away for {away} ({e.message}); trying again")
                last = e.message
            else:
                self._listener.notice(f"{who} is back after {away}, at attempt {attempts}")
                return self._end_ns is None or self._end_ns - self._clock.now_ns() > LEAD_NS + LEAST_WINDOW_NS
        return False

    def _check_patience(self, who: str, since_ns: int, attempts: int) -> None:
        now_ns = self._clock.now_ns()
        over = self._end_ns is not None and now_ns >= self._end_ns
        if over or now_ns - since_ns >= PATIENCE_NS:
            raise ServerLost(
                f"{who} went away and was not back after {format_ns(now_ns - since_ns)} and "
                f"{counted(attempts, 'attempt')}",
                "see the server's log; start it and observe again",
            )

    def _rest(self, ns: int) -> bool:
        until_ns = self._clock.now_ns() + ns
        while self._clock.now_ns() < until_ns and not self._interrupt.stopping:
            self._look(observe.NoWatch())
            self._clock.sleep(STEP_NS / NS_PER_S)
        return not self._interrupt.stopping


def _end_by_loss(error: DbdynoError) -> End:
    """Returns the end of a window that the loss of the server or its host causes."""
    return End(error.message, lost=True, who=HOST if isinstance(error, HostLost) else End.who)
