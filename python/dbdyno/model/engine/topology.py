"""The machine as the operating system describes it: sockets, NUMA nodes, cores, caches, and the CPUs that
this process may use.

Numbers are those of the kernel (Documentation/admin-guide/cputopology.rst). ``None`` always means unknown,
never "there is none".
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
    """One hardware thread, with the kernel's number."""

    cpu: int
    online: bool
    socket: int | None = None  # physical_package_id; if the firmware has none, numbered as lscpu does
    die: int | None = None  # die_id, within its socket
    core: int | None = None  # unique on the machine, in the order of the first CPU: lscpu's CORE
    core_id: int | None = None  # the kernel's own number, which repeats in each socket
    node: int | None = None
    thread: int | None = None  # 0, 1, ...: its position within the core
    caches: tuple[int, ...] = ()  # indices into Topology.caches
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
    """A NUMA node. A node without CPUs has memory only."""

    node: int
    cpus: tuple[int, ...]
    memory_bytes: int | None
    distances: dict[int, int]  # node -> relative distance; 10 is local (ACPI SLIT)


class Cache(_Frozen):
    level: int
    type: str  # Data, Instruction, Unified
    size_bytes: int | None
    id: int | None  # the kernel's number, unique within level and type
    cpus: tuple[int, ...]  # the CPUs that share it

    @property
    def name(self) -> str:
        """The cache's name as in lscpu: L1d, L1i, L2."""
        return f"L{self.level}{ {'Data': 'd', 'Instruction': 'i'}.get(self.type, '') }"


class Smt(_Frozen):
    """Simultaneous multithreading (Hyper-Threading)."""

    state: SmtState | None  # derived from the threads per core if /sys has no smt/control
    control: str | None  # the kernel's text; on POWER it is the number of threads
    threads_per_core: int | None  # the maximum over cores, of online threads


class Cpuset(_Frozen):
    """The CPUs and memory nodes that the control group allows."""

    version: int  # version of control groups
    directory: str
    cpus: tuple[int, ...] | None  # effective
    mems: tuple[int, ...] | None


class CpuQuota(_Frozen):
    cpus: float
    directory: str  # directory of the control group


class Topology(_Frozen):
    model: str | None
    cpus: tuple[LogicalCpu, ...]  # online and offline, sorted by number
    cores: tuple[Core, ...]  # cores, sockets and nodes cover online CPUs only
    sockets: tuple[Socket, ...]
    nodes: tuple[Node, ...]  # empty if the kernel reports none
    caches: tuple[Cache, ...]
    smt: Smt
    offline: tuple[int, ...]
    isolated: tuple[int, ...] | None  # excluded from the scheduler's balancing (isolcpus=)
    affinity: tuple[int, ...] | None  # online CPUs in the affinity of this process
    cpuset: Cpuset | None
    quota: CpuQuota | None  # the tightest visible quota of this process's control groups
    usable_cpus: float | None  # min(allowed CPUs, quota)
    hypervisor: str | None  # "none" if it is certainly bare metal
    container: str | None
    clocksource: str | None
    clocksources: tuple[str, ...] | None  # available to choose from
    notes: tuple[str, ...] = ()  # facts that are unknown, with the remedy

    @property
    def online(self) -> tuple[LogicalCpu, ...]:
        return tuple(c for c in self.cpus if c.online)

    @property
    def allowed(self) -> tuple[LogicalCpu, ...]:
        """The CPUs that this process may run on."""
        return tuple(c for c in self.cpus if c.allowed)


# Utilization registers of a POWER machine at one instant.

REGISTERS = ("purr", "idle_purr", "spurr", "idle_spurr")


@dataclass(frozen=True)
class Purr:
    """Registers of one hardware thread, in ticks of the time base. A register is ``None`` if the kernel does
    not report it."""

    purr: int | None
    idle_purr: int | None = None
    spurr: int | None = None
    idle_spurr: int | None = None

    @staticmethod
    def of(values: Mapping[str, float | None]) -> Purr:
        """Creates the registers from a mapping by their names."""
        return Purr(*(None if (v := values.get(name)) is None else int(v) for name in REGISTERS))


@dataclass(frozen=True)
class PurrRead:
    """One reading of the registers of all CPUs."""

    at_s: float
    timebase_hz: int
    """Ticks of the time base per second, from ``timebase`` in /proc/cpuinfo. It is 512 MHz since POWER6."""
    cpus: Mapping[int, Purr]


# The number of cores in use follows from the figures of each CPU and the topology, or from POWER's
# registers. POWER's PURR (processor utilization of resources register) counts, for each hardware thread, its
# part of the core's dispatch cycles at the rate of the time base. The sum over all threads of a core
# therefore grows like the time base. The idle part is counted separately
# (Documentation/ABI/testing/sysfs-devices-system-cpu: purr, spurr, idle_purr, idle_spurr). SPURR is PURR
# scaled by the current clock frequency.


@dataclass(frozen=True)
class CoreSeconds:
    """CPU time per second of a machine or a part of it. ``threads`` is the time charged to threads.
    ``cores`` is the time that cores were in use, with the bounds ``low`` and ``high``."""

    threads: float
    cores: float | None
    low: float
    high: float


def cores_bracket(busy: Mapping[int, float], siblings: Sequence[Sequence[int]]) -> CoreSeconds:
    """Returns the core-seconds per second, given the busy share of each CPU (0..1) and the CPUs of each
    core.

    A core is in use while any of its threads is. Its use is at least that of its busiest thread, and at most
    the sum over its threads or 1. Without SMT both bounds are equal, and only then ``cores`` is known. CPUs
    without a figure count as idle.
    """
    shares = [[busy[cpu] for cpu in core if cpu in busy] for core in siblings]
    low = sum(max(core, default=0.0) for core in shares)
    high = sum(min(1.0, sum(core)) for core in shares)
    high = max(low, high)
    exact = all(len(core) <= 1 for core in siblings)
    return CoreSeconds(sum(map(sum, shares)), low if exact else None, low, high)


def cores_met(sweeps: Iterable[Iterable[int]], siblings: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Returns, for each sample of the CPUs that were busy together, the number of busy threads and of cores
    that they belong to."""
    core_of = {cpu: number for number, core in enumerate(siblings) for cpu in core}
    counts = []
    for sweep in sweeps:
        busy = {cpu for cpu in sweep if cpu in core_of}
        counts.append((len(busy), len({core_of[cpu] for cpu in busy})))
    return counts


# -- POWER ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PurrUse:
    """Utilization between two reads of the registers."""

    cores: float | None
    """Core-seconds in use per second: (purr - idle_purr) / time base, as in lparstat(8). It is ``None`` with
    kernels before 5.8: they have no idle part, and purr alone includes idle time."""
    entitled: float
    """Core-seconds dispatched per second, idle ones included: purr / time base (physc of lparstat)."""
    speed: float | None
    """Clock frequency relative to the nominal one: spurr / purr of the busy part; ``None`` if unknown."""


def purr_use(first: PurrRead, last: PurrRead) -> PurrUse:
    """Returns the utilization of all CPUs that are in both reads. Raises :class:`UsageError` if no time
    passed between the reads.

    ``idle_purr`` is limited to ``purr``, as in lparstat(8): the two registers are read one after the other,
    so it can be larger.
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
    """Returns the register's growth summed over all CPUs in both reads; ``None`` if one of them lacks it."""
    pairs = [
        (getattr(first.cpus[c], register), getattr(last.cpus[c], register))
        for c in sorted(first.cpus.keys() & last.cpus.keys())
    ]
    return None if any(None in p for p in pairs) else float(sum(b - a for a, b in pairs))
