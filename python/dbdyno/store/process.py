"""Is the process that measured still there? By its pid and its start time, so a reused pid is not it."""

from __future__ import annotations

from pathlib import Path

_STARTTIME = 22  # field of /proc/PID/stat, counted from 1 (proc_pid_stat(5))


def start_ticks(pid: int) -> int | None:
    """Start time of a process since boot, in clock ticks; ``None`` if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    after_comm = stat.rpartition(")")[2].split()  # the name may hold blanks and brackets; field 3 comes first
    if after_comm[0] in "ZX":
        return None
    return int(after_comm[_STARTTIME - 3])


def is_alive(pid: int, ticks: int) -> bool:
    return pid > 0 and start_ticks(pid) == ticks
