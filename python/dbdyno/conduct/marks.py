"""What is asked where a window begins and ends: the server's counters, who is connected, and each CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import polars as pl

from dbdyno.model.errors import ServerLost, TargetError, Unreachable
from dbdyno.model.protocols import Server
from dbdyno.model.tables import empty
from dbdyno.observe import per_cpu

PHASES = ("t0", "t1")
LOST = (ServerLost, Unreachable)
"""What says that the server, or the way to it, is gone; any other error is an answer."""


@dataclass(frozen=True)
class Mark:
    counters: pl.DataFrame
    backends: pl.DataFrame
    host: pl.DataFrame = field(default_factory=lambda: empty("host"))  # CPU by CPU
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

    counters = asked("counters", lambda: server.counters(phase))
    backends = asked("backends", server.backends)
    cpus = per_cpu() if server.clock() is None else empty("host")  # else it is a world of its own
    return Mark(counters, backends, cpus, next(iter(lost), None), next(iter(refused), None))
