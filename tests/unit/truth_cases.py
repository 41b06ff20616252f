"""Cases of known truth on the fake machine: laws, ladders, and their figures by arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Parts = Mapping[str, float]
"""Account ("run", "runq", "client", "Class/Event") -> seconds per second, all sessions in sum."""


@dataclass(frozen=True)
class Case:
    name: str
    dsn: str
    sessions: int
    parts: Callable[[], Parts]  # by arithmetic, from the law alone
    within: float = 0.002  # of wall: calls that straddle the window's ends, round robin


def _parts(**shares: float) -> Callable[[], Parts]:
    return lambda: shares


CPUS = 4
MIXTURE = "call=cpu:3ms+IO/DataFileRead:2ms+cpu:1ms+Lock/tuple:4ms,spread=0.3"

CASES = (
    Case("asleep", "fake:cpus=4,call=Timeout/PgSleep:1s", 4, lambda: {"Timeout/PgSleep": 4.0}),
    # CPU loops: CPUs run, all others wait for one
    Case("spin-1x", "fake:cpus=4,cpu=100ms", 4, _parts(run=4.0, runq=0.0)),
    Case("spin-2x", "fake:cpus=4,cpu=100ms", 8, _parts(run=4.0, runq=4.0)),
    Case("spin-4x", "fake:cpus=4,cpu=100ms", 16, _parts(run=4.0, runq=12.0)),
    Case("quota", "fake:cpus=4,cpu=100ms,quota=2", 4, _parts(run=2.0, runq=2.0)),
    # one holder at a time sleeps 20 ms and then works 2 ms outside, while the others wait: cycle 8 x 20 ms
    Case(
        "convoy",
        "fake:cpus=8,cpu=2ms,lock=Lock/advisory:0s,hold=Timeout/PgSleep:20ms",
        8,
        lambda: {"Timeout/PgSleep": 1.0, "run": 8 * 2 / 160, "Lock/advisory": 8 - 1 - 8 * 2 / 160},
    ),
    # one known holder: the others come by every 40 ms and wait for the rest of its 200 ms
    Case(
        "convoy-one-holder",
        "fake:cpus=8,call=cpu:1ms+Timeout/PgSleep:39ms,lock=Lock/advisory:1ms,hold=Timeout/PgSleep:200ms,"
        "holders=1,spread=0.3",
        4,
        dict,
    ),
    Case("think", "fake:cpus=4,cpu=4ms,think=16ms", 4, _parts(run=0.8, runq=0.0, client=3.2)),
    Case(
        "mixture",
        f"fake:cpus=4,{MIXTURE}",
        4,
        lambda: {"run": 1.6, "IO/DataFileRead": 0.8, "Lock/tuple": 1.6, "runq": 0.0},
    ),
    # half of the read is the CPU's, under the label of the wait
    Case(
        "mixture-os-cache",
        f"fake:cpus=4,{MIXTURE},io_cpu=0.5",
        4,
        lambda: {"run": 2.0, "IO/DataFileRead": 0.4, "Lock/tuple": 1.6, "runq": 0.0},
    ),
    # 4 ms of CPU a call at 2 CPUs: 500 calls a second, asleep 2 ms and 4 ms each; the rest is CPU WAIT
    Case(
        "mixture-crowded",
        f"fake:cpus=2,{MIXTURE}",
        12,
        lambda: {"run": 2.0, "IO/DataFileRead": 1.0, "Lock/tuple": 2.0, "runq": 7.0},
    ),
    # All are in one flush: 10 us of CPU, 4 ms, 10 us of its leader, whose next call of 400 us ends first;
    # the others use 10 us and 400 us, and wait for the leader else.
    Case(
        "commit",
        "fake:cpus=8,cpu=400us,commit=IO/WalSync:4ms",
        8,
        lambda: {"IO/WalSync": 4 / 4.42, "run": 3.29 / 4.42, "LWLock/WALWrite": 8 - 7.29 / 4.42},
    ),
    # all at once: arithmetic alone has no answer here
    Case(
        "everything",
        "fake:cpus=3,call=cpu:2ms+IO/DataFileRead:3ms+LWLock/BufferMapping:1ms,lock=Lock/tuple:500us,"
        "commit=IO/WalSync:1ms,think=2ms,driver=50us,io_cpu=0.3,idle_cpu=0.2,spread=0.4,unequal=0.5,drift=0.3,"
        "quota=2.2,error_every=7,late=5ms,gap=5s+1s,helper=checkpointer:0.1,vacuum=4s+2s,checkpoint=6s+3s",
        10,
        dict,
    ),
    Case("commit-uneven", "fake:cpus=2,cpu=800us,commit=IO/WalSync:4ms,spread=0.6", 8, dict),
)

BY_NAME = {case.name: case for case in CASES}

# Figures of these loads by "active with no wait event is CPU" and by "elapsed less CPU is waiting".
SPIN_1X = BY_NAME["spin-1x"].dsn
SPIN_2X = BY_NAME["spin-2x"].dsn
OLTP = "fake:cpus=2,cpu=500us,idle_cpu=0.6,driver=100us"
"""Calls of 0.5 ms, for 0.3 ms with the state idle, and 0.1 ms of the driver: 2 / 0.6 ms calls a
second when both CPUs are full."""
