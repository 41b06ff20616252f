"""The facts of a machine that may spoil figures, read below a root that may be ``/`` or a recorded tree.

Documentation/admin-guide: sysctl/vm.rst, sysctl/kernel.rst, mm/transhuge.rst, mm/hugetlbpage.rst,
pm/cpufreq.rst, cgroup-v2.rst, cgroup-v1/pids.rst; proc(5), proc_pid_mountinfo(5), tmpfs(5). Needs no rights:
what may not be read is None. A fact that is about the server is read by its main process.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from dbdyno.kernel.machine import groups_of, machine_of
from dbdyno.kernel.numbers import first_number, number
from dbdyno.model.engine.condition import DirectFiles
from dbdyno.model.engine.machine_facts import Limit, MachineFacts, Steal
from dbdyno.observe.cpus import CPU, fields, integer, numbered, online_cpus, text
from dbdyno.observe.host import CLOCKSOURCE
from dbdyno.observe.limits import memory_limit, own_path, tightest_quota
from dbdyno.observe.open_files import direct_files

_THP = "sys/kernel/mm/transparent_hugepage"
_CHOSEN = re.compile(r"\[(\w+)\]")
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_READS, _ROUNDS = 200, 20
"""Reads of the clock in a round, and rounds, of which the fastest counts: 1 ms with a clock of 250 ns."""
HERE = Path("/")


def machine_facts(
    main_pid: int | None,
    data_files: re.Pattern[str] | None = None,
    root: Path = HERE,
    *,
    stat_before: str = "",
    look_s: float = 0.0,
    most_ns: int | None = None,
) -> MachineFacts:
    """``main_pid``: of the server, None: there is none here. ``stat_before``: /proc/stat as it was
    ``look_s`` ago. ``data_files``: how paths of its data files look; left out, they are not looked at;
    ``most_ns``: about so long that may take."""
    memory = fields(text(root, "proc/meminfo"))
    return MachineFacts(
        of_server=main_pid is not None,
        cpus=len(online_cpus(root)) or None,
        nodes=len(numbered(root, "sys/devices/system/node", "node")) or None,
        memory_bytes=_kb(memory, "MemTotal"),
        swap_bytes=_kb(memory, "SwapTotal"),
        clocksource=text(root, CLOCKSOURCE),
        clocksources=tuple((text(root, CLOCKSOURCE.replace("current", "available")) or "").split()),
        clock_ns=clock_ns() if root == HERE and machine_of(root).reached is None else None,
        transparent_pages=_chosen(text(root, f"{_THP}/enabled")),
        shared_transparent_pages=_chosen(text(root, f"{_THP}/shmem_enabled")),
        huge_total=_number(memory, "HugePages_Total"),
        huge_free=_number(memory, "HugePages_Free"),
        huge_bytes=_kb(memory, "Hugepagesize"),
        huge_mapped=None if main_pid is None else _huge_mapped(root, main_pid),
        swappiness=integer(root, "proc/sys/vm/swappiness"),
        overcommit=integer(root, "proc/sys/vm/overcommit_memory"),
        governors=_governors(root),
        numa_balancing=integer(root, "proc/sys/kernel/numa_balancing"),
        zone_reclaim=integer(root, "proc/sys/vm/zone_reclaim_mode"),
        quota=_quota(root, main_pid),
        memory_limit=_memory(root, main_pid),
        processes_limit=_processes(root, main_pid),
        run_delay=_run_delay(root, main_pid),
        shm_mount_bytes=shm_mount(
            text(root, f"proc/{main_pid or 'self'}/mountinfo") or "", _kb(memory, "MemTotal")
        ),
        steal=steal(stat_before, cpu_times(root), look_s),
        direct=_direct(root, main_pid, data_files, most_ns),
    )


def _direct(
    root: Path, main_pid: int | None, named: re.Pattern[str] | None, most_ns: int | None
) -> DirectFiles | None:
    if main_pid is None or named is None:
        return None
    return direct_files(main_pid, named, root, most_ns=most_ns)


def _kb(memory: dict[str, str], key: str) -> int | None:
    found = first_number(memory.get(key, ""))
    return None if found is None else found * 1024


def _number(memory: dict[str, str], key: str) -> int | None:
    return number(memory.get(key, ""))


def _chosen(listed: str | None) -> str | None:
    """``always [madvise] never`` -> ``madvise``."""
    found = _CHOSEN.search(listed or "")
    return found[1] if found else None


def _governors(root: Path) -> dict[str, int]:
    """CPUs by governor; empty where the kernel scales no frequency (most virtual machines)."""
    files = ((f"{CPU}/cpu{n}/cpufreq/scaling_governor") for n in online_cpus(root))
    return dict(Counter(g for file in files if (g := text(root, file))))


def _huge_mapped(root: Path, pid: int) -> bool | None:
    """Whether a process has memory of the kernel's huge page pool mapped: ``/anon_hugepage`` in its maps
    (mm/hugetlb.c); None: its maps may not be read."""
    maps = text(root, f"proc/{pid}/maps")
    return None if not maps else "/anon_hugepage" in maps


# -- the server's control groups ---------------------------------------------------------------------


def _quota(root: Path, pid: int | None) -> Limit | None:
    found = tightest_quota(groups_of(pid, root, ["cpu"]))
    return None if found is None else Limit(found.cpus, own_path(root, found.where))


def _memory(root: Path, pid: int | None) -> Limit | None:
    found = memory_limit(groups_of(pid, root, ["memory"]))
    return None if found is None else Limit(found[0], own_path(root, found[1]))


def _processes(root: Path, pid: int | None) -> Limit | None:
    """``pids.max``, of both versions: ``max`` or a number."""
    groups = groups_of(pid, root, ["pids"])
    found = [
        (n, str(group)) for _, group in groups if (n := integer(group, "pids.max")) is not None and n > 0
    ]
    return Limit(min(found)[0], own_path(root, min(found)[1])) if found else None


def _run_delay(root: Path, pid: int | None) -> bool | None:
    """Whether /proc/PID/schedstat counts (fs/proc/base.c: three zeros without scheduler statistics)."""
    for name in (str(pid), "self", "1"):
        if (found := text(root, f"proc/{name}/schedstat")) is not None:
            return found.split() != ["0", "0", "0"]
    return False if (root / "proc/stat").exists() else None


def shm_mount(mountinfo: str, memory_bytes: int | None) -> int | None:
    """Size of the tmpfs at /dev/shm: its option ``size=65536k``, else half of the memory (tmpfs(5)); None:
    nothing is mounted there. Of several the last counts: it covers the others."""
    size = None
    for line in mountinfo.split("\n"):
        mount, _, file_system = line.partition(" - ")
        if mount.split()[4:5] == ["/dev/shm"] and file_system.startswith("tmpfs "):
            given = re.search(r"\bsize=(\d+)([kmgKMG]?)\b", file_system)
            half = None if memory_bytes is None else memory_bytes // 2
            size = int(given[1]) * _SIZES[given[2].lower()] if given else half
    return size


# -- time -------------------------------------------------------------------------------------------


def cpu_times(root: Path = HERE) -> str:
    """/proc/stat as it is now; empty where it cannot be read."""
    return text(root, "proc/stat") or ""


def steal(before: str, now: str, look_s: float) -> Steal | None:
    """From the line ``cpu`` of two reads of /proc/stat (proc(5): steal is the eighth figure; guest time is
    in user's already)."""
    last, first = _cpu(now), _cpu(before)
    if last is None:
        return None
    since = None if first is None else [b - a for a, b in zip(first, last, strict=True)]
    return Steal(_stolen(last), None if since is None else _stolen(since), look_s)


def _cpu(stat: str) -> list[int] | None:
    words = next((line.split()[1:9] for line in stat.splitlines() if line.startswith("cpu ")), [])
    return [int(w) for w in words] if len(words) == 8 else None


def _stolen(ticks: list[int]) -> float | None:
    whole = sum(ticks)
    return ticks[7] / whole if whole > 0 else None


def clock_ns() -> float:
    """A read of the clock (CLOCK_MONOTONIC by the vDSO, or a system call), of the fastest round of a loop,
    less what the loop takes with a call that does nothing."""
    return max(1.0, min(_rounds(time.monotonic_ns)) - min(_rounds(bool)))


def _rounds(call: Callable[[], object]) -> Iterator[float]:
    """Nanoseconds a call, of each round."""
    for _ in range(_ROUNDS):
        begin = time.monotonic_ns()
        for _ in range(_READS):
            call()
        yield (time.monotonic_ns() - begin) / _READS
