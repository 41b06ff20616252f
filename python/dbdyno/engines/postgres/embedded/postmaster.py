"""The server process on a data directory: is it there, is it ours, end it. Never by name, never a stranger.

``postmaster.pid`` (PostgreSQL, "Server Files"): pid, data directory, start time, port, socket directory,
listen address, shared memory key, status. A pid in it may have been reused by any process. Standard library
only: where dbdyno runs as root, a child that has become the server's user looks (it may, without
CAP_SYS_PTRACE and with hidepid) and sends the signals (without CAP_KILL).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

PID_FILE = "postmaster.pid"
NO_PID = 2**31 - 1  # beyond any pid_max (2^22): certainly dead
STOPS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))  # fast, immediate, kill
_POLL_S = 0.005


class Process:
    """A process, told from a later one of the same pid by its start."""

    def __init__(self, pid: int, start_ticks: int) -> None:  # dataclasses take a quarter of a child's start
        self.pid, self.start_ticks = pid, start_ticks

    @property
    def alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks


def start_ticks(pid: int) -> int | None:
    """Start since boot in clock ticks (proc_pid_stat(5), field 22); None: gone, a zombie, or hidden."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def recorded_pid(pid_file: str | None) -> int | None:
    """The pid in the text of ``postmaster.pid``, whoever has it now."""
    try:
        found = int((pid_file or "").split("\n", 1)[0])
    except ValueError:
        return None
    return found if 0 < found < NO_PID else None


def is_ready(pid_file: str | None) -> bool:
    """Whether the server says in it that it takes connections."""
    lines = (pid_file or "").split("\n")
    return len(lines) > 7 and lines[7].strip() == "ready"


def judge(pid: int, data: str, known_ticks: int | None = None) -> str:
    """What ``pid`` is to the server on ``data`` of our user: "server", "stranger", "gone" or "unknown".

    The server is of our user, told ``-D data`` on its command line, and a postgres program or started by us
    (``known_ticks``). What may not be read is unknown, and decides nothing.
    """
    fields = _stat(pid)
    if fields is None:
        return "unknown" if _exists(pid) else "gone"
    if fields[0] in "ZX":
        return "gone"
    if _uid(pid) != os.geteuid():
        return "stranger"
    words = _words(pid)
    if words is None:
        return "unknown"
    if [value for option, value in pairwise(words) if option == b"-D"] != [os.fsencode(data)]:
        return "stranger"
    return "server" if int(fields[19]) == known_ticks or _is_postgres(pid) else "stranger"


def orphans(data: str) -> list[tuple[int, int]]:
    """(pid, start) of server processes that work in ``data`` though their postmaster died."""
    return _ours(lambda pid: _is_postgres(pid) and _link(pid, "cwd") == data)


def holders(argument: str) -> list[tuple[int, int]]:
    """(pid, start) of our user's processes that have this argument on their command line."""
    word = os.fsencode(argument)
    return _ours(lambda pid: word in (_words(pid) or ()))


def openers(file: str) -> list[tuple[int, int]]:
    """(pid, start) of our user's processes that have this file open."""
    return _ours(lambda pid: any(_link(pid, f"fd/{fd}") == file for fd in _listed(f"/proc/{pid}/fd")))


def end(process: Process, stops: tuple[tuple[int, float], ...] = STOPS) -> bool:
    """Ends it: by each signal in turn, with a patience in seconds. Returns whether it is gone."""
    with _Handle(process) as send:
        for sign, patience_s in stops:
            send(sign)
            if _gone(process, patience_s):
                return True
    return False


def end_all(found: list[tuple[int, int]], stops: list[tuple[int, float]]) -> bool:
    """Ends these, (pid, start)."""
    gone = [end(Process(*p), tuple((s, t) for s, t in stops)) for p in found]
    return all(gone)


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

    def __call__(self, sign: int) -> None:
        if self._fd >= 0:
            try:
                signal.pidfd_send_signal(self._fd, sign)
            except (ProcessLookupError, PermissionError):
                return

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def end_orphans(data: str, patience_s: float = 2.0) -> None:
    """Waits for leftover processes to see that their postmaster died; then ends them."""
    deadline = time.monotonic() + patience_s
    while (left := orphans(data)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    end_all(left, [(signal.SIGKILL, patience_s)])


def _gone(process: Process, patience_s: float) -> bool:
    return any(not process.alive for _ in _ticks(patience_s))


def _ticks(patience_s: float) -> Iterator[None]:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        yield
        time.sleep(_POLL_S)


# -- /proc ------------------------------------------------------------------------------------------
def _ours(chosen) -> list[tuple[int, int]]:  # type: ignore[no-untyped-def]
    """(pid, start) of the chosen processes of our user."""
    found = []
    for pid in (int(name) for name in _listed("/proc") if name.isdigit()):
        if _uid(pid) == os.geteuid() and chosen(pid) and (ticks := start_ticks(pid)) is not None:
            found.append((pid, ticks))
    return found


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stat(pid: int) -> list[str] | None:
    """From the state on (field 3)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > 19 else None


def _uid(pid: int) -> int | None:
    """The effective one."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    return next((int(x.split()[2]) for x in status.split("\n") if x.startswith("Uid:")), None)


def _words(pid: int) -> list[bytes] | None:
    """Its command line. None: not to be read, or it has none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") or None
    except OSError:
        return None


def _is_postgres(pid: int) -> bool:
    """By its program; where that may not be read, by its name."""
    program = _link(pid, "exe")
    if program is not None:
        return Path(program.removesuffix(" (deleted)")).name == "postgres"
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "postgres"
    except (OSError, ValueError):
        return False


def _link(pid: int, name: str) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/{name}").readlink())
    except OSError:
        return None


def _listed(directory: str) -> list[str]:
    try:
        return [p.name for p in Path(directory).iterdir()]
    except OSError:
        return []
