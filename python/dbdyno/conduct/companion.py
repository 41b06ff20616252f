"""Companions of a measurement, such as snapshots, resets and triggers: one protocol, and a list of them.

A companion does nothing by default and overrides the moments that concern it. A list calls its companions
from first to last on the way into a measurement, and from last to first on the way out: each finds the
measurement as the companions before it have left it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dbdyno.model.engine.protocols import Load, Watch
from dbdyno.model.plan.plan import Cell
from dbdyno.model.results.raw import RawCell
from dbdyno.observe import How

OpenWatch = Callable[[How], Watch]
"""Opens a second watch over the same sessions."""


class Companion:
    """The moments of a measurement in order of time."""

    def before(self, cell: Cell) -> None:
        """Called before the sessions of a cell connect, or before the first window of an observation."""

    def connected(self, load: Load) -> None:
        """Called once all sessions are connected, before any makes a call."""

    def look(self, watch: Watch, open_watch: OpenWatch, load: Load | None) -> None:
        """Called about ten times a second in a window; ``load`` is None in an observation."""

    def window_over(self) -> None:
        """Called when the last window has ended in any way, before its observers stop."""

    def between(self, cell: Cell, left_ns: int) -> None:
        """Called after the window of ``cell`` was saved; ``left_ns`` are left of the current one."""

    def last(self, cell: Cell) -> None:
        """Called when the window of ``cell`` has ended, if no other follows at once; it is saved next."""

    def leaving(self) -> None:
        """Called when no session makes calls any more and all are still connected; not after a fault."""

    def after(self, raws: Sequence[RawCell]) -> Sequence[RawCell]:
        """Called when the sessions have left. Returns the cell, or all phases of the measurement, with the
        additions of this companion."""
        return raws

    def saved(self, raw: RawCell) -> None:
        """Called when the cell is stored."""


class Companions(Companion):
    """Several companions as one."""

    def __init__(self, *companions: Companion) -> None:
        self._all = companions

    def before(self, cell: Cell) -> None:
        for companion in self._all:
            companion.before(cell)

    def connected(self, load: Load) -> None:
        for companion in self._all:
            companion.connected(load)

    def look(self, watch: Watch, open_watch: OpenWatch, load: Load | None) -> None:
        for companion in self._all:
            companion.look(watch, open_watch, load)

    def window_over(self) -> None:
        for companion in reversed(self._all):
            companion.window_over()

    def between(self, cell: Cell, left_ns: int) -> None:
        for companion in reversed(self._all):
            companion.between(cell, left_ns)

    def last(self, cell: Cell) -> None:
        for companion in reversed(self._all):
            companion.last(cell)

    def leaving(self) -> None:
        for companion in reversed(self._all):
            companion.leaving()

    def after(self, raws: Sequence[RawCell]) -> Sequence[RawCell]:
        for companion in reversed(self._all):
            raws = companion.after(raws)
        return raws

    def saved(self, raw: RawCell) -> None:
        for companion in self._all:
            companion.saved(raw)
