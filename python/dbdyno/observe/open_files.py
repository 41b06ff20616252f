"""How the files of a server's processes are open: whether past the page cache (O_DIRECT, open(2)).

/proc/PID/fd has a link for each descriptor, /proc/PID/fdinfo/N its flags (proc_pid_fdinfo(5)), in octal as
open(2) has them: the bit of O_DIRECT differs by architecture (x86 040000, arm64 0200000, POWER 0400000), and
``os.O_DIRECT`` has that of this one. Both are readable by the process's user, and by others with
CAP_SYS_PTRACE. A file system may refuse the flag, or take it and read through the page cache all the same:
that it is set says what the server asked, and that the file system agreed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
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
    """How many files the server's processes (``main_pid`` and its children) have open now, and how many with
    direct I/O, of those whose path has a part like ``named``. ``direct``: the flag's bit. ``most_ns``: about
    so long it may take, then the processes that were looked at count. Raises nothing."""
    end_ns = None if most_ns is None else time.monotonic_ns() + most_ns
    found: dict[str, bool] = {}
    refused = 0
    for pid in (main_pid, *children(main_pid, root)):
        if found and end_ns is not None and time.monotonic_ns() > end_ns:
            break
        try:
            for path, is_direct in _open(root / "proc" / str(pid), direct):
                if named.search(path):
                    found[path] = found.get(path, True) and is_direct
        except PermissionError:
            refused += 1
        except OSError:  # it has ended
            continue
    if found:
        return DirectFiles(sum(found.values()), len(found))
    if refused:
        return DirectFiles(
            None,
            None,
            "not permitted",
            "the server's open files are not readable: run dbdyno as root or as the server's user",
        )
    return DirectFiles(None, None, "lost", "the server has no data file open now")


def children(pid: int, root: Path = Path("/")) -> tuple[int, ...]:
    """Child processes; empty where the kernel has no CONFIG_PROC_CHILDREN or the process is gone."""
    return tuple(int(n) for n in (text(root, f"proc/{pid}/task/{pid}/children") or "").split())


def parse_flags(fdinfo: str) -> int | None:
    """Flags of open(2), from the line ``flags:  0140002``; None: there is none."""
    octal = fields(fdinfo).get("flags", "")
    try:
        return int(octal, 8)
    except ValueError:
        return None


def _open(process: Path, direct: int) -> Iterator[tuple[str, bool]]:
    """(path, whether O_DIRECT is set) of each regular descriptor. Raises :class:`OSError`."""
    for number in _names(process / "fd"):
        try:
            path = str((process / "fd" / number).readlink()).removesuffix(_DELETED)
            flags = parse_flags((process / "fdinfo" / number).read_text())
        except PermissionError:
            raise
        except OSError:  # closed meanwhile
            continue
        if path.startswith("/") and flags is not None:
            yield path, bool(flags & direct)


def _names(folder: Path) -> Iterable[str]:
    return sorted(p.name for p in folder.iterdir())
