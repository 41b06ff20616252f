"""What lies behind a failure of the embedded server or of its files, and what to do about it."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from dbdyno.engines.postgres.embedded.account import AS_A_USER
from dbdyno.model.errors import TargetError, UsageError

_ELSEWHERE = "set DBDYNO_SERVER_DIR to a directory on another file system"
_SHARED_MEMORY = re.compile(r"shared memory segment.*(No space left|Cannot allocate)", re.IGNORECASE)
_FULL = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_READ_ONLY = re.compile(r"Read-only file system", re.IGNORECASE)
_MEMORY = re.compile(r"Cannot allocate memory|could not map anonymous shared memory", re.IGNORECASE)
_DENIED = re.compile(r"Permission denied|Operation not permitted", re.IGNORECASE)


def cure_of(words: str) -> str | None:
    """From what PostgreSQL's programs said; None: it names none of the machine's limits."""
    if _SHARED_MEMORY.search(words):
        return (
            "/dev/shm is full or too small: enlarge it (docker run --shm-size=1g), and start the server again"
        )
    if _FULL.search(words):
        return f"the file system is full: make room there (df -h shows which), or {_ELSEWHERE}"
    if _READ_ONLY.search(words):
        return f"the file system is read-only: {_ELSEWHERE}"
    if _MEMORY.search(words):
        return "too little memory: set a smaller shared_buffers, or raise the limit (docker run --memory)"
    if _DENIED.search(words):
        return f"the server's user may not do that here: {_ELSEWHERE}, or {AS_A_USER}"
    return None


@contextmanager
def explained() -> Iterator[None]:
    """The system's refusals as errors with a cure."""
    try:
        yield
    except OSError as e:
        what = f"{e.filename}: {e.strerror}" if e.filename else str(e)
        full = e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
        kind = TargetError if full else UsageError
        raise kind(f"the embedded server's files: {what}", cure_of(str(e.strerror)) or _ELSEWHERE) from e
