"""Ctrl-C once: no further call starts, what was measured is kept. Twice: at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from dbdyno.model import stopping
from dbdyno.model.stopping import Interrupted

_REST_S = 0.1


class Interrupt:
    """Counts SIGINT and SIGTERM. The first is heard at the next safe place, the second raises at once."""

    def __init__(self, heard: Callable[[int], None] = lambda _count: None) -> None:
        self.count = 0
        self._heard = heard

    @property
    def stopping(self) -> bool:
        return self.count > 0

    def request(self) -> None:
        """One more. The second raises :class:`Interrupted`; later ones must not disturb the tidying up."""
        self.count += 1
        stopping.request()
        self._heard(self.count)
        if self.count == 2:
            raise Interrupted

    def check(self) -> None:
        """Raises :class:`Interrupted` if an end was asked for: between the steps of a run."""
        if self.stopping:
            raise Interrupted

    def rest(self, seconds: float, sleep: Callable[[float], None]) -> None:
        """A pause that an end cuts short; :meth:`check` before, meanwhile, and after."""
        self.check()
        while seconds > 0:
            part = min(seconds, _REST_S)
            sleep(part)
            seconds -= part
            self.check()

    @contextmanager
    def caught(self) -> Iterator[Interrupt]:
        """Within it, signals come here. Only for the main thread."""

        def handle(_signal: int, _frame: FrameType | None) -> None:
            self.request()

        stopping.reset()
        before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            stopping.reset()
            for s, handler in before.items():
                signal.signal(s, handler)
