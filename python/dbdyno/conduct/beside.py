"""Reads beside an observation, on request, in a thread with a connection of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Generic, TypeVar

from dbdyno.model.engine.live import LiveAnswer, LiveRequest, LiveScreen, LiveViewing
from dbdyno.model.errors import DbdynoError
from dbdyno.model.plan.plan import Observation

_PATIENCE_S = 2.0
_STALE_S = 10.0
"""Age from which on figures are unknown, while the server does not answer."""
_T = TypeVar("_T")


class Beside(Generic[_T]):
    """Reads on request. Only :meth:`close` waits for a read, and not for long.

    The connection is kept open: a new one for each read would count as a session too brief to be sampled.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[Callable[[], _T]]]) -> None:
        self._opened, self._open = opened, ExitStack()
        self._read: Callable[[], _T] | None = None
        self._thread: threading.Thread | None = None
        self._asked_s = 0.0
        self.latest: _T | None = None
        self.trouble = ""
        """Why the last read failed."""

    @property
    def reading(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def ask(self, answered: Callable[[], None] = lambda: None) -> None:
        """Begins to read, unless a read is in progress. Calls ``answered`` in the reading thread."""
        if not self.reading:
            self._asked_s = time.monotonic()
            work = threading.Thread(target=self._run, args=[answered], name="dbdyno-beside", daemon=True)
            self._thread = work
            work.start()

    def _run(self, answered: Callable[[], None]) -> None:
        try:
            if self._read is None:
                self._read = self._open.enter_context(self._opened())
            self.latest, self.trouble = self._read(), ""
        except Exception as error:  # also a fault of ours is to be seen, and delays no measurement
            self.trouble = error.message if isinstance(error, DbdynoError) else f"unexpected {error!r}"
            self._read = None
            with suppress(Exception):
                self._open.close()
        answered()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
        if not self.reading:
            self._open.close()


class LiveBeside(Beside[LiveAnswer]):
    """Reads the live figures of a server that is being observed; ``request`` says which."""

    def __init__(self, viewing: LiveViewing, chosen: Observation) -> None:
        super().__init__(self._opened_reader)
        self._viewing, self._chosen = viewing, chosen
        self.request = LiveRequest()

    @property
    def screens(self) -> Sequence[LiveScreen]:
        return self._viewing.screens

    @property
    def current(self) -> LiveAnswer | None:
        """The latest answer; None if reading fails or does not end."""
        stale = self.reading and time.monotonic() - self._asked_s > _STALE_S
        return None if self.trouble or stale else self.latest

    @contextmanager
    def _opened_reader(self) -> Iterator[Callable[[], LiveAnswer]]:
        with self._viewing.opened(self._chosen) as reader:
            yield lambda: reader.read(self.request)
