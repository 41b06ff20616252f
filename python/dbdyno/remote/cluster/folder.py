"""The private folder of a cluster of dbdyno's own, with all files of Ray.

Its path is in the environment of each process of the cluster, which identifies them, and in the journal, by
which ``dbdyno clean`` finds what a killed run left. ``python -m dbdyno.remote.cluster.folder FOLDER``
removes it.
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
"""Most bytes of the path: Ray's sockets add 71, and unix(7) limits a socket's path to 107."""
_END_S, _STEP_S = 10.0, 0.05


def choose() -> Path:
    """Returns an unused path in the temporary directory, or else in /tmp.

    Raises :class:`NotAvailable`.
    """
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        place = Path(parent, f"dyno-ray-{secrets.token_hex(6)}")
        if len(os.fsencode(place)) <= _MOST_BYTES and _keeps_names(place):
            return place
    raise NotAvailable(
        "no directory for the files of a cluster: neither the temporary directory nor /tmp can be used",
        "name one with a short path, to which nobody else may write or which is sticky: TMPDIR=DIR",
    )


def make(place: Path) -> None:
    """Creates the folder, mode 0700, with a random token, mode 0600, that all members of the cluster share.

    Raises :class:`NotAvailable`.
    """
    try:
        place.mkdir(mode=0o700)  # fails if it exists
        (place / "ray").mkdir()  # Ray makes this one writable to everybody
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
    """Ends the cluster's remaining processes, except this one, and removes the folder. Returns whether there
    was anything.

    Raises :class:`StoreError` if that fails, or the folder may not be this user's.
    """
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
        facts = place.lstat()
    except FileNotFoundError:
        return False
    private = stat.S_ISDIR(facts.st_mode) and stat.S_IMODE(facts.st_mode) == 0o700
    if not private or facts.st_uid != os.geteuid():
        raise StoreError(
            f"{place} is left alone: it is not a directory of mode 0700 that belongs to this user",
            "look into it, and remove it by hand if it is yours",
        )
    return True


def _end_processes(place: Path) -> bool:
    """Kills the processes until none is left; returns whether there were any."""
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
    pids = processes.with_variable(VARIABLE, str(place))
    return {pid for pid in pids if pid != os.getpid() and processes.is_ours(pid)}


def _keeps_names(place: Path) -> bool:
    """Returns whether no other user can replace files that this user creates there."""
    try:
        return is_private(place) and os.access(place.parent, os.W_OK | os.X_OK)
    except OSError:
        return False


if __name__ == "__main__":
    with contextlib.suppress(StoreError):  # dbdyno itself reports what remains
        remove(Path(sys.argv[1]))
