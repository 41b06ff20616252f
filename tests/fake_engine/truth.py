"""Where the time of tasks really went."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tests.fake_engine.trace import RUNNABLE, Doing, Label, Timeline

Event = tuple[str, str]


class Under(NamedTuple):
    """Times under one label, in ns. ``sleeps``: how often the task fell asleep under it."""

    run: int = 0
    sleep: int = 0
    runq: int = 0
    throttled: int = 0
    sleeps: int = 0

    def plus(self, other: Under) -> Under:
        return Under(
            self.run + other.run,
            self.sleep + other.sleep,
            self.runq + other.runq,
            self.throttled + other.throttled,
            self.sleeps + other.sleeps,
        )


@dataclass(frozen=True)
class Truth:
    """Where a task's time in a span went, in ns. Run, runq, sleep, client and stolen add up to ``wall``."""

    wall: int
    run: int
    runq: int  # throttled included
    throttled: int
    client: int
    sleep: dict[Event, int]  # (class, event) -> ns, the client left out; ("", ""): no label
    queued_as: dict[Event, int]  # run-queue time that hid behind the label of a wait
    ran_as: dict[Event, int]  # CPU time that hid behind the label of a wait
    stolen: int = 0  # on a CPU that was away
    labels: dict[Label, Under] = field(default_factory=dict)  # the joint table

    @staticmethod
    def of(timelines: Iterable[Timeline], start_ns: int, end_ns: int) -> Truth:
        """Returns the truth of all these tasks in sum, in [start, end)."""
        labels: dict[Label, Under] = {}
        stolen = 0
        for timeline in timelines:
            for label, under, away in _of(timeline, start_ns, end_ns):
                labels[label] = labels.get(label, Under()).plus(under)
                stolen += away
        return _truth({k: u for k, u in labels.items() if any(u)}, stolen)


def _of(timeline: Timeline, start_ns: int, end_ns: int) -> Iterable[tuple[Label, Under, int]]:
    sums = timeline.sums
    ends = np.array([start_ns, end_ns], dtype=np.int64)
    kinds = ((Doing.RUN,), (Doing.SLEEP,), RUNNABLE, (Doing.THROTTLED,))
    fell = sums.falls_asleep()
    for label in sums.labels:
        labelled = sums.under([label])
        times = [int(np.diff(sums.time(labelled & sums.are(*kind), ends))[0]) for kind in kinds]
        sleeps = int(np.diff(sums.count(labelled & fell, ends))[0])
        stolen = int(np.diff(sums.time(labelled & sums.are(Doing.STOLEN), ends))[0])
        run, sleep, runq, throttled = times
        yield label, Under(run, sleep, runq, throttled, sleeps), stolen


def _truth(labels: dict[Label, Under], stolen: int) -> Truth:
    def by_event(part: str, *, waits: bool) -> dict[Event, int]:
        sums: dict[Event, int] = {}
        for label, under in labels.items():
            ns = getattr(under, part)
            if ns and (label.wait_class is not None or not waits):
                event = (label.wait_class or "", label.wait_event or "")
                sums[event] = sums.get(event, 0) + ns
        return sums

    run, runq, throttled = (sum(getattr(u, p) for u in labels.values()) for p in ("run", "runq", "throttled"))
    asleep = by_event("sleep", waits=False)
    client = sum(ns for (wait_class, _), ns in asleep.items() if wait_class == "Client")
    return Truth(
        wall=run + runq + sum(asleep.values()) + stolen,
        run=run,
        runq=runq,
        throttled=throttled,
        client=client,
        sleep={event: ns for event, ns in asleep.items() if event[0] != "Client"},
        queued_as=by_event("runq", waits=True),
        ran_as=by_event("run", waits=True),
        stolen=stolen,
        labels=labels,
    )
