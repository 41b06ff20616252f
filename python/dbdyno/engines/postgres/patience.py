"""Time limit of a statement."""

from __future__ import annotations

import time

from dbdyno.engines.attended import STEP_S
from dbdyno.model.errors import requests

STOPPING_S = 5.0
"""After Ctrl-C, remaining time of a statement that should be quick or that undoes changes."""


class Unanswered(Exception):
    """The time limit is over, or the user asked to end."""


class Patience:
    """A time limit. Time during which dbdyno was stopped (SIGSTOP) does not count. ``before`` is the
    number of signals received so far, None to ignore further ones."""

    def __init__(self, limit_s: float | None, before: int | None) -> None:
        self._left_s, self._before = limit_s, before
        if before and limit_s is not None:
            self._left_s = min(limit_s, STOPPING_S)
        self._last = time.monotonic()

    def __call__(self) -> None:
        """Raises :class:`Unanswered` if the limit is over."""
        now = time.monotonic()
        if self._before is not None and requests() > self._before:
            self._before = None
            self._left_s = 0.0 if self._left_s is None else min(self._left_s, STOPPING_S)
        elif self._left_s is not None:
            self._left_s -= min(now - self._last, 2 * STEP_S)
        self._last = now
        if self._left_s is not None and self._left_s <= 0:
            raise Unanswered
