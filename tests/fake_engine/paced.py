"""An open loop on the fake server: calls that become due, and wait for a session in one queue."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from dbdyno.model.plan.pacing import Pacing
from dbdyno.model.units import NS_PER_S
from tests.fake_engine.calls import Place, Varied, call
from tests.fake_engine.machine import Block, Program, Sleep, Task
from tests.fake_engine.programs import Call, Driver, Schedule, Session
from tests.fake_engine.trace import CLIENT


@dataclass
class Arrivals:
    """All calls of a load. Calls that become due in the window are counted."""

    pacing: Pacing
    seed: int
    schedule: Schedule
    queue: deque[int] = field(default_factory=deque)
    idle: deque[Task] = field(default_factory=deque)
    due: int = 0
    dropped: int = 0
    most: int = 0
    settle: int = 0
    waited: list[int] = field(default_factory=list)  # of those that were due at t1 and not begun

    def times(self) -> Iterator[int]:
        """Yields the times at which calls become due, up to the end. The rate is thinned out of its
        highest."""
        chance, plan = random.Random(self.seed), self.schedule
        most = max(self.pacing.rate_per_s, self.pacing.to_per_s or 0)
        at_ns = float(plan.start_ns)
        while True:
            constant = self.pacing.arrivals == "constant"
            at_ns += (
                NS_PER_S
                / (self.rate(at_ns) if constant else most)
                * (1 if constant else chance.expovariate(1))
            )
            if at_ns >= plan.t1_ns:
                return
            if constant or chance.random() < self.rate(at_ns) / most:
                yield round(at_ns)

    def rate(self, at_ns: float) -> float:
        """Returns calls per second at an instant."""
        plan, begin = self.schedule, self.pacing.rate_per_s
        share = max(0.0, (at_ns - plan.t0_ns) / (plan.t1_ns - plan.t0_ns))
        return begin + share * ((self.pacing.to_per_s or begin) - begin)

    def plan(self, place: Place) -> None:
        """Puts all events into the machine's calendar."""
        for at_ns in self.times():
            place.machine.at(at_ns, partial(self._due, place, at_ns))
        place.machine.at(self.schedule.t1_ns, partial(self._end, place))

    def _due(self, place: Place, at_ns: int) -> None:
        within = at_ns >= self.schedule.t0_ns
        self.due += within
        self.settle += not within
        self.queue.append(at_ns)
        self.most = max(self.most, len(self.queue))
        self._wake(place)

    def _end(self, place: Place) -> None:
        t0_ns, t1_ns = self.schedule.t0_ns, self.schedule.t1_ns
        self.waited = [t1_ns - at_ns for at_ns in self.queue if at_ns >= t0_ns]
        self.queue.clear()
        while self.idle:
            self._wake(place)

    def _wake(self, place: Place) -> None:
        while self.idle:
            task = self.idle.popleft()
            if task.program is not None:
                place.machine.wake(task)
                return

    def take(self, now_ns: int) -> int | None:
        """Returns the call that has been due for longest. Drops those that waited too long."""
        limit_ns = self.pacing.latency_limit_ns
        while self.queue:
            at_ns = self.queue.popleft()
            if limit_ns is None or now_ns - at_ns <= limit_ns:
                return at_ns
            self.dropped += at_ns >= self.schedule.t0_ns
        return None


def paced_program(
    session: Session, place: Place, varied: Varied, arrivals: Arrivals, driver: Driver, me: list[Task]
) -> Program:
    """Steps through a session that takes due calls; ``me`` holds its own task once it is spawned."""
    law, machine, schedule = place.law, place.machine, arrivals.schedule
    yield Sleep(schedule.start_ns - machine.now_ns, CLIENT)
    begun: tuple[int, int] | None = None
    try:
        while session.end_reason is None:
            due = arrivals.take(machine.now_ns)
            if due is None and machine.now_ns >= schedule.t1_ns:
                session.end_reason = "stopped" if schedule.stopped else "deadline"
                break
            if due is None:
                arrivals.idle.append(me[0])
                yield Block(CLIENT)
                continue
            if law.driver_cpu:
                driver.ask(me[0])
                yield Block(CLIENT)
            begun = machine.now_ns, due
            failed = bool(law.error_every) and (len(session.calls) + 1) % law.error_every == 0
            yield from call(place, me[0], session.number, varied)
            session.calls.append(Call(begun[0], machine.now_ns, "40001" if failed else None, due))
            begun = None
        yield Block(CLIENT)
    except GeneratorExit:
        if begun is not None:
            session.calls.append(Call(begun[0], machine.now_ns, "08006", begun[1]))
        session.end_reason = session.end_reason or "lost"
        raise
