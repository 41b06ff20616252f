"""The live view on a terminal: its own screen, redrawn without flicker, keys heard between the reads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from rich.console import Console, Group

from dbdyno.cli.console import live
from dbdyno.cli.keys import Keyboard
from dbdyno.cli.observe_lines import unseen
from dbdyno.cli.top_state import Row, View
from dbdyno.cli.top_view import Header, Screen
from dbdyno.conduct import Look, NullObservationListener
from dbdyno.model.environment import Environment
from dbdyno.observe.glance import Glance, glance

SECONDS = 5.0  # the view shows so much of the past
NOTICE_S = 8.0


class LiveObservation(NullObservationListener):
    """See :class:`dbdyno.conduct.ObservationListener`."""

    def __init__(self, console: Console, whom: str, refresh_s: float) -> None:
        self._console, self._refresh_s = console, refresh_s
        self._stop: Callable[[], None] = lambda: None
        self._header = Header(whom=whom)
        self._view, self._keys = View(), Keyboard()
        self._glance: Glance | None = None
        self._rows: list[Row] = []
        self._notices: list[str] = []
        self._drawn_s = self._noticed_s = 0.0
        self._began_s, self._began_cpu_s = time.monotonic(), time.process_time()
        self._stack = contextlib.ExitStack()
        self._live = live(console, screen=True, auto_refresh=False)

    def __enter__(self) -> LiveObservation:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._keys.listening())
            stack.enter_context(self._live)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, _t: type[BaseException] | None, _v: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._stack.close()
        for text in self._notices:  # the screen that they were on is gone
            self._console.print(text, style="yellow", soft_wrap=True)

    def on_quit(self, stop: Callable[[], None]) -> None:
        """What the key q calls."""
        self._stop = stop

    def heard(self, count: int) -> None:
        """A signal came in, or the key q."""
        if count == 1:
            self._header = replace(self._header, notice="ending: the window under way is saved")
            self._draw()

    def opened(self, environment: Environment) -> None:
        server = environment.server
        self._header = replace(
            self._header, server=f"{server.engine} {server.version} at {server.where.split(', database')[0]}"
        )
        if not server.here:
            self.notice(f"server not on this host, only its own figures are known: {server.here_detail}")
        for text in unseen(environment):
            self.notice(text)

    def notice(self, text: str) -> None:
        self._notices.append(f"{time.strftime('%H:%M:%S')}  {text}")
        self._noticed_s = time.monotonic()
        self._header = replace(self._header, notice=text)
        self._draw()

    def tick(self, look: Look) -> None:
        keys = self._keys.pressed()
        for key in keys:
            self._view.press(key, self._shown())
        if self._view.ended:
            self._view.ended = False
            self._stop()
        due = time.monotonic() - self._drawn_s >= self._refresh_s
        if due and not self._view.frozen:
            self._read(look)
        if keys or due:
            self._draw()

    def _read(self, look: Look) -> None:
        now_s = time.monotonic()
        recent = look.recent(max(SECONDS, self._refresh_s))
        if recent["samples"].height:
            self._glance = glance(recent, look.families, everyone=not self._header.whom)
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

    def _shown(self) -> list[Row]:
        return self._view.rows(self._rows)

    def _draw(self) -> None:
        self._drawn_s = time.monotonic()
        drawn = Screen(self._header, self._glance, self._view, self._shown())
        size = self._console.size
        self._live.update(Group(*drawn.lines(size.width, size.height)), refresh=True)
