"""The user that the embedded server runs as, since PostgreSQL refuses to run as root, and cures for its
errors."""

from __future__ import annotations

import errno
import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dbdyno.engines.postgres.errors import COMPARE_VALUES
from dbdyno.kernel.private import NotPrivate
from dbdyno.model.errors import TargetError, UsageError

VARIABLE = "DBDYNO_SERVER_USER"
AS_A_USER = (
    "run dbdyno as an ordinary user (in a container: docker run --user NAME, a name of the container's "
    "/etc/passwd; DBDYNO_SERVER_DIR names a directory of that user), or use a running server with --dsn"
)
_OURS = "dbdyno"
_SYSTEM_USERS = (_OURS, "postgres")  # never one that others use for whatever has no rights, such as nobody
_SHARED = ("nobody", "nfsnobody")
_NO_ID = 2**32 - 2  # stands for a user that does not exist yet: it owns no file
_ANY_SYSTEM_ID = 900
_NEEDED = {"CHOWN": 0, "DAC_OVERRIDE": 1, "SETGID": 6, "SETUID": 7}  # linux/capability.h


@dataclass(frozen=True)
class Account:
    """A user of the operating system. ``switch``: dbdyno runs as root and has to change to this user."""

    name: str
    uid: int
    gid: int
    switch: bool

    def can_reach(self, path: Path) -> bool:
        """Returns whether this user may read and search ``path``, by the modes of it and of all its
        parents."""
        path = path.resolve()
        return all(self._has(p, 0o1) for p in path.parents) and self._has(path, 0o5)

    def _has(self, path: Path, bits: int) -> bool:
        status = path.stat()
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid == self.gid else 0
        return stat.S_IMODE(status.st_mode) >> shift & bits == bits


def server_account(*, make: bool = True) -> Account:
    """Returns the current user; as root, the user named by ``DBDYNO_SERVER_USER``, else dbdyno's own or
    PostgreSQL's system user. With ``make``, creates the system user if neither exists. Raises
    :class:`UsageError`."""
    if os.geteuid() != 0:
        if not _is_mapped("uid", os.geteuid()):  # outside of this namespace it may well be root
            raise UsageError(
                "this user is not mapped in its user namespace: the rights of a server are unknown",
                f"map it (unshare --map-current-user, or without unshare), or {AS_A_USER}",
            )
        return account_of(os.geteuid())
    name = os.environ.get(VARIABLE) or next(filter(_exists, _SYSTEM_USERS), _OURS)
    if name in _SHARED:
        raise UsageError(
            f"{VARIABLE} names {name}, which other programs run as too: they could read and change the data",
            f"name a user for databases, such as postgres, or none: then dbdyno makes the user {_OURS}",
        )
    if not _exists(name):
        if os.environ.get(VARIABLE):
            raise UsageError(
                f"{VARIABLE} names {name}, and there is no such user", f"useradd --system {shlex.quote(name)}"
            )
        if not make:
            return Account(name, _NO_ID, _NO_ID, switch=True)
        _make(name)
    entry = pwd.getpwnam(name)
    if entry.pw_uid == 0:
        raise UsageError(
            f"user {name} is root, and PostgreSQL does not run as root", f"name another: {VARIABLE}"
        )
    if make and (missing := lacking_rights(entry.pw_uid, entry.pw_gid)):
        raise UsageError(
            f"dbdyno runs as root and cannot start a server as user {name}: {missing}", AS_A_USER
        )
    return Account(name, entry.pw_uid, entry.pw_gid, switch=True)


def account_of(uid: int) -> Account:
    """Returns the account with this uid. In containers it may have no name; then its name is the number."""
    try:
        entry = pwd.getpwuid(uid)
        name, gid = entry.pw_name, entry.pw_gid
    except KeyError:
        name, gid = str(uid), uid
    switch = os.geteuid() == 0 and uid != 0
    return Account(name, uid, gid if switch else os.getegid(), switch)


def owner_of(directory: Path) -> Account | None:
    """Returns the owner of a directory, None if it does not exist. Follows a link, since the link itself
    lies in a directory of our own."""
    try:
        return account_of(directory.stat().st_uid)
    except FileNotFoundError:
        return None


def check_owner(owner: Account, wanted: Account, data: Path) -> None:
    """Raises :class:`UsageError` if the server may not run on data of that owner."""
    named = bool(os.environ.get(VARIABLE))
    if not wanted.switch or owner == wanted or (owner.switch and owner.name not in _SHARED and not named):
        return
    where = shlex.quote(str(data))
    raise UsageError(
        f"{data} belongs to user {owner.name}, and the embedded server runs as {wanted.name}",
        f"hand it over: chown -hR {wanted.name}: {where}; or begin with new data: "
        "dbdyno server start --fresh",
    )


def lacking_rights(uid: int, gid: int) -> str | None:
    """Returns why root cannot become this user here, None if it can."""
    for kind, number in (("uid", uid), ("gid", gid)):
        if not _is_mapped(kind, number):
            return f"this user namespace has no {kind} {number}"
    capabilities = _effective_capabilities()
    if lacking := [name for name, bit in _NEEDED.items() if not capabilities >> bit & 1]:
        return f"this root lacks the capabilities {', '.join(lacking)}"
    try:
        denied = Path("/proc/self/setgroups").read_text().strip() == "deny"
    except OSError:
        denied = False
    return "this user namespace denies setgroups" if denied else None


def _is_mapped(kind: str, number: int) -> bool:
    """Returns whether the user namespace maps the id. Lines of the map (user_namespaces(7)): first id
    inside, first id outside, length."""
    try:
        lines = Path(f"/proc/self/{kind}_map").read_text().splitlines()
    except OSError:
        return True  # the kernel has no user namespaces
    ranges = [(int(first), int(length)) for first, _, length in map(str.split, lines)]
    return any(first <= number < first + length for first, length in ranges)


def _effective_capabilities() -> int:
    lines = Path("/proc/self/status").read_text().split("\n")
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), -1)


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _make(name: str) -> None:
    """Creates a system user without a home, a shell or a password."""
    by_hand = f"useradd --system --shell /usr/sbin/nologin {name}"
    cure = f"make one: {by_hand}; or name one: {VARIABLE}=NAME; or {AS_A_USER}"
    if missing := lacking_rights(_ANY_SYSTEM_ID, _ANY_SYSTEM_ID):
        raise UsageError(f"dbdyno runs as root, and PostgreSQL does not run as root: {missing}", AS_A_USER)
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    words = [shutil.which("useradd", path=path) or "useradd", "--system", "--user-group"]
    words += ["--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", name]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        failed = done.stderr.strip() if done.returncode else None
    except (OSError, subprocess.TimeoutExpired) as e:
        failed = str(e)
    if failed is not None and not _exists(name):
        raise UsageError(
            f"PostgreSQL does not run as root, and there is neither a user {' nor '.join(_SYSTEM_USERS)}; "
            f"making one failed: {failed}",
            cure,
        )
    print(f"dbdyno made the system user {name}: the embedded server runs as it, not as root", file=sys.stderr)


_ELSEWHERE = "set DBDYNO_SERVER_DIR to a directory on another file system"
_SHARED_MEMORY = re.compile(r"shared memory segment.*(No space left|Cannot allocate)", re.IGNORECASE)
_FULL = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_READ_ONLY = re.compile(r"Read-only file system", re.IGNORECASE)
_MEMORY = re.compile(r"Cannot allocate memory|could not map anonymous shared memory", re.IGNORECASE)
_SEVERAL = re.compile(r'invalid value for parameter "\w+": "[^"]*,|requires a Boolean value')
_DENIED = re.compile(r"Permission denied|Operation not permitted", re.IGNORECASE)


def cure_for(words: str) -> str | None:
    """Returns the cure for an error message of PostgreSQL's programs. None if it names neither a limit of
    the machine nor a list of values."""
    if _SEVERAL.search(words):
        return f"give the setting one value that the server takes; {COMPARE_VALUES}"
    if _SHARED_MEMORY.search(words):
        return (
            "/dev/shm is full or too small: enlarge it (docker run --shm-size=1g), and start the server again"
        )
    if _FULL.search(words):
        return f"the file system is full: make room there (df -h shows which), or {_ELSEWHERE}"
    if _READ_ONLY.search(words):
        return f"the file system is read-only: {_ELSEWHERE}"
    if _MEMORY.search(words):
        return "too little memory: set a smaller shared_buffers, or raise the limit (docker run --memory)"
    if _DENIED.search(words):
        return f"the server's user may not do that here: {_ELSEWHERE}, or {AS_A_USER}"
    return None


@contextmanager
def explain_os_errors() -> Iterator[None]:
    """Raises an :class:`OSError` of the block as a :class:`UsageError`, or :class:`TargetError` for a full
    or broken disk, with a cure."""
    try:
        yield
    except NotPrivate as e:
        cure = f"{e.cure}; or set DBDYNO_SERVER_DIR to a directory of your own"
        raise UsageError(f"the embedded server's files: {e.strerror}", cure) from e
    except OSError as e:
        what = f"{e.filename}: {e.strerror}" if e.filename else str(e)
        full = e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
        kind = TargetError if full else UsageError
        raise kind(f"the embedded server's files: {what}", cure_for(str(e.strerror)) or _ELSEWHERE) from e
