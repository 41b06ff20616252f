"""Memory of single processes, and of the programs that run.

``/proc/PID/status`` (readable by any user) has page tables and swap. ``/proc/PID/smaps_rollup`` (Linux 4.14;
root or the same user) has the proportional share of resident memory. For it the kernel walks the page tables
of the process, which takes the longer the more of a large shared memory the process has touched.

Programs are the files that processes have mapped as executable. Their pages in the page cache are what
``::memstat`` prints as "Exec and libs".
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from dbdyno import _core
from dbdyno.kernel.machine import machine_of
from dbdyno.observe.memory import Row, meminfo

_ROLLED = {
    "pss_bytes": "Pss",
    "anonymous_bytes": "Pss_Anon",  # this and the following since 5.4
    "file_bytes": "Pss_File",
    "shared_bytes": "Pss_Shmem",
}
_STATUS = {"page_tables_bytes": "VmPTE", "swapped_bytes": "VmSwap"}
_AGEING = 0.9
"""Decay of the longest duration of a read, with each shorter one."""


class ProcessReader:
    """Reads processes in turn. Those that the time limit left out come first in the next read."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._next = 0
        self._longest_ns = 0.0

    def rows(self, roles: Mapping[int, str], most_ns: int) -> Iterator[Row]:
        """Yields one row per existing process: the first in any case, others within the time limit."""
        end_ns = _core.now_ns() + most_ns
        pids = sorted(roles, key=lambda pid: (pid < self._next, pid))
        self._next = 0
        for pid in pids:
            before_ns = _core.now_ns()
            late = pid != pids[0] and before_ns + self._longest_ns > end_ns
            if late and not self._next:
                self._next = pid
            figures, status = self._read(pid, late=late) if before_ns < end_ns or not late else ({}, "lost")
            after_ns = _core.now_ns()
            if not late:
                self._longest_ns = max(self._longest_ns * _AGEING, after_ns - before_ns)
            if status != "vanished":
                about = {"before_ns": before_ns, "after_ns": after_ns, "pid": pid, "role": roles[pid]}
                yield {**about, **figures, "status": status}

    def _read(self, pid: int, *, late: bool) -> tuple[dict[str, int | None], str]:
        """Reads one process. ``late``: only the fast figures."""
        figures: dict[str, int | None] = {}
        try:
            figures |= _selected_columns(
                _STATUS, (self._proc / str(pid) / "status").read_text(errors="replace")
            )
            if late:
                return figures, "lost"
            rolled = (self._proc / str(pid) / "smaps_rollup").read_text(errors="replace")
        except PermissionError:
            return figures, "not permitted"
        except FileNotFoundError:
            exists = bool(figures) and (self._proc / str(pid)).exists()
            return figures, "not supported" if exists else "vanished"  # before Linux 4.14
        except OSError:  # the process ends
            return figures, "vanished"
        return figures | _selected_columns(_ROLLED, rolled), "ok"


def _selected_columns(names: Mapping[str, str], printed: str) -> dict[str, int | None]:
    """Returns columns from lines ``Pss:   331 kB``, in bytes; None if this kernel lacks them, or for a
    zombie."""
    values = meminfo(printed)
    return {column: values.get(name) for column, name in names.items()}


def executables(most_ns: int, root: Path = Path("/")) -> Row:
    """Returns key ``executables_bytes`` of table ``memory``: the cached part of the files that processes
    have mapped as executable, without processes that this user may not read. Status not permitted if one
    of the files is neither ours nor writable by us, as its cached pages cannot be counted then."""
    before_ns = _core.now_ns()
    value, status = None, "lost"
    files = _executable_files(root / "proc", before_ns + most_ns)
    if files is not None:
        left_ns = before_ns + most_ns - _core.now_ns()
        wanted = [(f, b"", 0) for f in files]
        counts = machine_of(root).page_cache(wanted, os.sysconf("SC_PAGE_SIZE"), left_ns)
        status = next((how for *_, how in counts if how not in ("ok", "vanished")), "ok")
        value = sum(cached or 0 for _, cached, _, _ in counts) if status == "ok" else None
    about = {"before_ns": before_ns, "after_ns": _core.now_ns(), "scope": "host", "node": None}
    return {**about, "key": "executables_bytes", "value": value, "status": status}


def _executable_files(proc: Path, end_ns: int) -> list[str] | None:
    """Returns each file once; None if it takes longer."""
    programs: set[tuple[int, int]] = set()
    files: dict[tuple[str, str], str] = {}
    for process in (entry for entry in proc.iterdir() if entry.name.isdecimal()):
        if _core.now_ns() > end_ns:
            return None
        try:
            program = (process / "exe").stat()
            if (program.st_dev, program.st_ino) not in programs:
                programs.add((program.st_dev, program.st_ino))
                files |= mapped(f"{process}/root", (process / "maps").read_text(errors="replace"))
        except OSError:  # the process has ended, is the kernel's, or is not readable
            continue
    return list(files.values())


def mapped(root: str, maps: str) -> dict[tuple[str, str], str]:
    """Returns executable mappings of files, by device and inode (proc_pid_maps(5)). A file that was
    replaced since is left out."""
    files = {}
    for line in maps.split("\n"):
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[1][2] == "x" and words[5].startswith("/"):
            if words[5].endswith(" (deleted)"):
                continue
            files[words[3], words[4]] = root + words[5]
    return files
