"""What sessions, helpers and the driver of the fake server do, as programs for the machine."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from dbdyno.engines.fake.law import Helper, Law
from dbdyno.engines.fake.machine import Acquire, Block, Cpu, Machine, Program, Release, Sleep, Task
from dbdyno.engines.fake.trace import CLIENT, Label

HELPER_TURN_NS = 100_000_000
EndReason = Literal["deadline", "stopped", "lost", "limit"]


@dataclass(slots=True)
class Call:
    start_ns: int
    end_ns: int
    sqlstate: str | None  # None: ended well


@dataclass(slots=True)
class Session:
    """What the driver knows of one session."""

    number: int
    calls: list[Call] = field(default_factory=list)
    end_reason: EndReason | None = None  # None: still at it


@dataclass(frozen=True)
class Schedule:
    start_ns: int
    t0_ns: int
    t1_ns: int
    max_calls: int | None
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
                yield Block(Label(None, None, None))
                self.asleep = False
                continue
            yield Cpu(self.cpu_ns)
            self.machine.wake(self.queue.popleft())

    def ask(self, task: Task) -> None:
        self.queue.append(task)
        if self.asleep and self.task is not None:
            self.machine.wake(self.task)


def session_program(
    session: Session, law: Law, size: int, schedule: Schedule, driver: Driver, me: list[Task]
) -> Program:
    """``me`` holds the session's own task once it is spawned."""
    chance = random.Random(f"{law.seed}/{session.number}")
    now = yield Sleep(schedule.start_ns - driver.machine.now_ns, CLIENT)
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
            yield from _call(law, size, chance)
            session.calls.append(Call(started, driver.machine.now_ns, "40001" if failed else None))
            started = None
            now = driver.machine.now_ns
            if schedule.max_calls is not None and len(session.calls) >= schedule.max_calls:
                session.end_reason = "limit"
            elif law.think:
                now = yield Sleep(law.think, CLIENT)
        yield Block(CLIENT)
    except GeneratorExit:
        if started is not None:
            session.calls.append(Call(started, driver.machine.now_ns, "08006"))
        session.end_reason = session.end_reason or "lost"
        raise


def _call(law: Law, size: int, chance: random.Random) -> Program:
    def varied(ns: int) -> int:
        return round(ns * (1 + law.spread * chance.uniform(-1, 1))) if law.spread else ns

    yield Cpu(varied(law.cpu * size))
    for wait in law.waits:
        yield Sleep(varied(wait.ns), Label("active", wait.wait_class, wait.wait_event))
    if law.lock is not None:
        yield Acquire(Label("active", law.lock.wait_class, law.lock.wait_event))
        yield Cpu(varied(law.lock.ns))
        yield Release()


def helper_program(helper: Helper) -> Program:
    """``share`` of a CPU in turns; a turn that took longer for want of a CPU makes no debt."""
    busy_ns = round(HELPER_TURN_NS * helper.share)
    while True:
        yield Cpu(busy_ns)
        yield Sleep(HELPER_TURN_NS - busy_ns, idle_label(helper))


def idle_label(helper: Helper) -> Label:
    if helper.name == "other":
        return CLIENT
    return Label(None, "Activity", "".join(p.title() for p in helper.name.split()) + "Main")
