"""One measurement from start to end: connect, open observers, climb, close, leave.

A cell with one window and phases that share a measurement differ in their :class:`Windows` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from dbdyno import drive, observe
from dbdyno.conduct.measure.cell import OnTick, Schedule, Setting
from dbdyno.model.engine.protocols import Load, Progress, Watch
from dbdyno.model.errors import HostLost
from dbdyno.model.plan.plan import Cell
from dbdyno.model.results.raw import RawCell
from dbdyno.model.units import NS_PER_S


@dataclass
class Span:
    """A window in progress with its observers."""

    cell: Cell
    begun_ns: int = 0  # when the barrier opened, or a later phase began
    t0_ns: int = 0
    t1_ns: int = 0
    watch: Watch = field(default_factory=observe.NoWatch)

    def contains(self, now_ns: int) -> bool:
        return self.t0_ns <= now_ns < self.t1_ns

    def stage(self, now_ns: int) -> str:
        """Returns the name of the current stage, for listeners."""
        if now_ns < self.t0_ns:
            return "settling"
        return "measuring" if now_ns < self.t1_ns else "last calls"


class Windows(Protocol):
    """The windows of one measurement, and the reads at their ends."""

    def connecting(self) -> None:
        """Reads what is needed before the sessions connect."""

    def open(self) -> Schedule:
        """Opens the observers while all sessions are parked. Returns when the load is to begin and end."""

    def look(self, now_ns: int) -> Span:
        """Makes the reads that are due. Returns the current window."""

    def driver(self, now_ns: int) -> Progress:
        """Returns the driver's progress, and notes it."""

    def broken_off(self) -> None:
        """Notes that the load ended early."""

    def host_lost(self, error: HostLost) -> int:
        """Returns the end of a window that continues without a host, or raises ``error``."""

    def stop(self) -> None:
        """Stops all observers."""

    def over(self, now_ns: int) -> None:
        """Makes the reads that are due once no session makes calls any more."""

    def leave(self) -> None:
        """Closes the sessions."""

    def cells(self, end_ns: int) -> list[RawCell]:
        """Returns the cells of the windows that began; the last one ended at ``end_ns``."""


def measure(setting: Setting, load: Load, windows: Windows, cells: Sequence[Cell]) -> list[RawCell]:
    """Returns the measured cells of ``cells``. Raises an error that keeps the load from starting; a later
    fault leaves shorter cells."""
    tick, companions = setting.on_tick(cells[0]), setting.companions
    try:
        tick("connecting", 0.0, Progress(0, 0, 0, 0), {})
        windows.connecting()
        drive.connect(load, setting.interrupt)
        companions.connected(load)
        schedule = windows.open()
        try:
            end_ns = _climb(setting, load, windows, schedule, tick)
        except HostLost as e:
            end_ns = windows.host_lost(e)
        finally:
            companions.window_over()
            windows.stop()
        over_ns = load.now_ns()
        windows.over(over_ns)
        tick("closing", (over_ns - schedule.start_ns) / NS_PER_S, load.progress(), {})
        companions.leaving()
        windows.leave()
        return windows.cells(end_ns)
    except BaseException:
        load.abort()
        raise


def _climb(setting: Setting, load: Load, windows: Windows, schedule: Schedule, tick: OnTick) -> int:
    """Runs from the barrier to the end of the last session. Returns where the last window ended."""
    due, open_watch = drive.asking(load), partial(observe.open_watch, setting.server, load)
    shown: Cell | None = None

    def each_step() -> None:
        nonlocal tick, shown
        now_ns = load.now_ns()
        window = windows.look(now_ns)
        if shown is not None and shown is not window.cell:
            tick = setting.on_tick(window.cell)
        shown = window.cell
        if window.contains(now_ns):
            setting.companions.look(window.watch, open_watch, load)
        if due(now_ns):
            elapsed_s = (now_ns - window.begun_ns) / NS_PER_S
            tick(window.stage(now_ns), elapsed_s, windows.driver(now_ns), window.watch.latest())

    start_ns, t0_ns, t1_ns = schedule.start_ns, schedule.t0_ns, schedule.t1_ns
    end_ns = drive.run(load, start_ns, t0_ns, t1_ns, setting.interrupt, each_step)
    if end_ns < t1_ns:
        windows.broken_off()
    return end_ns
