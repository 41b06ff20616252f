"""Facts of a machine that affect the servers on it. ``None`` means unknown or absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dbdyno.model.engine.condition import DirectFiles
from dbdyno.model.units import NS_PER_S, counted, format_percent

_DECIMALS = 2
"""Decimals of a number of CPUs: ticks of 10 ms in an interval of a second count hundredths."""


class Limit(NamedTuple):
    """The tightest limit among the control groups, and the directory of that group."""

    value: float
    where: str


class Steal(NamedTuple):
    """Shares of CPU time that the hypervisor gave to other guests."""

    since_boot: float | None
    now: float | None  # over the last ``look_s``
    look_s: float


class ProcessUse(NamedTuple):
    """CPU time that a process used between two readings, that of its ended children included."""

    pid: int
    start_ticks: int
    name: str  # of the kernel (comm): no arguments, which may hold passwords
    user: str  # name or number; empty: not readable
    cpu_ns: int
    ended_ns: int  # the part of its ended children


class Busy(NamedTuple):
    """Use of the CPUs by all but dbdyno and its own server, over ``span_s``."""

    others: float  # CPUs
    cpus: int
    steal: float  # share of the CPUs' time
    span_s: float
    largest: tuple[ProcessUse, ...] = ()
    hidden: str = ""  # why some processes may not be visible
    waited: float | None = None  # share of the time in which a task waited for a CPU (PSI); None: unknown
    all_cpus: bool = True  # ``cpus`` are all of the machine: no process used others

    @property
    def share(self) -> float:
        return self.others / self.cpus

    @property
    def names(self) -> str:
        """Returns ``cc1 (pid 712, build) 0.92, sshd (pid 12) 0.01, all others 0.12``: the CPUs of each, which
        add up to those of ``words``."""
        used = [(named(p), round(p.cpu_ns / NS_PER_S / self.span_s, _DECIMALS)) for p in self.largest]
        shown = [(name, cpus) for name, cpus in used if cpus > 0]
        rest = round(self._total - sum(cpus for _, cpus in shown), _DECIMALS)
        if rest > 0 and shown and self.all_cpus:
            shown.append(("all others", rest))
        where = "" if self.all_cpus or not shown else "on any CPU "
        return where + ", ".join(f"{name} {cpus:.{_DECIMALS}f}" for name, cpus in shown)

    @property
    def words(self) -> str:
        """Returns ``1.66 of 2 CPUs (83 %)``."""
        used = f"{self._total:.{_DECIMALS}f} of {counted(self.cpus, 'CPU')}"
        return f"{used} ({format_percent(self._total / self.cpus)})"

    @property
    def _total(self) -> float:
        """Returns the CPUs of all others. The kernel counts a process's time exactly, that of the CPUs by
        ticks and without steal, so the largest may have used more than the CPUs seem to."""
        named_ns = sum(p.cpu_ns for p in self.largest) if self.all_cpus else 0
        return round(max(self.others, named_ns / NS_PER_S / self.span_s), _DECIMALS)


def named(process: ProcessUse) -> str:
    """Returns ``make (pid 712, build; with its ended children)``."""
    who = f"pid {process.pid}" + (f", {process.user}" if process.user else "")
    ended = "; with its ended children" if 2 * process.ended_ns > process.cpu_ns else ""
    return f"{process.name or 'a process without a name'} ({who}{ended})"


class Flush(NamedTuple):
    """The result of a probe that writes 8 kB at a time, each followed by fdatasync(2)."""

    directory: str
    file_system: str
    device: str  # name of the block device; empty if unknown
    write_cache: (
        str  # that the kernel reckons with: "write back" (it flushes), "write through"; empty: unknown
    )
    median_ns: float | None
    writes: int
    no_barrier: str = ""  # the mount option that turns off the file system's flushes
    trouble: str = ""  # the reason if there is no figure


@dataclass(frozen=True)
class MachineFacts:
    """Facts of the machine and, if known, of the server's process and its control groups."""

    # a server's process is known, so mounts, limits and memory are those of the server
    of_server: bool = False
    cpus: int | None = None
    nodes: int | None = None
    memory_bytes: int | None = None
    swap_bytes: int | None = None
    clocksource: str | None = None
    clocksources: tuple[str, ...] = ()  # available to choose from
    clock_ns: float | None = None  # duration of one read of the clock, measured in a loop of dbdyno
    # cost of the clock as measured by the server's program
    server_clock: Mapping[str, str] = field(default_factory=dict)
    transparent_pages: str | None = None  # always | madvise | never
    # for shared memory: always | within_size | advise | never ...
    shared_transparent_pages: str | None = None
    huge_total: int | None = None
    huge_free: int | None = None
    huge_bytes: int | None = None  # size of one page
    huge_mapped: bool | None = None  # whether the server's shared memory is in huge pages
    swappiness: int | None = None
    overcommit: int | None = None
    governors: Mapping[str, int] = field(default_factory=dict)  # number of CPUs by governor
    numa_balancing: int | None = None
    zone_reclaim: int | None = None
    quota: Limit | None = None  # CPUs
    memory_limit: Limit | None = None  # bytes
    processes_limit: Limit | None = None
    run_delay: bool | None = None  # whether the kernel counts time in the run queue
    shm_mount_bytes: int | None = None  # size of /dev/shm in the server's mount namespace
    steal: Steal | None = None
    busy: Busy | None = None  # None if nobody looked, or /proc/stat has no line of the CPUs
    kernel: str | None = None  # release
    virtualisation: str | None = None  # in words; None on bare metal, as far as visible
    contained: str = ""  # why processes of the machine are not visible; empty: they are
    boost: bool | None = None  # whether CPUs may run above their base frequency
    boost_switch: Mapping[str, str] = field(default_factory=dict)  # file that turns it off, and the value
    threads_per_core: int | None = None
    direct: DirectFiles | None = None  # None without a server
    flush: Flush | None = None  # None if not requested
