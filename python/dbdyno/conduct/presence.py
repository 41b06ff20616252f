"""Whether dbdyno was there all the time."""

from __future__ import annotations

from typing import NamedTuple

from dbdyno import _core
from dbdyno.model.protocols import Server
from dbdyno.model.raw import AWAY
from dbdyno.model.units import NS_PER_S


class Hole(NamedTuple):
    """CLOCK_MONOTONIC; both lengths count from half a second on. Time in the run queue is no part of it."""

    from_ns: int
    to_ns: int
    stopped_ns: int
    suspended_ns: int

    @property
    def words(self) -> str:
        ns, who = max((self.stopped_ns, AWAY[0]), (self.suspended_ns, AWAY[1]))
        return f"{who} for {ns / NS_PER_S:.1f} s"


class Presence:
    """A stopped process measures nothing, nor does a suspended machine.

    Looks from its making on. An engine with a clock of its own is never away.
    """

    def __init__(self, server: Server) -> None:
        self._pulse = None if server.world is not None else _core.Pulse()

    def holes(self, from_ns: int = 0, to_ns: int | None = None) -> list[Hole]:
        """Those that overlap that span."""
        found = [] if self._pulse is None else [Hole(*h) for h in self._pulse.holes()]
        return [h for h in found if h.to_ns > from_ns and (to_ns is None or h.from_ns < to_ns)]
