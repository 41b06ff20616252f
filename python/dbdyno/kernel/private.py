"""Folders and files that a later start trusts: only this user and root may write or replace them.

They contain programs that are executed or data that lead to commands: a server's configuration, compiled
programs, changes to be undone. So every path to them is checked before use: a user who can write to a
folder on the path can replace everything below. Folders are created with their final mode, whatever the
umask.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shlex
import shutil
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # largest number of links in one path, as in the kernel (path_resolution(7))
_OVERFLOW = Path("/proc/sys/kernel/overflowuid")
_WHOLE_MAP = ["0", "0", "4294967295"]  # uid_map of a process in the initial user namespace


class NotPrivate(PermissionError):
    """Another user may write or owns a folder or file. ``strerror`` names it; ``cure`` is the remedy."""

    def __init__(self, words: str, cure: str) -> None:
        super().__init__(errno.EPERM, words)
        self.cure = cure


def make_private(directory: Path, mode: int = 0o700, *, parents: bool = True) -> None:
    """Creates ``directory`` if it is missing, and checks it by :func:`check_private`. Raises
    :class:`OSError`, also if parents are missing and ``parents`` is False."""
    check_private(directory, missing=True)
    _make(directory, mode, parents=parents)
    check_private(directory)


def make_shared(directory: Path) -> None:
    """Does the same for a place that the user names: owner and group are the user's choice, but not every
    user may replace what is below. Created folders are private."""
    check_shared(directory)
    _make(directory, 0o700)
    check_shared(directory)


def check_private(directory: Path, *, missing: bool = False) -> None:
    """Raises :class:`NotPrivate` unless it is a directory (not a link) of this user that nobody else may
    write or replace; :class:`FileNotFoundError` if it does not exist, unless ``missing``."""
    try:
        for place, status, last in _path_steps(directory):
            if not last:
                _check_above(place, status)
            elif stat.S_ISLNK(status.st_mode):
                _check_above(place, status)
                raise _wrong_kind(place, status)
            elif stat.S_ISDIR(status.st_mode):
                check_found(status, place, f"directory {place}")
            else:
                raise _wrong_kind(place, status)
    except FileNotFoundError:
        if not missing:
            raise


def is_private(directory: Path) -> bool:
    """Returns whether :func:`check_private` accepts the existing part of the path. Raises :class:`OSError`
    if that is not visible."""
    try:
        check_private(directory, missing=True)
    except NotPrivate:
        return False
    return True


def check_shared(directory: Path) -> None:
    """Raises :class:`NotPrivate` if every user may replace what is below the existing part of
    ``directory``."""
    try:
        for place, status, _ in _path_steps(directory):
            if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IWOTH and not _is_sticky(status):
                raise _open_to_others(place, status, f"directory {place}", "o-w")
    except FileNotFoundError:
        return


def open_private(path: Path, *, by_hand: bool = False) -> int:
    """Opens a file that nobody else can have written, for reading, in a directory that :func:`check_private`
    accepts. Raises :class:`OSError`.

    ``by_hand``: users create the file themselves. Then links are followed unless others may change them,
    it may belong to root, and the user's own group may write it.
    """
    flags = (
        os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    )  # O_NONBLOCK: opening a FIFO does not wait
    if by_hand:
        for place, status, _ in _path_steps(path):
            _check_above(place, status)
    try:
        descriptor = os.open(path, flags | (0 if by_hand else os.O_NOFOLLOW))
    except PermissionError:
        check_found(path.lstat(), path, "it")
        raise
    try:
        status = os.fstat(descriptor)
        if by_hand:
            _check_above(path, status)
        else:
            check_found(status, path, "it")
            check_private(path.parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_found(status: os.stat_result, path: Path, what: str, owner: int | None = None) -> None:
    """Raises :class:`NotPrivate` if a file or directory does not belong to user ``owner`` (None: us), or
    others may write to it."""
    if status.st_uid != (os.geteuid() if owner is None else owner):
        raise _other_owner(path, status, what)
    if status.st_mode & _OTHERS_WRITE:
        raise _open_to_others(path, status, what, "go-w")


def is_sound(path: Path, owner: int | None = None) -> bool:
    """Returns whether a file or directory of user ``owner`` (None: us) exists that nobody else could ever
    write.

    It must lie in a private directory and be reproducible: if it is open to others it must be created
    again, as they may have changed it. A link of that user counts if it leads to a private directory.
    Raises :class:`NotPrivate` if it belongs to another user.
    """
    try:
        status = path.lstat()
        if status.st_uid != (os.geteuid() if owner is None else owner):
            raise _other_owner(path, status, str(path))
        if stat.S_ISLNK(status.st_mode):
            check_private(path.resolve())
            return True
    except FileNotFoundError:
        return False
    return not status.st_mode & _OTHERS_WRITE


def discard(path: Path) -> None:
    """Removes a file or directory of ours that was open to others. Raises :class:`OSError`."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    path.chmod(0o700)
    try:
        shutil.rmtree(path)
    except PermissionError as error:  # another user's directory in it
        raise NotPrivate(
            f"other users could write to {path}, and {error.filename} in it cannot be removed",
            f"remove it as root: rm -rf {shlex.quote(str(path))}",
        ) from error


def close_to_others(path: Path) -> None:
    """Removes all rights of others from a new place and everything below it."""
    for place in (path, *path.rglob("*")):
        if not place.is_symlink():
            place.chmod(stat.S_IMODE(place.stat().st_mode) & 0o700)


def _make(directory: Path, mode: int, *, parents: bool = True) -> None:
    """Creates a directory. One that another process creates first is checked, as it may belong to another
    user. If root creates parents, other users may pass through them."""
    missing = [p for p in (directory, *directory.parents) if not os.path.lexists(p)]
    above = 0o755 if os.geteuid() == 0 else 0o700
    for path in reversed(missing if parents else missing[:1]):
        wanted = mode if path == directory else above
        try:
            path.mkdir(mode=wanted)
        except FileExistsError:
            check_private(path)
        else:
            path.chmod(wanted)  # independent of the umask; nobody else may replace the folder


# -- the way to a place -------------------------------------------------------------------------------
def _path_steps(path: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Yields every directory and link that decides where ``path`` leads, with ``path`` itself last (then
    its target, if it is a link). Raises :class:`FileNotFoundError` if the path ends early."""
    here, left, links = Path("/"), list(reversed(path.absolute().parts[1:])), 0
    yield here, here.lstat(), not left
    while left:
        name = left.pop()
        place = here.parent if name == ".." else here / name
        status = place.lstat()
        yield place, status, not left
        if not stat.S_ISLNK(status.st_mode):
            here = place
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = place.readlink()
        here = Path("/") if target.is_absolute() else here
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _check_above(place: Path, status: os.stat_result) -> None:
    """Raises :class:`NotPrivate` if another user may replace what lies below, or change a link."""
    kind = "link" if stat.S_ISLNK(status.st_mode) else "directory" if stat.S_ISDIR(status.st_mode) else "file"
    if status.st_uid not in {0, os.geteuid()} and status.st_uid != _unmapped():
        # Nothing above a place of ours is ours to remove: it may be another user's home.
        raise NotPrivate(
            f"{kind} {place} belongs to another user (uid {status.st_uid})",
            f"run as the owner of {shlex.quote(str(place))}, or point HOME or XDG_DATA_HOME elsewhere",
        )
    if kind == "link" or (kind == "directory" and _is_sticky(status)):
        return
    group = stat.S_IWGRP if status.st_gid and not _is_own_group(status.st_gid) else 0
    if status.st_mode & (stat.S_IWOTH | group):
        raise _open_to_others(place, status, f"{kind} {place}", "go-w" if group else "o-w")


def _is_sticky(status: os.stat_result) -> bool:
    return bool(status.st_mode & stat.S_ISVTX)


@cache
def _is_own_group(gid: int) -> bool:
    """Returns whether this user is the only member of the group: many systems have one per user, with
    umask 002."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    alone = not set(group.gr_mem) - {user.pw_name}
    return alone and gid == user.pw_gid and group.gr_name == user.pw_name


@cache
def _unmapped() -> int | None:
    """Returns the uid that all users outside of our user namespace appear to have, root included
    (user_namespaces(7)), so that the owner of directories above is unknown. None in the initial namespace."""
    try:
        if Path("/proc/self/uid_map").read_text().split() == _WHOLE_MAP:
            return None
        return int(_OVERFLOW.read_text())
    except (OSError, ValueError):
        return None


def _other_owner(path: Path, status: os.stat_result, what: str) -> NotPrivate:
    return NotPrivate(
        f"{what} belongs to another user (uid {status.st_uid})",
        f"run as that user, or look at it (ls -ld {shlex.quote(str(path))}), and move it away",
    )


def _wrong_kind(path: Path, status: os.stat_result) -> NotPrivate:
    kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no directory"
    return NotPrivate(f"{path} is {kind}", f"look at it, and remove it: rm {shlex.quote(str(path))}")


def _open_to_others(path: Path, status: os.stat_result, what: str, change: str) -> NotPrivate:
    mode = stat.S_IMODE(status.st_mode)
    return NotPrivate(
        f"other users may write to {what} (mode {mode:04o})",
        f"look whether all of it is yours; then chmod {change} {shlex.quote(str(path))}",
    )
