"""One load on the fake server, played from the barrier to the end: tasks, calls, the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dbdyno.engines.fake.law import Helper, Law
from dbdyno.engines.fake.machine import Machine, Task
from dbdyno.engines.fake.programs import (
    Driver,
    Schedule,
    Session,
    helper_program,
    idle_label,
    session_program,
)
from dbdyno.engines.fake.trace import CLIENT, Doing, Label

FIRST_PID = 5000
HELPER_PID = 4001
MAIN_PID = 4000
DRIVER_PID = 3000
START_TICKS = 100_000
TAIL_NS = 50_000_000  # the world goes on this long after the last call, so that late reads see it
_NOBODY = Label(None, None, None)


@dataclass(frozen=True)
class Truth:
    """Where a task's time in a span went, in ns; the parts sum up to ``wall``."""

    wall: int
    run: int
    runq: int  # throttled included
    throttled: int
    client: int
    sleep: dict[tuple[str, str], int]  # (class, event) -> ns
    queued_as: dict[tuple[str, str], int]  # run-queue time that hid behind the label of a wait


class World:
    """The machine with helpers, the driver and ``sessions`` sessions, from their connect on."""

    def __init__(self, law: Law, sessions: int, size: int, now_ns: int) -> None:
        self.law = law
        self.size = size
        self.machine = Machine(law.cpus, law.quantum, law.quota, now_ns)
        self.sessions = [Session(n) for n in range(sessions)]
        self.tasks: dict[int, Task] = {}  # session -> its backend
        self.driver = Driver(self.machine, law.driver_cpu)
        self.born_ns = now_ns
        self.schedule: Schedule | None = None
        self.reset_ns: int | None = None
        self._live: list[Session] = []
        driver = _task(DRIVER_PID, "dyno-drive", "driver", None, grouped=False)
        self.driver.task = self.machine.spawn(driver, self.driver.program(), _NOBODY)
        self._spawn_helpers(START_TICKS)

    def play(self, schedule: Schedule) -> None:
        """Lets everything happen: from now to the end of the last session."""
        self.schedule = schedule
        for session in self.sessions:
            pid = FIRST_PID + session.number
            me = [_task(pid, "backend", "session", session.number, grouped=True)]
            program = session_program(session, self.law, self.size, schedule, self.driver, me)
            self.tasks[session.number] = me[0]
            self.machine.spawn(me[0], program, CLIENT)
        self._plan_faults(schedule.start_ns)
        self._live = list(self.sessions)
        self.machine.run_while(self._busy)
        if self.machine.now_ns >= schedule.t1_ns:
            self.machine.run_until(self.machine.now_ns + TAIL_NS)

    def truth(self, session: int, start_ns: int, end_ns: int) -> Truth:
        """Where the time of a session in [start, end) really went."""
        total = dict.fromkeys(Doing, 0)
        sleep: dict[tuple[str, str], int] = {}
        hidden: dict[tuple[str, str], int] = {}
        client = 0
        for start, end, doing, label in self.tasks[session].timeline.pieces(start_ns, end_ns):
            total[doing] += end - start
            event = (label.wait_class or "", label.wait_event or "")
            if doing is Doing.SLEEP and label == CLIENT:
                client += end - start
            elif doing is Doing.SLEEP:
                sleep[event] = sleep.get(event, 0) + end - start
            elif doing in (Doing.QUEUE, Doing.THROTTLED) and label.wait_class is not None:
                hidden[event] = hidden.get(event, 0) + end - start
        runq = total[Doing.QUEUE] + total[Doing.THROTTLED]
        wall = sum(total.values()) - total[Doing.GONE]
        return Truth(wall, total[Doing.RUN], runq, total[Doing.THROTTLED], client, sleep, hidden)

    def _busy(self) -> bool:
        """True until the last session has ended."""
        while self._live and self._live[-1].end_reason is not None:
            self._live.pop()
        return bool(self._live)

    def _spawn_helpers(self, start_ticks: int) -> None:
        for i, helper in enumerate(self.law.helpers):
            task = _task(HELPER_PID + i, helper.name, _role(helper), None, grouped=True)
            task.start_ticks = start_ticks + i
            self.machine.spawn(task, helper_program(helper), idle_label(helper))

    def _plan_faults(self, start_ns: int) -> None:
        for session, after_ns in self.law.lose:
            if session in self.tasks:
                self.machine.at(start_ns + after_ns, partial(self.machine.kill, self.tasks[session]))
        if self.law.down is not None:
            self.machine.at(start_ns + self.law.down, lambda: self._kill(lambda t: t.grouped))
        if self.law.reset is not None:
            self.reset_ns = start_ns + self.law.reset
        if self.law.reuse is not None:
            self.machine.at(start_ns + self.law.reuse, self._replace_helpers)

    def _kill(self, which: Callable[[Task], bool]) -> None:
        for task in list(self.machine.tasks):
            if which(task):
                self.machine.kill(task)

    def _replace_helpers(self) -> None:
        self._kill(lambda t: t.role != "session" and t.grouped)
        self._spawn_helpers(START_TICKS + 50_000)


def _role(helper: Helper) -> str:
    return "other" if helper.name == "other" else f"helper:{helper.name}"


def _task(pid: int, comm: str, role: str, session: int | None, *, grouped: bool) -> Task:
    return Task(pid, pid, START_TICKS + pid, comm, role, session, grouped)
