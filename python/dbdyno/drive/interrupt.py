"""Ctrl-C, SIGTERM or SIGHUP once: no further call starts, what was measured is kept. Twice: at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from dbdyno.model import errors
from dbdyno.model.errors import Interrupted

_REST_S = 0.1


class Interrupt:
    """Counts SIGINT, SIGTERM and SIGHUP. The first is heard at the next safe place, the second raises.

    A terminal that is closed may send more than one SIGHUP (the shell's, the kernel's): together they are
    one, and what follows (putting back, the report) is not disturbed by another.
    """

    def __init__(self, heard: Callable[[int], None] = lambda _count: None) -> None:
        self.count = 0
        self._heard = heard

    @property
    def stopping(self) -> bool:
        return self.count > 0

    def request(self) -> None:
        """One more. The second raises :class:`Interrupted`; later ones must not disturb the tidying up."""
        self.count += 1
        errors.request()
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

        hung_up = False

        def handle(sign: int, _frame: FrameType | None) -> None:
            nonlocal hung_up
            if sign != signal.SIGHUP or not self.stopping:
                hung_up = hung_up or sign == signal.SIGHUP
                self.request()

        errors.reset()
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
        heard = (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {s: signal.signal(s, handle) for s in heard}
        try:
            yield self
        finally:
            errors.reset()
            for s, handler in before.items():
                signal.signal(s, signal.SIG_IGN if s == signal.SIGHUP and hung_up else handler)
