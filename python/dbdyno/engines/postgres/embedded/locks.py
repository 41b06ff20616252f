"""Locks in a directory of our own: who decides, who owns a server, and whether one lives at all.

``flock`` holds in every pid namespace and ends with the last process that has the file open. The files' mode
keeps the server's user from locking them itself.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dbdyno.model.errors import ServerBusy

_PATIENCE_S = 180.0  # a start, a stop and a restart each have an end
_POLL_S = 0.01


def opened(file: Path) -> int:
    """Its descriptor, made where it is not there. Raises :class:`OSError`."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(fd, 0o600)
    return fd


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """No other process is in here with the same file. Raises :class:`ServerBusy` after a long wait."""
    fd = opened(file)
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not _locked(fd, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise ServerBusy(
                    "another process has been starting or stopping the embedded server for "
                    f"{_PATIENCE_S:g} s",
                    f"see which: fuser -v {shlex.quote(str(file))}",
                )
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(fd)


def taken(file: Path) -> int:
    """A new file with an exclusive lock, its descriptor; one that others still hold is out of the way."""
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.replace(file)
    return fd


def is_held(file: Path) -> bool:
    """Whether a living process (we too) holds its exclusive lock; False where there is no file."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _locked(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _locked(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
