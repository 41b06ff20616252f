"""The machine's time; an engine that lives in a time of its own brings another clock."""

from __future__ import annotations

import time

from dbdyno import _core
from dbdyno.model.protocols import Clock, Server


class MachineClock:
    """CLOCK_MONOTONIC."""

    def now_ns(self) -> int:
        return _core.now_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def clock_of(server: Server) -> Clock:
    return server.clock() or MachineClock()
