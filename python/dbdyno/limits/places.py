"""Decides where a control group for the server's processes can be created, before anything is changed; and
names the commands that give missing rights.

v1 (cgroup-v1/cgroups.rst): below the server's group, in each controller's own hierarchy. v2
(cgroup-v2.rst): beside it, if we may write in its parent; else below it, and then every other process of
the group needs a leaf, too, as a group that delegates controllers cannot contain processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dbdyno import _core
from dbdyno.kernel import processes
from dbdyno.kernel.control_groups import file_words, members
from dbdyno.model.errors import NotPrivileged, ServerBusy

_SYSTEMD = Path("/run/systemd/system")  # sd_booted(3)


AS_ROOT = 'sudo "$(command -v dbdyno)"'
"""Runs dbdyno as root, whose path may lack it; the same arguments follow."""


def as_root() -> str:
    return f"run as root: {AS_ROOT} ..."


def delegated() -> str:
    """Returns the command for our own user's server: a delegated scope of systemd may be divided
    (Delegate=yes)."""
    if not _SYSTEMD.exists():
        return f"{as_root()} (there is no systemd here to delegate a control group)"
    return (
        "start dbdyno and with it the embedded server in a delegated scope: "
        "systemd-run --user --scope -p Delegate=yes dbdyno run ... "
        f"(for a server that is to stay: ... dbdyno server start); or as root: {AS_ROOT} ..."
    )


def no_controller(controller: str) -> str:
    """Returns the command that delegates a controller: users' managers have few by default (systemd's
    user@.service)."""
    if not _SYSTEMD.exists():
        return f"the {controller} controller has to be enabled above, by root; {container()}"
    return (
        "have it delegated: sudo systemctl edit user@.service, there [Service] Delegate=cpu cpuset io memory "
        f"pids, then log in again; or as root: {AS_ROOT} ..."
    )


def container() -> str:
    return (
        "in a container: start it with --privileged, or limit the container itself "
        "(docker run --cpus, --cpuset-cpus, --cpuset-mems)"
    )


def other_host() -> str:
    return (
        "run dbdyno where the server's processes are seen: on its host, in its pid namespace (docker run "
        "--pid=host), as a user from whom /proc does not hide them"
    )


def no_cpuset(mems: str) -> str:
    return f"start the server under the policy: numactl --membind={mems} --cpunodebind={mems} COMMAND"


OURS = re.compile(r"dbdyno-\d+-[0-9a-f]{8}(?:-rest)?")


class Refused(NotPrivileged):
    """No group can be created here: has the reason, the missing right, and the command that gives it."""


@dataclass(frozen=True)
class Place:
    """A place for a new group of the server's processes: in ``parent``. They are now in ``home``."""

    version: int
    controllers: tuple[str, ...]
    home: Path
    parent: Path
    enable: tuple[str, ...] = ()  # v2: controllers that ``parent`` does not delegate yet

    @property
    def parts(self) -> bool:
        """Whether the other processes of ``home`` have to leave it, too."""
        return self.version == 2 and self.parent == self.home and not _is_root(self.home)


def find(main_pid: int, controllers: Iterable[str], root: Path = processes.ROOT) -> list[Place]:
    """Returns one place per hierarchy of these controllers. Raises :class:`Refused`, and
    :class:`ServerBusy` if the server is already in a group of dbdyno."""
    homes: dict[tuple[int, Path], list[str]] = {}
    for controller in controllers:
        homes.setdefault(_home(main_pid, controller, root), []).append(controller)
    ours = processes.is_ours(main_pid, root)
    return [
        (_v1 if version == 1 else _v2)(home, tuple(wanted), ours) for (version, home), wanted in homes.items()
    ]


def _home(main_pid: int, controller: str, root: Path) -> tuple[int, Path]:
    """Returns version and directory of the server's group in the hierarchy of this controller."""
    try:
        groups = _core.find_cgroups(main_pid, root, [controller])
    except OSError as e:
        raise Refused(
            f"the control group of the server (process {main_pid}) cannot be read: {e.strerror or e}",
            as_root(),
        ) from e
    if not groups:
        raise Refused("no control groups are mounted here that the server is in", container())
    version, directory = groups[0]
    home = Path(directory)
    check_not_ours(home)
    if file_words(home / "cgroup.type") != "threaded" and main_pid not in members(home):
        raise Refused(
            f"the server's control group is outside of what is mounted here: {home} does not hold it",
            container(),
        )
    return version, home


def check_not_ours(home: Path) -> None:
    """Raises :class:`ServerBusy` if ``home`` lies in a group of dbdyno, as limits are not nested."""
    for part in home.parts:
        if OURS.fullmatch(part):
            raise ServerBusy(
                f"the server is in control group {home}: limits of another run "
                f"(process {part.split('-')[1]}), or of one that was killed",
                "wait for that run; where it is gone: dbdyno clean",
            )


def _v1(home: Path, controllers: tuple[str, ...], ours: bool) -> Place:
    """Returns the place in v1. Directories must be writable, and cgroup.procs for undoing; moving another
    user's process needs root."""
    if os.geteuid() != 0 and not ours:
        raise Refused("the server is another user's: moving it to a control group needs root", as_root())
    refuse_unwritable([home, home / "cgroup.procs"], version=1, ours=ours)
    return Place(1, controllers, home, home)


def _v2(home: Path, controllers: tuple[str, ...], ours: bool) -> Place:
    beside = [] if _is_root(home) or not (home.parent / "cgroup.procs").exists() else [home.parent]
    refusals: list[Refused] = []
    for parent in (*beside, home):
        place = Place(2, controllers, home, parent)
        try:
            refuse_unwritable(_written(place), version=2, ours=ours)
            place = replace(place, enable=_to_enable(place))
            refuse_unwritable(_written(place), version=2, ours=ours)
        except Refused as e:
            refusals.append(e)
        else:
            return place
    raise refusals[0 if os.geteuid() == 0 else -1]  # a plain user can only get their own group delegated


def _to_enable(place: Place) -> tuple[str, ...]:
    """Returns the controllers that ``parent`` has and does not delegate yet. Raises :class:`Refused`."""
    parent = place.parent
    kind = "domain" if _is_root(parent) else file_words(parent / "cgroup.type")
    if kind != "domain":
        raise Refused(
            f"control group {parent} is {kind}: no group with limits can be made in it "
            '(cgroups(7), "Thread mode")',
            "move the server to an ordinary group, for example into a service or a scope of systemd's",
        )
    has = file_words(parent / "cgroup.controllers").split()
    if missing := [c for c in place.controllers if c not in has]:
        raise Refused(
            f"control group {parent} is not given the controller {missing[0]}: it has "
            f"{' '.join(has) or 'none'}",
            no_controller(missing[0]),
        )
    handed = file_words(parent / "cgroup.subtree_control").split()
    enable = tuple(c for c in place.controllers if c not in handed)
    if enable and not (_is_root(parent) or place.parts) and members(parent):
        raise Refused(
            f"control group {parent} has processes of its own, so it cannot hand down {' '.join(enable)}",
            as_root(),
        )
    return enable


def _written(place: Place) -> Sequence[Path]:
    """Returns the files that will be written: the common ancestor's cgroup.procs decides (cgroup-v2.rst,
    "Delegation Containment"), and that of ``home`` is needed for undoing."""
    files = [place.parent, place.parent / "cgroup.procs", place.home / "cgroup.procs"]
    return [*files, place.parent / "cgroup.subtree_control"] if place.enable else files


def refuse_unwritable(paths: Iterable[Path], version: int, ours: bool) -> None:
    """Raises :class:`Refused` with the first of ``paths`` that we may not write."""
    for path in paths:
        if os.access(path, os.W_OK, effective_ids=True):
            continue
        if os.geteuid() == 0:
            raise Refused(f"{path} cannot be written, not even as root", container())
        cure = delegated() if version == 2 and ours else as_root()
        right = "root, or a delegated subtree (Delegate=yes)" if version == 2 else "root"
        raise Refused(f"no control group can be made: {path} may not be written; that needs {right}", cure)


def _is_root(group: Path) -> bool:
    """Returns whether it is the root of the v2 hierarchy, the only group without cgroup.type."""
    return not (group / "cgroup.type").exists()
