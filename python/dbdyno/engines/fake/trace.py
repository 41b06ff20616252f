"""What a task did, piece by piece, with nothing left out: the truth that the observers read from."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Doing(Enum):
    RUN = "run"
    QUEUE = "queue"
    THROTTLED = "throttled"  # in the run queue because of the quota
    SLEEP = "sleep"
    GONE = "gone"


class Label(NamedTuple):
    """What the server says of a backend. It changes only when the backend has a CPU: a backend that was
    woken keeps the label of its wait until then, as real ones do."""

    state: str | None
    wait_class: str | None
    wait_event: str | None


RUNNING = Label("active", None, None)
CLIENT = Label("idle", "Client", "ClientRead")


class Piece(NamedTuple):
    start_ns: int
    end_ns: int
    doing: Doing
    label: Label


class Used(NamedTuple):
    """CPU time and run-queue time since the task was born, in ns."""

    run_ns: int
    runq_ns: int


@dataclass(slots=True)
class Timeline:
    """Pieces of one task's life, without gaps; the last one is open."""

    starts_ns: list[int] = field(default_factory=list)
    doing: list[Doing] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    used: list[Used] = field(default_factory=list)  # at the start of the piece

    def become(self, now_ns: int, doing: Doing, label: Label) -> None:
        used = self._used_after(len(self.starts_ns) - 1, now_ns) if self.starts_ns else Used(0, 0)
        self.starts_ns.append(now_ns)
        self.doing.append(doing)
        self.labels.append(label)
        self.used.append(used)

    def index(self, now_ns: int) -> int:
        """The piece that holds ``now_ns``; -1 before birth."""
        if self.starts_ns and now_ns >= self.starts_ns[-1]:
            return len(self.starts_ns) - 1
        return bisect_right(self.starts_ns, now_ns) - 1

    def used_at(self, now_ns: int) -> Used:
        return self._used_after(self.index(now_ns), now_ns)

    def _used_after(self, i: int, now_ns: int) -> Used:
        run, runq = self.used[i]
        since = now_ns - self.starts_ns[i]
        if self.doing[i] is Doing.RUN:
            return Used(run + since, runq)
        if self.doing[i] in (Doing.QUEUE, Doing.THROTTLED):
            return Used(run, runq + since)
        return Used(run, runq)

    def alive_at(self, now_ns: int) -> bool:
        i = self.index(now_ns)
        return i >= 0 and self.doing[i] is not Doing.GONE

    def pieces(self, start_ns: int, end_ns: int) -> list[Piece]:
        """The pieces in [start, end), cut to it."""
        found = []
        for i in range(max(0, self.index(start_ns)), len(self.starts_ns)):
            if self.starts_ns[i] >= end_ns:
                break
            last = i + 1 == len(self.starts_ns)
            low = max(start_ns, self.starts_ns[i])
            high = end_ns if last else min(end_ns, self.starts_ns[i + 1])
            if high > low:
                found.append(Piece(low, high, self.doing[i], self.labels[i]))
        return found
