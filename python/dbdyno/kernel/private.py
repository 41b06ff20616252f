"""Folders and files that a later start trusts: nobody but this user, and root, may write them or put others
in their place.

They hold what is run, or what leads to commands: a server's configuration, compiled programs, what is to be
put back. So every way to them is checked before it is used: who could write to a folder on the way could
exchange what is below it. Folders are made with the mode they are to have, whatever the umask is.
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
_MOST_LINKS = 40  # on one way, as the kernel follows (path_resolution(7))
_OVERFLOW = Path("/proc/sys/kernel/overflowuid")
_WHOLE_MAP = ["0", "0", "4294967295"]  # of a process that is in no user namespace of its own


class NotPrivate(PermissionError):
    """``strerror`` says which folder or file another user may write or owns; ``cure`` what to do about it."""

    def __init__(self, words: str, cure: str) -> None:
        super().__init__(errno.EPERM, words)
        self.cure = cure


def make_private(directory: Path, mode: int = 0o700, *, parents: bool = True) -> None:
    """Makes ``directory``, if it is not there, and checks it as :func:`check_private` does. Raises
    :class:`OSError`, also where ``parents`` may not be made and are missing."""
    check_private(directory, missing=True)
    _make(directory, mode, parents=parents)
    check_private(directory)


def make_shared(directory: Path) -> None:
    """The same for a place that the user names: its owner and its group are the user's choice, but not
    everybody may exchange what is below it. What is made is private."""
    check_shared(directory)
    _make(directory, 0o700)
    check_shared(directory)


def check_private(directory: Path, *, missing: bool = False) -> None:
    """Raises :class:`NotPrivate` unless it is a directory, and no link, of this user, that nobody else may
    write or exchange; :class:`FileNotFoundError` where there is none, unless it may be ``missing``."""
    try:
        for place, found, last in _way(directory):
            if not last:
                _check_above(place, found)
            elif stat.S_ISLNK(found.st_mode):
                _check_above(place, found)
                raise _of_another_kind(place, found)
            elif stat.S_ISDIR(found.st_mode):
                check_found(found, place, f"directory {place}")
            else:
                raise _of_another_kind(place, found)
    except FileNotFoundError:
        if not missing:
            raise


def is_private(directory: Path) -> bool:
    """Whether :func:`check_private` takes it, as far as it is there. Raises :class:`OSError` where that
    cannot be seen."""
    try:
        check_private(directory, missing=True)
    except NotPrivate:
        return False
    return True


def check_shared(directory: Path) -> None:
    """Raises :class:`NotPrivate` where every user may exchange what is below ``directory``, as far as it is
    there."""
    try:
        for place, found, _ in _way(directory):
            if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_IWOTH and not _is_sticky(found):
                raise _open_to_others(place, found, f"directory {place}", "o-w")
    except FileNotFoundError:
        return


def open_private(path: Path, *, by_hand: bool = False) -> int:
    """The descriptor of a file that nobody else can have written, to be read, in a directory that
    :func:`check_private` takes. Raises :class:`OSError`.

    ``by_hand``: it is one that users make themselves: links are followed, where nobody else may turn them, it
    may be root's, and the group that a user has alone may write it.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # no wait for a FIFO
    if by_hand:
        for place, found, _ in _way(path):
            _check_above(place, found)
    try:
        descriptor = os.open(path, flags | (0 if by_hand else os.O_NOFOLLOW))
    except PermissionError:
        check_found(path.lstat(), path, "it")
        raise
    try:
        found = os.fstat(descriptor)
        if by_hand:
            _check_above(path, found)
        else:
            check_found(found, path, "it")
            check_private(path.parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_found(found: os.stat_result, path: Path, what: str, owner: int | None = None) -> None:
    """Raises :class:`NotPrivate` where a file or a directory is not of user ``owner`` (None: ours), or others
    may write to it."""
    if found.st_uid != (os.geteuid() if owner is None else owner):
        raise _of_another(path, found, what)
    if found.st_mode & _OTHERS_WRITE:
        raise _open_to_others(path, found, what, "go-w")


def is_sound(path: Path, owner: int | None = None) -> bool:
    """Whether a file or directory of user ``owner`` (None: ours) is there that nobody else could ever write.

    It must lie in a private directory, and be what can be made again: what is open to others is to be, for
    they may have changed it. A link of that user counts where it leads to a private directory. Raises
    :class:`NotPrivate` where it is another user's.
    """
    try:
        found = path.lstat()
        if found.st_uid != (os.geteuid() if owner is None else owner):
            raise _of_another(path, found, str(path))
        if stat.S_ISLNK(found.st_mode):
            check_private(path.resolve())
            return True
    except FileNotFoundError:
        return False
    return not found.st_mode & _OTHERS_WRITE


def discard(path: Path) -> None:
    """Removes a file or a directory of ours that was open to others. Raises :class:`OSError`."""
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
    """Takes every right of others from what was just made, and from all below it."""
    for place in (path, *path.rglob("*")):
        if not place.is_symlink():
            place.chmod(stat.S_IMODE(place.stat().st_mode) & 0o700)


def _make(directory: Path, mode: int, *, parents: bool = True) -> None:
    """One that another process makes first is checked: it need not be of ours. Users whom root makes way for
    may pass its parents."""
    missing = [p for p in (directory, *directory.parents) if not os.path.lexists(p)]
    above = 0o755 if os.geteuid() == 0 else 0o700
    for path in reversed(missing if parents else missing[:1]):
        wanted = mode if path == directory else above
        try:
            path.mkdir(mode=wanted)
        except FileExistsError:
            check_private(path)
        else:
            path.chmod(wanted)  # whatever the umask is; nobody else may exchange it


# -- the way to a place -------------------------------------------------------------------------------
def _way(path: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Every directory and link that decides where ``path`` leads, and as the last ``path`` itself (then where
    it leads to, if that is a link). Raises :class:`FileNotFoundError` where it ends before."""
    here, left, links = Path("/"), list(reversed(path.absolute().parts[1:])), 0
    yield here, here.lstat(), not left
    while left:
        name = left.pop()
        place = here.parent if name == ".." else here / name
        found = place.lstat()
        yield place, found, not left
        if not stat.S_ISLNK(found.st_mode):
            here = place
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = place.readlink()
        here = Path("/") if target.is_absolute() else here
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _check_above(place: Path, found: os.stat_result) -> None:
    """Raises :class:`NotPrivate` where another user may exchange what lies below, or turn a link."""
    kind = "link" if stat.S_ISLNK(found.st_mode) else "directory" if stat.S_ISDIR(found.st_mode) else "file"
    if found.st_uid not in {0, os.geteuid()} and found.st_uid != _unmapped():
        raise _of_another(place, found, f"{kind} {place}")
    if kind == "link" or (kind == "directory" and _is_sticky(found)):
        return
    group = stat.S_IWGRP if found.st_gid and not _is_own_group(found.st_gid) else 0
    if found.st_mode & (stat.S_IWOTH | group):
        raise _open_to_others(place, found, f"{kind} {place}", "go-w" if group else "o-w")


def _is_sticky(found: os.stat_result) -> bool:
    return bool(found.st_mode & stat.S_ISVTX)


@cache
def _is_own_group(gid: int) -> bool:
    """Whether it is the group that this user has alone: many systems make one for each, with umask 002."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    alone = not set(group.gr_mem) - {user.pw_name}
    return alone and gid == user.pw_gid and group.gr_name == user.pw_name


@cache
def _unmapped() -> int | None:
    """Whom everybody outside of our user namespace seems to be, root too (user_namespaces(7)): who owns the
    directories above is not to be told there. None: we are in none."""
    try:
        if Path("/proc/self/uid_map").read_text().split() == _WHOLE_MAP:
            return None
        return int(_OVERFLOW.read_text())
    except (OSError, ValueError):
        return None


def _of_another(path: Path, found: os.stat_result, what: str) -> NotPrivate:
    return NotPrivate(
        f"{what} belongs to another user (uid {found.st_uid})",
        f"look at it (ls -ld {shlex.quote(str(path))}), and remove it",
    )


def _of_another_kind(path: Path, found: os.stat_result) -> NotPrivate:
    kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no directory"
    return NotPrivate(f"{path} is {kind}", f"look at it, and remove it: rm {shlex.quote(str(path))}")


def _open_to_others(path: Path, found: os.stat_result, what: str, change: str) -> NotPrivate:
    mode = stat.S_IMODE(found.st_mode)
    return NotPrivate(
        f"other users may write to {what} (mode {mode:04o})",
        f"look whether all of it is yours; then chmod {change} {shlex.quote(str(path))}",
    )
