"""Writes files atomically, and turns failures of writing into errors with a cure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dbdyno.model.errors import StoreError, StoreFull, UsageError

_FULL = ("ENOSPC", "EDQUOT")


@contextmanager
def guard(path: Path) -> Iterator[None]:
    """Turns an :class:`OSError` while ``path`` is written into an error with its cure."""
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
    """Replaces the content of ``path``. A reader sees the old file or the new one, never a part.

    Raises UsageError if ``path`` is a directory, StoreError or StoreFull if it cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a directory", "name a file")
    if path.exists() and not path.is_file():
        # A pipe or a device such as /dev/stdout is written to, never replaced.
        with guard(path), path.open("wb") as stream:
            stream.write(content)
        return path
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    with guard(path):
        try:
            temporary.unlink(missing_ok=True)  # a planted link is removed, so nothing follows it
            with open(temporary, "xb", opener=_open_private) as file:
                file.write(content)
            temporary.replace(path)
        except BaseException:  # including KeyboardInterrupt
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    return path


def _open_private(path: str, flags: int) -> int:
    """Opens a file that only its owner may write, even under an open umask: others could change a page
    unseen."""
    return os.open(path, flags, 0o644)
