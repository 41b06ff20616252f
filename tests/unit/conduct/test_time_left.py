"""The time left of a run, by the pace of the cells that are done."""

from __future__ import annotations

import pytest
from tests.fakery import MS, S, climb

from dbdyno.conduct.measure.progress import NullProgressListener, Progressing, Tick
from dbdyno.model.engine.protocols import Progress
from dbdyno.plan import deriving_ns


class Clock:
    def __init__(self) -> None:
        self.at_ns = 0

    def now_ns(self) -> int:
        return self.at_ns

    def sleep(self, seconds: float) -> None:
        self.at_ns += int(seconds * S)


class Listener(NullProgressListener):
    left_s = 0.0

    def tick(self, tick: Tick) -> None:
        self.left_s = tick.left_s


def test_what_is_done_between_cells_belongs_to_their_pace() -> None:
    plan = climb("fake:cpu=50ms", [1], repeats=10).plan
    each = [c.settle_ns + c.measure_ns for c in plan.cells]
    beside_ns, between_ns = 900 * MS, 2_400 * MS
    clock, listener = Clock(), Listener()
    progress = Progressing(plan, listener, clock)
    for cell, ns in zip(plan.cells[:6], each, strict=False):
        tick = progress.of(cell)
        tick("measuring", 0.0, Progress(0, 0, 0, 0), {})
        clock.at_ns += ns + beside_ns
        progress.done(cell)
        clock.at_ns += between_ns
    progress.of(plan.cells[6])("measuring", each[6] / S, Progress(0, 0, 0, 0), {})
    to_come = sum(ns + beside_ns + between_ns for ns in each[7:]) + deriving_ns(len(plan.cells))
    assert listener.left_s == pytest.approx(to_come / S, rel=0.1)
