"""Its load: every call takes as long as the law demands. All time passes within ``wait``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dbdyno.model.engine.protocols import Progress
from dbdyno.model.schema.tables import CoreColumn, to_core
from tests.second_engine.world import CYCLE, FIRST_THREAD, SERVER, S, Stay, Task, tasks


class SecondLoad:
    """See :class:`dbdyno.model.engine.protocols.Load`. ``speed``: calls a cycle."""

    def __init__(self, sessions: int, speed: int, now_ns: int) -> None:
        self.sessions, self._speed, self._now_ns = sessions, speed, now_ns
        self.began_ns = self.t0_ns = self.t1_ns = now_ns

    def connect(self) -> None: ...

    def start(self, start_ns: int, t0_ns: int, t1_ns: int) -> None:
        self.began_ns, self.t0_ns, self.t1_ns = start_ns, t0_ns, t1_ns

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002
        self._now_ns = max(self._now_ns, self.t1_ns)
        return True

    def finish(self) -> None: ...

    def stop(self) -> None: ...

    def abort(self) -> None: ...

    def progress(self) -> Progress:
        calls = self.sessions * (self._now_ns - self.began_ns) // CYCLE * self._speed
        return Progress(calls, 0, 0, self.sessions * (self._now_ns - self.began_ns))

    def live_durations(self) -> Sequence[tuple[int, int]]:
        return []

    def backends(self) -> Sequence[tuple[int, int, int]]:
        return [(n, SERVER, FIRST_THREAD + n) for n in range(self.sessions)]

    def threads(self) -> Sequence[int]:
        return [7]

    def now_ns(self) -> int:
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        """Lets virtual time pass."""
        self._now_ns += round(seconds * S)

    def tasks(self) -> list[Task]:
        return list(tasks([Stay(n, self.began_ns, None) for n in range(self.sessions)], self.t1_ns))

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        window_ns, length_ns = self.t1_ns - self.t0_ns, CYCLE // self._speed
        calls = window_ns // length_ns
        each: dict[str, Any] = {
            "first_start_ns": self.t0_ns,
            "last_end_ns": self.t1_ns,
            "calls": calls,
            "errors": 0,
            "calls_total": (self.t1_ns - self.began_ns) // length_ns,
            "errors_total": 0,
            "straddle_in": 0,
            "straddle_out": 0,
            "in_call_ns": window_ns,
            "min_ns": length_ns,
            "max_ns": length_ns,
            "sum_sq_ns2": float(calls) * length_ns**2,
            "end_reason": "deadline",
        }
        histogram = [{"low_ns": length_ns, "high_ns": length_ns, "count": calls * self.sessions}]
        return {
            "sessions": to_core("sessions", [each | {"session": n} for n in range(self.sessions)]),
            "histogram": to_core("histogram", histogram),
            "errors": to_core("errors", []),
            "counters": to_core("counters", []),
        }
