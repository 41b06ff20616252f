"""Several observations at once, one for each server, with windows cut at the same instants.

All times are on this host's clock, to which those of other hosts are mapped, so that the instants are one
series for all. A server that is attached late, or again, begins at once and is in step from the next instant
on.
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
"""The first window waits this long until all servers are watched."""


class GivenUp(TargetError):
    """Another server could not be observed before any window began."""


class Together:
    """Cuts the windows of ``members`` observations at the same instants. Each observation has its own
    thread."""

    def __init__(self, members: int) -> None:
        self._members = members
        self._ready: list[int] = []  # earliest start of each, ns
        self._t0_ns: int | None = None
        self._failed = False
        self._lock = threading.Lock()

    @property
    def begun(self) -> bool:
        """Whether the start of the first window is set."""
        return self._t0_ns is not None

    def fail(self) -> None:
        """Notes that a server cannot be observed: then none begins, unless they have already begun."""
        with self._lock:
            self._failed = not self.begun

    def begin(self, t0_ns: int, clock: Clock, stopping: Callable[[], bool]) -> int:
        """Returns the start of the first window: as soon as all observations can begin; this one can at
        ``t0_ns``.

        Returns ``t0_ns`` if the first window has begun. Raises :class:`GivenUp`.
        """
        with self._lock:
            if self.begun:
                return t0_ns
            self._ready.append(t0_ns)
        until_ns = clock.now_ns() + PATIENCE_NS
        while True:
            with self._lock:
                all_ready = len(self._ready) >= self._members
                now = all_ready or clock.now_ns() >= until_ns or stopping()
                if now and self._t0_ns is None and not self._failed:
                    self._t0_ns = max(*self._ready, clock.now_ns() + LEAST_WINDOW_NS // 2)
                if self._failed:
                    raise GivenUp("another server cannot be observed")
                if self._t0_ns is not None:
                    return max(self._t0_ns, t0_ns)
            clock.sleep(STEP_S)

    def cut(self, t0_ns: int, window_ns: int) -> int:
        """Returns the end of a window that begins at ``t0_ns``: the next common instant that is not too
        soon."""
        if self._t0_ns is None:
            return t0_ns + window_ns
        whole = -(-(t0_ns - self._t0_ns + min(LEAST_WINDOW_NS, window_ns)) // window_ns)
        return self._t0_ns + max(1, whole) * window_ns
