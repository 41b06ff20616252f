"""Where the embedded server keeps its data, its copies and its socket; its locks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dbdyno.engines.postgres.embedded.account import Account, explained
from dbdyno.kernel.private import NotPrivate, check_found, is_private, make_private
from dbdyno.model.errors import ServerBusy, TargetError, UsageError
from dbdyno.model.home import base_directory

MAX_SOCKET_PATH_BYTES = 107  # sun_path of unix(7) without its final zero
SOCKET_NAME = ".s.PGSQL.5432"
PASSABLE = 0o755
"""Mode of root's directories that the server's user passes."""
_FOR_ROOT = Path("/var/lib/dbdyno")


@dataclass(frozen=True)
class Places:
    """``data``: a directory for a major version; ``cache``: what can be made again; ``runtime``: sockets."""

    data: Path
    cache: Path
    runtime: Path

    def socket_dir(self, data: Path) -> Path:
        """The private directory of the socket of the server on ``data``: short, and one for each."""
        return self.runtime / hashlib.sha256(os.fsencode(data)).hexdigest()[:12]


@explained()
def find_places(account: Account) -> Places:
    """The places of this user, made where they are not there.

    ``DBDYNO_SERVER_DIR``, else XDG base directories; as root, where the server's user could not reach these,
    ``/var/lib/dbdyno`` (for each XDG_DATA_HOME apart). Raises :class:`UsageError`, also where another user
    could exchange what is in them.
    """
    given = os.environ.get("DBDYNO_SERVER_DIR")
    data, cache = _given(Path(given)) if given else _usual(account)
    for place in (data, cache):
        make_place(place, account)
    if account.switch:  # the server's user need not be able to follow a link on the way
        data, cache = data.resolve(), cache.resolve()
    for place in (data, cache):
        if account.switch and not account.can_reach(place):
            raise UsageError(
                f"the server's user {account.name} cannot reach {place}",
                "let it pass: chmod a+rx on the directories above, or set DBDYNO_SERVER_DIR to another place",
            )
    return Places(data, cache, runtime(account))


@explained()
def make_place(directory: Path, account: Account) -> None:
    """A directory of ours with its parents, if it is not there; the server's user may pass it and those that
    root makes, whatever the umask is. Raises :class:`UsageError` where another user could exchange what is in
    it."""
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
    """Below /var/lib/dbdyno; who chose a data home of his own has servers of his own there too."""
    servers, cache = _given(_FOR_ROOT)
    if os.environ.get("XDG_DATA_HOME"):
        servers = _FOR_ROOT / hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    return servers, cache


def _own(variable: str, below_home: str) -> Path:
    base = base_directory(variable, below_home, "the embedded server", "set DBDYNO_SERVER_DIR")
    return base / "dbdyno" / "postgres"


def _fits(account: Account, path: Path) -> bool:
    """Whether the account can reach it when it is made, and nobody but root can replace it."""
    existing = next(p for p in (path, *path.parents) if p.exists())
    return account.can_reach(existing) and is_private(path)


@explained()
def runtime(account: Account) -> Path:
    """Where sockets' directories are made: the first candidate to be had that leaves room for a name."""
    uid = os.geteuid()
    system = Path("/run/dbdyno") if account.switch else Path(f"/run/user/{uid}/dbdyno")
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    candidates = [system, Path(f"/tmp/dbdyno-{uid}")]
    if given.startswith("/") and not account.switch:
        candidates.insert(0, Path(given) / "dbdyno")
    for candidate in candidates:
        longest = os.fsencode(candidate / ("x" * 12) / SOCKET_NAME)
        usable = len(longest) <= MAX_SOCKET_PATH_BYTES and b"," not in longest  # libpq: a list of hosts
        if usable and _made(candidate, 0o711 if account.switch else 0o700):
            return candidate
    raise TargetError(
        "no directory for the server's socket could be made: tried " + ", ".join(map(str, candidates)),
        "set XDG_RUNTIME_DIR to a short directory of your own",
    )


def _made(directory: Path, mode: int) -> bool:
    """Whether it could be made in a directory that is there. Raises :class:`NotPrivate`."""
    try:
        make_private(directory, mode, parents=False)
    except NotPrivate:
        raise
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)


# Locks in a directory of our own: who decides, who owns a server, and whether one lives at all.
#
# ``flock`` holds in every pid namespace and ends with the last process that has the file open. The mode
# keeps the server's user from locking them itself.

_PATIENCE_S = 180.0  # a start, a stop and a restart each have an end
_POLL_S = 0.01


def opened(file: Path) -> int:
    """Its descriptor, made where it is not there. Raises :class:`OSError`."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        check_found(os.fstat(fd), file, str(file))
        os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """No other process is in here with the same file. Raises :class:`ServerBusy` after a long wait."""
    fd = opened(file)
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not _locked(fd, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise ServerBusy(
                    "another process has been starting or stopping the embedded server for "
                    f"{_PATIENCE_S:g} s",
                    f"see which: fuser -v {shlex.quote(str(file))}",
                )
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(fd)


def taken(file: Path) -> int:
    """A new file with an exclusive lock, its descriptor; one that others still hold is out of the way."""
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.replace(file)
    return fd


def is_held(file: Path) -> bool:
    """Whether a living process (we too) holds its exclusive lock; False where there is no file."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _locked(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _locked(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
