"""Work that waits for a server and hears no signal: done by a thread that can be left behind.

Python runs the handlers of signals between two steps of the main thread only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from dbdyno.model.errors import Abandoned, requests

STEP_S = 0.1
_NAME = "dbdyno attended work"
_T = TypeVar("_T")


class Attended(Generic[_T]):
    """Work on a daemon thread, waited for in short steps.

    ``limit_s``: seconds from the start after which nobody waits any more; the work may set it as it goes.
    ``late``: what is done with a result for which nobody waits any more.
    """

    def __init__(self, work: Callable[[Attended[_T]], _T], late: Callable[[_T], object]) -> None:
        self._work, self._late = work, late
        self._lock, self._done = threading.Lock(), threading.Event()
        self._result: _T | None = None
        self._error: BaseException | None = None
        self._abandoned = False
        self.limit_s: float | None = None

    def result(self) -> _T:
        """Raises what the work raises; :class:`TimeoutError`; :class:`Abandoned` when an end is asked for."""
        began, before = time.monotonic(), requests()
        threading.Thread(target=self._run, name=_NAME, daemon=True).start()
        try:
            while not self._done.wait(STEP_S):
                if requests() > before:
                    raise Abandoned
                if self.limit_s is not None and time.monotonic() - began > self.limit_s:
                    raise TimeoutError
        except BaseException:
            self._abandon()
            raise
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # set where there is no error

    def _run(self) -> None:
        try:
            result = self._work(self)
        except BaseException as e:
            self._error = e
        else:
            with self._lock:
                self._result = result
                if self._abandoned:
                    self._late(result)
        self._done.set()

    def _abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            if self._done.is_set() and self._error is None and self._result is not None:
                self._late(self._result)


def left_behind() -> bool:
    """Whether a thread of such work still runs. A process that ends in the usual way frees what C libraries
    hold, which a thread inside one of them does not survive: it has to end at once, by :func:`os._exit`."""
    return any(thread.name == _NAME for thread in threading.enumerate())
