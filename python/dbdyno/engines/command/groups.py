"""Control groups for the launcher and all its children: to kill them as a whole, limit their number of tasks,
and measure their CPU exactly.

cgroup v2 (cgroup-v2.rst): ``dbdyno-commands-PID-X`` contains ``launcher``, where the launcher runs, so that
limits apply inside it only. It is a sibling of our own group if commands would thereby escape no limit of
that group, else a child of it. cgroup v1: one group each in the hierarchies of ``pids`` and ``cpuacct``; not
in ``cpuacct`` if that is mounted together with ``cpu``, since a group there changes how CPU is shared.
Without groups, processes are found as descendants of the launcher, which is their subreaper, and by
``DBDYNO_RUN`` in their environment.
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
from dbdyno.kernel.control_groups import file_words, is_group, members, remove, write
from dbdyno.model.engine.protocols import Journal, Undo
from dbdyno.model.errors import NotPrivileged
from dbdyno.model.sources.source import Source, Status
from dbdyno.model.units import counted

RUN = "DBDYNO_RUN"
"""Environment variable of all commands that holds the run's token."""
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
_TASK_BYTES = 4 << 20  # memory assumed for each task that commands may have at once
_FEWEST = 256
_ROUNDS_S = 5.0  # of killing: processes that live longer are beyond any signal (state D)
_STEP_S = 0.005


class Group(NamedTuple):
    """A control group of dbdyno."""

    version: int
    path: Path
    home: Path  # where the launcher was before

    @property
    def entered(self) -> Path:
        """Directory of the group that processes are moved into."""
        return self.path / LEAF if self.version == 2 else self.path


class Limit(NamedTuple):
    """The most tasks (processes and threads) at once."""

    tasks: int
    words: str


@dataclass(frozen=True)
class Containment:
    """The control groups of a launcher, and how the number of tasks is limited."""

    groups: tuple[Group, ...]
    limit: Limit
    limited_by: Path | None  # pids.max; None if the launcher counts tasks itself
    refused: str = ""  # why no group can be killed as a whole

    def for_launcher(self, token: str) -> dict[str, Any]:
        """Returns the fields of ``Containment`` in driver/src/contain.rs."""
        return {
            "token": token,
            "groups": [{"path": str(g.path), "home": str(g.home)} for g in self.groups],
            "tasks": self.limit.tasks,
            "counted": self.limited_by is None,
        }

    def source(self) -> Source:
        can_kill = any((g.path / "cgroup.kill").exists() for g in self.groups)
        paths = ", ".join(str(g.path) for g in self.groups) or "none"
        status: Status = "ok" if can_kill else "not permitted"
        return Source(
            name="control groups of commands",
            provenance=f"{paths}; {self.words()}",
            status=status,
            detail="" if can_kill else self._without(),
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
    """Returns the groups to try, a list per hierarchy with the best first. Changes nothing."""
    hierarchies: list[list[Group]] = []
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
        hierarchies.append([Group(version, parent / name, home) for parent in parents])
    return hierarchies


def _may_leave(home: Path) -> bool:
    """Returns whether a sibling of this group has no fewer limits than the group itself (v2)."""
    can_have_sibling = (home / "cgroup.type").exists() and (home.parent / "cgroup.procs").exists()
    return can_have_sibling and all(
        file_words(home / name) in (usual, "") for name, usual in _NEUTRAL.items()
    )


def undo_of(token: str, hierarchies: list[list[Group]], launcher: int) -> Undo:
    """Returns the journal entry to write before :func:`make`."""
    return Undo(
        kind="commands",
        key=f"commands {token}",
        what=f"commands that the launcher (process {launcher}) had started, and their control groups",
        data={
            "token": token,
            "launcher": processes.identity(launcher),
            "groups": [str(g.path) for hierarchy in hierarchies for g in hierarchy],
            "boot": processes.boot_id(),
        },
    )


def make(hierarchies: list[list[Group]], launcher: int, limit: Limit) -> Containment:
    """Creates the groups that can be created and moves the launcher into them. A refusal is recorded and is
    no error."""
    groups: list[Group] = []
    limited_by, refused = None, "no control groups are mounted here"
    for hierarchy in hierarchies:
        for group in hierarchy:
            try:
                _make(group, launcher)
            except OSError as e:
                refused = f"control group {group.path} cannot be made: {e.strerror or e}"
                _try_remove(group.path)
            else:
                groups.append(group)
                limited_by = _limit_tasks(group, limit) or limited_by
                break
    return Containment(tuple(groups), limit, limited_by, refused)


def _make(group: Group, launcher: int) -> None:
    group.path.mkdir()
    if group.version == 2:
        group.entered.mkdir()
    write(group.entered / "cgroup.procs", str(launcher))


def _limit_tasks(group: Group, limit: Limit) -> Path | None:
    """Sets ``pids.max``. Returns its path, None if it cannot be set."""
    file = group.path / "pids.max"
    with contextlib.suppress(OSError):
        write(file, str(limit.tasks))
        return file
    return None


class Keeper:
    """The control groups of one launcher. Nothing is left of them after :meth:`end`."""

    def __init__(self, token: str, launcher: int) -> None:
        self.token, self._launcher = token, launcher
        self.containment: Containment | None = None
        self._noted: tuple[Journal, Undo] | None = None

    def contain(self, journal: Journal) -> Containment:
        """See :meth:`dbdyno.model.plan.jobs.Commanding.contain`. The launcher gets
        :meth:`Containment.for_launcher`."""
        if self.containment is None:
            hierarchies = candidates(new_name())
            undo = undo_of(self.token, hierarchies, self._launcher)
            journal.note(undo)
            self._noted = journal, undo
            self.containment = make(hierarchies, self._launcher, limit())
        return self.containment

    def end(self) -> None:
        """Kills what is left and removes the groups, after the launcher has ended or was killed. Raises
        :class:`NotPrivileged`."""
        if self._noted is not None:
            journal, undo = self._noted
            put_back(undo.data)
            journal.forget(undo.key)
            self._noted = None


# -- how many tasks -----------------------------------------------------------------------------------
def limit() -> Limit:
    """Returns half of the tasks that the machine has left, at most as many as fit into half of its free
    memory."""
    limits = [(n, why) for n, why in _task_limits() if n > 0]
    tasks, why = min(limits, default=(1 << 15, "no limit of the system is known"))
    return Limit(max(_FEWEST, tasks), why)


def _task_limits() -> Iterator[tuple[int, str]]:
    """Yields limits on the number of tasks, each with its reason."""
    used = int(
        file_words(Path("/proc/loadavg")).split()[3].partition("/")[2]
    )  # "running/all" (proc_loadavg(5))
    for name in ("threads-max", "pid_max"):
        if (value := file_words(Path("/proc/sys/kernel", name))).isdecimal():
            yield (int(value) - used) // 2, f"half of what kernel.{name} = {value} leaves"
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if os.geteuid() != 0 and soft != resource.RLIM_INFINITY:  # does not bind root
        yield (soft - used) // 2, f"half of what ulimit -u = {soft} leaves"
    for path in _pids_groups():
        if (value := file_words(path / "pids.max")).isdecimal():
            left = int(value) - int(file_words(path / "pids.current") or 0)
            yield left // 2, f"half of what {path / 'pids.max'} = {value} leaves"
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            yield (int(line.split()[1]) << 10) // _TASK_BYTES, "a task for each 4 MB of available memory"


def _pids_groups() -> list[Path]:
    """Returns the directories of all groups with ``pids`` limits above this process."""
    try:
        return [Path(p) for _, p in _core.find_cgroups(None, controllers=["pids"])]
    except OSError:
        return []


# -- killing all, and removing ------------------------------------------------------------------------
def put_back(data: Mapping[str, Any]) -> str:
    """Kills the commands that are left and removes their groups. Returns a description. May be repeated."""
    if data["boot"] != processes.boot_id():
        return "commands are gone: the machine was restarted"
    groups = [Path(g) for g in data["groups"]]
    if not all(_NAME.fullmatch(g.name) for g in groups):
        raise ValueError(f"no groups of dbdyno's: {data['groups']}")
    try:
        existing = [g for g in groups if is_group(g)]
        launcher = tuple(data["launcher"] or ())
        ended = kill_all(str(data["token"]), launcher, existing)
        for group in existing:
            _remove_when_empty(group)
    except OSError as e:
        raise NotPrivileged(
            f"cannot remove what commands left: {e.strerror or e}",
            "run dbdyno clean as the user of that run, or as root",
        ) from e
    removed = ", ".join(map(str, existing))
    if not ended and not removed:
        return "what commands left was gone already"
    ended_words = "a process" if ended == 1 else counted(ended, "process")
    parts = [f"ended {ended_words} that commands left"] if ended else []
    return "; ".join([*parts, *([f"removed control group {removed}"] if removed else [])])


def kill_all(token: str, launcher: tuple[int, ...], groups: list[Path]) -> int:
    """Kills every process of the run until none is left. Returns their number. Without ``launcher`` they are
    found only by group and environment."""
    is_launcher = bool(launcher) and processes.identity(launcher[0]) == launcher
    seen: set[int] = set()
    deadline = time.monotonic() + _ROUNDS_S
    while True:
        left = processes.tree(launcher[0]) if is_launcher else set()
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
    """Kills the group. Returns the processes in it and in the groups below.

    Writes ``cgroup.kill`` (Linux 5.14) or else ``pids.max`` = 0, so that no process is forked meanwhile.
    """
    pids = [pid for directory in _below(group) for pid in members(directory)]
    for name, value in (("cgroup.kill", "1"), ("pids.max", "0")):
        with contextlib.suppress(OSError):
            if pids:
                write(group / name, value)
                break
    return pids


def _below(group: Path) -> list[Path]:
    """Returns the group and all groups below it, the innermost first."""
    return [Path(d) for d, _, _ in os.walk(group, topdown=False)]


def _remove_when_empty(group: Path) -> None:
    """Removes the group once its processes are gone. Raises :class:`OSError` after ``_ROUNDS_S``."""
    deadline = time.monotonic() + _ROUNDS_S
    while not _try_remove(group):
        if time.monotonic() > deadline:
            raise OSError(errno.EBUSY, f"control group {group} still has processes")
        time.sleep(_STEP_S)


def _try_remove(group: Path) -> bool:
    """Removes the group and the groups below it. Returns False while they have processes."""
    try:
        for directory in _below(group):
            remove(directory)
    except OSError as e:
        if e.errno not in (errno.EBUSY, errno.ENOTEMPTY):
            raise
    return not group.exists()
