"""What a machine says of the conditions under which a server runs there. ``None``: unknown, or not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dbdyno.model.engine.condition import DirectFiles


class Limit(NamedTuple):
    """The tightest of the control groups' limits, and the group's directory."""

    value: float
    where: str


class Steal(NamedTuple):
    """Shares of CPU time that the hypervisor gave to others."""

    since_boot: float | None
    now: float | None  # over the last ``look_s``
    look_s: float


class Flush(NamedTuple):
    """What a probe of writes of 8 kB, each followed by fdatasync(2), found."""

    directory: str
    file_system: str
    device: str  # of the block layer; empty: none is known
    write_cache: (
        str  # that the kernel reckons with: "write back" (it flushes), "write through"; empty: unknown
    )
    median_ns: float | None
    writes: int
    no_barrier: str = ""  # the mount's option by which the file system sends no flush
    trouble: str = ""  # why there is no figure


@dataclass(frozen=True)
class MachineFacts:
    """What the machine says of itself, and where it is known of the server's process and its groups."""

    of_server: bool = False  # a server's process is known: mounts, limits and memory are its
    cpus: int | None = None
    nodes: int | None = None
    memory_bytes: int | None = None
    swap_bytes: int | None = None
    clocksource: str | None = None
    clocksources: tuple[str, ...] = ()  # that could be chosen
    clock_ns: float | None = None  # a read of the clock, of this program's own loop
    server_clock: Mapping[str, str] = field(default_factory=dict)  # what the server's program says
    transparent_pages: str | None = None  # always | madvise | never
    shared_transparent_pages: str | None = None  # of shared memory: always | within_size | advise | never ...
    huge_total: int | None = None
    huge_free: int | None = None
    huge_bytes: int | None = None  # of one
    huge_mapped: bool | None = None  # the server's shared memory is in huge pages
    swappiness: int | None = None
    overcommit: int | None = None
    governors: Mapping[str, int] = field(default_factory=dict)  # CPUs by governor
    numa_balancing: int | None = None
    zone_reclaim: int | None = None
    quota: Limit | None = None  # CPUs
    memory_limit: Limit | None = None  # bytes
    processes_limit: Limit | None = None
    run_delay: bool | None = None  # the kernel counts the time in the run queue
    shm_mount_bytes: int | None = None  # size of /dev/shm as the server sees it
    steal: Steal | None = None
    direct: DirectFiles | None = None  # None: no server
    flush: Flush | None = None  # None: not asked for
