"""Everything that a task did, piece by piece: the truth that the observers read from."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Doing(IntEnum):
    RUN = 0
    QUEUE = 1
    THROTTLED = 2  # in the run queue because of the quota
    SLEEP = 3
    STOLEN = 4  # on a CPU that the hypervisor gave to another machine
    GONE = 5


ON_CPU = (Doing.RUN, Doing.STOLEN)
RUNNABLE = (Doing.QUEUE, Doing.THROTTLED)


class Label(NamedTuple):
    """The server's report on a backend.

    It changes only when the backend has a CPU: a backend that was woken keeps the label of its wait
    until then, as real ones do.
    """

    state: str | None
    wait_class: str | None
    wait_event: str | None

    @property
    def event(self) -> tuple[str | None, str | None]:
        return self.wait_class, self.wait_event

    @property
    def is_block_io(self) -> bool:
        """Returns whether it sleeps on a device (D), not on an I/O worker that does."""
        return self.wait_class == "IO" and self.wait_event != "AioIoCompletion"


RUNNING = Label("active", None, None)
CLIENT = Label("idle", "Client", "ClientRead")
UNLABELLED = Label(None, None, None)


@dataclass(slots=True)
class Timeline:
    """Pieces of one task's life, without gaps; the last one is open."""

    starts_ns: list[int] = field(default_factory=list)
    doing: list[Doing] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    _sums: Sums | None = None

    def become(self, now_ns: int, doing: Doing, label: Label) -> None:
        self.starts_ns.append(now_ns)
        self.doing.append(doing)
        self.labels.append(label)

    @property
    def born_ns(self) -> int:
        return self.starts_ns[0]

    @property
    def ended_ns(self) -> int | None:
        return self.starts_ns[-1] if self.doing[-1] is Doing.GONE else None

    def index(self, now_ns: int) -> int:
        """Returns the piece that holds ``now_ns``; -1 before birth."""
        if self.starts_ns and now_ns >= self.starts_ns[-1]:
            return len(self.starts_ns) - 1
        return bisect_right(self.starts_ns, now_ns) - 1

    def alive_at(self, now_ns: int) -> bool:
        return self.born_ns <= now_ns and (self.ended_ns is None or now_ns < self.ended_ns)

    @property
    def sums(self) -> Sums:
        """Returns the sums of all pieces until now."""
        if self._sums is None or len(self._sums.starts_ns) != len(self.starts_ns):
            self._sums = Sums(self)
        return self._sums


class Sums:
    """Time that a task spent in pieces of some kind, and their number, up to any instants."""

    def __init__(self, timeline: Timeline) -> None:
        numbers: dict[Label, int] = {}
        self.starts_ns: Ints = np.array(timeline.starts_ns, dtype=np.int64)
        self.doing = np.array(timeline.doing, dtype=np.int8)
        self._label = np.array([numbers.setdefault(n, len(numbers)) for n in timeline.labels], dtype=np.int64)
        self.labels = list(numbers)

    def are(self, *doing: Doing) -> Mask:
        """Returns the pieces in which the task did one of these."""
        chosen = np.zeros(len(Doing), dtype=np.bool_)
        chosen[list(doing)] = True
        return chosen[self.doing]

    def under(self, labels: list[Label]) -> Mask:
        """Returns the pieces with one of these labels."""
        return np.array([label in labels for label in self.labels], dtype=np.bool_)[self._label]

    def after(self, *doing: Doing) -> Mask:
        """Returns the pieces before which the task did one of these."""
        before = self.are(*doing)
        before[1:], before[0] = before[:-1].copy(), False
        return before

    def falls_asleep(self) -> Mask:
        """Returns the pieces that begin with falling asleep: every piece of sleep but that of its birth."""
        asleep = self.are(Doing.SLEEP)
        asleep[0] = False
        return asleep

    def time(self, pieces: Mask, until_ns: Ints) -> Ints:
        """Returns time in ns, from birth."""
        whole = np.where(pieces[:-1], np.diff(self.starts_ns), 0)
        ended = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(whole)])
        i = np.searchsorted(self.starts_ns, until_ns, side="right") - 1
        under_way = np.where(pieces[i], until_ns - self.starts_ns[i], 0)
        return np.where(i < 0, 0, ended[i] + under_way)

    def count(self, pieces: Mask, until_ns: Ints) -> Ints:
        """Returns how many of these had begun."""
        begun = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(pieces)])
        counts: Ints = begun[np.searchsorted(self.starts_ns, until_ns, side="right")]
        return counts
