"""One machine and its tasks, from the connect on: calls, faults, the truth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dbdyno.model.plan.pacing import Pacing
from dbdyno.model.results.brief import MAIN
from dbdyno.model.units import TICK_NS
from tests.fake_engine.calls import Place, io_worker
from tests.fake_engine.law import Helper, Law
from tests.fake_engine.machine import Machine, Program, Task
from tests.fake_engine.paced import Arrivals, paced_program
from tests.fake_engine.programs import (
    Driver,
    Rounds,
    Schedule,
    Session,
    checkpointer_program,
    helper_program,
    idle_label,
    main_program,
    session_program,
    vacuum_program,
    variation,
    visitor_program,
)
from tests.fake_engine.trace import CLIENT, RUNNING, UNLABELLED
from tests.fake_engine.truth import Truth

FIRST_PID = 5000
HELPER_PID = 4001
MAIN_PID = 4000
DRIVER_PID = 3000
LATER_PID = 20_000  # of processes that come later
TAIL_NS = 50_000_000  # the world goes on this long after the last call, so that late reads see it


class World:
    """The machine with helpers, the driver, ``sessions`` sessions and visitors."""

    def __init__(self, law: Law, sessions: int, size: int, now_ns: int) -> None:
        self.law = law
        self.size = size
        self.machine = Machine(law.cpus, law.quantum, law.quota, now_ns, law.stolen)
        self.place = Place(law, size, self.machine, self._spawn_worker)
        self.sessions = [Session(n) for n in range(sessions)]
        self.visitors: list[Session] = []  # sessions of somebody else's load, one for each backend
        self.tasks: dict[int, Task] = {}  # session -> its backend
        self.driver = Driver(self.machine, law.driver_cpu)
        self.born_ns = now_ns
        self.schedule: Schedule | None = None
        self.pacing: tuple[Pacing, int] | None = None  # of a paced load, with its seed
        self.arrivals: Arrivals | None = None
        self.span: tuple[int, int] | None = None  # the measured window
        self.zero_ns = now_ns  # the law's instants count from here
        self.reset_ns: int | None = None
        self.checkpoints_ns: list[int] = []  # when each was done
        self._checkpointer: Task | None = None
        self._live: list[Session] = []
        self._next_pid = LATER_PID
        self._free_pids: list[int] = []
        driver = self._task(DRIVER_PID, "dyno-drive", "driver", grouped=False)
        self.driver.task = self.machine.spawn(driver, self.driver.program(), UNLABELLED)
        self._spawn_server()

    # -- time ---------------------------------------------------------------------------------------

    def play(self, schedule: Schedule) -> None:
        """Lets time pass from now to the end of the last session."""
        self.schedule = schedule
        self.span = (schedule.t0_ns, schedule.t1_ns)
        rounds = Rounds(self.machine, self.sessions) if schedule.rounds else None
        if self.pacing is not None:
            self.arrivals = Arrivals(*self.pacing, schedule)
        for session in self.sessions:
            me = [self._task(FIRST_PID + session.number, "backend", "session", session=session.number)]
            varied = variation(self.place, session.number, len(self.sessions), self._window)
            if self.arrivals is not None:
                program = paced_program(session, self.place, varied, self.arrivals, self.driver, me)
            else:
                program = session_program(session, self.place, varied, schedule, self.driver, rounds, me)
            self.tasks[session.number] = me[0]
            self.machine.spawn(me[0], program, CLIENT)
        self._plan(schedule.start_ns)
        if self.arrivals is not None:
            self.arrivals.plan(self.place)
        self._live = list(self.sessions)
        self.machine.run_while(self._busy)
        if self.machine.now_ns >= schedule.t1_ns:
            self.machine.run_until(self.machine.now_ns + TAIL_NS)

    def look_at(self, t0_ns: int, t1_ns: int) -> None:
        """Announces a window of an observation. The law's instants count from the start of the first."""
        if self.span is None:
            self._plan(t0_ns)
        self.span = (t0_ns, t1_ns)

    def _window(self) -> tuple[int, int] | None:
        return self.span

    def _busy(self) -> bool:
        """Returns true until the last session has ended."""
        while self._live and self._live[-1].end_reason is not None:
            self._live.pop()
        return bool(self._live)

    # -- the truth ----------------------------------------------------------------------------------

    def truth(self, session: int, start_ns: int, end_ns: int, *, workers: bool = False) -> Truth:
        """Returns where the time of a session in [start, end) really went, with its parallel workers if
        asked."""
        me = self.tasks[session]
        tasks = [t for t in self.machine.tasks if t is me or (workers and t.leader is me)]
        return Truth.of((t.timeline for t in tasks), start_ns, end_ns)

    # -- who is there -------------------------------------------------------------------------------

    def _spawn_server(self) -> None:
        law = self.law
        if law.workers or law.foreign or law.vacuum:
            main = self._task(MAIN_PID, "server", MAIN)
            self.machine.spawn(main, main_program(), UNLABELLED)
        self._spawn_helpers()
        for i in range(law.io_workers):
            me = [self._task(HELPER_PID + 200 + i, "io worker", "helper:io worker")]
            self.machine.spawn(me[0], io_worker(self.place, me), UNLABELLED)
        if law.checkpoint:
            program = checkpointer_program(self.machine, law.checkpoint.length_ns, self._checkpointed)
            task = self._task(HELPER_PID + 300, "checkpointer", "helper:checkpointer")
            self._checkpointer = self.machine.spawn(task, program, UNLABELLED)
        for number in range(law.foreign):
            # the first leave one after the other, not all at once
            self._visit(number, None if law.stay is None else law.stay[0] * (number + 1) // law.foreign)

    def _spawn_helpers(self) -> None:
        for i, helper in enumerate(self.law.helpers):
            task = self._task(HELPER_PID + i, helper.name, _role(helper))
            self.machine.spawn(task, helper_program(helper), idle_label(helper))

    def _spawn_worker(self, leader: Task, program: Program) -> Task:
        task = self._later("parallel worker", "helper:parallel worker")
        task.leader = leader
        return self.machine.spawn(task, self._leaving(task, program), RUNNING)

    def _visit(self, number: int, stay_ns: int | None) -> None:
        session = Session(number)
        self.visitors.append(session)
        varied = variation(self.place, number, self.law.foreign, self._window)
        me = [self._later("backend", "other")]
        visit = self._come_again(number, visitor_program(session, self.place, varied, stay_ns, me))
        self.machine.spawn(me[0], self._leaving(me[0], visit), CLIENT)

    def _come_again(self, number: int, program: Program) -> Program:
        yield from program
        stay, away = self.law.stay or (0, 0)
        self.machine.at(self.machine.now_ns + max(1, away), partial(self._visit, number, stay))

    def _later(self, comm: str, role: str) -> Task:
        """Returns a process that starts now, with a pid that is new, or with one used before."""
        if self.law.pids == "reused" and self._free_pids:
            pid = self._free_pids.pop(0)
        else:
            pid, self._next_pid = self._next_pid, self._next_pid + 1
        return self._task(pid, comm, role)

    def _task(
        self, pid: int, comm: str, role: str, *, session: int | None = None, grouped: bool = True
    ) -> Task:
        return Task(pid, pid, self.machine.now_ns // TICK_NS, comm, role, session, grouped)

    def _leaving(self, task: Task, program: Program) -> Program:
        yield from program
        self._free_pids.append(task.pid)

    # -- what happens when --------------------------------------------------------------------------

    def _plan(self, start_ns: int) -> None:
        law, at = self.law, self.machine.at
        self.zero_ns = self.place.zero_ns = start_ns
        for session, after_ns in law.lose:
            if session in self.tasks:
                at(start_ns + after_ns, partial(self._lose, self.tasks[session]))
        if law.stall is not None:
            at(start_ns + law.stall.start_ns, partial(self._stall, law.stall.length_ns))
        if law.down is not None:
            at(start_ns + law.down.start_ns, lambda: self._kill(lambda t: t.grouped))
            if law.down.length_ns:
                at(start_ns + law.down.start_ns + law.down.length_ns, self._spawn_server)
        if law.reset is not None:
            self.reset_ns = start_ns + law.reset
        if law.reuse is not None:
            at(start_ns + law.reuse, self._replace_helpers)
        if law.vacuum is not None:
            at(start_ns + law.vacuum.start_ns, partial(self._vacuum, law.vacuum.length_ns))
        if law.checkpoint is not None:
            at(start_ns + law.checkpoint.start_ns, self._checkpoint)

    def _stall(self, length_ns: int) -> None:
        self.place.stalled_until_ns = self.machine.now_ns + length_ns

    def _vacuum(self, length_ns: int) -> None:
        task = self._later("autovacuum worker", "helper:autovacuum worker")
        program = vacuum_program(self.machine, self.machine.now_ns + length_ns)
        self.machine.spawn(task, self._leaving(task, program), RUNNING)

    def _checkpoint(self) -> None:
        if self._checkpointer is not None:
            self.machine.wake(self._checkpointer)

    def _checkpointed(self) -> None:
        self.checkpoints_ns.append(self.machine.now_ns)

    def _lose(self, task: Task) -> None:
        self.machine.kill(task)
        if self.law.pids == "reused":  # a backend of somebody else gets its pid
            heir = self._task(task.pid, "backend", "other")
            self.machine.spawn(heir, helper_program(Helper("other", 0.3)), CLIENT)

    def _kill(self, which: Callable[[Task], bool]) -> None:
        for task in list(self.machine.tasks):
            if which(task):
                self.machine.kill(task)

    def _replace_helpers(self) -> None:
        named = {_role(h) for h in self.law.helpers}
        self._kill(lambda t: t.role in named and t.pid < HELPER_PID + 200)
        self._spawn_helpers()


def _role(helper: Helper) -> str:
    return "other" if helper.name == "other" else f"helper:{helper.name}"
