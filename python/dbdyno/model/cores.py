"""How many cores were in use: from CPU-by-CPU figures and the topology, or by POWER's registers. Pure.

PURR and SPURR (POWER): the processor utilization of resources register counts, thread by thread, the part of
the core's dispatch cycles that the thread had, at the rate of the time base; of all threads of a core
together it grows as the time base does. Its idle part is kept apart (Documentation/ABI/testing/
sysfs-devices-system-cpu: purr, spurr, idle_purr, idle_spurr). SPURR is the same scaled with the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dbdyno.model.errors import UsageError
from dbdyno.model.power import REGISTERS, PurrRead


@dataclass(frozen=True)
class CoreSeconds:
    """CPU time per second of a machine or a part of it: by threads as charged, and by cores in use."""

    threads: float
    cores: float | None
    low: float
    high: float


def cores_bracket(busy: Mapping[int, float], siblings: Sequence[Sequence[int]]) -> CoreSeconds:
    """From each CPU's busy share (0..1) and the CPUs of each core: core-seconds per second.

    A core is in use while any of its threads is: at least as long as its busiest thread, at most as long as
    all of them one after the other, or always. Without SMT both are the same. ``cores`` is known only then.
    CPUs of which nothing is known count as idle.
    """
    shares = [[busy[cpu] for cpu in core if cpu in busy] for core in siblings]
    low = sum(max(core, default=0.0) for core in shares)
    high = sum(min(1.0, sum(core)) for core in shares)
    high = max(low, high)
    exact = all(len(core) <= 1 for core in siblings)
    return CoreSeconds(sum(map(sum, shares)), low if exact else None, low, high)


def cores_met(sweeps: Iterable[Iterable[int]], siblings: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Per look at the machine (the CPUs found busy together): how many threads, and on how many cores."""
    core_of = {cpu: number for number, core in enumerate(siblings) for cpu in core}
    found = []
    for sweep in sweeps:
        busy = {cpu for cpu in sweep if cpu in core_of}
        found.append((len(busy), len({core_of[cpu] for cpu in busy})))
    return found


# -- POWER ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PurrUse:
    """What the registers say of the time between two reads."""

    cores: float | None
    """Core-seconds per second in use: (purr - idle_purr) / time base, as lparstat(8) has it; ``None``: the
    kernel (before 5.8) keeps no idle part, and purr alone counts idle time, too."""
    entitled: float
    """Core-seconds per second dispatched, idle ones included: purr / time base (lparstat's physc)."""
    speed: float | None
    """Clock against the nominal one: spurr / purr of the busy part; ``None``: unknown."""


def purr_use(first: PurrRead, last: PurrRead) -> PurrUse:
    """Of all CPUs that are in both reads. Raises :class:`UsageError` where no time passed between them.

    ``idle_purr`` that outgrew ``purr`` is cut to it, as lparstat(8) does: they are read one after the other.
    """
    ticks = (last.at_s - first.at_s) * last.timebase_hz
    if ticks <= 0:
        raise UsageError("two reads of PURR without time between them", "read them at least a second apart")
    purr, idle, spurr, idle_scaled = (_grown(first, last, r) for r in REGISTERS)
    if purr is None or idle is None:
        return PurrUse(None, (purr or 0.0) / ticks, None)
    busy = purr - min(idle, purr)
    known = spurr is not None and idle_scaled is not None and busy > 0
    speed = (spurr - min(idle_scaled, spurr)) / busy if known else None  # type: ignore[operator,type-var]
    return PurrUse(busy / ticks, purr / ticks, speed)


def _grown(first: PurrRead, last: PurrRead, register: str) -> float | None:
    """Of all CPUs that are in both reads; ``None`` as soon as one of them does not tell."""
    pairs = [
        (getattr(first.cpus[c], register), getattr(last.cpus[c], register))
        for c in sorted(first.cpus.keys() & last.cpus.keys())
    ]
    return None if any(None in p for p in pairs) else float(sum(b - a for a, b in pairs))
