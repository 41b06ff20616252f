"""Ctrl-C once: no further call starts, what was measured is kept. Twice: at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):  # noqa: N818  (it is no error)
    """The user asked for an end; ``at_once`` when twice."""

    def __init__(self, *, at_once: bool) -> None:
        super().__init__("stopped by the user")
        self.at_once = at_once


class Interrupt:
    """Counts SIGINT and SIGTERM instead of raising KeyboardInterrupt at a random place."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def stopping(self) -> bool:
        return self.count > 0

    @property
    def at_once(self) -> bool:
        return self.count > 1

    def request(self) -> None:
        self.count += 1

    def check(self) -> None:
        """Raises :class:`Interrupted` if an end was asked for: between the steps of preparation."""
        if self.stopping:
            raise Interrupted(at_once=self.at_once)

    @contextmanager
    def caught(self) -> Iterator[Interrupt]:
        """Within it, signals are counted here. Only for the main thread."""

        def handle(_signal: int, _frame: FrameType | None) -> None:
            self.request()

        before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)
