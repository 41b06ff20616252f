"""Reading files that others may have made: never one that has no end, or that waits for its writer."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MOST_TEXT_BYTES = 64 << 20  # of a recipe, a script, numbers, a journal
_OPEN_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # as a shell passes <(command)
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


def read_limited(path: Path, most_bytes: int = MOST_TEXT_BYTES, *, private: bool = False) -> bytes:
    """The content of a regular file, or of a pipe that the shell opened.

    ``private``: only if nobody but this user can have written it; a link is none. Raises :class:`OSError`
    where that is not so, there is no such file, it is of another kind, or larger than ``most_bytes``.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # no wait for a FIFO
    descriptor = os.open(path, flags | (os.O_NOFOLLOW if private else 0))
    with os.fdopen(descriptor, "rb") as file:
        if private:
            check_private(os.fstat(descriptor), "it")
            check_private(path.parent.stat(), f"directory {path.parent}")
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind == stat.S_IFIFO and str(path).startswith(_OPEN_PIPES):
            os.set_blocking(descriptor, True)
        elif kind != stat.S_IFREG:
            raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'no file')}, not a file")
        elif os.fstat(descriptor).st_size > most_bytes:
            raise _too_large(most_bytes)
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise _too_large(most_bytes)
    return content


def check_private(found: os.stat_result, what: str) -> None:
    """Raises :class:`OSError` where a file or a directory is another user's, or others may write to it."""
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"{what} belongs to another user (uid {found.st_uid})")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        raise PermissionError(errno.EPERM, f"other users may write to {what} (mode {mode:04o})")


def _too_large(most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {most_bytes >> 20} MiB")
