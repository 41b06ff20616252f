"""Runs work that may block in a C library on a thread, so that signals are still handled.

Python runs signal handlers only in the main thread and only between two bytecode instructions, and so not
while a C function such as one of libpq blocks.
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
    """Work on a daemon thread; the main thread waits for it in short steps.

    ``limit_s`` is the longest wait in seconds from the start, None for no limit; the work may change it.
    ``late`` is called with a result that arrives after the main thread stopped waiting, for example to close
    a connection.
    """

    def __init__(self, work: Callable[[Attended[_T]], _T], late: Callable[[_T], object]) -> None:
        self._work, self._late = work, late
        self._lock, self._done = threading.Lock(), threading.Event()
        self._result: _T | None = None
        self._error: BaseException | None = None
        self._abandoned = False
        self.limit_s: float | None = None

    def result(self) -> _T:
        """Returns the work's result or raises its error. Raises :class:`TimeoutError` after ``limit_s``, and
        :class:`Abandoned` if the user asks to end."""
        start_s, requests_before = time.monotonic(), requests()
        threading.Thread(target=self._run, name=_NAME, daemon=True).start()
        try:
            while not self._done.wait(STEP_S):
                if requests() > requests_before:
                    raise Abandoned
                if self.limit_s is not None and time.monotonic() - start_s > self.limit_s:
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
    """Returns whether a thread of abandoned work still runs. Then the process must end by :func:`os._exit`: a
    normal exit frees memory of C libraries that the thread is still using, and crashes."""
    return any(thread.name == _NAME for thread in threading.enumerate())
