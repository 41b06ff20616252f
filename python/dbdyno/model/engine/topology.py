"""The machine as its operating system shows it: sockets, NUMA nodes, cores, caches, and what we may use.

Numbers are the kernel's (Documentation/admin-guide/cputopology.rst). ``None`` is unknown, never "none there".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from dbdyno.model.errors import UsageError

Why = Literal["offline", "cpuset", "affinity"]
SmtState = Literal["on", "off", "forceoff", "notsupported", "notimplemented"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class LogicalCpu(_Frozen):
    """One hardware thread, as the kernel numbers it."""

    cpu: int
    online: bool
    socket: int | None = None  # physical_package_id; where the firmware gives none, numbered as lscpu does
    die: int | None = None  # die_id, within its socket
    core: int | None = None  # unique on the machine, in the order of the first CPU: lscpu's CORE
    core_id: int | None = None  # the kernel's own: repeats from socket to socket
    node: int | None = None
    thread: int | None = None  # 0, 1, ...: its place within the core
    caches: tuple[int, ...] = ()  # places in Topology.caches
    allowed: bool | None = None  # whether this process may run here
    why_not: Why | None = None
    min_mhz: float | None = None
    max_mhz: float | None = None
    governor: str | None = None


class Core(_Frozen):
    core: int
    core_id: int | None
    socket: int | None
    node: int | None
    cpus: tuple[int, ...]  # in the order of threads


class Socket(_Frozen):
    socket: int
    cpus: tuple[int, ...]
    cores: tuple[int, ...]  # numbers of Core
    nodes: tuple[int, ...]


class Node(_Frozen):
    """A NUMA node. Without CPUs it is memory alone."""

    node: int
    cpus: tuple[int, ...]
    memory_bytes: int | None
    distances: dict[int, int]  # node -> relative distance; 10 is local (ACPI SLIT)


class Cache(_Frozen):
    level: int
    type: str  # Data, Instruction, Unified
    size_bytes: int | None
    id: int | None  # the kernel's, unique within level and type
    cpus: tuple[int, ...]  # that share it

    @property
    def name(self) -> str:
        """As lscpu names it: L1d, L1i, L2."""
        return f"L{self.level}{ {'Data': 'd', 'Instruction': 'i'}.get(self.type, '') }"


class Smt(_Frozen):
    """Simultaneous multithreading (Hyper-Threading)."""

    state: SmtState | None  # without smt/control in /sys: told by cores of several threads
    control: str | None  # as the kernel words it; POWER writes the number of threads
    threads_per_core: int | None  # online, of the core that has most


class Cpuset(_Frozen):
    """What the control group allows."""

    version: int  # of control groups
    directory: str
    cpus: tuple[int, ...] | None  # effective
    mems: tuple[int, ...] | None


class CpuQuota(_Frozen):
    cpus: float
    directory: str  # the group's


class Topology(_Frozen):
    model: str | None
    cpus: tuple[LogicalCpu, ...]  # online and offline, by number
    cores: tuple[Core, ...]  # of online CPUs, as the following
    sockets: tuple[Socket, ...]
    nodes: tuple[Node, ...]  # empty: the kernel tells of none
    caches: tuple[Cache, ...]
    smt: Smt
    offline: tuple[int, ...]
    isolated: tuple[int, ...] | None  # kept free of the scheduler's balancing (isolcpus=)
    affinity: tuple[int, ...] | None  # of this process; CPUs that are online
    cpuset: Cpuset | None
    quota: CpuQuota | None  # the tightest above us that can be seen
    usable_cpus: float | None  # min(allowed CPUs, quota)
    hypervisor: str | None  # "none": bare metal for certain
    container: str | None
    clocksource: str | None
    clocksources: tuple[str, ...] | None  # that could be chosen
    notes: tuple[str, ...] = ()  # what is unknown, and what would make it known

    @property
    def online(self) -> tuple[LogicalCpu, ...]:
        return tuple(c for c in self.cpus if c.online)

    @property
    def allowed(self) -> tuple[LogicalCpu, ...]:
        """CPUs that this process may run on."""
        return tuple(c for c in self.cpus if c.allowed)


# What a POWER machine's utilization registers said at an instant.

REGISTERS = ("purr", "idle_purr", "spurr", "idle_spurr")


@dataclass(frozen=True)
class Purr:
    """Registers of one hardware thread, in ticks of the time base. ``None``: the kernel does not tell."""

    purr: int | None
    idle_purr: int | None = None
    spurr: int | None = None
    idle_spurr: int | None = None

    @staticmethod
    def of(values: Mapping[str, float | None]) -> Purr:
        """By the registers' names."""
        return Purr(*(None if (v := values.get(name)) is None else int(v) for name in REGISTERS))


@dataclass(frozen=True)
class PurrRead:
    """One reading of all CPUs."""

    at_s: float
    timebase_hz: int
    """Ticks of the time base a second: ``timebase`` of /proc/cpuinfo; 512 MHz since POWER6."""
    cpus: Mapping[int, Purr]


# How many cores were in use: from CPU-by-CPU figures and the topology, or by POWER's registers. Pure.
#
# PURR and SPURR (POWER): the processor utilization of resources register counts, thread by thread, the part
# of the core's dispatch cycles that the thread had, at the rate of the time base; of all threads of a core
# together it grows as the time base does. Its idle part is kept apart (Documentation/ABI/testing/ sysfs-
# devices-system-cpu: purr, spurr, idle_purr, idle_spurr). SPURR is the same scaled with the clock.


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
    """Use of all CPUs that are in both reads. Raises :class:`UsageError` where no time passed between them.

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
    """Sum over all CPUs that are in both reads; ``None`` as soon as one of them does not tell."""
    pairs = [
        (getattr(first.cpus[c], register), getattr(last.cpus[c], register))
        for c in sorted(first.cpus.keys() & last.cpus.keys())
    ]
    return None if any(None in p for p in pairs) else float(sum(b - a for a, b in pairs))
