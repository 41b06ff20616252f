"""Reads memory beside an observation, on request, in a thread with a connection of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from dbdyno.conduct.beside import Beside
from dbdyno.engines import open_server
from dbdyno.model.engine.protocols import Target
from dbdyno.model.results.memory_now import MemoryNow

COST = 0.01
"""Share of the time that repeated reads may take."""
LEAST_S = 10.0
"""Least interval of repeated reads."""


Reading = Callable[[], MemoryNow]


class MemoryBeside(Beside[MemoryNow]):
    @classmethod
    def of(cls, engine: str, target: Target) -> MemoryBeside:
        """Creates the reader of the memory of a server that is being observed."""
        return cls(lambda: _open_reader(engine, replace(target, beside=True)))

    def ask_if_due(self) -> None:
        """Begins to read if the last read is so long ago that another one costs little."""
        took_s = 0.0 if self.latest is None else self.latest.took_s
        if not self._asked_s or time.monotonic() - self._asked_s >= max(LEAST_S, took_s / COST):
            self.ask()


@contextmanager
def _open_reader(engine: str, target: Target) -> Iterator[Reading]:
    from dbdyno.conduct.memory.memory import MemoryReader
    from dbdyno.conduct.memory.memory_now import memory_now  # here, since most observations do not need it

    with open_server(engine, target) as server:
        reader = MemoryReader(server)
        yield lambda: memory_now(server, reader)
