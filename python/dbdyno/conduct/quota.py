"""A CPU quota on the server's processes for the length of a test, put back at its end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dbdyno import _core
from dbdyno.conduct.others import children

PERIOD_US = 100_000
_NAME = "dbdyno-selftest"


class QuotaRefused(Exception):
    """No quota can be set here; the words say why and what would help."""


@contextlib.contextmanager
def quota(main_pid: int, cpus: float) -> Iterator[Path]:
    """The server's tree in a group of its own with ``cpus`` CPUs; yields the group's directory.

    Linux admin guide: cgroup-v2.rst (cpu.max), cgroup-v1/cpu (cpu.cfs_quota_us). Raises
    :class:`QuotaRefused`.
    """
    version, home = _home(main_pid)
    parent = home if version == 1 or home.parent == home or _is_root(home) else home.parent
    group = parent / f"{_NAME}-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as e:
        raise QuotaRefused(
            f"cannot make a control group in {parent}: {e.strerror}; run as root, or have the group delegated"
        ) from e
    try:
        _limit(version, group, cpus)
        _move(children(main_pid), group)
        yield group
    finally:
        _move(_members(group), home)
        with contextlib.suppress(OSError):
            group.rmdir()


def _home(main_pid: int) -> tuple[int, Path]:
    """Version and directory of the group with the cpu controller that the server lies in."""
    try:
        found = _core.find_cgroups(main_pid, controllers=["cpu"])
    except OSError as e:
        raise QuotaRefused(f"the server's control group cannot be read: {e.strerror}") from e
    for version, directory in found:
        path = Path(directory)
        if version == 1 or (path / "cpu.max").exists() or _is_root(path):
            return version, path
    raise QuotaRefused("the cpu controller is not enabled for the server's control group")


def _is_root(path: Path) -> bool:
    return (path / "cgroup.controllers").exists() and not (path / "cgroup.type").exists()


def _limit(version: int, group: Path, cpus: float) -> None:
    quota_us = str(round(cpus * PERIOD_US))
    try:
        if version == 1:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(quota_us)
        else:
            (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    except OSError as e:
        raise QuotaRefused(f"no quota can be set in {group}: {e.strerror or 'no cpu controller'}") from e


def _move(pids: Iterable[int], group: Path) -> None:
    """One pid a write; one that has ended in the meantime is left out."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            try:
                (group / "cgroup.procs").write_text(str(pid))
            except ProcessLookupError:
                raise
            except OSError as e:
                raise QuotaRefused(f"cannot move process {pid} into {group}: {e.strerror}") from e


def _members(group: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    return []
