"""A window's ends: by which clock, what is asked there, and whether dbdyno was away in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import polars as pl

from dbdyno import _core
from dbdyno.model.errors import ServerLost, TargetError, Unreachable
from dbdyno.model.protocols import Clock, Server
from dbdyno.model.raw import AWAY
from dbdyno.model.tables import empty
from dbdyno.model.units import NS_PER_S
from dbdyno.observe import counter_files, per_cpu


class MachineClock:
    """CLOCK_MONOTONIC."""

    def now_ns(self) -> int:
        return _core.now_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def clock_of(server: Server) -> Clock:
    """The machine's; an engine that lives in a time of its own brings another."""
    return MachineClock() if server.world is None else server.world.clock()


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
    """Was dbdyno there all the time? A stopped process measures nothing, nor does a suspended machine.

    Looks from its making on. An engine with a clock of its own is never away.
    """

    def __init__(self, server: Server) -> None:
        self._pulse = None if server.world is not None else _core.Pulse()

    def holes(self, from_ns: int = 0, to_ns: int | None = None) -> list[Hole]:
        """Those that overlap that span."""
        found = [] if self._pulse is None else [Hole(*h) for h in self._pulse.holes()]
        return [h for h in found if h.to_ns > from_ns and (to_ns is None or h.from_ns < to_ns)]


PHASES = ("t0", "t1")
LOST = (ServerLost, Unreachable)
"""What says that the server, or the way to it, is gone; any other error is an answer."""


@dataclass(frozen=True)
class Mark:
    counters: pl.DataFrame
    backends: pl.DataFrame
    host: pl.DataFrame = field(default_factory=lambda: empty("host"))  # CPU by CPU, files of counters
    lost: str | None = None  # the error of a server that no longer answered
    refused: str | None = None  # the error of one that did, but would not tell

    def renamed(self, phase: str) -> Mark:
        """The end of one window as the start of the next, read once."""
        return replace(self, counters=self.counters.with_columns(phase=pl.lit(phase)))


NOTHING = Mark(empty("counters"), empty("backends"))


def read_mark(server: Server, phase: str) -> Mark:
    """Both tables now; what could not be had is empty, and the mark says why."""
    lost: list[str] = []
    refused: list[str] = []

    def asked(table: str, ask: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        if lost:
            return empty(table)
        try:
            return ask()
        except TargetError as e:
            (lost if isinstance(e, LOST) else refused).append(e.message)
            return empty(table)

    counting, listing = server.counting, server.listing
    counters = asked("counters", lambda: counting.counters(phase) if counting else empty("counters"))
    backends = asked("backends", lambda: listing.backends() if listing else empty("backends"))
    machine = [empty("host"), *([per_cpu(), counter_files()] if server.world is None else [])]
    return Mark(counters, backends, pl.concat(machine), next(iter(lost), None), next(iter(refused), None))
