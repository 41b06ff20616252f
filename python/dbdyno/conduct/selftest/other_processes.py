"""CPU time of all processes that are not the server's: the witness that is independent of its own tasks."""

from __future__ import annotations

import os
from pathlib import Path

from dbdyno.limits.processes import tree

_PROC = Path("/proc")
_NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # fields of stat after the name (proc_pid_stat(5): 14, 15)


def cpu_ns_of_others(main_pid: int) -> dict[int, int]:
    """CPU time (ns, in ticks) of every process that is not of the server's tree, by pid."""
    server = tree(main_pid)
    return {
        pid: (int(fields[_UTIME]) + int(fields[_STIME])) * _NS_PER_TICK
        for pid, fields in _stats()
        if pid not in server
    }


def grown_ns(before: dict[int, int], after: dict[int, int]) -> int:
    """CPU time between two readings; a process that ended in between is not in it."""
    return sum(max(0, ns - before.get(pid, 0)) for pid, ns in after.items())


def _stats() -> list[tuple[int, list[str]]]:
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # it has ended, or is hidden from us
        found.append((int(entry.name), text.rpartition(")")[2].split()))
    return found
