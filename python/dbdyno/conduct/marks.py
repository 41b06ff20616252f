"""What the server is asked where a window begins and ends: its counters, and who is connected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import polars as pl

from dbdyno.model.errors import ServerLost, TargetError, Unreachable
from dbdyno.model.protocols import Server
from dbdyno.model.tables import empty

PHASES = ("t0", "t1")
LOST = (ServerLost, Unreachable)
"""What says that the server, or the way to it, is gone; any other error is an answer."""


@dataclass(frozen=True)
class Mark:
    counters: pl.DataFrame
    backends: pl.DataFrame
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
    return Mark(counters, backends, next(iter(lost), None), next(iter(refused), None))
