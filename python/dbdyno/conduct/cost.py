"""What observing cost: our own process, and the server's processes that answered us."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import polars as pl

from dbdyno import observe
from dbdyno.model.protocols import Clock
from dbdyno.model.units import NS_PER_S

SAMPLERS = pl.col("comm").str.starts_with(observe.THREADS).fill_null(False)


@dataclass(frozen=True)
class Cost:
    """CPU time, seconds per second: shares of one CPU."""

    here: float  # all of this process: samplers, store, live view
    samplers: float | None  # of which its observing threads
    server: float | None  # the server's processes that answered; None: not on this host


class Costing:
    """Sums it up window by window."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ns, self._cpu_s = clock.now_ns(), time.process_time()
        self._samplers = _Sum()
        self._server = _Sum()

    def add(self, tasks: pl.DataFrame) -> None:
        """Table ``tasks`` of one watch."""
        ours = tasks.filter((pl.col("role") == "dbdyno") & pl.col("run_ns").is_not_null())
        self._samplers.add(ours.filter((pl.col("pid") == os.getpid()) & SAMPLERS))
        self._server.add(ours.filter(pl.col("pid") != os.getpid()))

    def cost(self) -> Cost:
        wall_s = max((self._clock.now_ns() - self._since_ns) / NS_PER_S, 1e-9)
        here = (time.process_time() - self._cpu_s) / wall_s
        return Cost(here, self._samplers.per_second(), self._server.per_second())


class _Sum:
    """CPU time of tasks over the time that they were read."""

    def __init__(self) -> None:
        self._run_ns = self._wall_ns = 0

    def add(self, reads: pl.DataFrame) -> None:
        by_task = reads.group_by("pid", "tid", "start_ticks").agg(
            (pl.col("run_ns").max() - pl.col("run_ns").min()).alias("run_ns")
        )
        if by_task.height:
            self._run_ns += int(by_task["run_ns"].sum())
            span = reads.select(pl.col("after_ns").max() - pl.col("before_ns").min())
            self._wall_ns += int(span.item())

    def per_second(self) -> float | None:
        return self._run_ns / self._wall_ns if self._wall_ns else None
