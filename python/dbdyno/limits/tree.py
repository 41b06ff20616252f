"""Control groups by paths that a journal names: in a mounted cgroup file system, and through no link."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")


@contextmanager
def directory(path: Path) -> Iterator[int]:
    """A descriptor of a control group's directory.

    Raises :class:`OSError` where a part of its path is a link, or it is no directory of a cgroup file system.
    """
    descriptor = _walk(path)
    try:
        if os.fstat(descriptor).st_dev not in _cgroup_devices():
            raise OSError(errno.EXDEV, f"{path} is not a control group")
        yield descriptor
    finally:
        os.close(descriptor)


def is_group(path: Path) -> bool:
    """Whether it is there. Raises :class:`OSError` as :func:`directory`."""
    try:
        with directory(path):
            return True
    except FileNotFoundError:
        return False


def _walk(path: Path) -> int:
    """Opens it part by part: a link on the way is followed by none of these calls."""
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
    """Of the mounted cgroup file systems (proc_pid_mountinfo(5)); the tmpfs above those of v1 is none."""
    found = set()
    for line in _MOUNTS.read_text(errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] in ("cgroup", "cgroup2"):
            major, minor = before.split(" ")[2].split(":")
            found.add(os.makedev(int(major), int(minor)))
    return found
