"""Rows of the tables samples and sampler, by asking the server and from the backends' memory."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dbdyno.model.units import NS_PER_S
from tests.fake_engine.law import Law
from tests.fake_engine.readings import READ_NS, key, task_state
from tests.fake_engine.roster import Known

SQL_NS = 100_000  # how long a sample takes besides the law's skew
WORD_NS = 5_000  # from a wait event word to the task's state
QUERY_ID = 4711

Row = dict[str, Any]


def is_down(law: Law, since_ns: int) -> bool:
    """Returns whether the server is away at an instant, counted as the law counts."""
    down = law.down
    if down is None or since_ns < down.start_ns:
        return False
    return not down.length_ns or since_ns < down.start_ns + down.length_ns


@dataclass(frozen=True)
class Sample:
    number: int
    due_ns: int
    start_ns: int
    lost: bool


@dataclass(frozen=True)
class Sampler:
    """One of the two samplers of a watch."""

    via: str  # sql | memory
    law: Law
    hz: float
    seed: int

    @property
    def skew_ns(self) -> int:
        return self.law.skew if self.via == "sql" else WORD_NS

    def samples(self, first_ns: int, span: tuple[int, int], now_ns: int, start_ns: int) -> list[Sample]:
        """Returns one random instant in each interval of the window, and one at ``first_ns`` before it.

        No sample is later than ``now_ns``. The instants of the law count from ``start_ns``.
        """
        t0, t1 = span
        chance = random.Random(self.seed if self.via == "sql" else f"{self.seed}/memory")
        interval = NS_PER_S / self.hz
        due = [t0 + int((i + chance.random()) * interval) for i in range(int((t1 - t0) / interval))]
        late = self.law.late
        starts = [(t, t + (chance.randrange(2 * late) if late else 0)) for t in due]
        taken = [(first_ns, first_ns), *((d, s) for d, s in starts if s <= now_ns)]
        samples = [Sample(n, d, s, self._lost(d - start_ns)) for n, (d, s) in enumerate(taken)]
        return sorted(samples, key=lambda s: s.start_ns)

    def _lost(self, since_ns: int) -> bool:
        gap = self.law.gap
        return (gap is not None and gap[0] <= since_ns < gap[1]) or is_down(self.law, since_ns)

    def sampler_row(self, sample: Sample) -> Row:
        """Returns the row of a sample in the table sampler."""
        took = (SQL_NS if self.via == "sql" else 0) + self.skew_ns
        return {
            "sample": sample.number,
            "due_ns": sample.due_ns,
            "start_ns": sample.start_ns,
            "end_ns": sample.start_ns + took,
            "status": "lost" if sample.lost else "ok",
            "via": self.via,
        }

    def rows(self, samples: Sequence[Sample], known: Sequence[Known], os: bool) -> list[Row]:
        """Returns the rows of samples in the table samples."""
        rows: list[Row] = []
        starts = [s.start_ns for s in samples]
        for one in known:
            if one.role == "driver":
                continue
            life = one.task.timeline
            low = bisect_left(starts, max(one.since_ns, life.born_ns))
            high = len(starts) if life.ended_ns is None else bisect_left(starts, life.ended_ns)
            fixed = self._fixed(one, os)
            rows += [fixed | self._read(s, one, os) for s in samples[low:high] if not s.lost]
        return sorted(rows, key=lambda r: int(r["sample"]))

    def _fixed(self, known: Known, os: bool) -> Row:
        """Returns the columns that all rows of a task share."""
        task, sql = known.task, self.via == "sql"
        client = task.role in ("session", "other", "helper:parallel worker")
        return key(known) | {
            "start_ticks": task.start_ticks if os else None,
            "via": self.via,
            "query_id": QUERY_ID if sql and client else None,
            "leader_pid": task.leader.pid if sql and task.leader is not None else None,
        }

    def _read(self, sample: Sample, known: Known, os: bool) -> Row:
        task, at_ns = known.task, sample.start_ns
        label = task.timeline.labels[task.timeline.index(at_ns)]
        read_ns = at_ns + self.skew_ns
        state, status = task_state(task, read_ns) if os else (None, "not here")
        return {
            "sample": sample.number,
            "sql_before_ns": at_ns - READ_NS,
            "sql_after_ns": at_ns + READ_NS,
            "task_ns": read_ns if os else None,
            "state": label.state if self.via == "sql" else None,
            "wait_class": label.wait_class,
            "wait_event": label.wait_event,
            "task_state": state,
            "status": status,
        }
