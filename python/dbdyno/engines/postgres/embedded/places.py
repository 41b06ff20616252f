"""Directories of the embedded server: data, copied programs, sockets; and its lock files."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dbdyno.engines.postgres.embedded.account import Account, explain_os_errors
from dbdyno.kernel.private import NotPrivate, check_found, check_private, is_private, make_private
from dbdyno.model.errors import ServerBusy, TargetError, UsageError
from dbdyno.model.home import base_directory

MAX_SOCKET_PATH_BYTES = 107  # sun_path of unix(7) without its final zero
SOCKET_NAME = ".s.PGSQL.5432"
PASSABLE = 0o755
"""Mode of root's directories that the server's user must be able to pass."""
_FOR_ROOT = Path("/var/lib/dbdyno")


@dataclass(frozen=True)
class Places:
    """``data`` has a directory per major version, ``cache`` what can be made again, ``runtime`` the
    sockets."""

    data: Path
    cache: Path
    runtime: Path

    def socket_dir(self, data: Path) -> Path:
        """Returns the private directory for the socket of the server on ``data``. Its name is short, since
        sun_path is."""
        return self.runtime / hashlib.sha256(os.fsencode(data)).hexdigest()[:12]


@explain_os_errors()
def find_places(account: Account, *, make: bool = True) -> Places:
    """Returns the directories of this user. With ``make``, creates those for data and cache if missing.

    These are in ``DBDYNO_SERVER_DIR``, else in the XDG base directories. As root, if the server's user could
    not reach these, they are in ``/var/lib/dbdyno`` (with a directory per XDG_DATA_HOME). Raises
    :class:`UsageError`, also if another user could replace their contents.
    """
    given = os.environ.get("DBDYNO_SERVER_DIR")
    data, cache = _given(Path(given)) if given else _usual(account)
    for place in (data, cache):
        if make:
            make_place(place, account)
        else:
            check_private(place, missing=True)
    if account.switch:  # the server's user need not be able to follow a link on the way
        data, cache = data.resolve(), cache.resolve()
    for place in (data, cache):
        if account.switch and place.exists() and not account.can_reach(place):
            raise UsageError(
                f"the server's user {account.name} cannot reach {place}",
                "let it pass: chmod a+rx on the directories above, or set DBDYNO_SERVER_DIR to another place",
            )
    return Places(data, cache, runtime(account))


@explain_os_errors()
def make_place(directory: Path, account: Account) -> None:
    """Creates a directory of ours and its parents if missing. As root, makes those it creates passable for
    the server's user, whatever the umask. Raises :class:`UsageError` if another user could replace its
    contents."""
    make_private(directory, PASSABLE if account.switch else 0o700)


def _given(directory: Path) -> tuple[Path, Path]:
    directory = directory.absolute()
    return directory / "servers", directory / "cache"


def _usual(account: Account) -> tuple[Path, Path]:
    data, cache = _own("XDG_DATA_HOME", ".local/share"), _own("XDG_CACHE_HOME", ".cache")
    if account.switch and not all(_fits(account, p) for p in (data, cache)):
        return _for_root(data)
    return data, cache


def _for_root(data: Path) -> tuple[Path, Path]:
    """Returns directories below /var/lib/dbdyno. Each XDG_DATA_HOME gets servers of its own there too."""
    servers, cache = _given(_FOR_ROOT)
    if os.environ.get("XDG_DATA_HOME"):
        servers = _FOR_ROOT / hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    return servers, cache


def _own(variable: str, below_home: str) -> Path:
    base = base_directory(variable, below_home, "the embedded server", "set DBDYNO_SERVER_DIR")
    return base / "dbdyno" / "postgres"


def _fits(account: Account, path: Path) -> bool:
    """Returns whether the account can reach the path once it exists, and only root can replace it."""
    existing = next(p for p in (path, *path.parents) if p.exists())
    return account.can_reach(existing) and is_private(path)


@explain_os_errors()
def runtime(account: Account) -> Path:
    """Returns the parent of the sockets' directories: the first candidate that can be created and is short
    enough for a socket's path."""
    uid = os.geteuid()
    system = Path("/run/dbdyno") if account.switch else Path(f"/run/user/{uid}/dbdyno")
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    candidates = [system, Path(f"/tmp/dbdyno-{uid}")]
    if given.startswith("/") and not account.switch:
        candidates.insert(0, Path(given) / "dbdyno")
    for candidate in candidates:
        longest = os.fsencode(candidate / ("x" * 12) / SOCKET_NAME)
        usable = (
            len(longest) <= MAX_SOCKET_PATH_BYTES and b"," not in longest
        )  # a comma separates hosts in libpq
        if usable and _can_make(candidate, 0o711 if account.switch else 0o700):
            return candidate
    raise TargetError(
        "no directory for the server's socket could be made: tried " + ", ".join(map(str, candidates)),
        "set XDG_RUNTIME_DIR to a short directory of your own",
    )


def _can_make(directory: Path, mode: int) -> bool:
    """Returns whether the directory can be created in an existing parent. Raises :class:`NotPrivate`."""
    try:
        make_private(directory, mode, parents=False)
    except NotPrivate:
        raise
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)


# Locks in a directory of our own: who may start and stop, who owns a server, and whether one lives.
#
# ``flock`` works across pid namespaces and ends with the last process that has the file open. Mode 0600
# keeps the server's user from locking the files itself.

_PATIENCE_S = 180.0  # a start, a stop and a restart each have an end
_POLL_S = 0.01


def open_lock(file: Path) -> int:
    """Opens a lock file, created if missing, and returns its descriptor. Raises :class:`OSError`."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        check_found(os.fstat(fd), file, str(file))
        os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextmanager
def exclusive(file: Path, check: Callable[[], None]) -> Iterator[None]:
    """Holds an exclusive lock on the file. ``check`` is called while it waits. Raises :class:`ServerBusy` if
    another process keeps it too long."""
    fd = open_lock(file)
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not is_locked(fd, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise ServerBusy(
                    "another process has been starting or stopping the embedded server for "
                    f"{_PATIENCE_S:g} s",
                    f"see which: fuser -v {shlex.quote(str(file))}",
                )
            check()
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(fd)


def lock_new_file(file: Path) -> int:
    """Creates a lock file, locks it exclusively and returns its descriptor. Replaces one that others still
    hold."""
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.replace(file)
    return fd


def is_held(file: Path) -> bool:
    """Returns whether a living process, possibly this one, holds an exclusive lock. False if the file is
    missing."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not is_locked(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def is_locked(fd: int, how: int) -> bool:
    """Locks the open file, shared or exclusively, without waiting. Returns whether it is locked so."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
