"""Time and size of merging the tables of 100 drivers with 1,000 sessions each into those of one load.

The loads are prepared here; in practice this process also waits for the drivers.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dbdyno.model.engine.protocols import Load, Progress
from dbdyno.model.schema.tables import CoreColumn, to_core
from dbdyno.remote.spread import Driver, SpreadLoad

DRIVERS, SESSIONS, BUCKETS, CELLS = 100, 1_000, 4_000, 10
CALLS = 500
"""Calls per session."""


class _EndedLoad:
    """A load that has ended, with tables like those of the core."""

    def __init__(self, tables: Mapping[str, Mapping[str, CoreColumn]]) -> None:
        self._tables = tables

    def connect(self) -> None: ...
    def start(self, start_ns: int, t0_ns: int, t1_ns: int) -> None: ...
    def finish(self) -> None: ...
    def stop(self) -> None: ...
    def abort(self) -> None: ...

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002
        return True

    def progress(self) -> Progress:
        return Progress(SESSIONS * CALLS, 0, 0, 0)

    def live_durations(self) -> Sequence[tuple[int, int]]:
        return ()

    def backends(self) -> Sequence[tuple[int, int, int]]:
        return ()

    def threads(self) -> Sequence[int]:
        return ()

    def now_ns(self) -> int:
        return 0

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        return self._tables


def main(_count: int, _seconds: float) -> None:
    tables_by_driver = [_tables(seed) for seed in range(DRIVERS)]
    size = sum(len(c[1]) for t in tables_by_driver[0].values() for c in t.values() if isinstance(c[1], bytes))
    drivers = [Driver(f"host{n}", _maker(tables_by_driver[n])) for n in range(DRIVERS)]
    took, peaks = [], []
    for _ in range(CELLS):
        load = SpreadLoad(drivers, "", {"sessions": DRIVERS * SESSIONS})
        begun = time.perf_counter()
        tables = load.tables()
        took.append(time.perf_counter() - begun)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    calls = int(tables["histogram"]["count"][1].sum())
    assert calls == DRIVERS * SESSIONS * CALLS
    took.sort()
    merged = f"merged in {took[CELLS // 2]:.2f} s ({took[-1]:.2f} s at most) a measurement"
    memory = f"peak memory {peaks[0]:.0f} MB after the first measurement, {peaks[-1]:.0f} MB after {CELLS}"
    print(f"{DRIVERS} drivers x {SESSIONS} sessions: {merged}; {size / 1e6:.2f} MB from each; {memory}")


def _maker(tables: Mapping[str, Mapping[str, CoreColumn]]) -> Any:
    def make(_engine: str, _spec: Mapping[str, Any]) -> Load:
        return _EndedLoad(tables)

    return make


def _tables(seed: int) -> dict[str, Mapping[str, CoreColumn]]:
    random = np.random.default_rng(seed)
    ends = {"connect_ns": 5_000_000, "prepare_ns": 1_000_000, "first_start_ns": 0, "last_end_ns": 10**10}
    zero = dict.fromkeys(
        ("errors", "errors_total", "straddle_in", "straddle_out", "in_call_ns", "sum_sq_ns2"), 0
    )
    counts = {"calls": CALLS, "calls_total": CALLS + 9, "min_ns": 10**6, "max_ns": 10**8}
    sessions = [
        {"session": n, "backend_pid": n, "end_reason": "deadline", **ends, **zero, **counts}
        for n in range(SESSIONS)
    ]
    counted = random.multinomial(SESSIONS * CALLS, np.full(BUCKETS, 1 / BUCKETS))
    histogram = [
        {"low_ns": 1000 * n, "high_ns": 1000 * n + 999, "count": int(c)} for n, c in enumerate(counted) if c
    ]
    return {"sessions": to_core("sessions", sessions), "histogram": to_core("histogram", histogram)}
