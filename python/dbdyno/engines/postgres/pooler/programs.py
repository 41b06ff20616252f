"""PgBouncer's program: where it is, which version, and what that version can."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dbdyno.model.errors import UsageError

VARIABLE = "DBDYNO_PGBOUNCER"
PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin")
"""Besides PATH: packages put it where an ordinary user's PATH does not lead."""
PREPARED_SINCE = (1, 21)
"""Prepared statements by protocol through a transaction pool (PgBouncer, changelog of 1.21.0)."""


@dataclass(frozen=True)
class Program:
    path: str
    version: tuple[int, ...]  # (1, 18, 0)

    @property
    def name(self) -> str:
        """``PgBouncer 1.18.0``."""
        return f"PgBouncer {'.'.join(map(str, self.version))}"

    @property
    def keeps_prepared(self) -> bool:
        return self.version >= PREPARED_SINCE


def find_program() -> Program:
    """The one that ``DBDYNO_PGBOUNCER`` names, else the first on PATH or in a usual place. Raises
    :class:`UsageError` with the way to install it."""
    given = os.environ.get(VARIABLE)
    path = given or shutil.which("pgbouncer") or shutil.which("pgbouncer", path=os.pathsep.join(PLACES))
    if path is None or not Path(path).is_file():
        where = f"{VARIABLE} names {given}, which is not there" if given else "it is not installed"
        raise UsageError(
            f"a limit `pool` needs the connection pooler PgBouncer: {where}",
            "install it: apt install pgbouncer (Debian, Ubuntu) or dnf install pgbouncer (Fedora, RHEL with "
            f"EPEL); its service is not needed. One elsewhere is named by {VARIABLE}",
        )
    return Program(path, _version(path))


def _version(path: str) -> tuple[int, ...]:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as e:
        raise UsageError(f"{path} does not run: {e}", "is it made for this machine?") from e
    found = re.search(r"PgBouncer (?:version )?(\d+(?:\.\d+)+)", done.stdout)
    if found is None:
        raise UsageError(f"{path} does not say its version", "is it PgBouncer?")
    return tuple(map(int, found[1].split(".")))
