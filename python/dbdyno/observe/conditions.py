"""Facts of a machine that may distort measurements, read below a root: ``/`` or a recorded tree.

Sources: Documentation/admin-guide sysctl/vm.rst, sysctl/kernel.rst, mm/transhuge.rst, mm/hugetlbpage.rst,
pm/cpufreq.rst, cgroup-v2.rst, cgroup-v1/pids.rst; proc(5), proc_pid_mountinfo(5), tmpfs(5). No rights are
needed: unreadable facts are None. Facts of the server are those of its main process.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dbdyno.kernel import cpu_use
from dbdyno.kernel.machine import groups_of, machine_of
from dbdyno.kernel.numbers import first_number, number
from dbdyno.model.engine.condition import DirectFiles
from dbdyno.model.engine.machine_facts import Busy, Limit, MachineFacts, Steal
from dbdyno.observe.cpus import CPU, fields, integer, numbered, online_cpus, siblings, text
from dbdyno.observe.host import CLOCKSOURCE, virtualisation
from dbdyno.observe.limits import memory_limit, own_path, tightest_quota
from dbdyno.observe.open_files import direct_files

_THP = "sys/kernel/mm/transparent_hugepage"
_CHOSEN = re.compile(r"\[(\w+)\]")
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_READS, _ROUNDS = 200, 20
"""Clock reads per round, and rounds, of which the fastest counts. In all 1 ms with a clock of 250 ns."""
HERE = Path("/")


def machine_facts(
    main_pid: int | None,
    data_files: re.Pattern[str] | None = None,
    root: Path = HERE,
    *,
    stat_before: str = "",
    look_s: float = 0.0,
    most_ns: int | None = None,
    busy: Busy | None = None,
) -> MachineFacts:
    """Returns the facts of a machine.

    ``main_pid``: of the server; None if there is none here. ``stat_before``: /proc/stat as read ``look_s``
    ago. ``data_files``: pattern of the paths of its data files; None: they are not looked at. ``most_ns``:
    approximate limit of the time for that. ``busy``: use of its CPUs; None if it was not read.
    """
    cores = siblings(root)
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
        transparent_pages=_bracketed_word(text(root, f"{_THP}/enabled")),
        shared_transparent_pages=_bracketed_word(text(root, f"{_THP}/shmem_enabled")),
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
        busy=busy,
        kernel=text(root, "proc/sys/kernel/osrelease"),
        virtualisation=virtualisation(root),
        contained=cpu_use.hidden(root),
        **_boost(root),
        threads_per_core=max(map(len, cores)) if cores else None,
    )


def _direct(
    root: Path, main_pid: int | None, named: re.Pattern[str] | None, most_ns: int | None
) -> DirectFiles | None:
    if main_pid is None or named is None:
        return None
    return direct_files(main_pid, named, root, most_ns=most_ns)


def _kb(memory: dict[str, str], key: str) -> int | None:
    value = first_number(memory.get(key, ""))
    return None if value is None else value * 1024


def _number(memory: dict[str, str], key: str) -> int | None:
    return number(memory.get(key, ""))


def _bracketed_word(listed: str | None) -> str | None:
    """Returns the bracketed word: ``always [madvise] never`` -> ``madvise``."""
    bracketed = _CHOSEN.search(listed or "")
    return bracketed[1] if bracketed else None


def _governors(root: Path) -> dict[str, int]:
    """Returns the number of CPUs by governor; empty if the kernel scales no frequency (most virtual
    machines)."""
    files = ((f"{CPU}/cpu{n}/cpufreq/scaling_governor") for n in online_cpus(root))
    return dict(Counter(g for file in files if (g := text(root, file))))


def _boost(root: Path) -> dict[str, Any]:
    """Returns whether CPUs may run above their base frequency, and what turns that off; empty where the
    kernel has no switch."""
    for file, off in (("intel_pstate/no_turbo", 1), ("cpufreq/boost", 0)):
        if (value := integer(root, f"{CPU}/{file}")) is not None:
            return {"boost": value != off, "boost_switch": {"file": file, "off": str(off)}}
    return {}


def _huge_mapped(root: Path, pid: int) -> bool | None:
    """Returns whether a process has memory of the kernel's huge page pool mapped: ``/anon_hugepage`` in
    its maps (mm/hugetlb.c). None if its maps are not readable."""
    maps = text(root, f"proc/{pid}/maps")
    return None if not maps else "/anon_hugepage" in maps


# -- the server's control groups ---------------------------------------------------------------------


def _quota(root: Path, pid: int | None) -> Limit | None:
    tightest = tightest_quota(groups_of(pid, root, ["cpu"]))
    return None if tightest is None else Limit(tightest.cpus, own_path(root, tightest.where))


def _memory(root: Path, pid: int | None) -> Limit | None:
    tightest = memory_limit(groups_of(pid, root, ["memory"]))
    return None if tightest is None else Limit(tightest[0], own_path(root, tightest[1]))


def _processes(root: Path, pid: int | None) -> Limit | None:
    """Returns ``pids.max`` of either version: ``max`` or a number."""
    groups = groups_of(pid, root, ["pids"])
    limits_ = [
        (n, str(group)) for _, group in groups if (n := integer(group, "pids.max")) is not None and n > 0
    ]
    return Limit(min(limits_)[0], own_path(root, min(limits_)[1])) if limits_ else None


def _run_delay(root: Path, pid: int | None) -> bool | None:
    """Returns whether /proc/PID/schedstat counts (fs/proc/base.c: three zeros without scheduler
    statistics)."""
    for name in (str(pid), "self", "1"):
        if (figures := text(root, f"proc/{name}/schedstat")) is not None:
            return figures.split() != ["0", "0", "0"]
    return False if (root / "proc/stat").exists() else None


def shm_mount(mountinfo: str, memory_bytes: int | None) -> int | None:
    """Returns the size of the tmpfs at /dev/shm: its option ``size=65536k``, else half of the memory
    (tmpfs(5)). None if nothing is mounted there. Of several mounts the last counts, as it covers the
    others."""
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
    """Returns the present /proc/stat; empty if it is not readable."""
    return text(root, "proc/stat") or ""


def steal(before: str, now: str, look_s: float) -> Steal | None:
    """Returns stolen time since boot and between two reads of /proc/stat, by the line ``cpu``
    (proc_stat(5): steal is the eighth figure; guest time is part of user)."""
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
    """Returns the duration of a clock read (CLOCK_MONOTONIC by the vDSO, or a system call): the fastest
    round of a loop, less the loop with a call that does nothing."""
    return max(1.0, min(_rounds(time.monotonic_ns)) - min(_rounds(bool)))


def _rounds(call: Callable[[], object]) -> Iterator[float]:
    """Yields nanoseconds per call of each round."""
    for _ in range(_ROUNDS):
        begin = time.monotonic_ns()
        for _ in range(_READS):
            call()
        yield (time.monotonic_ns() - begin) / _READS
