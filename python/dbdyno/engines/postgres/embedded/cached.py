"""Removes what can be made again, and what killed runs left unfinished, from the cache: templates of data
directories, and copies of programs.

A process that makes or copies these holds a shared lock on ``use.lock``. Without such a process, nothing that
is unfinished has a maker, whatever process has its pid now.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dbdyno.engines.postgres.embedded.places import Places, is_locked, open_lock
from dbdyno.engines.postgres.embedded.worker import remove_directory
from dbdyno.kernel.private import check_private

_LOCK = "use.lock"
_TEMPLATES, _PROGRAMS = "clusters", "programs"
_NAME = re.compile(r"\d+(?:\.\d+|\w+)?-[0-9a-f]{12}(?:-\d+)?(?P<maker>\.\d+)?")
"""Version, hash, the user where root switches to one; the pid of its maker until it is complete."""


@contextmanager
def in_use(cache: Path) -> Iterator[None]:
    """Keeps :func:`remove` of other processes from the cache meanwhile."""
    descriptor = open_lock(cache / _LOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def remove(places: Places) -> list[str]:
    """Removes templates, unfinished ones and unfinished copies of programs, unless a run uses the cache.
    Returns what was done, in words. Complete copies of programs stay: a server may execute them."""
    templates = _directories(places.cache / _TEMPLATES)
    unfinished = [d for d in (*templates, *_directories(places.cache / _PROGRAMS)) if _is_unfinished(d)]
    unused = list(dict.fromkeys((*templates, *unfinished)))
    if not unused:
        return []
    descriptor = open_lock(places.cache / _LOCK)
    try:
        if not is_locked(descriptor, fcntl.LOCK_EX):
            return [f"{places.cache}: a run makes a data directory from it, left alone"]
        for directory in unused:
            check_private(directory.parent)
            remove_directory(directory)
    finally:
        os.close(descriptor)
    return [
        f"removed {directory}, "
        + ("which a killed run left unfinished" if directory in unfinished else "a template of new data")
        for directory in unused
    ]


def _directories(parent: Path) -> list[Path]:
    """Returns the directories in ``parent`` that have such a name. Links are not followed: whoever made them
    may share what they lead to."""
    if parent.is_symlink() or not parent.is_dir():
        return []
    with os.scandir(parent) as entries:
        named = [e.path for e in entries if _NAME.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
    return sorted(map(Path, named))


def _is_unfinished(directory: Path) -> bool:
    match = _NAME.fullmatch(directory.name)
    return match is not None and match["maker"] is not None
