"""A machine in virtual time: CPUs, one round-robin run queue, a quota, locks. Discrete events, whole ns.

A task is a program: a generator that yields what it does next (:class:`Cpu`, :class:`Sleep`, ...) and is
sent the time when that is over. Everything that happens is written into the tasks' timelines.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.fake_engine.trace import RUNNING, Doing, Label, Timeline

PERIOD_NS = 100_000_000  # of the quota, as cpu.cfs_period_us by default


@dataclass(slots=True, eq=False)
class Lock:
    holder: Task | None = None
    waiting: deque[Task] = field(default_factory=deque)


class Cpu(NamedTuple):
    ns: int
    label: Label = RUNNING  # what the server says of the task while it runs


class Sleep(NamedTuple):
    ns: int
    label: Label


class Block(NamedTuple):
    """Sleep until :meth:`Machine.wake` is called."""

    label: Label


class Acquire(NamedTuple):
    lock: Lock
    label: Label


class Release(NamedTuple):
    lock: Lock


Step = Cpu | Sleep | Block | Acquire | Release
Program = Generator[Step, int, None]


@dataclass(slots=True, eq=False)
class Task:
    pid: int
    tid: int
    start_ticks: int
    comm: str
    role: str
    session: int | None
    grouped: bool  # in the server's group, under its quota
    leader: Task | None = None  # of a parallel worker
    timeline: Timeline = field(default_factory=Timeline)
    program: Program | None = None
    label: Label = RUNNING  # while it runs
    remaining_ns: int = 0
    on_cpu: bool = False
    stolen: bool = False  # and that CPU is away
    slice_start_ns: int = 0
    switches: int = 0  # makes events of earlier slices and sleeps void
    locks: list[Lock] = field(default_factory=list)  # held or waited for


@dataclass(slots=True)
class Group:
    """The server's control group: the quota, and the figures of its cpu.stat."""

    quota_ns: int | None  # CPU time a period
    left_ns: int = 0
    throttled: bool = False
    throttled_cpus: int = 0
    throttled_since_ns: int = 0
    running: int = 0
    seen_ns: int = 0
    epoch: int = 0
    history: list[tuple[int, int, int, int]] = field(
        default_factory=list
    )  # ns, periods, throttled, throttled ns


class Machine:
    """``stolen``: part of the time of each task on a CPU that the hypervisor gives to other machines."""

    def __init__(
        self, cpus: int, quantum_ns: int, quota: float | None, now_ns: int, stolen: float = 0.0
    ) -> None:
        self.now_ns = now_ns
        self.quantum_ns = quantum_ns
        self.idle_cpus = cpus
        self.tasks: list[Task] = []
        self.group = Group(None if quota is None else round(quota * PERIOD_NS), seen_ns=now_ns)
        self._stolen = stolen / (1 - stolen)  # of the time that a task did run
        self._on_cpu: dict[Task, None] = {}  # in the order of getting it
        self._ready: deque[Task] = deque()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.group.history.append((now_ns, 0, 0, 0))
        if self.group.quota_ns is not None:
            self.group.left_ns = self.group.quota_ns
            self.at(now_ns + PERIOD_NS, self._period)

    def at(self, when_ns: int, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when_ns, self._count, what))

    def run_until(self, end_ns: int) -> None:
        """Lets time pass to ``end_ns``."""
        while self._events and self._events[0][0] <= end_ns:
            self._next()
        self.now_ns = max(self.now_ns, end_ns)

    def run_while(self, busy: Callable[[], bool]) -> None:
        """Lets time pass as long as ``busy``."""
        while self._events and busy():
            self._next()

    def _next(self) -> None:
        self.now_ns, _, what = heapq.heappop(self._events)
        what()

    def spawn(self, task: Task, program: Program, label: Label) -> Task:
        """Starts a task. It is born asleep and takes its first step at once."""
        task.program = program
        task.timeline.become(self.now_ns, Doing.SLEEP, label)
        self.tasks.append(task)
        self._step(task, first=True)
        return task

    def wake(self, task: Task) -> None:
        if task.program is not None:
            self._step(task)

    def kill(self, task: Task) -> None:
        if task.program is None:
            return
        program, task.program = task.program, None
        program.close()
        self._leave_cpu(task)
        if task in self._ready:
            self._ready.remove(task)
        for lock in task.locks:
            if lock.holder is task:
                self._hand_over(lock)
            else:
                lock.waiting.remove(task)
        task.switches += 1
        task.timeline.become(self.now_ns, Doing.GONE, task.timeline.labels[-1])
        self._dispatch()

    # -- a task's steps ---------------------------------------------------------------------------

    def _step(self, task: Task, *, first: bool = False) -> None:
        """Asks the program for its next step until one takes time."""
        if task.program is None:
            return
        try:
            step = next(task.program) if first else task.program.send(self.now_ns)
            while not self._begin(task, step):
                step = task.program.send(self.now_ns)
        except StopIteration:
            self.kill(task)

    def _begin(self, task: Task, step: Step) -> bool:
        """Begins a step. Returns whether it takes time."""
        if isinstance(step, Cpu):  # most are: a match takes four times as long
            return self._want_cpu(task, step.ns, step.label)
        match step:
            case Sleep(ns, label):
                self._sleep(task, label)
                self._later(task, ns, lambda: self._step(task))
                return True
            case Block(label):
                self._sleep(task, label)
                return True
            case Acquire(lock, label):
                task.locks.append(lock)
                if lock.holder is None:
                    lock.holder = task
                    return False
                lock.waiting.append(task)
                self._sleep(task, label)
                return True
            case Release(lock):
                task.locks.remove(lock)
                self._hand_over(lock)
                return False

    def _want_cpu(self, task: Task, ns: int, label: Label) -> bool:
        if ns <= 0:
            return False
        changed = label != task.label
        task.remaining_ns, task.label = ns, label
        if not task.on_cpu:
            self._enqueue(task, task.timeline.labels[-1])
            self._dispatch()
        elif changed:
            task.timeline.become(self.now_ns, Doing.RUN, label)
        return True

    def _hand_over(self, lock: Lock) -> None:
        lock.holder = lock.waiting.popleft() if lock.waiting else None
        if lock.holder is not None:
            heir = lock.holder
            self.at(self.now_ns, lambda: self._step(heir) if lock.holder is heir else None)

    def _later(self, task: Task, ns: int, what: Callable[[], None]) -> None:
        task.switches += 1
        switches = task.switches
        self.at(self.now_ns + ns, lambda: what() if task.switches == switches else None)

    def _sleep(self, task: Task, label: Label) -> None:
        self._leave_cpu(task)
        task.switches += 1
        task.timeline.become(self.now_ns, Doing.SLEEP, label)
        self._dispatch()

    # -- the scheduler ----------------------------------------------------------------------------

    def _enqueue(self, task: Task, label: Label) -> None:
        throttled = task.grouped and self.group.throttled
        task.timeline.become(self.now_ns, Doing.THROTTLED if throttled else Doing.QUEUE, label)
        self._ready.append(task)

    def _dispatch(self) -> None:
        """Gives idle CPUs to the first tasks of the queue that may run."""
        while self.idle_cpus and self._ready:
            task = self._ready.popleft() if not self.group.throttled else self._first_ungrouped()
            if task is None:
                return
            self._count_group(task, +1)
            self.idle_cpus -= 1
            task.on_cpu = True
            self._on_cpu[task] = None
            task.timeline.become(self.now_ns, Doing.RUN, task.label)
            self._slice(task)

    def _first_ungrouped(self) -> Task | None:
        task = next((t for t in self._ready if not t.grouped), None)
        if task is not None:
            self._ready.remove(task)
        return task

    def _slice(self, task: Task) -> None:
        ns = min(self.quantum_ns, task.remaining_ns)
        task.slice_start_ns = self.now_ns
        over = self._steal if self._stolen else self._slice_over
        self._later(task, ns, lambda: over(task, ns))

    def _slice_over(self, task: Task, ns: int) -> None:
        task.remaining_ns -= ns
        if task.remaining_ns == 0:
            self._step(task)
            if task.on_cpu and task.remaining_ns > 0:
                self._slice(task)
        elif self._ready and (not self.group.throttled or any(not t.grouped for t in self._ready)):
            self._leave_cpu(task)
            self._enqueue(task, task.label)
            self._dispatch()
        else:
            self._slice(task)

    def _leave_cpu(self, task: Task) -> None:
        if task.on_cpu:
            if not task.stolen:
                self._count_group(task, -1)
            self.idle_cpus += 1
            task.on_cpu = task.stolen = False
            del self._on_cpu[task]

    # -- the hypervisor ---------------------------------------------------------------------------

    def _steal(self, task: Task, ns: int) -> None:
        """Takes the CPU away for a while after a slice. The task keeps it, and its figures stand still."""
        self._count_group(task, -1)
        task.stolen = True
        task.timeline.become(self.now_ns, Doing.STOLEN, task.label)
        self._later(task, round(ns * self._stolen), lambda: self._give_back(task, ns))

    def _give_back(self, task: Task, ns: int) -> None:
        task.stolen = False
        self._count_group(task, +1)
        task.timeline.become(self.now_ns, Doing.RUN, task.label)
        self._slice_over(task, ns)

    # -- the quota --------------------------------------------------------------------------------

    def _count_group(self, task: Task, change: int) -> None:
        if task.grouped and self.group.quota_ns is not None:
            self._spend()
            self.group.running += change
            self._watch_quota()

    def _spend(self) -> None:
        group = self.group
        group.left_ns -= group.running * (self.now_ns - group.seen_ns)
        group.seen_ns = self.now_ns

    def _watch_quota(self) -> None:
        group = self.group
        group.epoch += 1
        if group.running:
            epoch = group.epoch
            wait_ns = -(-max(0, group.left_ns) // group.running)
            self.at(self.now_ns + wait_ns, lambda: self._throttle() if group.epoch == epoch else None)

    def _throttle(self) -> None:
        self._spend()
        group = self.group
        if not group.throttled:
            group.throttled, group.throttled_cpus, group.throttled_since_ns = True, group.running, self.now_ns
        self._relabel(Doing.QUEUE, Doing.THROTTLED)
        for task in [t for t in self._on_cpu if t.grouped and not t.stolen]:
            task.remaining_ns -= self.now_ns - task.slice_start_ns
            task.switches += 1
            self._leave_cpu(task)
            self._enqueue(task, task.label)
        self._dispatch()

    def _relabel(self, old: Doing, new: Doing) -> None:
        for task in self._ready:
            if task.grouped and task.timeline.doing[-1] is old:
                task.timeline.become(self.now_ns, new, task.timeline.labels[-1])

    def _period(self) -> None:
        self._spend()
        group = self.group
        _, periods, throttled, throttled_ns = group.history[-1]
        if group.throttled:
            throttled += 1
            throttled_ns += group.throttled_cpus * (self.now_ns - group.throttled_since_ns)
        group.history.append((self.now_ns, periods + 1, throttled, throttled_ns))
        group.left_ns = (group.quota_ns or 0) + min(0, group.left_ns)
        if group.throttled:
            group.throttled = False
            self._relabel(Doing.THROTTLED, Doing.QUEUE)
        self._watch_quota()
        self.at(self.now_ns + PERIOD_NS, self._period)
        self._dispatch()
