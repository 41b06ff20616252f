"""What goes along with a measurement: one protocol, and the list in which all are asked.

A companion does nothing by default and overrides the moments that concern it. In a list, what happens on the
way into a measurement is asked from the first to the last, what happens on the way out from the last to the
first, so that a companion sees the measurement as those before it have left it.
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
    """The moments of a measurement, in their order in time."""

    def before(self, cell: Cell) -> None:
        """Before the sessions of a cell connect, or before the first window of an observation."""

    def connected(self, load: Load) -> None:
        """All sessions are there, and none makes calls."""

    def look(self, watch: Watch, open_watch: OpenWatch, load: Load | None) -> None:
        """In a window, about ten times a second; ``load`` is None for sessions that are not ours."""

    def window_over(self) -> None:
        """The last window is over or was broken off, and its observers stop next."""

    def between(self, cell: Cell, left_ns: int) -> None:
        """The window of ``cell`` has been saved, and ``left_ns`` are left of the one under way."""

    def last(self, cell: Cell) -> None:
        """The window of ``cell`` is over and will be saved, and no other follows at once."""

    def leaving(self) -> None:
        """No session makes calls any more, and all are still there. Left out after a fault."""

    def after(self, raws: Sequence[RawCell]) -> Sequence[RawCell]:
        """The sessions have left. Returns the cell, or all phases of the measurement, with what this
        companion adds."""
        return raws

    def saved(self, raw: RawCell) -> None:
        """The cell is in the store."""


class Companions(Companion):
    """Several as one."""

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
