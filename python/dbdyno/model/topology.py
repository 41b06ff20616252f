"""The machine as its operating system shows it: sockets, NUMA nodes, cores, caches, and what we may use.

Numbers are the kernel's (Documentation/admin-guide/cputopology.rst). ``None`` is unknown, never "none there".
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

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
