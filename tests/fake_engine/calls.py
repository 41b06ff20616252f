"""The program of one call: CPU, waits, workers, the lock, the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fake_engine.law import Burst, Law, Wait
from tests.fake_engine.machine import Acquire, Block, Cpu, Lock, Machine, Program, Release, Sleep, Task
from tests.fake_engine.trace import UNLABELLED, Label

LOG_CPU_NS = 10_000  # of a session whose commit was flushed
FLUSH_QUEUE = Label("active", "LWLock", "WALWrite")
AIO = Label("active", "IO", "AioIoCompletion")
IDLE = Label("idle", None, None)
GATHER = Label("active", "IPC", "ExecuteGather")
IO_WORKER_IDLE = Label(None, "Activity", "IoWorkerMain")

Varied = Callable[[int], int]
"""A duration of the law as this call has it."""


@dataclass(slots=True)
class Log:
    """One flush at a time. Tasks that ask meanwhile are in the next one, which the first of them makes for
    all."""

    flushing: bool = False
    leader: Task | None = None
    waiting: list[Task] = field(default_factory=list)


@dataclass(slots=True)
class IoWorkers:
    """Requests of sessions, and the workers without one."""

    requests: deque[tuple[Task, int]] = field(default_factory=deque)
    idle: deque[Task] = field(default_factory=deque)


@dataclass(slots=True)
class Place:
    """State that all calls of a world share."""

    law: Law
    size: int
    machine: Machine
    spawn_worker: Callable[[Task, Program], Task]
    stalled_until_ns: int = 0
    zero_ns: int = 0  # the law's instants count from here
    lock: Lock = field(default_factory=Lock)
    log: Log = field(default_factory=Log)
    io: IoWorkers = field(default_factory=IoWorkers)
    parts: tuple[Wait | Burst, ...] = field(init=False)  # of each call

    def __post_init__(self) -> None:
        self.parts = _sized(self.law, self.size)


def call(place: Place, me: Task, number: int, varied: Varied) -> Program:
    """Steps through one call of session ``number``."""
    law = place.law
    if place.stalled_until_ns > place.machine.now_ns:
        yield Sleep(place.stalled_until_ns - place.machine.now_ns, Label("active", "IO", "DataFileRead"))
    if law.stalls is not None:
        ns = place.machine.now_ns - place.zero_ns
        left_ns = law.stalls.wait.ns - (ns - law.stalls.every_ns) % law.stalls.every_ns
        if ns >= law.stalls.every_ns and left_ns > 0:
            yield Sleep(left_ns, _label(law.stalls.wait))
    for i, part in enumerate(place.parts):
        if isinstance(part, Burst):
            ns = varied(part.ns)
            if not i and law.idle_cpu:
                unsaid_ns = round(ns * law.idle_cpu)
                yield Cpu(unsaid_ns, IDLE)
                ns -= unsaid_ns
            yield from _cpu(place, me, ns)
        elif part.wait_class == "IO":
            yield from _io(place, me, part, varied(part.ns))
        else:
            yield Sleep(varied(part.ns), _label(part))
    if law.lock is not None:
        yield from _locked(place, law.lock, number, varied)
    if law.commit is not None:
        yield from _commit(place, me, _label(law.commit), varied(law.commit.ns))


def _sized(law: Law, size: int) -> tuple[Wait | Burst, ...]:
    """Returns the parts of a call. A call of cpu= has more CPU time with its size, one of call= repeats
    its parts."""
    return law.call * size if law.call else (Burst(law.cpu * size), *law.waits)


def _label(wait: Wait) -> Label:
    """Returns the label of a wait. Inside a call the wait for the client is one within a transaction."""
    return Label("idle in transaction" if wait.wait_class == "Client" else "active", *wait[:2])


def _cpu(place: Place, me: Task, ns: int) -> Program:
    """Uses CPU alone, or in even parts with the workers; the leader waits for the last of them."""
    workers = place.law.workers
    if not workers or ns < workers + 1:
        yield Cpu(ns)
        return
    part = ns // (workers + 1)
    at_work: list[Task] = []

    def worker(number: int) -> Program:
        yield Cpu(part)
        at_work.remove(workers_by_number[number])
        if waits and not at_work:
            place.machine.wake(me)

    waits = False
    workers_by_number: list[Task] = []
    try:
        for number in range(workers):
            task = place.spawn_worker(me, worker(number))
            workers_by_number.append(task)
            at_work.append(task)
        yield Cpu(ns - part * workers)
        if at_work:
            waits = True
            yield Block(GATHER)
    finally:
        for task in list(at_work):
            place.machine.kill(task)


def _io(place: Place, me: Task, wait: Wait, ns: int) -> Program:
    """Reads in the session itself, or lets an I/O worker do it."""
    if not place.law.io_workers:
        yield from _read(place.law, _label(wait), ns)
        return
    place.io.requests.append((me, ns))
    if place.io.idle:
        place.machine.at(place.machine.now_ns, _wakes(place, place.io.idle.popleft()))
    yield Block(AIO)


def _wakes(place: Place, task: Task) -> Callable[[], None]:
    return lambda: place.machine.wake(task)


def _read(law: Law, label: Label, ns: int) -> Program:
    """Sleeps for the device's part, then uses the CPU's, both under the label of the wait."""
    cpu_ns = round(ns * law.io_cpu)
    if ns > cpu_ns:
        yield Sleep(ns - cpu_ns, label)
    yield Cpu(cpu_ns, label)


def io_worker(place: Place, me: list[Task]) -> Program:
    """Steps through a worker; ``me`` holds its own task once it is spawned."""
    name = next((p for p in place.law.parts if isinstance(p, Wait) and p.wait_class == "IO"), None)
    label = Label(None, "IO", name.wait_event if name else "DataFileRead")
    while True:
        if not place.io.requests:
            place.io.idle.append(me[0])
            yield Block(IO_WORKER_IDLE)
            continue
        session, ns = place.io.requests.popleft()
        yield from _read(place.law, label, ns)
        yield Cpu(LOG_CPU_NS, UNLABELLED)
        place.machine.wake(session)


def _locked(place: Place, lock: Wait, number: int, varied: Varied) -> Program:
    hold, holders = place.law.hold, place.law.holders
    yield Acquire(place.lock, _label(lock))
    yield Cpu(varied(lock.ns))
    if hold is not None and (holders is None or number < holders):
        yield Sleep(varied(hold.ns), _label(hold))
    yield Release(place.lock)


def _commit(place: Place, me: Task, label: Label, ns: int) -> Program:
    log = place.log
    if log.flushing:
        log.waiting.append(me)
        yield Block(FLUSH_QUEUE)
        if log.leader is not me:
            yield Cpu(LOG_CPU_NS)
            return
    log.flushing, log.leader = True, me
    group: list[Task] = []
    try:
        yield Cpu(LOG_CPU_NS)
        group, log.waiting = log.waiting, []
        yield Sleep(ns, label)
        yield Cpu(LOG_CPU_NS)
    finally:
        _flushed(place, group)


def _flushed(place: Place, group: list[Task]) -> None:
    """Wakes the tasks whose commit was in this flush, and the first of those who came later, which makes
    the next."""
    log = place.log
    waiting = [t for t in log.waiting if t.program is not None]
    log.leader = waiting[0] if waiting else None
    log.flushing, log.waiting = bool(waiting), waiting[1:]
    for task in (*group, *waiting[:1]):
        place.machine.wake(task)
