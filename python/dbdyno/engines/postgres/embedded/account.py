"""The user the embedded server runs as: PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from dbdyno.model.errors import TargetError

_SYSTEM_USERS = ("postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """A user of the operating system. ``switch``: we are root and have to become it."""

    name: str
    uid: int
    gid: int
    switch: bool

    def popen_arguments(self) -> dict[str, object]:
        """Arguments of :class:`subprocess.Popen` that start a program as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switch else {}

    def can_reach(self, path: Path) -> bool:
        """Whether this user may read and search ``path``, by the permissions of it and of all parents."""
        path = path.resolve()
        return all(self._has(p, 0o1) for p in path.parents) and self._has(path, 0o5)

    def _has(self, path: Path, bits: int) -> bool:
        found = path.stat()
        shift = 6 if found.st_uid == self.uid else 3 if found.st_gid == self.gid else 0
        return stat.S_IMODE(found.st_mode) >> shift & bits == bits


def server_account() -> Account:
    """Ourselves; where we are root, an unprivileged system user."""
    uid = os.geteuid()
    if uid != 0:
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:  # containers run with users that have no entry
            name = str(uid)
        return Account(name, uid, os.getegid(), switch=False)
    for name in _SYSTEM_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name, entry.pw_uid, entry.pw_gid, switch=True)
    raise TargetError(
        "PostgreSQL does not run as root, and there is neither a user postgres nor nobody",
        "run dbdyno as an ordinary user, or make a user: useradd --system postgres",
    )
