"""Files in directories that belong to the server's user, who may put links, pipes and devices there.

Standard library only: where dbdyno runs as root, a child without its rights does all this (see ``launch``).
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 1 << 20


def read(path: str, offset: int = 0, most: int = MOST_BYTES) -> str | None:
    """The last ``most`` bytes at most, none before ``offset``. None: not there, or not a regular file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return None
        return os.pread(fd, most, max(offset, found.st_size - most)).decode(errors="replace")
    finally:
        os.close(fd)


def write(path: str, text: str) -> None:
    """A new file, mode 0600, in the place of whatever had this name. Raises :class:`OSError`."""
    new = Path(f"{path}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as out:
        out.write(text)
    new.replace(path)


def append(path: str, text: str) -> None:
    """Raises :class:`OSError`."""
    write(path, (read(path) or "") + text)


def remove(path: str) -> None:
    """One file, or whatever else has this name, but not a directory. Raises :class:`OSError`."""
    Path(path).unlink()


def clear(directory: str) -> None:
    """Removes all that is in it, and not the directory; links are not followed. Raises :class:`OSError`."""
    for entry in list(os.scandir(directory)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()


def copy(source: str, target: str) -> None:
    """All that is in ``source`` into ``target``, an empty directory, without pipes and devices. Raises
    :class:`OSError`."""
    for entry in list(os.scandir(source)):
        place = Path(target, entry.name)
        if entry.is_symlink():
            place.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir():
            place.mkdir(mode=0o700)
            copy(entry.path, str(place))
        elif entry.is_file():
            shutil.copy(entry.path, place, follow_symlinks=False)


def disown(path: str, nobody: int) -> None:
    """Puts pid ``nobody`` into a pid file. What is no regular file goes: the server could hang reading it.

    The rest stays: with the shared memory key in it the server sees leftover processes of its last life.
    """
    text = read(path)
    if text is not None:
        write(path, "\n".join([str(nobody), *text.split("\n")[1:]]))
    else:
        with suppress(OSError):  # not there; a directory: the server will say so
            remove(path)
