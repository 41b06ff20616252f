"""Directories of control groups: writes, reads and removes them.

No path is trusted: it must lie in a mounted cgroup file system and contain no link.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")


@contextmanager
def directory(path: Path) -> Iterator[int]:
    """Yields a descriptor of a control group's directory. Raises :class:`OSError` if a part of its path is
    a link, or it is not a directory of a cgroup file system."""
    descriptor = _walk(path)
    try:
        if os.fstat(descriptor).st_dev not in _cgroup_devices():
            raise OSError(errno.EXDEV, f"{path} is not a control group")
        yield descriptor
    finally:
        os.close(descriptor)


def is_group(path: Path) -> bool:
    """Returns whether the group exists. Raises :class:`OSError` as :func:`directory`."""
    try:
        with directory(path):
            return True
    except FileNotFoundError:
        return False


def _walk(path: Path) -> int:
    """Opens a path part by part with O_NOFOLLOW, so that no link is followed."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open("/", flags)
    for part in path.absolute().parts[1:]:
        above = descriptor
        try:
            descriptor = os.open(part, flags, dir_fd=above)
        except NotADirectoryError as error:
            raise OSError(errno.ELOOP, f"{path} leads through a link or a file: {part}") from error
        finally:
            os.close(above)
    return descriptor


def _cgroup_devices() -> set[int]:
    """Returns the devices of the mounted cgroup file systems (mountinfo); the tmpfs above those of v1 is
    not one."""
    devices = set()
    for line in _MOUNTS.read_text(errors="replace").split("\n"):
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] in ("cgroup", "cgroup2"):
            major, minor = before.split(" ")[2].split(":")
            devices.add(os.makedev(int(major), int(minor)))
    return devices


def remove(group: Path) -> None:
    """Removes a group. The kernel removes its files with the directory."""
    with contextlib.suppress(FileNotFoundError), directory(group.parent) as parent:
        os.rmdir(group.name, dir_fd=parent)


def write(file: Path, value: str) -> None:
    """Writes a value with one write(2), as the kernel requires. Never creates a file."""
    with directory(file.parent) as group:
        descriptor = os.open(file.name, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=group)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)


def file_words(file: Path) -> str:
    """Returns the words of a group's file; empty if it is absent or not readable."""
    try:
        return " ".join(file.read_text().split())
    except OSError:
        return ""


def members(group: Path) -> list[int]:
    """Returns the processes of a group that have a pid in our namespace; others are shown as 0."""
    return [pid for pid in map(int, file_words(group / "cgroup.procs").split()) if pid]
