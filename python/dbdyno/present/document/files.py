"""Files that are there whole or not at all; an unwritable place is an error with its cure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dbdyno.model.errors import StoreError, StoreFull, UsageError

_FULL = ("ENOSPC", "EDQUOT")


@contextmanager
def guard(path: Path) -> Iterator[None]:
    """Turns an :class:`OSError` of writing ``path`` into an error with its cure."""
    import errno

    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in {getattr(errno, name) for name in _FULL}:
            raise StoreFull(
                f"no space left for {path}: {why}", "free some space or name another place"
            ) from error
        raise StoreError(
            f"cannot write {path}: {why}", "name a place that you may write to (-o PATH)"
        ) from error


def write_atomic(path: Path, content: bytes) -> Path:
    """Replaces ``path`` by ``content``; a reader sees the old file or the new one, never a part."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory", "name a file")
    if path.exists() and not path.is_file():  # a pipe or a device, /dev/stdout, is written, never replaced
        with guard(path), path.open("wb") as there:
            there.write(content)
        return path
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    with guard(path):
        try:
            temporary.unlink(missing_ok=True)  # also a link: nothing is written where one leads
            with open(temporary, "xb", opener=_opened) as file:
                file.write(content)
            temporary.replace(path)
        except BaseException:  # Ctrl-C, too
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    return path


def _opened(path: str, flags: int) -> int:
    """A page that others may write would be theirs when it is shown: not even an open umask makes it so."""
    return os.open(path, flags, 0o644)
