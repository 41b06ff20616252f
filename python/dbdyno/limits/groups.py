"""Creates a control group, fills it and moves processes into it; and undoes that from its journal entry."""

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
from dbdyno.kernel.control_groups import file_words, is_group, members, remove, write
from dbdyno.limits import places
from dbdyno.limits.places import OURS, Place, Refused
from dbdyno.model.engine.protocols import Undo
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.model.text import cpu_lists

CONTROLLERS = {"quota": "cpu", "weight": "cpu", "cpus": "cpuset", "mems": "cpuset"}
"""Controller by limit."""
_UNUSED = {
    "cpu": {"cpu.max": "max 100000", "cpu.weight": "100"},
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": ""},
}
"""v2: controller -> its files with their content in a group without limits."""
_ROUNDS = 200  # passes of moving: a server that needs more is a fork bomb
_EMPTY_S = 3.0  # largest wait until a group whose last process has left can be removed


def new_name() -> str:
    return f"dbdyno-{os.getpid()}-{secrets.token_hex(4)}"


def values(spec: LimitSpec, period_us: int, place: Place) -> dict[str, str]:
    """Returns the content by file, in the order of writing (scheduler/sched-bwc.rst, cgroup-v2.rst,
    cpuset(7)).

    A v1 group with cpuset accepts processes only after both of its lists are filled; lists without a limit
    are copied from its parent.
    """
    content: dict[str, str] = {}
    if "cpu" in place.controllers:
        content |= _cpu_v1(spec, period_us) if place.version == 1 else _cpu_v2(spec, period_us)
    if place.version == 1 and (place.parent / "cpuset.mems").exists():
        content |= {name: file_words(place.parent / name) for name in ("cpuset.mems", "cpuset.cpus")}
    if "cpuset" in place.controllers:
        wanted = {"cpuset.mems": spec.mems, "cpuset.cpus": spec.cpus}
        content |= {name: _list(listed, name) for name, listed in wanted.items() if listed is not None}
    return content


def _list(listed: str, name: str) -> str:
    return cpu_lists.text(cpu_lists.parse(listed, name))


def _cpu_v1(spec: LimitSpec, period_us: int) -> dict[str, str]:
    content = {}
    if spec.quota is not None:
        content = {
            "cpu.cfs_period_us": str(period_us),
            "cpu.cfs_quota_us": str(round(spec.quota * period_us)),
        }
    if spec.weight is not None:
        content["cpu.shares"] = str(max(2, round(spec.weight * 1024 / 100)))  # 1024 is the default
    return content


def _cpu_v2(spec: LimitSpec, period_us: int) -> dict[str, str]:
    content = {}
    if spec.quota is not None:
        content["cpu.max"] = f"{round(spec.quota * period_us)} {period_us}"
    if spec.weight is not None:
        content["cpu.weight"] = str(spec.weight)
    return content


def undo_of(place: Place, name: str, main_pid: int) -> Undo:
    """Returns the journal entry for :func:`make`."""
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
            "elsewhere": _in_other_groups(place, main_pid),
            "boot": processes.boot_id(),
        },
    )


def _in_other_groups(place: Place, main_pid: int) -> list[tuple[int, int, str]]:
    """Returns (pid, start, group) of the server's processes that are in another group than its main
    process."""
    others = []
    for pid in processes.tree(main_pid) - set(members(place.home)):
        who = processes.identity(pid)
        with contextlib.suppress(OSError):
            groups = _core.find_cgroups(pid, controllers=place.controllers[:1])
            if who is not None and groups and Path(groups[0][1]) != place.home:
                others.append((*who, groups[0][1]))
    return others


def rehearse(place: Place, content: Mapping[str, str], group: Path) -> None:
    """Creates the group, fills it and removes it, without a process in it, to find out what the kernel
    refuses. If controllers would have to be delegated first, only the creation of a group is tried."""
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
    """Creates the group with its limits. If it is below ``home``, all processes of ``home`` are moved,
    too."""
    try:
        group.mkdir()
        if place.parts:
            _divide(place, group, main_pid)
        if place.enable:
            write(place.parent / "cgroup.subtree_control", _signed("+", place.enable))
    except OSError as e:
        raise _refused(e, f"make control group {group}", place.version) from e
    fill(group, content, place.version)


def _divide(place: Place, group: Path, main_pid: int) -> None:
    """Empties ``home``: moves the server's processes to ``group``, all others to one beside it."""
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
    """Returns the processes of the server that are not in its group. One that ends meanwhile does not
    count."""
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
    """Moves processes, one pid per write. One that has ended meanwhile is left out."""
    for pid in pids:
        try:
            write(group / "cgroup.procs", str(pid))
        except ProcessLookupError:
            continue
        except OSError as e:
            if processes.identity(pid) is not None:
                raise _refused(e, f"move process {pid} into control group {group}", None) from e


def put_back(data: Mapping[str, Any]) -> str:
    """Undoes :func:`make`, wherever it was interrupted. A second call does nothing. Changes only groups of
    dbdyno."""
    group, home = Path(data["group"]), Path(data["home"])
    if not OURS.fullmatch(group.name) or data["boot"] != processes.boot_id():
        return f"control group {group} is gone: the machine was restarted"
    below = data["version"] == 2 and group.parent == home
    try:
        existing = [g for g in (group, _rest(group)) if is_group(g)]
        if below:  # else ``home`` cannot take its processes back
            _disable_controllers(home, data["enabled"], but=existing)
        back = {
            pid: Path(to) for pid, ticks, to in data["elsewhere"] if processes.identity(pid) == (pid, ticks)
        }
        moved = sum(_empty(g, home, back) for g in existing)
        if not below:
            _disable_controllers(group.parent, data["enabled"])
    except OSError as e:
        raise _refused(e, f"remove control group {group}", data["version"]) from e
    if not existing:
        return f"control group {group} was gone already"
    return f"removed control group {group}; {moved} processes went back to {_existing(home)}"


def _empty(group: Path, home: Path, back: Mapping[int, Path]) -> int:
    """Moves all processes out of our group, each to its former group, and removes it. Returns their
    number."""
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


def _disable_controllers(parent: Path, controllers: Iterable[str], but: Iterable[Path] = ()) -> None:
    """Disables the controllers that we enabled, unless a group other than ``but`` uses them."""
    handed = file_words(parent / "cgroup.subtree_control").split()
    children = [g for g in parent.iterdir() if g.is_dir() and g not in set(but)] if parent.exists() else []
    unused = [c for c in controllers if c in handed and not any(_uses(g, c) for g in children)]
    if unused:
        write(parent / "cgroup.subtree_control", _signed("-", unused))


def _uses(group: Path, controller: str) -> bool:
    limited = (
        file_words(group / name) not in (usual, "") for name, usual in _UNUSED.get(controller, {}).items()
    )
    return any(limited) or controller in file_words(group / "cgroup.subtree_control").split()


def _existing(home: Path) -> Path:
    """Returns the group, or the nearest existing one above if it was removed meanwhile."""
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
