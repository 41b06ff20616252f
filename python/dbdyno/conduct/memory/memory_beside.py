"""Reads memory beside an observation, on request, in a thread with a connection of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace

from dbdyno.engines import open_server
from dbdyno.model.engine.protocols import Target
from dbdyno.model.errors import DbdynoError
from dbdyno.model.results.memory_now import MemoryNow

COST = 0.01
"""Share of the time that repeated reads may take."""
LEAST_S = 10.0
"""Least interval of repeated reads."""
_PATIENCE_S = 2.0


Reading = Callable[[], MemoryNow]


class MemoryBeside:
    """Reads on request. Only :meth:`close` waits for a read, and not for long.

    The connection is kept open: a new one for each read would count as a session too brief to be sampled.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[Reading]]) -> None:
        self._opened, self._open = opened, ExitStack()
        self._read: Reading | None = None
        self._thread: threading.Thread | None = None
        self._asked_s = 0.0
        self.latest: MemoryNow | None = None
        self.trouble = ""
        """Why the last read failed."""

    @classmethod
    def of(cls, engine: str, target: Target) -> MemoryBeside:
        """Creates the reader of the memory of a server that is being observed."""
        return cls(lambda: _open_reader(engine, replace(target, beside=True)))

    @property
    def reading(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def ask(self) -> None:
        """Begins to read, unless a read is in progress."""
        if not self.reading:
            self._asked_s = time.monotonic()
            self._thread = threading.Thread(target=self._run, name="dbdyno-memory", daemon=True)
            self._thread.start()

    def ask_if_due(self) -> None:
        """Begins to read if the last read is so long ago that another one costs little."""
        took_s = 0.0 if self.latest is None else self.latest.took_s
        if not self._asked_s or time.monotonic() - self._asked_s >= max(LEAST_S, took_s / COST):
            self.ask()

    def _run(self) -> None:
        try:
            if self._read is None:
                self._read = self._open.enter_context(self._opened())
            self.latest, self.trouble = self._read(), ""
        except DbdynoError as error:
            self.trouble, self._read = error.message, None
            self._open.close()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
        if not self.reading:
            self._open.close()


@contextmanager
def _open_reader(engine: str, target: Target) -> Iterator[Reading]:
    from dbdyno.conduct.memory.memory import MemoryReader
    from dbdyno.conduct.memory.memory_now import memory_now  # here, since most observations do not need it

    with open_server(engine, target) as server:
        reader = MemoryReader(server)
        yield lambda: memory_now(server, reader)
