"""Finds the size of a call (ranges or iterations) that takes the target duration at one session.

Measures on a connection of its own, set up like the sessions. Uses the CPU time of its backend if that can be
read, which a busy machine does not disturb.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import psycopg

from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.sessions import Recipe, probe
from dbdyno.model.errors import ServerLost
from dbdyno.model.plan.plan import Calibration
from dbdyno.model.units import NS_PER_S

_CLOSE = 0.05  # relative distance from the target that is near enough
_MOST_STEPS = 8
_PATIENCE_CALLS, _PATIENCE_S = 8, 1.5  # wall time for all steps: so many target durations, at least so long
_LEAST_MEASURED_NS = 20_000_000  # of a step: it repeats shorter calls
_MOST_CALLS = 200
_LARGEST_STEP = 30.0
_SETTLE_S = 0.001  # the kernel books the backend's CPU time when the backend has gone to sleep


@dataclass
class Bench:
    """A prepared session, and the clock that times its calls."""

    connection: Connection
    recipe: Recipe
    run_ns: Callable[[], int | None] | None  # reads the backend's CPU time; None if that cannot be read

    @property
    def basis(self) -> str:
        return "wall" if self.run_ns is None else "cpu"

    def call(self, size: int, times: int) -> None:
        cursor = psycopg.RawCursor(self.connection)
        for statement in self.recipe.call(0, size):
            for _ in range(times):
                cursor.execute(statement["sql"], statement["params"], prepare=True)

    def clock_ns(self) -> int:
        if self.run_ns is None:
            return time.perf_counter_ns()
        time.sleep(_SETTLE_S)
        now_ns = self.run_ns()
        if now_ns is None:
            raise ServerLost(f"backend {self.connection.info.backend_pid} is gone", "see the server's log")
        return now_ns

    def measure_ns(self, size: int, times: int) -> int:
        """Returns the duration of a call, as the mean of ``times`` calls."""
        start = self.clock_ns()
        self.call(size, times)
        return max(1, (self.clock_ns() - start) // times)

    def work(self, size: int) -> float | None:
        """Returns the work units of a call: its size, or counted exactly. None if they cannot be counted."""
        half = self.recipe.half
        if half is not None and half.work == "size":
            return float(size)
        spec = probe(self.recipe, self.connection)
        if spec is None:
            return None
        self._probe(spec)
        reads = [self._probe(spec), self._probe(spec)]
        self.call(size, 1)
        reads.append(self._probe(spec))
        return float(reads[2] - reads[1] - (reads[1] - reads[0]))  # subtracts the probe's own work

    def _probe(self, spec: dict[str, Any]) -> int:
        for statement in spec["flush"]:
            self.connection.execute(statement.encode())
        row = self.connection.execute(spec["read"].encode()).fetchone()
        return int((row or (0,))[0])


def calibrate(bench: Bench, target_ns: int, reason: str, size: int | None) -> Calibration:
    """Finds the size of a call that takes ``target_ns``, then measures the median of a few calls of it.
    With ``size`` only measures that size."""
    half = bench.recipe.half
    assert half is not None
    bench.call(half.size_start, 3)  # caches, hint bits, the generic plan
    steps: list[tuple[int, int]] = []
    if size is None:
        size, steps = _search(bench.measure_ns, half.size_start, target_ns)
    final = median(bench.measure_ns(size, _repeats(target_ns)) for _ in range(3))
    off = final / target_ns - 1
    note = (
        "" if abs(off) < 2 * _CLOSE or not steps else f"{off:+.0%} off the target: nearest that was reached"
    )
    return Calibration(
        workload=bench.recipe.name,
        target_ns=target_ns,
        target_reason=reason,
        size=size,
        size_unit=half.size_unit,
        measured_ns=round(final),
        basis="wall" if bench.run_ns is None else "cpu",
        work_per_call=bench.work(size),
        steps=tuple(steps),
        note=note,
    )


def _search(
    measure_ns: Callable[[int, int], int], size: int, target_ns: int
) -> tuple[int, list[tuple[int, int]]]:
    """Returns the size nearest to the target and all steps. Takes secant steps, since the duration has an
    offset: a call of size 0 is not free."""
    steps: list[tuple[int, int]] = []
    times = _MOST_CALLS // 10
    deadline = time.monotonic() + max(_PATIENCE_S, _PATIENCE_CALLS * target_ns / NS_PER_S)
    for _ in range(_MOST_STEPS):
        duration_ns = measure_ns(size, times)
        steps.append((size, duration_ns))
        if abs(duration_ns / target_ns - 1) <= _CLOSE or (size == 1 and duration_ns > target_ns):
            break
        if time.monotonic() > deadline and duration_ns > target_ns / 2:
            break
        following = _next_size(steps, target_ns)
        if following == size:
            break
        times = _repeats(round(duration_ns * following / size))
        size = following
    return min(steps, key=lambda s: abs(s[1] - target_ns))[0], steps


def _next_size(steps: list[tuple[int, int]], target_ns: int) -> int:
    size, duration_ns = steps[-1]
    slope = duration_ns / size
    if len(steps) > 1:
        other, other_ns = min(steps[:-1], key=lambda s: abs(s[1] - target_ns))
        if other != size and (duration_ns - other_ns) * (size - other) > 0:
            slope = (duration_ns - other_ns) / (size - other)
    wanted = size + (target_ns - duration_ns) / slope
    return max(1, round(min(wanted, size * _LARGEST_STEP)))


def _repeats(call_ns: int) -> int:
    """Returns the number of calls that make a step long enough to measure."""
    return min(_MOST_CALLS, max(1, round(_LEAST_MEASURED_NS / max(1, call_ns))))
