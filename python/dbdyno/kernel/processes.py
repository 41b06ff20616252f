"""Processes in /proc, and how they are told from later ones of the same pid.

``root`` is where the machine's tree begins: ``/``, or a recorded one.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from dbdyno.kernel.numbers import number
from dbdyno.model.text import cpu_lists

ROOT = Path("/")
_PPID, _START = 1, 19  # fields of stat after the name (proc_pid_stat(5): 4, 22)
_CAP_SYS_NICE = 23  # linux/capability.h


class Identity(NamedTuple):
    """A process or a task of one life of the machine."""

    pid: int
    ticks: int  # its start, in clock ticks since boot


def identity(pid: int, root: Path = ROOT) -> Identity | None:
    """None: gone, or a zombie."""
    fields = _stat(root / f"proc/{pid}/stat")
    return None if fields is None or fields[0] in "ZX" else Identity(pid, int(fields[_START]))


def parent(pid: int, root: Path = ROOT) -> int | None:
    """None: gone, or a zombie."""
    fields = _stat(root / f"proc/{pid}/stat")
    return None if fields is None or fields[0] in "ZX" else int(fields[_PPID])


def tree(main_pid: int, root: Path = ROOT) -> set[int]:
    """The process and all its descendants, as far as they can be seen; empty when it is gone."""
    parents: dict[int, int] = {}
    for entry in (root / "proc").iterdir():
        if entry.name.isdecimal() and (fields := _stat(entry / "stat")) is not None and fields[0] not in "ZX":
            parents[int(entry.name)] = int(fields[_PPID])
    found = {main_pid} & parents.keys()
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def tasks(pid: int, root: Path = ROOT) -> list[int]:
    """Its threads; none when it is gone."""
    try:
        return [int(p.name) for p in (root / f"proc/{pid}/task").iterdir()]
    except OSError:
        return []


def with_variable(name: str, value: str, root: Path = ROOT) -> set[int]:
    """Processes that were started with this in their environment, as far as it may be read."""
    wanted, found = f"{name}={value}".encode(), set[int]()
    for entry in (root / "proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    return found


def cpus_allowed(pid: int, root: Path = ROOT) -> frozenset[int]:
    """CPUs a task may run on, those offline with them: its mask within its cpuset. Empty when it is gone."""
    return cpu_lists.of_kernel(_status(pid, root).get("Cpus_allowed_list", ""))


def mems_allowed(pid: int, root: Path = ROOT) -> frozenset[int]:
    """NUMA nodes a task may have memory from."""
    return cpu_lists.of_kernel(_status(pid, root).get("Mems_allowed_list", ""))


def is_ours(pid: int, root: Path = ROOT) -> bool:
    """Whether it runs as our user (effective)."""
    uids = _status(pid, root).get("Uid", "").split()
    return len(uids) > 1 and number(uids[1]) == os.geteuid()


def may_place(pid: int, root: Path = ROOT) -> bool:
    """Whether we may set its affinity: our user's, or CAP_SYS_NICE (sched_setaffinity(2))."""
    capable = int(_status(os.getpid(), ROOT).get("CapEff", "0"), 16)
    return is_ours(pid, root) or bool(capable >> _CAP_SYS_NICE & 1)


def boot_id(root: Path = ROOT) -> str:
    """Names this life of the machine: pids and ticks of another one mean nothing."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _status(pid: int, root: Path) -> dict[str, str]:
    try:
        lines = (root / f"proc/{pid}/status").read_text(errors="replace").split("\n")
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _stat(path: Path) -> list[str] | None:
    try:
        fields = path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None  # it has ended, or is hidden from us
    whole = len(fields) > _START and None not in (number(fields[_PPID]), number(fields[_START]))
    return fields if whole else None
