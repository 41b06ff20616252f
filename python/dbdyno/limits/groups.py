"""Making a control group, filling it, moving processes into it; and back, from what was noted before."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dbdyno import _core
from dbdyno.kernel import processes
from dbdyno.kernel.control_groups import is_group, members, remove, words, write
from dbdyno.limits import places
from dbdyno.limits.places import OURS, Place, Refused
from dbdyno.model.engine.protocols import Undo
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.model.text import cpu_lists

CONTROLLERS = {"quota": "cpu", "weight": "cpu", "cpus": "cpuset", "mems": "cpuset"}
"""Limit -> the controller that sets it."""
_UNUSED = {
    "cpu": {"cpu.max": "max 100000", "cpu.weight": "100"},
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": ""},
}
"""v2: controller -> its files and what they say in a group that nobody limited."""
_ROUNDS = 200  # of moving: more are a fork bomb, not a server
_EMPTY_S = 3.0  # until a group whose last process has left can be removed


def new_name() -> str:
    return f"dbdyno-{os.getpid()}-{secrets.token_hex(4)}"


def values(spec: LimitSpec, period_us: int, place: Place) -> dict[str, str]:
    """File -> what is written, in this order (scheduler/sched-bwc.rst, cgroup-v2.rst, cpuset(7)).

    A v1 group with cpuset takes no process before both of its lists are filled: what is not limited is
    its parent's.
    """
    found: dict[str, str] = {}
    if "cpu" in place.controllers:
        found |= _cpu_v1(spec, period_us) if place.version == 1 else _cpu_v2(spec, period_us)
    if place.version == 1 and (place.parent / "cpuset.mems").exists():
        found |= {name: words(place.parent / name) for name in ("cpuset.mems", "cpuset.cpus")}
    if "cpuset" in place.controllers:
        wanted = {"cpuset.mems": spec.mems, "cpuset.cpus": spec.cpus}
        found |= {name: _list(listed, name) for name, listed in wanted.items() if listed is not None}
    return found


def _list(listed: str, name: str) -> str:
    return cpu_lists.text(cpu_lists.parse(listed, name))


def _cpu_v1(spec: LimitSpec, period_us: int) -> dict[str, str]:
    found = {}
    if spec.quota is not None:
        found = {"cpu.cfs_period_us": str(period_us), "cpu.cfs_quota_us": str(round(spec.quota * period_us))}
    if spec.weight is not None:
        found["cpu.shares"] = str(max(2, round(spec.weight * 1024 / 100)))  # 1024 is everybody's
    return found


def _cpu_v2(spec: LimitSpec, period_us: int) -> dict[str, str]:
    found = {}
    if spec.quota is not None:
        found["cpu.max"] = f"{round(spec.quota * period_us)} {period_us}"
    if spec.weight is not None:
        found["cpu.weight"] = str(spec.weight)
    return found


def undo_of(place: Place, name: str, main_pid: int) -> Undo:
    """What to note before :func:`make`."""
    group = place.parent / name
    return Undo(
        kind="group",
        key=f"group {group}",
        what=f"control group {group} with the server's processes",
        data={
            "version": place.version,
            "group": str(group),
            "home": str(place.home),
            "enabled": list(place.enable),
            "elsewhere": _elsewhere(place, main_pid),
            "boot": processes.boot_id(),
        },
    )


def _elsewhere(place: Place, main_pid: int) -> list[tuple[int, int, str]]:
    """(pid, start, group) of the server's processes that are in another group than its main process."""
    found = []
    for pid in processes.tree(main_pid) - set(members(place.home)):
        who = processes.identity(pid)
        with contextlib.suppress(OSError):
            groups = _core.find_cgroups(pid, controllers=place.controllers[:1])
            if who is not None and groups and Path(groups[0][1]) != place.home:
                found.append((*who, groups[0][1]))
    return found


def rehearse(place: Place, content: Mapping[str, str], group: Path) -> None:
    """Makes the group, fills it and removes it, with no process in it: finds out what the kernel refuses.

    Where controllers would have to be handed down first, only that a group can be made is tried.
    """
    try:
        group.mkdir()
    except OSError as e:
        raise _refused(e, f"make control group {group}", place.version) from e
    try:
        if not place.enable:
            fill(group, content, place.version)
    finally:
        with contextlib.suppress(OSError):
            remove(group)


def make(place: Place, content: Mapping[str, str], group: Path, main_pid: int) -> None:
    """The group with its limits. Where it is below ``home``, all of its processes are moved as well."""
    try:
        group.mkdir()
        if place.parts:
            _part(place, group, main_pid)
        if place.enable:
            write(place.parent / "cgroup.subtree_control", _signed("+", place.enable))
    except OSError as e:
        raise _refused(e, f"make control group {group}", place.version) from e
    fill(group, content, place.version)


def _part(place: Place, group: Path, main_pid: int) -> None:
    """Empties ``home``: the server's processes into ``group``, all others into one beside it."""
    rest = _rest(group)
    rest.mkdir()
    for _ in range(_ROUNDS):
        if not (left := set(members(place.home))):
            return
        server = processes.tree(main_pid)
        move(left & server, group)
        move(left - server, rest)
    raise Refused(f"the processes of control group {place.home} cannot be moved", places.as_root())


def _rest(group: Path) -> Path:
    return group.with_name(f"{group.name}-rest")


def fill(group: Path, content: Mapping[str, str], version: int) -> None:
    for name, value in content.items():
        try:
            write(group / name, value)
        except OSError as e:
            raise _refused(e, f"write {value!r} to {group / name}", version) from e


def outside(main_pid: int, group: Path) -> set[int]:
    """Processes of the server that are not in its group; one that ends between two looks is none."""
    left = processes.tree(main_pid) - set(members(group))
    return {pid for pid in left if processes.identity(pid) is not None} - set(members(group))


def gather(main_pid: int, group: Path) -> None:
    """Moves the server's processes until none is outside. Later ones are born inside."""
    for _ in range(_ROUNDS):
        if not (left := outside(main_pid, group)):
            return
        move(left, group)
    raise Refused(f"processes of the server cannot be kept in control group {group}", places.as_root())


def move(pids: Iterable[int], group: Path) -> None:
    """One pid a write; one that has ended in the meantime is left out."""
    for pid in pids:
        try:
            write(group / "cgroup.procs", str(pid))
        except ProcessLookupError:
            continue
        except OSError as e:
            if processes.identity(pid) is not None:
                raise _refused(e, f"move process {pid} into control group {group}", None) from e


def put_back(data: Mapping[str, Any]) -> str:
    """Undoes :func:`make`, wherever it was interrupted; again does nothing. Touches no group but ours."""
    group, home = Path(data["group"]), Path(data["home"])
    if not OURS.fullmatch(group.name) or data["boot"] != processes.boot_id():
        return f"control group {group} is gone: the machine was restarted"
    below = data["version"] == 2 and group.parent == home
    try:
        there = [g for g in (group, _rest(group)) if is_group(g)]
        if below:  # else ``home`` may not take its processes back
            _hand_down_no_more(home, data["enabled"], but=there)
        back = {
            pid: Path(to) for pid, ticks, to in data["elsewhere"] if processes.identity(pid) == (pid, ticks)
        }
        moved = sum(_empty(g, home, back) for g in there)
        if not below:
            _hand_down_no_more(group.parent, data["enabled"])
    except OSError as e:
        raise _refused(e, f"remove control group {group}", data["version"]) from e
    if not there:
        return f"control group {group} was gone already"
    return f"removed control group {group}; {moved} processes went back to {_existing(home)}"


def _empty(group: Path, home: Path, back: Mapping[int, Path]) -> int:
    """Moves all processes out of our group, each to where it was, and removes it; how many went."""
    gone: set[int] = set()
    deadline = time.monotonic() + _EMPTY_S
    while True:
        for pid in members(group):
            move([pid], _existing(back.get(pid, home)))
            gone.add(pid)
        try:
            remove(group)
            return len(gone)
        except OSError as e:
            if e.errno not in (errno.EBUSY, errno.ENOTEMPTY) or time.monotonic() > deadline:
                raise
        time.sleep(0.005)


def _hand_down_no_more(parent: Path, controllers: Iterable[str], but: Iterable[Path] = ()) -> None:
    """Takes back what we enabled, unless another group than ``but`` has begun to use it."""
    handed = words(parent / "cgroup.subtree_control").split()
    children = [g for g in parent.iterdir() if g.is_dir() and g not in set(but)] if parent.exists() else []
    unused = [c for c in controllers if c in handed and not any(_uses(g, c) for g in children)]
    if unused:
        write(parent / "cgroup.subtree_control", _signed("-", unused))


def _uses(group: Path, controller: str) -> bool:
    limited = (words(group / name) not in (usual, "") for name, usual in _UNUSED.get(controller, {}).items())
    return any(limited) or controller in words(group / "cgroup.subtree_control").split()


def _existing(home: Path) -> Path:
    """Its group may have been removed meanwhile: then the nearest above it."""
    return next((g for g in (home, *home.parents) if (g / "cgroup.procs").exists()), home)


def _signed(sign: str, controllers: Iterable[str]) -> str:
    return " ".join(f"{sign}{c}" for c in controllers)


def _refused(error: OSError, doing: str, version: int | None) -> Refused:
    permitted = error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS)
    cure = _KERNEL.get(error.errno or 0, places.as_root() if not permitted else places.container())
    if version == 2 and not permitted:
        cure = places.delegated()
    return Refused(f"cannot {doing}: {error.strerror or error}", cure)


_KERNEL = {
    errno.EBUSY: "a group above or beside it is in use in a way that does not allow this (cgroups(7)); "
    "move the server to a group of its own, for example a service of systemd's",
    errno.EOPNOTSUPP: 'the group is threaded, or below one that is (cgroups(7), "Thread mode"): move the '
    "server to an ordinary group",
    errno.EINVAL: "a group above it, or an exclusive one beside it, is tighter: ask for no more than that",
    errno.ENOSPC: "its list of CPUs or memory nodes is empty",
}
