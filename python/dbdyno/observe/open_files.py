"""How a server's processes have opened their files: with direct I/O (O_DIRECT, open(2)) or not.

/proc/PID/fd has a link for each descriptor, and /proc/PID/fdinfo/N its flags (proc_pid_fdinfo(5)) in octal
as in open(2). The bit of O_DIRECT depends on the architecture (x86 040000, arm64 0200000, POWER 0400000),
and ``os.O_DIRECT`` has that of this one. Both are readable by the process's user, and by others with
CAP_SYS_PTRACE. A file system may refuse the flag, or accept it and still read through the page cache: the
flag shows that the server requested direct I/O and the file system accepted.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from dbdyno.model.engine.condition import DirectFiles
from dbdyno.observe.cpus import fields, text

_DELETED = " (deleted)"


def direct_files(
    main_pid: int,
    named: re.Pattern[str],
    root: Path = Path("/"),
    direct: int = os.O_DIRECT,
    most_ns: int | None = None,
) -> DirectFiles:
    """Counts the open files of the server's processes (``main_pid`` and its children) whose path matches
    ``named``, and those with direct I/O. ``direct``: the flag's bit. ``most_ns``: approximate time limit,
    after which the processes read so far count. Raises nothing."""
    end_ns = None if most_ns is None else time.monotonic_ns() + most_ns
    direct_by_path: dict[str, bool] = {}
    refused = 0
    for pid in (main_pid, *children(main_pid, root)):
        if direct_by_path and end_ns is not None and time.monotonic_ns() > end_ns:
            break
        try:
            for path, is_direct in _open(root / "proc" / str(pid), direct):
                if named.search(path):
                    direct_by_path[path] = direct_by_path.get(path, True) and is_direct
        except PermissionError:
            refused += 1
        except OSError:  # the process has ended
            continue
    if direct_by_path:
        return DirectFiles(sum(direct_by_path.values()), len(direct_by_path))
    if refused:
        return DirectFiles(
            None,
            None,
            "not permitted",
            "the server's open files are not readable: run dbdyno as root or as the server's user",
        )
    return DirectFiles(None, None, "lost", "the server has no data file open now")


def children(pid: int, root: Path = Path("/")) -> tuple[int, ...]:
    """Returns child processes; empty if the kernel has no CONFIG_PROC_CHILDREN or the process is gone."""
    return tuple(int(n) for n in (text(root, f"proc/{pid}/task/{pid}/children") or "").split())


def parse_flags(fdinfo: str) -> int | None:
    """Returns the flags of open(2) in the line ``flags:  0140002``; None without one."""
    octal = fields(fdinfo).get("flags", "")
    try:
        return int(octal, 8)
    except ValueError:
        return None


def _open(process: Path, direct: int) -> Iterator[tuple[str, bool]]:
    """Yields (path, whether O_DIRECT is set) of each regular descriptor. Raises :class:`OSError`."""
    for number in sorted(p.name for p in (process / "fd").iterdir()):
        try:
            path = str((process / "fd" / number).readlink()).removesuffix(_DELETED)
            flags = parse_flags((process / "fdinfo" / number).read_text())
        except PermissionError:
            raise
        except OSError:  # closed meanwhile
            continue
        if path.startswith("/") and flags is not None:
            yield path, bool(flags & direct)
