"""Detects times in which dbdyno itself did not run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dbdyno import _core
from dbdyno.model.engine.protocols import Server
from dbdyno.model.text.interruptions import AWAY, LATE, SLOW
from dbdyno.model.units import format_ns


class Hole(NamedTuple):
    """A time of at least half a second in which this process did not run, by CLOCK_MONOTONIC. Time in the
    run queue is not part of it."""

    from_ns: int
    to_ns: int
    stopped_ns: int
    suspended_ns: int

    @property
    def words(self) -> str:
        ns, who = max((self.stopped_ns, AWAY[0]), (self.suspended_ns, AWAY[1]))
        return f"{who} for {format_ns(ns)}"


class Presence:
    """Detects holes from its creation on.

    A stopped process measures nothing, nor does a suspended machine. A server with a simulated clock has no
    holes.
    """

    def __init__(self, server: Server) -> None:
        self._pulse = None if server.world is not None else _core.Pulse()

    def holes(self, from_ns: int = 0, to_ns: int | None = None) -> list[Hole]:
        """Returns the holes that overlap the span."""
        all_holes = [] if self._pulse is None else [Hole(*h) for h in self._pulse.holes()]
        return [h for h in all_holes if h.to_ns > from_ns and (to_ns is None or h.from_ns < to_ns)]

    def away(self, from_ns: int, to_ns: int) -> str | None:
        """Returns the longest hole that overlaps the span, in words; None without one."""
        holes = self.holes(from_ns, to_ns)
        return max(holes, key=lambda h: h.stopped_ns + h.suspended_ns).words if holes else None


def own_times_ns() -> tuple[int, int] | None:
    """Returns this thread's time on a CPU and in the run queue so far (schedstat, fields 1 and 2); None if
    the kernel does not report it."""
    try:
        run, runq, *_ = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
        return int(run), int(runq)
    except (OSError, ValueError):
        return None


def late_words(late_ns: int, before: tuple[int, int] | None, after: tuple[int, int] | None) -> str:
    """Returns who was late at the end of a window.

    That is dbdyno if it spent at least half of that time on a CPU or in the run queue, else the server,
    which it waited for.
    """
    if before is not None and after is not None:
        run_ns, runq_ns = (b - a for a, b in zip(before, after, strict=True))
        if run_ns + runq_ns >= late_ns / 2:
            times = f"it worked for {format_ns(run_ns)} and waited {format_ns(runq_ns)} for a CPU"
            return f"{LATE}by {format_ns(late_ns)} at its end: {times}"
    return f"{SLOW}{format_ns(late_ns)} late at its end"
