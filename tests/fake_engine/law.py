"""The law of a fake server: the cost of every call, the machine, and the faults. DSN: dsn.py."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

_HOUR_NS = 3_600_000_000_000


class Wait(NamedTuple):
    """A named sleep of a call."""

    wait_class: str
    wait_event: str
    ns: int


class Burst(NamedTuple):
    """CPU time of a call, under no label."""

    ns: int


class Helper(NamedTuple):
    """A process of the server that takes ``share`` of a CPU; ``other`` is somebody else's backend."""

    name: str
    share: float


class Span(NamedTuple):
    """A time from an instant on (counted from the barrier), of a given length."""

    start_ns: int
    length_ns: int


class Stalls(NamedTuple):
    """Stalls of a length, one at the end of each period from the barrier on, under the label of a wait."""

    wait: Wait
    every_ns: int


@dataclass(frozen=True)
class Law:
    """All durations in nanoseconds. The instants of faults count from the barrier."""

    # the machine
    cpus: int = 4
    quantum: int = 4_000_000  # time slice
    quota: float | None = None  # CPUs for sessions and helpers together, in periods of 100 ms
    steal: float = 0.0  # CPUs; reported in /proc/stat only
    stolen: float = 0.0  # part of the time of every task on a CPU; reported in /proc/stat, too
    # a call
    cpu: int = 1_000_000  # CPU time of one unit of a call's size
    waits: tuple[Wait, ...] = ()  # after the CPU part, one after the other
    call: tuple[Wait | Burst, ...] = ()  # instead of cpu and waits: one unit of a call's size, part by part
    lock: Wait | None = None  # then this much CPU time under one lock that all sessions share
    hold: Wait | None = None  # and under the lock this sleep,
    holders: int | None = None  # of the first so many sessions only
    commit: Wait | None = None  # the last part: the log is flushed, one flush at a time for all who wait
    idle_cpu: float = 0.0  # part of a call's first CPU part during which the server still says idle
    io_cpu: float = 0.0  # part of a wait of class IO that is CPU: a read from the OS cache
    io_workers: int = 0  # waits of class IO are done by so many processes of the server
    workers: int = 0  # parallel workers that share the CPU parts of each call with their leader
    system: float = 0.25  # part of the CPU time that is kernel time
    # sessions
    think: int = 0  # between two calls of a session
    driver_cpu: int = 0  # of the driver's one thread, before each call
    exponential: bool = False  # CPU and waits of a call vary exponentially around these means
    spread: float = 0.0  # CPU and waits of a call vary evenly by this part, up and down
    unequal: float = 0.0  # calls of the last session take longer by this part, those between in proportion
    drift: float = 0.0  # calls at the window's end take longer by this part, those within in proportion
    maximum: int = 10_000  # connections
    foreign: int = 0  # sessions of somebody else's load under the same law
    stay: Span | None = None  # of a foreign session: leaves after so long; the next comes so much later
    pids: str = "new"  # reused: a new backend gets the pid of the one that left before
    noise: tuple[float, float] = (0.0, 0.0)  # deviations of CPU and waits between starts, and between loads
    slope: float = 0.0  # calls take longer by this part after an hour
    seed: int = 1
    # the server's own processes
    helpers: tuple[Helper, ...] = ()
    vacuum: Span | None = None  # an autovacuum worker
    checkpoint: Span | None = None
    # the observers
    skew: int = 50_000  # from a sample's wait event to its task state, where the server is asked
    late: int = 0  # samples begin late by this much in the mean
    trace: bool = True  # scheduler trace permitted
    word: bool = True  # wait event word permitted
    delayacct: bool = True  # block I/O delay accounted
    # faults
    lose: tuple[tuple[int, int], ...] = ()  # (session, instant)
    stall: Span | None = None  # calls that begin meanwhile do nothing until it is over
    stalls: Stalls | None = None  # the same again and again, under a label
    down: Span | None = None  # the server goes away; back after so long (0: never)
    error_every: int = 0  # every n-th call of a session fails
    reset: int | None = None  # counters of the group and the server start again at 0
    reuse: int | None = None  # helpers end and others get their pids
    gap: tuple[int, int] | None = None  # samples in between are lost

    @property
    def parts(self) -> tuple[Wait | Burst, ...]:
        """Returns the parts of one unit of a call's size, without lock and commit."""
        return self.call or (Burst(self.cpu), *self.waits)

    @property
    def unit_cpu_ns(self) -> int:
        """Returns CPU time of one unit."""
        return sum(p.ns for p in self.parts if isinstance(p, Burst))

    def with_noise(self, start: int, load: int, age_ns: int) -> Law:
        """Returns the law of a load, with the factor of its start of the server and its own."""
        if self.noise == (0.0, 0.0) and not self.slope:
            return self
        deviations = zip(self.noise, (f"start {start}", f"load {load}"), strict=True)
        sizes = [d * Random(f"{self.seed} {name}").gauss(0, 1) for d, name in deviations]
        factor = math.exp(sum(sizes)) * (1 + self.slope * age_ns / _HOUR_NS)
        waits = tuple(w._replace(ns=round(w.ns * factor)) for w in self.waits)
        call = tuple(p._replace(ns=round(p.ns * factor)) for p in self.call)
        return dataclasses.replace(self, cpu=round(self.cpu * factor), waits=waits, call=call)


def describe(law: Law) -> dict[str, str]:
    """Returns the law as settings by name."""
    return {f.name: str(getattr(law, f.name)) for f in dataclasses.fields(law)}
