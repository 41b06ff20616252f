"""Facts of a machine that affect the servers on it. ``None`` means unknown or absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dbdyno.model.engine.condition import DirectFiles


class Limit(NamedTuple):
    """The tightest limit among the control groups, and the directory of that group."""

    value: float
    where: str


class Steal(NamedTuple):
    """Shares of CPU time that the hypervisor gave to other guests."""

    since_boot: float | None
    now: float | None  # over the last ``look_s``
    look_s: float


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
    direct: DirectFiles | None = None  # None without a server
    flush: Flush | None = None  # None if not requested
