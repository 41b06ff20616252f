"""The server process on a data directory: is it there, is it ours, end it. Never by name, never a stranger.

``postmaster.pid`` (PostgreSQL, "Server Files"): pid, data directory, start time, port, socket directory,
listen address, shared memory key, status. A pid in it may have been reused by any process.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dbdyno.model.errors import TargetError

_NO_PID = 2**31 - 1  # beyond any pid_max (2^22): certainly dead
_STOPS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))  # fast, immediate, kill
_POLL_S = 0.005


@dataclass(frozen=True)
class Process:
    """A process, told from a later one of the same pid by its start."""

    pid: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks


def start_ticks(pid: int) -> int | None:
    """Start since boot in clock ticks (proc_pid_stat(5), field 22); None: gone, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def recorded_pid(data: Path) -> int | None:
    """The pid in ``postmaster.pid``, whoever has it now."""
    try:
        return int((data / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def is_ready(data: Path) -> bool:
    """Whether the server says that it takes connections."""
    try:
        return (data / "postmaster.pid").read_text().split("\n")[7].strip() == "ready"
    except (OSError, IndexError):
        return False


def find_postmaster(data: Path, uid: int, known: Process | None) -> Process | None:
    """The server on ``data``: of user ``uid``, a postgres program, told ``-D data`` on its command line.

    ``known``: what we started; the same pid with another start time is somebody else.
    """
    pid = recorded_pid(data)
    ticks = None if pid is None else start_ticks(pid)
    if pid is None or ticks is None or not _is_postgres(pid, uid):
        return None
    if known is not None and known.pid == pid and known.start_ticks != ticks:
        return None
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    told = [value for option, value in pairwise(words) if option == b"-D"]
    return Process(pid, ticks) if told == [os.fsencode(data)] else None


def orphans(data: Path, uid: int) -> list[Process]:
    """Server processes that work in ``data`` (their current directory) though their postmaster died."""
    found = []
    for pid in (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()):
        ticks = start_ticks(pid)
        if ticks is not None and _is_postgres(pid, uid) and _link(pid, "cwd") == str(data):
            found.append(Process(pid, ticks))
    return found


def disown_pid_file(data: Path) -> None:
    """Takes a stranger's pid out of ``postmaster.pid``, else the server would refuse to start.

    The file stays: with the shared memory key in it the server sees leftover processes of its last life.
    """
    file = data / "postmaster.pid"
    pid = recorded_pid(data)
    if pid is not None and start_ticks(pid) is not None:
        lines = file.read_text().split("\n")
        file.write_text("\n".join([str(_NO_PID), *lines[1:]]))


def end(process: Process) -> None:
    """Ends a server: fast, then immediately, then by force. Returns when it is gone."""
    with _Handle(process) as send:
        for sign, patience_s in _STOPS:
            send(sign)
            if _gone(process, patience_s):
                return
    raise TargetError(f"server process {process.pid} does not end", "it may hang in the kernel (state D)")


class _Handle:
    """Signals to exactly this process: a pidfd, which no later process of the same pid can take over."""

    def __init__(self, process: Process) -> None:
        self._process, self._fd = process, -1

    def __enter__(self) -> _Handle:
        try:
            self._fd = os.pidfd_open(self._process.pid)
        except ProcessLookupError:
            return self
        if not self._process.alive:  # looked at after the descriptor was opened
            os.close(self._fd)
            self._fd = -1
        return self

    def __call__(self, sign: signal.Signals) -> None:
        if self._fd >= 0:
            try:
                signal.pidfd_send_signal(self._fd, sign)
            except ProcessLookupError:
                return

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def end_orphans(data: Path, uid: int, patience_s: float = 2.0) -> None:
    """Waits for leftover processes to see that their postmaster died; then ends them."""
    deadline = time.monotonic() + patience_s
    while (left := orphans(data, uid)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for process in left:
        with _Handle(process) as send:
            send(signal.SIGKILL)
        _gone(process, patience_s)


def _gone(process: Process, patience_s: float) -> bool:
    return any(not process.alive for _ in _ticks(patience_s))


def _ticks(patience_s: float) -> Iterator[None]:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        yield
        time.sleep(_POLL_S)


def _is_postgres(pid: int, uid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    uids = next(line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
    program = (_link(pid, "exe") or "").removesuffix(" (deleted)")
    return int(uids[1]) == uid and Path(program).name == "postgres"


def _link(pid: int, name: str) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/{name}").readlink())
    except OSError:
        return None
