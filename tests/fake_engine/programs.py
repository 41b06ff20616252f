"""Programs of sessions, helpers and the driver of the fake server, for the machine."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tests.fake_engine.calls import Place, Varied, call
from tests.fake_engine.law import Helper
from tests.fake_engine.machine import Block, Cpu, Machine, Program, Sleep, Task
from tests.fake_engine.trace import CLIENT, UNLABELLED, Label

HELPER_TURN_NS = 100_000_000
EndReason = Literal["deadline", "stopped", "lost", "limit"]


@dataclass(slots=True)
class Call:
    start_ns: int
    end_ns: int
    sqlstate: str | None  # None: ended well
    due_ns: int | None = None  # of a paced load

    @property
    def since_ns(self) -> int:
        """Returns the time at which its latency begins."""
        return self.start_ns if self.due_ns is None else self.due_ns


@dataclass(slots=True)
class Session:
    """The driver's knowledge of one session."""

    number: int
    calls: list[Call] = field(default_factory=list)
    end_reason: EndReason | None = None  # None: still at it


@dataclass(frozen=True)
class Schedule:
    start_ns: int
    t0_ns: int
    t1_ns: int
    max_calls: int | None
    rounds: bool = False
    stopped: bool = False  # t1 was brought forward by hand


@dataclass
class Driver:
    """The driver's one thread: sends calls one after another, each for ``law.driver_cpu``."""

    machine: Machine
    cpu_ns: int
    queue: deque[Task] = field(default_factory=deque)
    task: Task | None = None
    asleep: bool = False

    def program(self) -> Program:
        while True:
            if not self.queue:
                self.asleep = True
                yield Block(UNLABELLED)
                self.asleep = False
                continue
            yield Cpu(self.cpu_ns, UNLABELLED)
            self.machine.wake(self.queue.popleft())

    def ask(self, task: Task) -> None:
        self.queue.append(task)
        if self.asleep and self.task is not None:
            self.machine.wake(self.task)


@dataclass
class Rounds:
    """A barrier: sessions whose call of this round is over wait for those that are still in it."""

    machine: Machine
    sessions: list[Session]
    waiting: list[Task] = field(default_factory=list)

    def over(self, me: Task) -> bool:
        """Returns whether ``me`` was the last of its round, and wakes the others then. Otherwise it has to
        wait."""
        self.waiting.append(me)
        return self.look(me)

    def look(self, me: Task | None = None) -> bool:
        """Lets all go on if nobody is in a call any more; ``me`` goes on by itself."""
        self.waiting = [t for t in self.waiting if t.program is not None]
        if len(self.waiting) < sum(s.end_reason is None for s in self.sessions):
            return False
        waiting, self.waiting = self.waiting, []
        for task in waiting:
            if task is not me:
                self.machine.wake(task)
        return True


def session_program(
    session: Session,
    place: Place,
    varied: Varied,
    schedule: Schedule,
    driver: Driver,
    rounds: Rounds | None,
    me: list[Task],
) -> Program:
    """Steps through a session; ``me`` holds its own task once it is spawned."""
    law, machine = place.law, place.machine
    now = yield Sleep(schedule.start_ns - machine.now_ns, CLIENT)
    started = None
    try:
        while session.end_reason is None:
            if law.driver_cpu:
                driver.ask(me[0])
                now = yield Block(CLIENT)
            if now >= schedule.t1_ns:
                session.end_reason = "stopped" if schedule.stopped else "deadline"
                break
            started = now
            failed = bool(law.error_every) and (len(session.calls) + 1) % law.error_every == 0
            yield from call(place, me[0], session.number, varied)
            session.calls.append(Call(started, machine.now_ns, "40001" if failed else None))
            started = None
            now = machine.now_ns
            if schedule.max_calls is not None and len(session.calls) >= schedule.max_calls:
                session.end_reason = "limit"
                continue
            if rounds is not None and not rounds.over(me[0]):
                now = yield Block(CLIENT)
            if law.think:
                now = yield Sleep(law.think, CLIENT)
        yield Block(CLIENT)
    except GeneratorExit:
        if started is not None:
            session.calls.append(Call(started, machine.now_ns, "08006"))
        session.end_reason = session.end_reason or "lost"
        if rounds is not None:
            rounds.look()
        raise


def visitor_program(
    session: Session, place: Place, varied: Varied, stay_ns: int | None, me: list[Task]
) -> Program:
    """Steps through a session of somebody else's load, which calls until it leaves, or for ever."""
    machine = place.machine
    leaves_ns = None if stay_ns is None else machine.now_ns + stay_ns
    yield Sleep(1_000_000, CLIENT)
    while leaves_ns is None or machine.now_ns < leaves_ns:
        started = machine.now_ns
        yield from call(place, me[0], session.number, varied)
        failed = bool(place.law.error_every) and (len(session.calls) + 1) % place.law.error_every == 0
        session.calls.append(Call(started, machine.now_ns, "40001" if failed else None))
        if place.law.think:
            yield Sleep(place.law.think, CLIENT)


def variation(place: Place, number: int, of: int, window: Callable[[], tuple[int, int] | None]) -> Varied:
    """Returns how durations of the law vary in the calls of session ``number`` of ``of``, now."""
    law, machine = place.law, place.machine
    chance = random.Random(f"{law.seed}/{number}")
    longer = 1 + law.unequal * number / max(1, of - 1)
    if not (law.spread or law.unequal or law.drift or law.exponential):
        return lambda ns: ns

    def drifted() -> float:
        span = window() if law.drift else None
        if span is None:
            return 1.0
        return 1 + law.drift * max(0.0, (machine.now_ns - span[0]) / (span[1] - span[0]))

    def varied(ns: int) -> int:
        by_chance = 1 + law.spread * chance.uniform(-1, 1) if law.spread else 1.0
        by_chance *= chance.expovariate(1) if law.exponential else 1.0
        return round(ns * (by_chance * longer * drifted()))

    return varied


def helper_program(helper: Helper) -> Program:
    """Uses ``share`` of a CPU in turns. A turn that took longer for want of a CPU makes no debt."""
    busy_ns = round(HELPER_TURN_NS * helper.share)
    label = Label("active", None, None) if helper.name == "other" else UNLABELLED
    while True:
        yield Cpu(busy_ns, label)
        yield Sleep(HELPER_TURN_NS - busy_ns, idle_label(helper))


def main_program() -> Program:
    """Steps through the main process, which waits for connections."""
    yield Block(Label(None, None, None))


def vacuum_program(machine: Machine, until_ns: int) -> Program:
    """Steps through an autovacuum worker, which reads, looks, and keeps to its cost limit."""
    while machine.now_ns < until_ns:
        yield Cpu(2_000_000)
        yield Sleep(3_000_000, Label("active", "IO", "DataFileRead"))
        yield Sleep(2_000_000, Label("active", "Timeout", "VacuumDelay"))


def checkpointer_program(machine: Machine, length_ns: int, done: Callable[[], None]) -> Program:
    """Sleeps until it is woken, then writes for ``length_ns`` and syncs."""
    while True:
        now_ns = yield Block(Label(None, "Activity", "CheckpointerMain"))
        until_ns = now_ns + length_ns
        while machine.now_ns < until_ns:
            yield Cpu(1_000_000, UNLABELLED)
            yield Sleep(4_000_000, Label(None, "IO", "DataFileWrite"))
            yield Sleep(5_000_000, Label(None, "Timeout", "CheckpointWriteDelay"))
        yield Sleep(20_000_000, Label(None, "IO", "DataFileSync"))
        done()


def idle_label(helper: Helper) -> Label:
    if helper.name == "other":
        return CLIENT
    return Label(None, "Activity", "".join(p.title() for p in helper.name.split()) + "Main")
