"""One load by the drivers of several hosts: it starts at one instant, and has tables like those of one
driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import polars as pl

from dbdyno import _core
from dbdyno._core import DriverError
from dbdyno.model.engine.protocols import Load, LoadMaker, Progress
from dbdyno.model.errors import HostLost, UsageError
from dbdyno.model.schema.tables import CoreColumn, rows
from dbdyno.remote import merging
from dbdyno.remote.clocks import HostClock
from dbdyno.remote.load import RemoteLoad
from dbdyno.remote.shares import Part, parts, sessions_of, share_of

_TABLE = "drivers"
_STEP_S = 0.02  # wait for one driver, before the others are looked at
_LOOK_NS = 1_000_000_000  # interval of reading the drivers' CPU time
_PROGRESS_NS = 250_000_000
_Read = tuple[int, int, int]
"""Time on our clock, run time and run-queue time, in ns."""
_AT_ONCE = 32  # most drivers that are called in parallel
_LEAD_WAYS, _LEAD_EACH_NS = 10, 2_000_000
"""An order is given time for this number of the longest round trip, and this time per driver."""


@dataclass(frozen=True)
class Driver:
    """A host that drives; ``clock=None``: this host. ``make`` creates its loads."""

    host: str
    make: LoadMaker
    weight: float = 1.0
    cpus: int | None = None
    clock: HostClock | None = None


@dataclass
class _Driving:
    """A driver with its part of the load."""

    driver: Driver
    part: Part
    load: Load
    lost: str | None = None
    over: bool = False
    threads: int | None = None
    cpu: tuple[_Read, _Read] | None = None
    """CPU time of its threads: after connecting, and at the latest read."""
    backends: Sequence[int] = ()
    """The server's processes that serve its sessions, as last reported."""


def _own(spec: Mapping[str, Any], driver: Driver, part: Part, all_: Sequence[Part]) -> dict[str, Any]:
    """Returns a driver's specification. CPU time of the server's processes is read on this host only."""
    own = share_of(spec, part, all_)
    return own | {"log_cpu": False} if driver.clock is not None and own.get("log_cpu") else own


def maker(drivers: Sequence[Driver]) -> LoadMaker:
    """Returns a function that creates loads spread over ``drivers`` by their weights."""

    def make(engine: str, spec: Mapping[str, Any]) -> Load:
        return SpreadLoad(drivers, engine, spec)

    return make


class SpreadLoad:
    """``dbdyno.model.engine.protocols.Load`` of several drivers; sessions are numbered in the order of the
    drivers.

    If a driver is lost, the phase fails: the other drivers are stopped, and when they have ended,
    :meth:`wait` raises :class:`HostLost` once. Then :meth:`finish` and :meth:`tables` continue with the
    others, and table ``drivers`` has the lost one with its status. Before the start, all drivers are aborted
    instead.
    """

    def __init__(self, drivers: Sequence[Driver], engine: str, spec: Mapping[str, Any]) -> None:
        sizes = parts(sessions_of(spec), [d.weight for d in drivers])
        used = [(d, p) for d, p in zip(drivers, sizes, strict=True) if p.sessions]
        if not used:
            raise UsageError("no driver has a session", "give drivers weights above 0")
        shares = [p for _, p in used]
        self._all = [_Driving(d, p, d.make(engine, _own(spec, d, p, shares))) for d, p in used]
        self._pool = ThreadPoolExecutor(min(_AT_ONCE, len(self._all)), thread_name_prefix="dbdyno-spread")
        self._failure: Exception | None = None
        self._barrier_ns: int | None = None
        self._last_read_ns = 0

    # -- phases ---------------------------------------------------------------------------------
    def connect(self) -> None:
        self._begin(lambda d: d.load.connect())

    def start(self, start_ns: int, t0_ns: int, t1_ns: int) -> None:
        self._barrier_ns = start_ns
        self._begin(lambda d: d.load.start(start_ns, t0_ns, t1_ns))

    @property
    def lead_ns(self) -> int:
        """Time in which an order surely reaches all drivers. Round trips can be much slower than at their
        best."""
        ways = [d.driver.clock.round_trip_ns for d in self._remaining() if d.driver.clock is not None]
        return _LEAD_WAYS * max(ways, default=0) + _LEAD_EACH_NS * len(ways)

    def finish(self) -> None:
        self._begin(lambda d: d.load.finish())

    def _begin(self, phase: Callable[[_Driving], None]) -> None:
        for driving in self._remaining():
            driving.over = False
        self._each(phase)

    def wait(self, timeout_s: float) -> bool:
        until_ns = _core.now_ns() + round(timeout_s * 1e9)
        self._look()
        while True:
            for driving in self._remaining():
                driving.over = driving.over or self._is_over(driving, until_ns)
            if all(d.over for d in self._remaining()):
                break
            if _core.now_ns() >= until_ns:
                return False
        self._each(_settle)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return True

    def _look(self) -> None:
        """Reads the drivers' CPU time once a second while calls are made."""
        now_ns = _core.now_ns()
        if self._barrier_ns is not None and now_ns >= max(self._barrier_ns, self._last_read_ns + _LOOK_NS):
            self._last_read_ns = now_ns
            self._each(_look)

    def _is_over(self, driving: _Driving, until_ns: int) -> bool:
        """Waits only a little, since the ends of the others are to be noticed, too."""
        left_s = (until_ns - _core.now_ns()) / 1e9
        try:
            return driving.load.wait(max(0.0, min(_STEP_S, left_s)))
        except (DriverError, HostLost) as e:
            self._lose(driving, e)
            return True

    def _lose(self, driving: _Driving, error: Exception) -> None:
        """Notes the loss and ends the other drivers: their further calls would not belong to this load."""
        driving.lost = error.why if isinstance(error, HostLost) else str(error.args[1])
        if isinstance(error, DriverError):
            kind, message, code, session = error.args
            number = None if session is None else session + driving.part.first
            error = DriverError(kind, message, code, number)
        self._failure = self._failure or error
        if self._barrier_ns is not None:
            self.stop()
        else:
            self.abort()

    def _each(self, act: Callable[[_Driving], Any]) -> None:
        """Calls ``act`` for all remaining drivers, in parallel."""
        remaining = list(self._remaining())
        for driving, future in [(d, self._pool.submit(act, d)) for d in remaining]:
            try:
                future.result()
            except HostLost as e:
                self._lose(driving, e)

    def _remaining(self) -> Iterator[_Driving]:
        return (d for d in self._all if d.lost is None)

    def stop(self) -> None:
        for driving in self._remaining():
            driving.load.stop()

    def abort(self) -> None:
        for driving in self._remaining():
            driving.load.abort()

    # -- figures --------------------------------------------------------------------------------
    @property
    def progress_every_ns(self) -> int:
        """Least interval: each call sends a message to every driver, whose CPU time the load then lacks."""
        return _PROGRESS_NS if any(d.driver.clock is not None for d in self._all) else 0

    def progress(self) -> Progress:
        of_drivers = self._answers(lambda d: Progress(*d.load.progress()))
        sums = (sum(column) for column in zip(*of_drivers, strict=True))
        whole = Progress(*sums) if of_drivers else Progress(0, 0, 0, 0)
        return whole._replace(oldest_ns=max((p.oldest_ns for p in of_drivers), default=0))

    def live_durations(self) -> Sequence[tuple[int, int]]:
        counts: dict[int, int] = {}
        for durations in self._answers(lambda d: d.load.live_durations()):
            for ns, count in durations:
                counts[ns] = counts.get(ns, 0) + count
        return sorted(counts.items())

    def backends(self) -> Sequence[tuple[int, int, int]]:
        def own_backends(d: _Driving) -> list[tuple[int, int, int]]:
            backends = d.load.backends()
            d.backends = [pid for _, pid, _ in backends]
            return [(session + d.part.first, pid, tid) for session, pid, tid in backends]

        return [task for tasks in self._answers(own_backends) for task in tasks]

    def left_by(self, host: str) -> Sequence[int]:
        """Returns the server's processes that may still serve sessions of a lost driver."""
        return [pid for d in self._all if d.lost is not None and d.driver.host == host for pid in d.backends]

    def threads(self) -> Sequence[int]:
        """Returns the drivers' threads in this process."""
        return [tid for tids in self._answers(lambda d: d.load.threads()) for tid in tids]

    def tasks_here(self) -> Sequence[tuple[int, int]]:
        """Returns (pid, tid) of drivers' threads in other processes of this host."""
        of_drivers = self._answers(lambda d: d.load.tasks_here() if isinstance(d.load, RemoteLoad) else ())
        return [task for tasks in of_drivers for task in tasks]

    def now_ns(self) -> int:
        return _core.now_ns()

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        return self._tables(lambda d: d.load.tables())

    def window_tables(self, window: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        return self._tables(lambda d: d.load.window_tables(window))  # type: ignore[attr-defined]

    def _answers(self, ask: Callable[[_Driving], Any]) -> list[Any]:
        """Returns the answers of the remaining drivers, without one that is lost meanwhile: :meth:`wait`
        reports it."""
        answers = []

        def note_answer(driving: _Driving) -> None:
            with suppress(HostLost):
                answers.append((driving.part.first, ask(driving)))

        self._each(note_answer)
        return [answer for _, answer in sorted(answers, key=lambda entry: entry[0])]

    def _tables(self, ask: Callable[[_Driving], merging.Core]) -> dict[str, dict[str, CoreColumn]]:
        of_drivers = self._answers(lambda d: (d.part.first, ask(d)))
        return merging.merge(of_drivers) | {_TABLE: merging.core(self.drivers())}

    def drivers(self) -> pl.DataFrame:
        """Returns table ``drivers`` as of now."""
        return rows(_TABLE, [_row(driving, self._barrier_ns) for driving in self._all])


def _row(driving: _Driving, barrier_ns: int | None) -> dict[str, Any]:
    driver, clock = driving.driver, driving.driver.clock
    mapping = None if clock is None else clock.mapping()
    return {
        "host": driver.host,
        "first_session": driving.part.first,
        "sessions": driving.part.sessions,
        "threads": driving.threads,
        "cpus": driver.cpus,
        **_spent(driving.cpu),
        "clock_offset_ns": None if mapping is None else mapping.last.ns,
        "clock_drift": None if mapping is None else mapping.drift,
        "clock_bound_ns": None if mapping is None else mapping.bound_ns,
        "round_trip_ns": None if clock is None else clock.round_trip_ns,
        "barrier_ns": barrier_ns,
        "status": "ok" if driving.lost is None else "lost",
        "detail": driving.lost,
    }


def _settle(driving: _Driving) -> None:
    """Measures the clock of the driver and reads its CPU time, after each phase."""
    if driving.driver.clock is not None:
        driving.driver.clock.measure()
    _look(driving)


def _look(driving: _Driving) -> None:
    """Reads the number of the driver's threads and their CPU time. The threads end with the last call."""
    load, at_ns = driving.load, _core.now_ns()
    if isinstance(load, RemoteLoad):
        reads = load.read_threads()
    else:
        reads = [_core.read_task(os.getpid(), tid) for tid in load.threads()]
    if reads and all(r["status"] == "ok" for r in reads):
        driving.threads = len(reads)
        spent = (at_ns, sum(r["run_ns"] for r in reads), sum(r["runq_ns"] for r in reads))
        driving.cpu = (driving.cpu[0] if driving.cpu else spent, spent)


def _spent(cpu: tuple[_Read, _Read] | None) -> dict[str, int | None]:
    """Returns the CPU time from the end of connecting, when threads are parked, to the latest read."""
    if cpu is None or cpu[0] == cpu[1]:
        return {"run_ns": None, "runq_ns": None, "read_ns": None}
    (_, run_ns, runq_ns), (at_ns, run_end_ns, runq_end_ns) = cpu
    return {"run_ns": run_end_ns - run_ns, "runq_ns": runq_end_ns - runq_ns, "read_ns": at_ns}
