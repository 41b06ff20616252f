"""Progress of an observation: the live view on a terminal, elsewhere one line per window."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from types import TracebackType

from rich.console import Console, Group
from rich.text import Text

from dbdyno import present
from dbdyno.cli.console import live
from dbdyno.cli.observe_state import Keyboard, Row, View
from dbdyno.cli.observe_view import LEAST, Header, Screen, brief_words, hidden_in_words, number
from dbdyno.cli.streams import reader_is_gone
from dbdyno.conduct import Look, MemoryBeside, NullObservationListener
from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.raw import RawCell
from dbdyno.observe.blocking import Blocked, blocking
from dbdyno.observe.glance import Glance, glance, weight

_HEAD = (
    f"{'ended':8} {'window':>6} {'sess':>5} {'DB time':>8} {'DB CPU':>8} {'CPU WAIT':>8} {'asleep':>8} "
    f"{'client':>8}  top wait (in the run queue)"
)
_HEAD_EVERY = 40  # lines
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
        if self._lines % _HEAD_EVERY == 0:
            self._print(_HEAD)
        self._lines += 1
        self._print(line(window, datetime.now()))

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def unseen(environment: Environment) -> list[str]:
    """Returns what is unknown about the host, and what the role may not see of other users, with the cure."""
    server = environment.server
    away = f"server not on this host, only its own figures are known: {server.here_detail}"
    named = [s for s in environment.sources if s.name == OTHERS and s.status != "ok"]
    return [*([] if server.here else [away]), *(f"{s.name}: {s.status}: {s.detail}" for s in named)]


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
    return sessions, figures, f"{_top(summary)}{brief_words(summary)}{short}"


def _top(summary: Glance) -> str:
    """Returns the longest wait apart from client waits, with its part in the run queue in brackets."""
    waits = [e for e in summary.events if e.wait_class is not None and not e.at_client and weight(e) >= LEAST]
    return "".join(f"{e.name} {number(e.sleep)} ({number(e.runq)})" for e in waits[:1])


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
NOTICE_S = 8.0
KEYS_S = 0.15


class LiveObservation(NullObservationListener):
    """The live view on a terminal. See :class:`dbdyno.conduct.ObservationListener`."""

    def __init__(self, console: Console, whom: str, refresh_s: float) -> None:
        self._console, self._refresh_s = console, refresh_s
        self._stop: Callable[[], None] = lambda: None
        self._header = Header(whom=whom)
        self._view, self._keys = View(), Keyboard()
        self._glance: Glance | None = None
        self._rows: list[Row] = []
        self._blocked: list[Blocked] = []
        self._memory: MemoryBeside | None = None
        self._memory_open = False
        self._notices: list[str] = []
        self._drawn_s = self._noticed_s = self._ticked_s = 0.0
        self._over, self._handling_keys = threading.Event(), threading.Lock()
        self._began_s, self._began_cpu_s = time.monotonic(), time.process_time()
        self._stack = contextlib.ExitStack()
        self._live = live(console, screen=True, auto_refresh=False)

    def __enter__(self) -> LiveObservation:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._keys.listening())
            stack.enter_context(self._live)
            stack.callback(self._over.set)
            threading.Thread(target=self._handle_keys_between_ticks, name="dbdyno-keys", daemon=True).start()
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
            self._header = replace(self._header, notice="saving ...")
            self._noticed_s = math.inf
            self._draw()

    def opened(self, environment: Environment) -> None:
        server = environment.server
        self._header = replace(
            self._header, server=f"{server.engine} {server.version} at {server.where.split(', database')[0]}"
        )
        if server.reached is not None:
            self.notice(f"server's host: {server.reached.words}")
        for text in unseen(environment):
            self.notice(text)

    def notice(self, text: str) -> None:
        self._notices.append(f"{time.strftime('%H:%M:%S')}  {text}")
        self._noticed_s = time.monotonic()
        self._header = replace(self._header, notice=text)
        self._draw()

    def _handle_keys_between_ticks(self) -> None:
        """Handles keys also while the observation connects, queries the server or saves."""
        while not self._over.wait(KEYS_S):
            if time.monotonic() - self._ticked_s > KEYS_S:
                self._handle_keys()

    def _handle_keys(self) -> bool:
        """Handles pressed keys; returns whether there were any."""
        with self._handling_keys:
            keys = self._keys.pressed()
            for key in keys:
                self._view.press(key, self._shown_rows())
            ended, self._view.ended = self._view.ended, False
        if ended:
            self._stop()
        return bool(keys)

    def tick(self, look: Look) -> None:
        self._ticked_s = time.monotonic()
        keys = self._handle_keys()
        due = time.monotonic() - self._drawn_s >= self._refresh_s
        self._memory = look.memory
        self._ask_for_memory()
        if due and not self._view.frozen:
            self._read(look)
        if keys or due:
            self._draw()

    def _ask_for_memory(self) -> None:
        """Requests a reading when the memory screen is opened, then as often as its cost allows."""
        opened = self._view.memory and not self._memory_open
        self._memory_open = self._view.memory
        if self._memory is None or not self._view.memory or self._view.frozen:
            return
        if opened:
            self._memory.ask()
        else:
            self._memory.ask_if_due()

    def _read(self, look: Look) -> None:
        now_s = time.monotonic()
        recent = look.recent(max(SECONDS, self._refresh_s))
        if recent["samples"].height:
            self._glance = glance(recent, look.families, everyone=not self._header.whom)
        self._blocked = blocking(recent)
        names = {row["pid"]: row for row in look.names.frame().iter_rows(named=True)}
        lines = self._glance.sessions if self._glance else ()
        self._rows = [Row(line, names.get(line.pid, {})) for line in lines]
        self._header = replace(
            self._header,
            since_s=look.since_start_s,
            left_s=look.left_s,
            stored=look.stored,
            notice=self._header.notice if now_s - self._noticed_s < NOTICE_S else "",
            here=(time.process_time() - self._began_cpu_s) / max(now_s - self._began_s, 1e-9),
        )

    def _shown_rows(self) -> list[Row]:
        return self._view.rows(self._rows)

    def _draw(self) -> None:
        self._drawn_s = time.monotonic()
        size = self._console.size
        memory = memory_lines(self._memory, size.width) if self._view.memory else []
        self._view.line = max(0, min(self._view.line, len(memory) - 1))
        drawn = Screen(self._header, self._glance, self._view, self._shown_rows(), self._blocked, memory)
        self._live.update(Group(*drawn.lines(size.width, size.height)), refresh=True)
