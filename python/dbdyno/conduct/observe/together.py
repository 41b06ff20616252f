"""Several observations at once, one for each server: their windows are cut at the same instants.

All times are those of this host's clock, to which those of other hosts are mapped; so the instants are one
series for all. Who comes later, or comes back, begins at once and is in step from the next instant on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from dbdyno.model.engine.protocols import Clock
from dbdyno.model.errors import TargetError
from dbdyno.model.plan.plan import LEAST_WINDOW_NS
from dbdyno.model.units import NS_PER_S

STEP_S = 0.05
PATIENCE_NS = 60 * NS_PER_S
"""So long the first window waits for all servers to be watched."""


class GivenUp(TargetError):
    """Another server could not be observed, before anything was."""


class Together:
    """``members``: how many observations there are. Used by a thread of each."""

    def __init__(self, members: int) -> None:
        self._members = members
        self._ready: list[int] = []  # when each could begin, ns
        self._t0_ns: int | None = None
        self._failed = False
        self._lock = threading.Lock()

    @property
    def begun(self) -> bool:
        """Whether the first window's beginning is set."""
        return self._t0_ns is not None

    def fail(self) -> None:
        """One of them cannot be observed: none begins, unless they have already."""
        with self._lock:
            self._failed = not self.begun

    def begin(self, t0_ns: int, clock: Clock, stopping: Callable[[], bool]) -> int:
        """When the first window begins: as soon as all can (``t0_ns``: as soon as this one can). Once it has
        begun: ``t0_ns``. Raises :class:`GivenUp`."""
        with self._lock:
            if self.begun:
                return t0_ns
            self._ready.append(t0_ns)
        until_ns = clock.now_ns() + PATIENCE_NS
        while True:
            with self._lock:
                all_there = len(self._ready) >= self._members
                now = all_there or clock.now_ns() >= until_ns or stopping()
                if now and self._t0_ns is None and not self._failed:
                    self._t0_ns = max(*self._ready, clock.now_ns() + LEAST_WINDOW_NS // 2)
                if self._failed:
                    raise GivenUp("another server cannot be observed")
                if self._t0_ns is not None:
                    return max(self._t0_ns, t0_ns)
            clock.sleep(STEP_S)

    def cut(self, t0_ns: int, window_ns: int) -> int:
        """When a window that begins at ``t0_ns`` ends: the next instant of all that is not too soon."""
        if self._t0_ns is None:
            return t0_ns + window_ns
        whole = -(-(t0_ns - self._t0_ns + min(LEAST_WINDOW_NS, window_ns)) // window_ns)
        return self._t0_ns + max(1, whole) * window_ns
