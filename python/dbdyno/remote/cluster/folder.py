"""The private folder of a cluster of dbdyno's own. All that Ray writes lies in it.

Its name is in the environment of each process of the cluster, which are known by it, and in the journal, by
which ``dbdyno clean`` finds what a killed run left. ``python -m dbdyno.remote.cluster.folder FOLDER`` removes
it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import time
from pathlib import Path

from dbdyno.kernel import processes
from dbdyno.kernel.private import is_private
from dbdyno.model.errors import NotAvailable, StoreError

VARIABLE = "RAY_TMPDIR"
"""Environment variable that holds the folder's path."""
_NAME = re.compile(r"dyno-ray-[0-9a-f]{12}")
_MOST_BYTES = 36
"""Length of the path. Ray's sockets lie 71 bytes deeper, and unix(7) allows a socket's path 107."""
_END_S, _STEP_S = 10.0, 0.05


def choose() -> Path:
    """Returns a path at which nothing is yet, in the temporary directory or else in /tmp. Raises
    :class:`NotAvailable`."""
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        place = Path(parent, f"dyno-ray-{secrets.token_hex(6)}")
        if len(os.fsencode(place)) <= _MOST_BYTES and _keeps_names(place):
            return place
    raise NotAvailable(
        "no directory for the files of a cluster: neither the temporary directory nor /tmp can be used",
        "name one with a short path, to which nobody else may write or which is sticky: TMPDIR=DIR",
    )


def make(place: Path) -> None:
    """Makes the folder, mode 0700, with a random token, mode 0600, by which the cluster knows its members.
    Raises :class:`NotAvailable`."""
    try:
        place.mkdir(mode=0o700)  # fails where somebody else was first
        (place / "ray").mkdir()  # Ray's own, which it makes writable to everybody
        with os.fdopen(os.open(token(place), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    except OSError as e:
        raise NotAvailable(
            f"cannot make the folder of the cluster, {place}: {e.strerror or e}",
            "make room there, or name another directory with a short path: TMPDIR=DIR",
        ) from e


def token(place: Path) -> Path:
    """Returns the path of the token's file."""
    return place / "token"


def remove(place: Path) -> bool:
    """Ends the cluster's processes that are left, but for this one, and removes the folder; whether there was
    anything. Raises :class:`StoreError` where that is not done, or the folder is not surely this user's."""
    exists = _check(place)
    ended = _end_processes(place)
    if exists:
        shutil.rmtree(place, ignore_errors=True)
        if place.exists():
            raise StoreError(f"cannot remove {place}", "look into it, and remove it by hand")
    return exists or ended


def _check(place: Path) -> bool:
    """Returns whether the folder exists."""
    if _NAME.fullmatch(place.name) is None or not place.is_absolute():
        raise ValueError(f"no folder of a cluster of dbdyno's: {place}")
    try:
        found = place.lstat()
    except FileNotFoundError:
        return False
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
    if not private or found.st_uid != os.geteuid():
        raise StoreError(
            f"{place} is left alone: it is not a directory of mode 0700 that belongs to this user",
            "look into it, and remove it by hand if it is yours",
        )
    return True


def _end_processes(place: Path) -> bool:
    """Kills until none is left; whether there were any."""
    until_s, ended = time.monotonic() + _END_S, False
    while pids := _processes(place):
        if time.monotonic() > until_s:
            raise StoreError(
                f"processes of the cluster in {place} do not end: {', '.join(map(str, sorted(pids)))}",
                "end them by hand, then dbdyno clean again",
            )
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        ended = True
        time.sleep(_STEP_S)
    return ended


def _processes(place: Path) -> set[int]:
    found = processes.with_variable(VARIABLE, str(place))
    return {pid for pid in found if pid != os.getpid() and processes.is_ours(pid)}


def _keeps_names(place: Path) -> bool:
    """Returns whether nobody else can put something in the place of what this user makes there."""
    try:
        return is_private(place) and os.access(place.parent, os.W_OK | os.X_OK)
    except OSError:
        return False


if __name__ == "__main__":
    with contextlib.suppress(StoreError):  # dbdyno itself reports what stays
        remove(Path(sys.argv[1]))
