"""The load of known truth that is not driven: sessions that connect for one call, observed from outside."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from dbdyno import _core, observe
from dbdyno.analyze.truth import Facts
from dbdyno.conduct.absence import Presence
from dbdyno.conduct.marks import read_mark
from dbdyno.conduct.numbers import Numbers
from dbdyno.conduct.observed import Window, closed
from dbdyno.drive import Interrupt
from dbdyno.model.errors import TargetError
from dbdyno.model.plan import Experiment, Observation, Plan
from dbdyno.model.protocols import Server
from dbdyno.model.raw import RawCell
from dbdyno.model.truth import TruthCase
from dbdyno.model.units import NS_PER_S

LEAD_NS = NS_PER_S // 2
STEP_S = 0.05


@dataclass
class Sessions:
    """``case.sessions`` threads that open one session after another, ``case.rate`` a second in all."""

    server: Server
    case: TruthCase
    ended: list[tuple[int, int]] = field(default_factory=list)  # when, CPU time (ns)
    trouble: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._open, args=(n,)) for n in range(self.case.sessions)]
        for thread in threads:
            thread.start()
        return threads

    def _open(self, number: int) -> None:
        pause_ns = NS_PER_S * self.case.sessions // self.case.rate
        due_ns = _core.now_ns() + number * pause_ns // self.case.sessions
        while not self.over.wait(max(0, due_ns - _core.now_ns()) / NS_PER_S):
            due_ns = max(due_ns + pause_ns, _core.now_ns() - pause_ns)
            try:
                used_ns = self.server.brief_session(self.case)
            except TargetError as e:
                self.trouble.append(e.message)
                return
            if used_ns is None:
                self.trouble.append("the CPU time of a session's process cannot be read")
                return
            self.ended.append((_core.now_ns(), used_ns))

    def cpus(self, t0_ns: int, t1_ns: int) -> float:
        """CPUs that the sessions used which ended in that time."""
        return sum(used for at, used in self.ended if t0_ns < at <= t1_ns) / (t1_ns - t0_ns)


def observed_briefly(
    server: Server, case: TruthCase, cpus: float, measure_ns: int, interrupt: Interrupt
) -> tuple[RawCell, Facts]:
    """One window of an observation beside them, and what they used. Raises :class:`TargetError`."""
    experiment = Experiment(name="selftest", observation=Observation())
    plan = Plan(experiment=experiment, cpus=cpus, call_target_ns=None, cells=(), expected_ns=0)
    presence = Presence(server)
    watch = observe.open_observation(server, Observation(), {})
    t0_ns = _core.now_ns() + LEAD_NS
    window = Window(watch, t0_ns, t0_ns + measure_ns)
    sessions = Sessions(server, case)
    watch.start(window.t0_ns, window.t1_ns)
    threads = sessions.start()
    try:
        _until(window.t0_ns, interrupt)
        window.first = read_mark(server, "t0")
        _until(window.t1_ns, interrupt)
        last = read_mark(server, "t1")
    finally:
        watch.stop()
        sessions.over.set()
        for thread in threads:
            thread.join()
    if sessions.trouble:
        raise TargetError(f"{case.name}: {sessions.trouble[0]}", "run dbdyno on the server's host")
    away = presence.holes(window.t0_ns, window.t1_ns)
    raw = closed(server, plan, window, last, None, 1, Numbers(), away, now_ns=_core.now_ns())
    used = sessions.cpus(window.t0_ns, window.t1_ns)
    return raw, Facts(case.sessions, cpus, None, None, None, used)


def _until(at_ns: int, interrupt: Interrupt) -> None:
    while (left_ns := at_ns - _core.now_ns()) > 0:
        interrupt.check()
        time.sleep(min(STEP_S, left_ns / NS_PER_S))
