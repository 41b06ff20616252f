"""Counters of the fake server, all databases in sum, from its own truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdyno.model.units import NS_PER_S
from tests.fake_engine.law import Wait
from tests.fake_engine.machine import Task
from tests.fake_engine.programs import Call
from tests.fake_engine.trace import Doing, Sums
from tests.fake_engine.world import World

WALL_EPOCH_S = 1_790_000_000  # the wall clock when the virtual one was 0
WAL_PER_CALL = 1_000  # bytes of a call that commits
DIRTIED_PER_CALL = 4  # blocks of a call that commits

Row = dict[str, Any]


@dataclass(frozen=True)
class State:
    """Values of the server's own books at an instant."""

    world: World
    now_ns: int
    work_per_call: int

    def values(self) -> dict[str, tuple[str, float]]:
        """Returns (unit, value) of the counters by name."""
        calls = [c for s in (*self.world.sessions, *self.world.visitors) for c in s.calls]
        ended = [c for c in calls if c.end_ns <= self.now_ns]
        good = sum(c.sqlstate is None for c in ended)
        ours = self._calls_of_load()
        commits = len(ended) if self.world.law.commit is not None else 0
        return {
            "calls": ("count", ours),
            "executions": ("count", len(ended)),
            "transactions_committed": ("count", good),
            "transactions_rolled_back": ("count", len(ended) - good),
            "logons": ("count", sum(t.timeline.born_ns <= self.now_ns for t in self._backends())),
            "db_time_ns": ("ns", self._in_state("active")),
            "idle_in_transaction_ns": ("ns", self._in_state("idle in transaction")),
            "session_time_ns": (
                "ns",
                sum(self._time(t, lambda s: ~s.are(Doing.GONE)) for t in self._backends()),
            ),
            "logical_reads": ("blocks", len(ended) * self.work_per_call),
            "physical_reads": ("blocks", len(ended) * self._reads_per_call()),
            "blocks_dirtied": ("blocks", commits * DIRTIED_PER_CALL),
            "wal_bytes": ("bytes", commits * WAL_PER_CALL),
            "block_writes": ("blocks", self._block_writes()),
            "temporary_bytes": ("bytes", 0),
            "deadlocks": ("count", 0),
            "checkpoints_timed": ("count", sum(t <= self.now_ns for t in self.world.checkpoints_ns)),
            "checkpoints_requested": ("count", 0),
        }

    def _calls_of_load(self) -> int:
        ours: list[Call] = [c for s in self.world.sessions for c in s.calls]
        return sum(c.end_ns <= self.now_ns for c in ours)

    def _backends(self) -> list[Task]:
        return [t for t in self.world.machine.tasks if t.role in ("session", "other")]

    def _in_state(self, state: str) -> int:
        """Returns time of sessions in this state, as the server reports it."""
        return sum(
            self._time(t, lambda s: s.under([n for n in s.labels if n.state == state]) & ~s.are(Doing.GONE))
            for t in self._backends()
        )

    def _time(self, task: Task, pieces: Callable[[Sums], Any]) -> int:
        sums = task.timeline.sums
        return int(sums.time(pieces(sums), np.array([self.now_ns], dtype=np.int64))[0])

    def _reads_per_call(self) -> int:
        law = self.world.law
        reads = sum(isinstance(p, Wait) and p.wait_event == "DataFileRead" for p in law.parts)
        return reads * (self.world.size if law.call else 1)

    def _block_writes(self) -> int:
        """Returns the number of waits of that name, whoever waited; each is a write."""
        total = 0
        for task in self.world.machine.tasks:
            sums = task.timeline.sums
            writes = (
                sums.under([n for n in sums.labels if n.wait_event == "DataFileWrite"]) & sums.falls_asleep()
            )
            total += int(sums.count(writes, np.array([self.now_ns], dtype=np.int64))[0])
        return total


def rows(world: World, phase: str, work_per_call: int) -> list[Row]:
    """Returns rows of the table counters: of a load at its t0 or t1, or the world's end if that is
    earlier."""
    now_ns = world.machine.now_ns
    if world.schedule is not None and phase in ("t0", "t1"):
        now_ns = min(now_ns, world.schedule.t0_ns if phase == "t0" else world.schedule.t1_ns)
    head = {"before_ns": now_ns, "after_ns": now_ns, "phase": phase, "scope": "server", "status": "ok"}
    reset_ns = world.reset_ns if world.reset_ns is not None and world.reset_ns <= now_ns else None
    zero = State(world, reset_ns, work_per_call).values() if reset_ns is not None else {}
    counted = [
        head | {"name": n, "kind": "counter", "unit": unit, "value": float(value - zero.get(n, (unit, 0))[1])}
        for n, (unit, value) in State(world, now_ns, work_per_call).values().items()
    ]
    since_s = WALL_EPOCH_S + (world.born_ns if reset_ns is None else reset_ns) / NS_PER_S
    gauge = {"name": "statistics_reset_s", "kind": "gauge", "unit": "s", "value": since_s}
    return [*counted, head | gauge]
