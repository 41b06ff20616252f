"""Processes in /proc, identified by pid and start time.

``root`` is the root of the machine's tree: ``/``, or a recorded one.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from dbdyno.kernel.numbers import number
from dbdyno.model.text import cpu_lists

ROOT = Path("/")
INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h
_PPID, _START = 1, 19  # fields of stat after the name (proc_pid_stat(5): 4, 22)
_CAP_SYS_NICE = 23  # linux/capability.h


class Identity(NamedTuple):
    """A process or task, identified by pid and start time since boot."""

    pid: int
    ticks: int  # its start, in clock ticks since boot


def identity(pid: int, root: Path = ROOT) -> Identity | None:
    """Returns the identity of a process; None if it is gone, or a zombie."""
    fields = _stat(root / f"proc/{pid}/stat")
    return None if fields is None or fields[0] in "ZX" else Identity(pid, int(fields[_START]))


def parent(pid: int, root: Path = ROOT) -> int | None:
    """Returns the parent's pid; None if the process is gone, or a zombie."""
    fields = _stat(root / f"proc/{pid}/stat")
    return None if fields is None or fields[0] in "ZX" else int(fields[_PPID])


def tree(main_pid: int, root: Path = ROOT) -> set[int]:
    """Returns the process and all visible descendants; empty if it is gone."""
    parents: dict[int, int] = {}
    for entry in (root / "proc").iterdir():
        if entry.name.isdecimal() and (fields := _stat(entry / "stat")) is not None and fields[0] not in "ZX":
            parents[int(entry.name)] = int(fields[_PPID])
    pids = {main_pid} & parents.keys()
    while more := {pid for pid, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return pids


def tasks(pid: int, root: Path = ROOT) -> list[int]:
    """Returns the threads of a process; empty if it is gone."""
    try:
        return [int(p.name) for p in (root / f"proc/{pid}/task").iterdir()]
    except OSError:
        return []


def with_variable(name: str, value: str, root: Path = ROOT) -> set[int]:
    """Returns the processes that were started with this variable in their environment, as far as it is
    readable."""
    wanted, pids = f"{name}={value}".encode(), set[int]()
    for entry in (root / "proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    pids.add(int(entry.name))
    return pids


def cpus_allowed(pid: int, root: Path = ROOT) -> frozenset[int]:
    """Returns the CPUs that a task may run on, offline ones included: its mask within its cpuset. Empty if
    it is gone."""
    return cpu_lists.of_kernel(_status(pid, root).get("Cpus_allowed_list", ""))


def mems_allowed(pid: int, root: Path = ROOT) -> frozenset[int]:
    """Returns the NUMA nodes from which a task may get memory."""
    return cpu_lists.of_kernel(_status(pid, root).get("Mems_allowed_list", ""))


def is_ours(pid: int, root: Path = ROOT) -> bool:
    """Returns whether the process has our effective user."""
    uids = _status(pid, root).get("Uid", "").split()
    return len(uids) > 1 and number(uids[1]) == os.geteuid()


def may_place(pid: int, root: Path = ROOT) -> bool:
    """Returns whether we may set the affinity of a process: it is our user's, or we have CAP_SYS_NICE
    (sched_setaffinity(2))."""
    capable = int(_status(os.getpid(), ROOT).get("CapEff", "0"), 16)
    return is_ours(pid, root) or bool(capable >> _CAP_SYS_NICE & 1)


def hidepid(root: Path = ROOT) -> str | None:
    """Returns the option of /proc that hides processes ("hidepid=2", proc(5)), None if there is none."""
    try:
        mounts = (root / "proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return None
    for words in map(str.split, mounts.split("\n")):
        if words[4:5] == ["/proc"] and (match := re.search(r"hidepid=(?!0|off)\w+", words[-1])):
            return match[0]
    return None


def boot_id(root: Path = ROOT) -> str:
    """Returns the id of this boot: pids and start times are meaningless after another one."""
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
        return None  # the process has ended, or is hidden from us
    whole = len(fields) > _START and None not in (number(fields[_PPID]), number(fields[_START]))
    return fields if whole else None
