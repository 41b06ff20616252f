"""File operations in directories of the server's user, who may have put links, pipes and devices there.

Needs only the standard library: as root, dbdyno runs them in a child without root's rights (see ``launch``).
"""

from __future__ import annotations

import _socket  # a child imports it 10 ms faster than socket, and can import nothing as the server's user
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 1 << 20


def read(path: str, offset: int = 0, most: int = MOST_BYTES) -> str | None:
    """Returns the last ``most`` bytes at most, none before ``offset``. None if it is missing or no regular
    file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        return os.pread(fd, most, max(offset, status.st_size - most)).decode(errors="replace")
    finally:
        os.close(fd)


def write(path: str, text: str) -> None:
    """Replaces whatever has this name by a new file, mode 0600. Raises :class:`OSError`."""
    new = Path(f"{path}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as out:
        out.write(text)
    new.replace(path)


def append(path: str, text: str) -> None:
    """Appends text to a file by writing it anew. Raises :class:`OSError`."""
    write(path, (read(path) or "") + text)


def remove(path: str) -> None:
    """Removes a file, link, pipe or device, but no directory. Raises :class:`OSError`."""
    Path(path).unlink()


def clear(directory: str) -> None:
    """Removes the contents of a directory, without following links. Raises :class:`OSError`."""
    for entry in list(os.scandir(directory)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()


def clear_dead_socket(directory: str, name: str, known: bool) -> bool:
    """Removes a PostgreSQL server's socket and its lock file from a directory that holds nothing else.

    Returns whether the directory is empty then. Leaves everything if a process listens on the socket, and,
    unless the directory is ``known`` to be of a dead server, if either file is missing or the process that
    the lock file names exists. Raises :class:`OSError`.
    """
    lock = f"{name}.lock"
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        names = set(os.listdir(fd))  # noqa: PTH208
        kinds = {n: stat.S_IFMT(os.stat(n, dir_fd=fd, follow_symlinks=False).st_mode) for n in names}
        expected = {name: stat.S_IFSOCK, lock: stat.S_IFREG}
        if not kinds.items() <= expected.items() or not (known or len(kinds) == len(expected)):
            return False
        if (name in names and _answers(f"{directory}/{name}")) or (
            not known and _exists(read(f"{directory}/{lock}"))
        ):
            return False
        for one in names:
            os.unlink(one, dir_fd=fd)
        return True
    finally:
        os.close(fd)


def _answers(path: str) -> bool:
    """Returns whether a process may listen on a socket."""
    one = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        one.settimeout(1)
        one.connect(path)
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    finally:
        one.close()
    return True


def _exists(lock: str | None) -> bool:
    """Returns whether the process in the first line of a lock file may exist."""
    try:
        os.kill(abs(int((lock or "").split("\n", 1)[0])), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, OverflowError):
        return True
    return True


def copy(source: str, target: str) -> None:
    """Copies the contents of ``source`` into ``target``, an empty directory, except pipes and devices.
    Raises :class:`OSError`."""
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
    """Writes pid ``nobody`` into a pid file. Removes it if it is no regular file, as the server could hang
    reading it.

    The other lines stay: by the shared memory key among them the server detects processes left by a crash.
    """
    text = read(path)
    if text is not None:
        write(path, "\n".join([str(nobody), *text.split("\n")[1:]]))
    else:
        with suppress(OSError):  # missing, or a directory: then the server reports it
            remove(path)
