"""Who measures on this machine: each run of this user has a file that it keeps locked.

``flock`` ends with the process, so a run that crashes leaves no lock behind. The directory is the user's own:
runs of other users are not seen. A run that is to be alone waits for those that measure, and for those that
have waited for longer.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dbdyno.kernel.private import make_private

_NAME = "dbdyno-runs"
_SUFFIX = ".run"


class Ticket(NamedTuple):
    """Names a run to others: its process, and what it measures."""

    pid: int
    since_s: float  # of the wall clock
    what: str  # workload or recipe
    run: str = ""  # its id; empty: not stored yet
    waiting: bool = False

    @property
    def words(self) -> str:
        """Returns ``20261129-124424-cpu-e92e (process 21401, since 12:44:23)``."""
        begun = time.strftime("%H:%M:%S", time.localtime(self.since_s))
        return f"{self.run or self.what} (process {self.pid}, since {begun})"


class Turn:
    """The file of one run. Without a directory that can be used it sees no others."""

    def __init__(self, what: str, directory: Path | None) -> None:
        self.ticket = Ticket(os.getpid(), time.time(), what)
        self._directory, self._file, self._descriptor = directory, Path(), -1
        if directory is not None:
            try:
                self._open(directory)
            except OSError:
                self._directory = None

    def _open(self, directory: Path) -> None:
        """Creates the file under another name, so that others never see it without its lock."""
        name = f"{self.ticket.pid}-{time.time_ns()}"
        new, self._file = directory / f".{name}", directory / f"{name}{_SUFFIX}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(new, flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._write()
        new.replace(self._file)

    def update(self, **facts: Any) -> None:
        """Changes fields of the ticket."""
        self.ticket = self.ticket._replace(**facts)
        if self._directory is not None:
            with contextlib.suppress(OSError):
                self._write()

    def _write(self) -> None:
        content = json.dumps(self.ticket._asdict()).encode()
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))

    def measuring(self) -> list[Ticket]:
        """Returns the other runs that measure."""
        return [t for t in self._others() if not t.waiting]

    def ahead(self) -> list[Ticket]:
        """Returns the other runs that measure, and those that have waited for longer than this one."""
        own = (self.ticket.since_s, self.ticket.pid)
        return [t for t in self._others() if not t.waiting or (t.since_s, t.pid) < own]

    def _others(self) -> list[Ticket]:
        if self._directory is None:
            return []
        files = [f for f in self._directory.glob(f"*{_SUFFIX}") if f != self._file]
        return sorted((t for f in files if (t := _held(f)) is not None), key=lambda t: t.since_s)

    def close(self) -> None:
        if self._directory is not None:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._directory = None


def _held(file: Path) -> Ticket | None:
    """Returns the ticket of a living run; None for a file without a lock, which is removed."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        file.unlink(missing_ok=True)
        return None
    except BlockingIOError:
        return _ticket(os.pread(descriptor, 4096, 0), os.fstat(descriptor).st_mtime)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _ticket(content: bytes, written_s: float) -> Ticket:
    """Returns the ticket in a file, or one without a name while the file is being rewritten."""
    try:
        return Ticket(**json.loads(content))
    except (ValueError, TypeError):
        return Ticket(0, written_s, "a run")


def directory() -> Path | None:
    """Returns the directory of this user's runs, created if missing; None if there is no place for it."""
    uid = os.geteuid()
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    parents = [Path(given)] if given.startswith("/") else []
    parents += [Path("/run") if uid == 0 else Path(f"/run/user/{uid}")]
    for place in (*(p / _NAME for p in parents), Path(f"/tmp/{_NAME}-{uid}")):
        with contextlib.suppress(OSError):
            make_private(place, parents=False)
            return place
    return None


@contextlib.contextmanager
def turn(what: str) -> Iterator[Turn]:
    """Yields the turn of a run, which ends with the context or the process."""
    own = Turn(what, directory())
    try:
        yield own
    finally:
        own.close()
