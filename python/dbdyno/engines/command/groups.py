"""Control groups for the launcher and all that it starts: killed as a whole, limited in tasks, CPU exact.

v2 (cgroup-v2.rst): ``dbdyno-commands-PID-X`` and in it ``launcher``, where the launcher is. So limits, which
make a group beside the server's own, stay inside. It lies beside our own group where that one has no limits
that commands would escape, else in it. v1: a group each in the hierarchies of ``pids`` and ``cpuacct`` (not
where that one is mounted with ``cpu``: a group there changes how CPU is shared). Without any, processes are
found as descendants of the launcher, their subreaper, and by ``DBDYNO_RUN`` in their environment.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import secrets
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dbdyno import _core
from dbdyno.kernel import processes
from dbdyno.kernel.control_groups import is_group, members, remove, words, write
from dbdyno.model.engine.protocols import Journal, Undo
from dbdyno.model.errors import NotPrivileged
from dbdyno.model.sources.source import Source, Status
from dbdyno.model.units import counted

RUN = "DBDYNO_RUN"
"""Environment variable of all commands: the run's token."""
LEAF = "launcher"
_NAME = re.compile(r"dbdyno-commands-\d+-[0-9a-f]{8}")
_V1 = ("pids", "cpuacct")
_NEUTRAL = {
    "memory.max": "max",
    "memory.high": "max",
    "cpu.max": "max 100000",
    "cpuset.cpus": "",
    "io.max": "",
}
_TASK_BYTES = 4 << 20  # of memory for each task that commands may have at once
_FEWEST = 256
_ROUNDS_S = 5.0  # of killing: more are processes that no signal reaches (state D)
_STEP_S = 0.005


class Group(NamedTuple):
    """A group of ours."""

    version: int
    path: Path
    home: Path  # where the launcher was before

    @property
    def entered(self) -> Path:
        """The directory that processes go into."""
        return self.path / LEAF if self.version == 2 else self.path


class Limit(NamedTuple):
    """Tasks at once, processes and threads."""

    tasks: int
    words: str


@dataclass(frozen=True)
class Containment:
    """Groups that there are, and by what tasks are limited."""

    groups: tuple[Group, ...]
    limit: Limit
    limited_by: Path | None  # None: by the launcher, which counts
    refused: str = ""  # why there is no group that can be killed as a whole

    def for_launcher(self, token: str) -> dict[str, Any]:
        """``Containment`` of driver/src/contain.rs."""
        return {
            "token": token,
            "groups": [{"path": str(g.path), "home": str(g.home)} for g in self.groups],
            "tasks": self.limit.tasks,
            "counted": self.limited_by is None,
        }

    def source(self) -> Source:
        killed = any((g.path / "cgroup.kill").exists() for g in self.groups)
        found = ", ".join(str(g.path) for g in self.groups) or "none"
        status: Status = "ok" if killed else "not permitted"
        return Source(
            name="control groups of commands",
            provenance=f"{found}; {self.words()}",
            status=status,
            detail="" if killed else self._without(),
        )

    def words(self) -> str:
        by = "pids.max" if self.limited_by is not None else "counted ten times a second"
        return f"commands may have {self.limit.tasks:,} tasks at once, by {by}: {self.limit.words}"

    def _without(self) -> str:
        cure = (
            "run as root, or in a delegated scope: systemd-run --user --scope -p Delegate=yes dbdyno run ..."
        )
        return f"{self.refused or 'this kernel has no cgroup.kill (Linux 5.14)'}: {_WALK}; {cure}"


_WALK = f"processes are found as descendants of the launcher and by {RUN} in their environment"


def new_name() -> str:
    return f"dbdyno-commands-{os.getpid()}-{secrets.token_hex(4)}"


def candidates(name: str) -> list[list[Group]]:
    """For each hierarchy, groups that may be tried, the best first. Nothing is changed."""
    found: list[list[Group]] = []
    homes: dict[Path, int] = {}
    for controller in _V1:
        with contextlib.suppress(OSError):
            for version, path in _core.find_cgroups(None, controllers=[controller])[:1]:
                if version == 1 and not Path(path, "cpu.shares").exists():
                    homes.setdefault(Path(path), 1)
    with contextlib.suppress(OSError):
        unified = [Path(p) for version, p in _core.find_cgroups(None, controllers=["none"]) if version == 2]
        homes |= dict.fromkeys(unified[:1], 2)
    for home, version in homes.items():
        parents = [home.parent, home] if version == 2 and _may_leave(home) else [home]
        found.append([Group(version, parent / name, home) for parent in parents])
    return found


def _may_leave(home: Path) -> bool:
    """Whether a group beside this one has no fewer limits than this one (v2)."""
    beside = (home / "cgroup.type").exists() and (home.parent / "cgroup.procs").exists()
    return beside and all(words(home / name) in (usual, "") for name, usual in _NEUTRAL.items())


def undo_of(token: str, tried: list[list[Group]], launcher: int) -> Undo:
    """What to note before :func:`make`."""
    return Undo(
        kind="commands",
        key=f"commands {token}",
        what=f"commands that the launcher (process {launcher}) had started, and their control groups",
        data={
            "token": token,
            "launcher": processes.identity(launcher),
            "groups": [str(g.path) for hierarchy in tried for g in hierarchy],
            "boot": processes.boot_id(),
        },
    )


def make(tried: list[list[Group]], launcher: int, limit: Limit) -> Containment:
    """Makes what can be made, with the launcher in it; what is refused is said and hinders nothing."""
    groups: list[Group] = []
    limited_by, refused = None, "no control groups are mounted here"
    for hierarchy in tried:
        for group in hierarchy:
            try:
                _make(group, launcher)
            except OSError as e:
                refused = f"control group {group.path} cannot be made: {e.strerror or e}"
                _removed(group.path)
            else:
                groups.append(group)
                limited_by = _limited(group, limit) or limited_by
                break
    return Containment(tuple(groups), limit, limited_by, refused)


def _make(group: Group, launcher: int) -> None:
    group.path.mkdir()
    if group.version == 2:
        group.entered.mkdir()
    write(group.entered / "cgroup.procs", str(launcher))


def _limited(group: Group, limit: Limit) -> Path | None:
    file = group.path / "pids.max"
    with contextlib.suppress(OSError):
        write(file, str(limit.tasks))
        return file
    return None


class Keeper:
    """One launcher's groups while it runs, and that nothing is left when it has ended."""

    def __init__(self, token: str, launcher: int) -> None:
        self.token, self._launcher = token, launcher
        self.made: Containment | None = None
        self._noted: tuple[Journal, Undo] | None = None

    def contain(self, journal: Journal) -> Containment:
        """See :meth:`dbdyno.model.plan.jobs.Commanding.contain`; what the launcher has to know of it is
        :meth:`Containment.for_launcher`."""
        if self.made is None:
            tried = candidates(new_name())
            undo = undo_of(self.token, tried, self._launcher)
            journal.note(undo)
            self._noted = journal, undo
            self.made = make(tried, self._launcher, limit())
        return self.made

    def end(self) -> None:
        """Once the launcher was ended: also where it was killed. Raises :class:`NotPrivileged`."""
        if self._noted is not None:
            journal, undo = self._noted
            put_back(undo.data)
            journal.forget(undo.key)
            self._noted = None


# -- how many tasks -----------------------------------------------------------------------------------
def limit() -> Limit:
    """Half of what the machine has left, and no more than fits into half of its free memory."""
    room = [(n, why) for n, why in _rooms() if n > 0]
    tasks, why = min(room, default=(1 << 15, "no limit of the system is known"))
    return Limit(max(_FEWEST, tasks), why)


def _rooms() -> Iterator[tuple[int, str]]:
    used = int(words(Path("/proc/loadavg")).split()[3].partition("/")[2])  # "running/all" (proc_loadavg(5))
    for name in ("threads-max", "pid_max"):
        if (value := words(Path("/proc/sys/kernel", name))).isdecimal():
            yield (int(value) - used) // 2, f"half of what kernel.{name} = {value} leaves"
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if os.geteuid() != 0 and soft != resource.RLIM_INFINITY:  # does not bind root
        yield (soft - used) // 2, f"half of what ulimit -u = {soft} leaves"
    for path in _pids_groups():
        if (value := words(path / "pids.max")).isdecimal():
            left = int(value) - int(words(path / "pids.current") or 0)
            yield left // 2, f"half of what {path / 'pids.max'} = {value} leaves"
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            yield (int(line.split()[1]) << 10) // _TASK_BYTES, "a task for each 4 MB of available memory"


def _pids_groups() -> list[Path]:
    try:
        return [Path(p) for _, p in _core.find_cgroups(None, controllers=["pids"])]
    except OSError:
        return []


# -- killing all, and removing ------------------------------------------------------------------------
def put_back(data: Mapping[str, Any]) -> str:
    """Ends what commands left, and removes their groups; in words. Again does nothing."""
    if data["boot"] != processes.boot_id():
        return "commands are gone: the machine was restarted"
    groups = [Path(g) for g in data["groups"]]
    if not all(_NAME.fullmatch(g.name) for g in groups):
        raise ValueError(f"no groups of dbdyno's: {data['groups']}")
    try:
        there = [g for g in groups if is_group(g)]
        launcher = tuple(data["launcher"] or ())
        ended = kill_all(str(data["token"]), launcher, there)
        for group in there:
            _remove_when_empty(group)
    except OSError as e:
        raise NotPrivileged(
            f"cannot remove what commands left: {e.strerror or e}",
            "run dbdyno clean as the user of that run, or as root",
        ) from e
    removed = ", ".join(map(str, there))
    if not ended and not removed:
        return "what commands left was gone already"
    said = (
        [f"ended {counted(ended, 'process')} that commands left"]
        if ended != 1
        else ["ended a process that commands left"]
    )
    return "; ".join([*(said if ended else []), *([f"removed control group {removed}"] if removed else [])])


def kill_all(token: str, launcher: tuple[int, ...], groups: list[Path]) -> int:
    """Kills every process of the run, until none is left; how many there were. Without ``launcher`` what it
    left is found by group and environment alone."""
    known = bool(launcher) and processes.identity(launcher[0]) == launcher
    seen: set[int] = set()
    deadline = time.monotonic() + _ROUNDS_S
    while True:
        left = processes.tree(launcher[0]) if known else set()
        left |= processes.with_variable(RUN, token)
        left |= {pid for group in groups for pid in _kill_group(group)}
        left -= {os.getpid(), os.getppid()}
        if not left or time.monotonic() > deadline:
            return len(seen)
        seen |= left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_STEP_S)


def _kill_group(group: Path) -> list[int]:
    """Who was in it, and below. No new process is born meanwhile, where the kernel can help."""
    found = [pid for directory in _below(group) for pid in members(directory)]
    for name, value in (("cgroup.kill", "1"), ("pids.max", "0")):
        with contextlib.suppress(OSError):
            if found:
                write(group / name, value)
                break
    return found


def _below(group: Path) -> list[Path]:
    """The group and all below it, the innermost first."""
    return [Path(d) for d, _, _ in os.walk(group, topdown=False)]


def _remove_when_empty(group: Path) -> None:
    deadline = time.monotonic() + _ROUNDS_S
    while not _removed(group):
        if time.monotonic() > deadline:
            raise OSError(errno.EBUSY, f"control group {group} still has processes")
        time.sleep(_STEP_S)


def _removed(group: Path) -> bool:
    try:
        for directory in _below(group):
            remove(directory)
    except OSError as e:
        if e.errno not in (errno.EBUSY, errno.ENOTEMPTY):
            raise
    return not group.exists()
