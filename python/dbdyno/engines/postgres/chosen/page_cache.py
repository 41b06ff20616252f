"""The place of a program in the page cache.

Code is executed where the page cache holds it. Where that is (in large folios or single pages, in which sets
of the CPU's caches) is settled when the file is written or read, and then holds for every start: two copies
of one program differed by 5 % over the benchmarks of a suite, and by 45 % in one (docs/benchmarks.md). Read
again before each start, a program gets a new place each time, so that places vary as other noise does.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_READ_BYTES = 1 << 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ROUNDS, _PAUSE_S = 10, 0.02
"""A page that the kernel holds for a moment (on its way to a list of pages) goes in a later round."""


def read_anew(file: Path) -> bool:
    """Drops the file from the page cache and reads it in sequence, for which the kernel takes large folios
    where the file system has them. Returns whether all of it was dropped: pages that a process has mapped
    stay, and so does all of a tmpfs. False also if that cannot be known."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        dropped = _drop(descriptor)
        while os.read(descriptor, _READ_BYTES):
            pass
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return dropped


def _drop(descriptor: int) -> bool:
    os.fsync(descriptor)  # what is not yet written stays
    for _ in range(_ROUNDS):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if not _is_cached(descriptor):
            return True
        time.sleep(_PAUSE_S)
    return False


def _is_cached(descriptor: int) -> bool:
    """Returns whether any page can be read without waiting (preadv2(2), RWF_NOWAIT). Raises OSError where the
    file system cannot tell."""
    byte = bytearray(1)
    for offset in range(0, os.fstat(descriptor).st_size, _PAGE_BYTES):
        try:
            os.preadv(descriptor, [byte], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            continue
        return True
    return False
