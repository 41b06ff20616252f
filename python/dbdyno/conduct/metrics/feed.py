"""The companion of a run or observation that passes derived windows on to the exporter."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dbdyno import present
from dbdyno.conduct.companion import Companion, OpenWatch
from dbdyno.model.engine.environment import Environment
from dbdyno.model.engine.protocols import Load, Watch
from dbdyno.model.errors import StoreError
from dbdyno.model.plan.plan import Cell
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import REGISTERED
from dbdyno.model.units import NS_PER_S
from dbdyno.present.metrics.window import OPTIONAL, TABLES, Window, windows
from dbdyno.store import Run

if TYPE_CHECKING:
    from dbdyno.conduct.metrics.exporter import Exporter

_LOOK_S = 0.5


class Feed(Companion):
    """Looks for newly derived windows: in the window, when a cell was saved, and when the run is over.

    Another process may derive them, several together. These are passed on at the distance in which they were
    measured: if counters grew by several windows at once, their rates would rise and fall. A fault here costs
    the metrics and not the measurement.
    """

    def __init__(self, exporter: Exporter, place: str, record: Run, notice: Callable[[str], None]) -> None:
        """``place``: where the server is, for people."""
        self._exporter, self._record, self._notice = exporter, record, notice
        self._server = exporter.label(place)
        info = record.info
        self._epoch_ns = int(info.started.timestamp() * NS_PER_S) - info.started_monotonic_ns
        self._tables = (*TABLES, *(t for t in OPTIONAL if t in REGISTERED))
        self._read: dict[str, int] = {}  # part -> inode of its directory, which a merge changes
        self._done: set[str] = set()  # cells
        self._held = deque[Window]()
        self._due_s, self._next_s, self._changed_ns = 0.0, 0.0, 0

    def before(self, cell: Cell) -> None:  # noqa: ARG002
        self.advance()

    def look(self, watch: Watch, open_watch: OpenWatch, load: Load | None) -> None:  # noqa: ARG002
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _LOOK_S
            if (changed_ns := _changed_ns(self._record.parts.path)) != self._changed_ns:
                self._changed_ns = changed_ns
                self.advance()
        if self._held and time.monotonic() >= self._next_s:
            self._safely(self._pass_on)

    def saved(self, raw: RawCell) -> None:  # noqa: ARG002
        self.advance()

    def finish(self) -> None:
        """Passes on all windows; called when the last one is derived."""
        self.advance()
        self._safely(self._flush)

    def advance(self) -> None:
        """Reads the windows that were derived since the last call, and passes on those before them."""
        self._safely(self._advance)

    def _safely(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as e:  # whatever it is, what is measured matters more
            self._notice(f"metrics: a window is left out ({type(e).__name__}: {e})")

    def _advance(self) -> None:
        parts = self._record.parts
        for name, inode in parts.inodes().items():
            if self._read.get(name) == inode:
                continue
            try:
                tables = parts.read_one(name, self._tables)
            except StoreError:
                continue  # it is being replaced: it is read when that is done
            self._read[name] = inode  # before a fault of its figures, which would come again
            new = [w for w in windows(tables, self._epoch_ns) if w.cell not in self._done]
            self._done.update(w.cell for w in new)
            if new:
                self._flush()
                self._held.extend(new)
                self._pass_on()

    def _flush(self) -> None:
        windows, self._held = self._held, deque()
        self._exporter.add(self._server, windows, self._notice)

    def _pass_on(self) -> None:
        """Passes on one window; the next one follows after the time that this one took."""
        window = self._held.popleft()
        self._next_s = time.monotonic() + window.length_s
        self._exporter.add(self._server, (window,), self._notice)


def _changed_ns(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


class NoFeed(Feed):
    """The feed of a run without metrics, which does nothing."""

    def __init__(self) -> None: ...

    def advance(self) -> None: ...

    def finish(self) -> None: ...

    def look(self, watch: Watch, open_watch: OpenWatch, load: Load | None) -> None: ...


def feed_of(
    exporter: Exporter | None, environment: Environment, record: Run, notice: Callable[[str], None]
) -> Feed:
    if exporter is None:
        return NoFeed()
    where = environment.server.where
    has_address = ":" in where or "," in where  # not "this machine", where commands run
    return Feed(exporter, present.server_place(environment.server) if has_address else where, record, notice)
