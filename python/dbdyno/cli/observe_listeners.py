"""Progress of an observation: the live view on a terminal, elsewhere one line per window."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType

import polars as pl
from rich.console import Console
from rich.text import Text

from dbdyno import present
from dbdyno.cli.observe_sheets import Row, StatementRow, session_sheet, statement_sheet, top_statements
from dbdyno.cli.observe_state import BUILT_IN, LOCKS, MEMORY, SESSIONS, STATEMENTS, Keyboard, View
from dbdyno.cli.observe_table import Sheet, engine_sheet, number
from dbdyno.cli.observe_view import (
    LEAST,
    MARKS,
    PLAIN_MARKS,
    Header,
    Screen,
    brief_words,
    hidden_in_words,
)
from dbdyno.cli.streams import reader_is_gone
from dbdyno.cli.terminal import TerminalScreen
from dbdyno.conduct import LiveBeside, Look, MemoryBeside, NullObservationListener
from dbdyno.model.engine.environment import Environment
from dbdyno.model.engine.live import LiveFigures, LiveRequest, LiveScreen
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.brief import logons, met
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import Tables
from dbdyno.model.sources.wait_families import WaitFamilies
from dbdyno.model.units import NS_PER_S, format_ns, format_rate, significant
from dbdyno.observe.blocking import Blocked, blocking
from dbdyno.observe.glance import Glance, glance, weight
from dbdyno.observe.glance_devices import DevicesNow

_HEAD = (
    f"{'ended':8} {'window':>6} {'sess':>5} {'DB time':>8} {'DB CPU':>8} {'CPU WAIT':>8} {'asleep':>8} "
    f"{'client':>8}  top wait (in the run queue), I/O"
)
HEAD_EVERY = 40  # lines
OTHERS = "sessions of other users"
"""Name of the data source that says which sessions are visible."""


class ObservationLines(NullObservationListener):
    """Prints lines that can be piped; notices go to ``notices``. See
    :class:`dbdyno.conduct.ObservationListener`."""

    def __init__(self, console: Console, notices: Console, whom: str) -> None:
        self._console, self._notices, self._whom = console, notices, whom
        self._lines = 0
        self._stop: Callable[[], None] | None = None

    def on_unread(self, stop: Callable[[], None]) -> None:
        """Calls ``stop`` once the reader of the lines is gone (`| head`)."""
        self._stop = stop

    def tick(self, look: Look) -> None:  # noqa: ARG002
        if self._stop is not None and reader_is_gone():
            stop, self._stop = self._stop, None
            self.notice("the reader of the output has ended")
            stop()

    def __enter__(self) -> ObservationLines:
        return self

    def __exit__(
        self, _t: type[BaseException] | None, _v: BaseException | None, _tb: TracebackType | None
    ) -> None: ...

    def on_signal(self, count: int) -> None:
        """Reports the first signal."""
        if count == 1:
            self.notice("ending: the window under way is saved; Ctrl-C again ends at once")

    def planned(self, plan: Plan, run_id: str) -> None:
        self._print(f"run {run_id}")
        for choice in plan.choices:
            self._print(f"{choice.name} = {choice.value}: {choice.reason}")
        if self._whom:
            self._print(f"only {self._whom}")

    def opened(self, environment: Environment) -> None:
        server = environment.server
        self._print(f"{server.engine} {server.version} at {server.where}")
        if server.reached is not None:
            self._print(f"server's host: {server.reached.words}")
        for text in unseen(environment):
            self.notice(text)

    def notice(self, text: str) -> None:
        self._notices.print(text, style="yellow", soft_wrap=True)

    def saved(self, window: RawCell) -> None:
        if self._console.quiet:
            return
        if self._lines % HEAD_EVERY == 0:
            self._print(_HEAD)
        self._lines += 1
        self._print(line(window, datetime.now()))

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def unseen(environment: Environment) -> list[str]:
    """Returns what is unknown about the host and the server's version, and what the role may not see of other
    users, with the cure."""
    server = environment.server
    away = f"server not on this host, only its own figures are known: {server.here_detail}"
    named = [s for s in environment.sources if s.name == OTHERS and s.status != "ok"]
    unknown = [*([] if server.here else [away]), *filter(None, (server.doubt,))]
    return [*unknown, *(f"{s.name}: {s.status}: {s.detail}" for s in named)]


def line(window: RawCell, ended: datetime) -> str:
    """Returns one window as a line: seconds per second of all its sessions; ``?`` for unknown."""
    widths = dict.fromkeys(("db_time", "run", "runq", "sleep", "client"), 8)
    sessions, figures, remarks = line_parts(window, widths)
    return f"{ended:%H:%M:%S} {window.meta.cell.repeat:>6} {sessions:>5} {figures}  {remarks}".rstrip()


def line_parts(window: RawCell, widths: Mapping[str, int]) -> tuple[int, str, str]:
    """Returns sessions, figures of ``widths`` in columns of these widths, and the remarks of a window's
    line."""
    meta = window.meta
    length_ns, everyone = meta.t1_ns - meta.t0_ns, not meta.chosen
    summary = glance(
        window.tables, meta.wait_families, length_ns, everyone=everyone, resting=True, window_ns=length_ns
    )
    figures = " ".join(f"{number(summary.total(part)):>{width}}" for part, width in widths.items())
    short = "" if meta.status == "ok" else f"  {meta.status}: {meta.reason}"
    sessions = summary.count
    if hidden := hidden_in_words(summary.hidden, sessions):
        short = f"  {hidden}{short}"
    brief = _brief(summary, window)
    return sessions, figures, f"{_top(summary)}{_io(summary.machine.devices)}{brief}{short}"


_LEAST_BRIEF = 0.01
"""CPUs from which on sessions too brief to be sampled are worth a remark in a line."""


def _brief(summary: Glance, window: RawCell) -> str:
    """Returns the remark on sessions too brief to be sampled, as many as the server counted if it counts
    them, like the account of the window; empty if they used little."""
    brief, tables = summary.brief, window.tables
    if brief is None or brief.run + (brief.runq or 0.0) < _LEAST_BRIEF:
        return ""
    read = tables["tasks"].filter(pl.col("status") == "ok")
    count = logons(tables["counters"], met(read, window.meta.t0_ns))
    if count == 0:
        return ""  # processes of the server's own
    return brief_words(replace(summary, brief=brief._replace(processes=count or brief.processes)))


def _top(summary: Glance) -> str:
    """Returns the longest wait apart from client waits, with its part in the run queue in brackets. Waits are
    ranked by their time asleep, as in the account of all windows, where the queue is part of CPU WAIT."""
    waits = [e for e in summary.events if e.wait_class is not None and not e.at_client and weight(e) >= LEAST]
    waits.sort(key=lambda e: e.sleep or 0.0, reverse=True)
    return "".join(f"{e.name} {number(e.sleep)} ({number(e.runq)})" for e in waits[:1])


def _io(now: DevicesNow | None) -> str:
    """Returns requests and bytes a second of the devices, and the mean response time; empty if unknown."""
    if now is None:
        return ""
    waited = "" if now.await_ns is None else f" {format_ns(now.await_ns)}"
    rate = format_rate(now.reads_per_s + now.writes_per_s)
    return f"  I/O {rate}/s {significant(now.bytes_per_s / 1e6)} MB/s{waited}"


def memory_lines(beside: MemoryBeside | None, width: int) -> list[Text]:
    """Returns the last reading of memory, or the reason why there is none."""
    if beside is None:
        return [Text("the first window has not begun", "dim")]
    lines = (
        [Text("reading where the memory is ...", "dim")] if beside.reading and beside.latest is None else []
    )
    if beside.trouble:
        lines.append(Text(f"memory was not read: {beside.trouble}", "yellow"))
    return lines if beside.latest is None else [*lines, *present.memory_lines(beside.latest, width)]


SECONDS = 5.0  # the view shows this much of the past
_FIRST_S = 0.5  # between readings until there are figures
_LEAST_S = 0.5  # figures of a shorter past say nothing
_KEPT_S = 10.0  # a figure that is unknown for longer is shown as unknown
NOTICE_S = 8.0
_LATE = 1.5  # refresh intervals after which the screen is drawn without news
_SAVED_COLUMNS = 160  # least width of a saved screen


class LiveObservation(NullObservationListener):
    """The live view on a terminal. See :class:`dbdyno.conduct.ObservationListener`.

    The observation's thread reads figures. A thread of its own handles keys and draws, so that keys work
    also while the observation connects, queries the server or saves, and a terminal delays no measurement.
    """

    def __init__(self, console: Console, whom: str, refresh_s: float) -> None:
        self._console, self._refresh_s = console, refresh_s
        self._stop: Callable[[], None] = lambda: None
        self._header = Header(whom=whom)
        self._view, self._keys, self._screen = View(), Keyboard(), TerminalScreen(console)
        self._glance: Glance | None = None
        self._rows: list[Row] = []
        self._texts: dict[int, str] = {}  # latest statement by pid
        self._glance_s = 0.0  # when it was read
        self._statements: list[StatementRow] = []
        self._unranked: tuple[Tables, WaitFamilies, float | None] | None = None  # of which statements are
        self._blocked: list[Blocked] = []
        self._memory: MemoryBeside | None = None
        self._memory_open = False
        self._live: LiveBeside | None = None
        self._screens: Mapping[str, LiveScreen] = {}
        self._asked = LiveRequest()
        self._notices: list[str] = []
        self._notice = ""
        self._read_s = self._noticed_s = 0.0
        self._over = threading.Event()
        self._fault: BaseException | None = None
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._began_s, self._began_cpu_s = time.monotonic(), time.process_time()
        self._stack = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._handle_keys_and_draw, name="dbdyno-keys", daemon=True)

    def __enter__(self) -> LiveObservation:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._keys.listening())
            self._screen.start()
            stack.callback(self._screen.close)
            self._thread.start()
            stack.callback(self._end_thread)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, _t: type[BaseException] | None, _v: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._stack.close()
        for text in self._notices:  # the live screen, which had them, is closed
            self._console.print(text, style="yellow", soft_wrap=True)

    def on_quit(self, stop: Callable[[], None]) -> None:
        """Calls ``stop`` when the key q is pressed."""
        self._stop = stop

    def on_signal(self, count: int) -> None:
        """Shows that the window is being saved, after a signal or the key q."""
        if count == 1:
            self._notice, self._noticed_s = "saving ...", math.inf
            self._draw_soon()

    def opened(self, environment: Environment) -> None:
        server = environment.server
        name = f"{server.product} {server.version} at {server.where.split(', database')[0]}"
        self._header = replace(self._header, server=name)
        if server.reached is not None:
            self.notice(f"server's host: {server.reached.words}")
        for text in unseen(environment):
            self.notice(text)

    def notice(self, text: str) -> None:
        self._notices.append(f"{time.strftime('%H:%M:%S')}  {text}")
        self._show_notice(text)

    def _show_notice(self, text: str) -> None:
        if self._noticed_s != math.inf:
            self._notice, self._noticed_s = text, time.monotonic()
        self._draw_soon()

    # -- keys and drawing, in a thread of their own ----------------------------------------------
    def _draw_soon(self) -> None:
        with contextlib.suppress(OSError):  # full: it will be drawn anyway; closed: it is over
            os.write(self._wake[1], b".")

    def _end_thread(self) -> None:
        self._over.set()
        self._draw_soon()
        self._thread.join()
        for descriptor in self._wake:
            os.close(descriptor)

    def _handle_keys_and_draw(self) -> None:
        try:
            while not self._over.is_set():
                self._draw()
                self._handle_keys(self._keys.pressed(_LATE * self._refresh_s, self._wake[0]))
            self._draw()  # the last notice
        except BaseException as fault:  # raised in the observation's thread, which can report it
            self._fault = fault

    def _handle_keys(self, keys: list[str]) -> None:
        for key in keys:
            text = [line.plain for line in self._current_screen().text(self._console.width)]
            self._view.press(key, self._sheet(), text if self._view.is_text else ())
        ended, self._view.ended = self._view.ended, False
        saving, self._view.saving = self._view.saving, False
        if saving:
            self._save()
        if ended:
            self._stop()
        self._ask()

    def _draw(self) -> None:
        size = self._console.size
        screen = self._current_screen()
        if self._view.is_text:
            self._view.line = max(0, min(self._view.line, len(screen.text(size.width)) - 1))
        self._screen.draw(screen.lines(size.width, size.height))

    def _current_screen(self) -> Screen:
        marks = MARKS if self._screen.draws_marks else PLAIN_MARKS
        notice = self._notice if time.monotonic() < self._noticed_s + NOTICE_S else ""
        return Screen(
            replace(self._header, notice=notice),
            self._glance,
            self._view,
            self._sheet(),
            self._blocked,
            self._texts,
            lambda width: memory_lines(self._memory, width),
            marks,
        )

    def _sheet(self) -> Sheet:
        """Returns the table of the screen; that of the sessions if the screen has none."""
        answer = None if self._live is None else self._live.current
        if answer is not None:
            self._texts.update(answer.texts)
        if self._view.screen == STATEMENTS:
            known = {} if answer is None else answer.statements
            rows = [replace(r, counters=known.get(r.query_id, r.counters)) for r in self._top_statements()]
            return statement_sheet(rows, self._trouble())
        screen = self._screens.get(self._view.screen)
        if screen is None:
            return session_sheet([replace(r, statement=self._texts.get(r.line.pid, "")) for r in self._rows])
        read = answer.rows if answer is not None and answer.screen == screen.name else None
        return engine_sheet(screen, read, self._trouble())

    def _top_statements(self) -> list[StatementRow]:
        """Returns the statements of the latest readings, ranked once, and only if they are shown."""
        unranked, self._unranked = self._unranked, None
        if unranked is not None:
            self._statements = top_statements(*unranked)
        return self._statements

    def _trouble(self) -> list[str]:
        return [] if self._live is None or not self._live.trouble else [f"not read: {self._live.trouble}"]

    def _save(self) -> None:
        """Saves the screen in a new file of the working directory."""
        text = self._current_screen().plain_text(max(self._console.width, _SAVED_COLUMNS))
        name = f"dbdyno-{time.strftime('%Y%m%d-%H%M%S')}"
        try:
            path = next(
                p for n in range(100) if not (p := Path(f"{name}-{n}.txt" if n else f"{name}.txt")).exists()
            )
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except (OSError, StopIteration) as e:
            self._show_notice(f"the screen was not saved: {e}")
        else:
            self._show_notice(f"screen saved in {path.absolute()}")

    # -- figures, in the observation's thread ----------------------------------------------------
    def tick(self, look: Look) -> None:
        if self._fault is not None:
            raise self._fault
        self._memory, self._live = look.memory, look.live
        if look.live is not None and not self._screens:
            self._screens = {screen.name: screen for screen in look.live.screens}
            self._view.screens = (*BUILT_IN, *self._screens)
        pause_s = min(_FIRST_S, self._refresh_s) if self._glance is None else self._refresh_s
        if time.monotonic() - self._read_s < pause_s:
            return
        self._read_s = time.monotonic()
        if not self._view.paused:
            self._read(look)
            if not self._ask(due=True):
                self._draw_soon()

    def _ask(self, *, due: bool = False) -> bool:
        """Requests what the open screen shows: at its opening, and when it is ``due`` again. Returns whether
        the answer will draw."""
        opened = self._view.screen == MEMORY and not self._memory_open
        self._memory_open = self._view.screen == MEMORY
        if self._memory is not None and self._memory_open and not self._view.paused:
            self._memory.ask() if opened else self._memory.ask_if_due()
        if self._live is None or self._view.paused:
            return False
        request = self._request()
        if not due and request.screen == self._asked.screen:
            return False
        self._live.request = self._asked = request
        begins = not self._live.reading
        self._live.ask(self._draw_soon)
        return begins

    def _request(self) -> LiveRequest:
        view = self._view
        if view.screen in self._screens:
            return LiveRequest(view.screen)
        if view.screen == STATEMENTS:
            return LiveRequest(view.screen, query_ids=[r.query_id for r in self._top_statements()])
        if view.screen == LOCKS:
            return LiveRequest(view.screen, pids=[b.pid for b in self._blocked if b.pid])
        if view.screen == SESSIONS:
            rows = view.rows(self._sheet())
            pids = [row.line.pid for row in rows[: self._console.height]]
            chosen = [pid for pid in view.chosen.values() if isinstance(pid, int)]
            return LiveRequest(view.screen, pids=[*pids, *chosen])
        return LiveRequest(view.screen)

    def _read(self, look: Look) -> None:
        now_s = time.monotonic()
        recent = look.recent(max(SECONDS, self._refresh_s))
        if recent["samples"].height:
            everyone = not self._header.whom
            fresh = glance(recent, look.families, everyone=everyone, helpers=look.helpers)
            self._take(fresh, recent, look, now_s)
        answer = None if look.live is None else look.live.current
        self._header = replace(
            self._header,
            since_s=look.since_start_s,
            left_s=look.left_s,
            stored=look.stored,
            age_s=now_s - self._glance_s,
            here=(time.process_time() - self._began_cpu_s) / max(now_s - self._began_s, 1e-9),
            figures=LiveFigures(notes=self._trouble())
            if answer is None
            else _without_samples(answer.figures, recent),
        )

    def _take(self, fresh: Glance, recent: Tables, look: Look, now_s: float) -> None:
        """Takes new figures. The last ones stay while those of a window that has just begun say less."""
        if _span_s(_taken(recent)) < _LEAST_S:
            return
        last = self._glance
        poorer = last is not None and last.total("run") is not None and fresh.total("run") is None
        if poorer and now_s - self._glance_s < _KEPT_S:
            return
        self._glance, self._glance_s = fresh, now_s
        self._blocked = blocking(recent)
        self._unranked = recent, look.families, fresh.total("db_time")
        names = {row["pid"]: row for row in look.names.frame().iter_rows(named=True)}
        self._rows = [Row(line, names.get(line.pid, {})) for line in fresh.sessions]
        self._texts = {row.line.pid: self._texts.get(row.line.pid, "") for row in self._rows}


def _taken(recent: Tables) -> pl.DataFrame:
    """Returns the samples by SQL that were answered."""
    return recent["sampler"].filter((pl.col("via").fill_null("sql") == "sql") & (pl.col("status") == "ok"))


def _span_s(taken: pl.DataFrame) -> float:
    return 0.0 if taken.is_empty() else int(taken["end_ns"][-1] - taken["end_ns"][0]) / NS_PER_S


def _without_samples(figures: LiveFigures, recent: Tables) -> LiveFigures:
    """Returns the figures without the transactions of the watch itself: one for each sample."""
    taken = _taken(recent)
    if not figures.ours or taken.height < 2:
        return figures
    ours = (taken.height - 1 + recent["blocked"]["before_ns"].n_unique()) / max(_span_s(taken), 1e-9)
    tps, sps = figures.transactions_per_s, figures.statements_per_s
    return replace(
        figures,
        transactions_per_s=None if tps is None else max(0.0, tps - ours),
        statements_per_s=None if sps is None else max(0.0, sps - ours),
    )
