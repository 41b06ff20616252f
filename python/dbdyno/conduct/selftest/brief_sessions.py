"""The load of known truth without a driver: sessions that connect for one call, observed from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dbdyno import _core, observe
from dbdyno.conclude.ground_truth import Brief, Facts
from dbdyno.conduct.measure.cell import read_mark
from dbdyno.conduct.measure.observed import Closing, Numbers, Window, closed
from dbdyno.conduct.measure.presence import Presence
from dbdyno.conduct.selftest.other_processes import Meter
from dbdyno.drive import Interrupt
from dbdyno.model.engine.protocols import Server, needed
from dbdyno.model.engine.truth import TruthCase
from dbdyno.model.errors import TargetError
from dbdyno.model.plan.plan import Experiment, Observation, Plan
from dbdyno.model.results.raw import RawCell
from dbdyno.model.units import NS_PER_S, TICK_NS

LEAD_NS = NS_PER_S // 2
STEP_S = 0.05
ENDS = 60
"""Sessions without a call whose end is measured: the rounding of their sum to ticks is within 5 % of it."""
_CURE = "run dbdyno on the server's host"
REAPED_S, PATIENCE_S = 0.3, 10.0
"""All processes have ended once none did for this time; and the limit of waiting for that."""


@dataclass
class Sessions:
    """``case.sessions`` threads that open one session after another, ``case.rate`` a second in all."""

    server: Server
    case: TruthCase
    ended: list[tuple[int, int]] = field(default_factory=list)  # end of a session, its CPU time (ns)
    trouble: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    most: int | None = None  # number of sessions; None if they go on until the end

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
                used_ns = needed(self.server.truths, "run a self-test").brief_session(self.case)
            except TargetError as e:
                self.trouble.append(e.message)
                return
            if used_ns is None:
                self.trouble.append("the CPU time of a session's process cannot be read")
                return
            self.ended.append((_core.now_ns(), used_ns))
            if self.most is not None and len(self.ended) >= self.most:
                self.over.set()

    def check(self) -> None:
        """Raises :class:`TargetError` if one failed."""
        if self.trouble:
            raise TargetError(f"{self.case.name}: {self.trouble[0]}", _CURE)

    def used(self, t0_ns: int, t1_ns: int, end_ns: float) -> Brief:
        """Returns the CPU time of the sessions whose call ended in that time, each with its exit."""
        used_ns = [used for at, used in self.ended if t0_ns < at <= t1_ns]
        span_ns = t1_ns - t0_ns
        return Brief(
            (sum(used_ns) + len(used_ns) * end_ns) / span_ns, NS_PER_S * len(used_ns) / span_ns, end_ns
        )


def end_of_one(server: Server, case: TruthCase, main_pid: int) -> float:
    """Returns the CPU time in ns of a session's exit, which no reading of a session contains.

    It runs sessions without a call. The CPU time that the main process accounts for them, less the readings
    before their exits, is that of the exits. Raises :class:`TargetError`.
    """
    empty = Sessions(server, case.model_copy(update={"sql": ""}), most=ENDS)
    before_ns = _children_ns(main_pid)
    for thread in empty.start():
        thread.join()
    empty.check()
    counted_ns = _settled_ns(main_pid) - before_ns - sum(used for _, used in empty.ended)
    return max(0.0, counted_ns / len(empty.ended))


def _settled_ns(main_pid: int) -> int:
    until_ns = _core.now_ns() + round(PATIENCE_S * NS_PER_S)
    counted_ns = _children_ns(main_pid)
    while _core.now_ns() < until_ns:
        time.sleep(REAPED_S)
        before_ns, counted_ns = counted_ns, _children_ns(main_pid)
        if before_ns == counted_ns:
            break
    return counted_ns


def _children_ns(main_pid: int) -> int:
    """Returns the CPU time in ns of children that ended and were waited for: proc_pid_stat(5), fields 16 and
    17."""
    try:
        text = Path(f"/proc/{main_pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError as e:
        raise TargetError(f"the server's main process {main_pid}: {e.strerror}", _CURE) from e
    words = text.rsplit(")", 1)[1].split()
    return (int(words[13]) + int(words[14])) * TICK_NS


def lead_ns(case: TruthCase) -> int:
    """Returns the time in ns that the case takes besides the window: for the sessions without a call, until
    all have ended."""
    return LEAD_NS + NS_PER_S * ENDS // case.rate + 2 * round(REAPED_S * NS_PER_S)


def observed_briefly(
    server: Server,
    case: TruthCase,
    cpus: float,
    measure_ns: int,
    interrupt: Interrupt,
    tick: Callable[[str], None],
) -> tuple[RawCell, Facts]:
    """Observes the sessions for one window. Returns the cell, and the CPU time that they used. Raises
    :class:`TargetError`."""
    experiment = Experiment(name="selftest", observation=Observation())
    plan = Plan(experiment=experiment, cpus=cpus, call_target_ns=None, cells=(), expected_ns=0)
    main_pid = server.facts().main_pid
    end_ns = 0.0 if main_pid is None else end_of_one(server, case, main_pid)
    presence = Presence(server)
    watch = observe.open_observation(server, Observation(), {})
    t0_ns = _core.now_ns() + LEAD_NS
    window = Window(watch, t0_ns, t0_ns + measure_ns)
    sessions = Sessions(server, case)
    watch.start(window.t0_ns, window.t1_ns)
    threads = sessions.start()
    meter = Meter(main_pid, window.t0_ns, window.t1_ns)
    try:
        _until(window.t0_ns, interrupt, lambda: tick("settling"))
        window.first = read_mark(server, "t0")
        _until(window.t1_ns, interrupt, lambda: tick("measuring"))
        last = read_mark(server, "t1")
    finally:
        watch.stop()
        cpu_used = meter.used()
        sessions.over.set()
        for thread in threads:
            thread.join()
    sessions.check()
    away = presence.holes(window.t0_ns, window.t1_ns)
    raw = closed(server, plan, window, Numbers(), Closing(1, _core.now_ns(), last, away=away))
    used = sessions.used(window.t0_ns, window.t1_ns, end_ns)
    return raw, Facts(case.sessions, cpus, cpu_used, brief=used)


def _until(at_ns: int, interrupt: Interrupt, tick: Callable[[], None]) -> None:
    while (left_ns := at_ns - _core.now_ns()) > 0:
        interrupt.check()
        tick()
        time.sleep(min(STEP_S, left_ns / NS_PER_S))
