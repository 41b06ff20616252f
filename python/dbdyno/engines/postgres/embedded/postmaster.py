"""Finds and ends the server process of a data directory, never by name alone and never another process.

``postmaster.pid`` (PostgreSQL, "Server Files"): pid, data directory, start time, port, socket directory,
listen address, shared memory key, status. Its pid may have been reused by any process. Needs only the
standard library: as root, dbdyno runs this in a child that has become the server's user. That child may
inspect and signal the server even if root lacks CAP_SYS_PTRACE or CAP_KILL, or /proc is mounted with hidepid.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

PID_FILE = "postmaster.pid"
NO_PID = 2**31 - 1  # above any pid_max (2^22): no process has it
STOPS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))  # fast, immediate, kill
STOPS_OF_START = ((signal.SIGQUIT, 0.3), (signal.SIGKILL, 5.0))  # of a server that nobody has used yet
_POLL_S = 0.005


class Process:
    """A process, identified by pid and start time."""

    def __init__(
        self, pid: int, start_ticks: int
    ) -> None:  # no dataclass: importing that takes a quarter of a child's start
        self.pid, self.start_ticks = pid, start_ticks

    @property
    def alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks


def start_ticks(pid: int) -> int | None:
    """Returns the start since boot in clock ticks (proc_pid_stat(5), field 22). None if it is gone, a
    zombie, or hidden."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def recorded_pid(pid_file: str | None) -> int | None:
    """Returns the pid in the text of ``postmaster.pid``, None if there is none. Any process may have it
    now."""
    try:
        pid = int((pid_file or "").split("\n", 1)[0])
    except ValueError:
        return None
    return pid if 0 < pid < NO_PID else None


def is_ready(pid_file: str | None) -> bool:
    """Returns whether the status in ``postmaster.pid`` is ready, so that the server accepts connections."""
    lines = (pid_file or "").split("\n")
    return len(lines) > 7 and lines[7].strip() == "ready"


def judge(pid: int, data: str, known_ticks: int | None = None) -> str:
    """Returns whether ``pid`` is the server on ``data``: "server", "stranger", "gone" or "unknown".

    The server runs as our user, has ``-D data`` on its command line, and either executes a program named
    postgres or was started by us (``known_ticks``). If it may not be inspected, the answer is "unknown".
    """
    fields = _stat(pid)
    if fields is None:
        return "unknown" if _exists(pid) else "gone"
    if fields[0] in "ZX":
        return "gone"
    if _uid(pid) != os.geteuid():
        return "stranger"
    words = _command_line(pid)
    if words is None:
        return "unknown"
    if [value for option, value in pairwise(words) if option == b"-D"] != [os.fsencode(data)]:
        return "stranger"
    return "server" if int(fields[19]) == known_ticks or _is_postgres(pid) else "stranger"


def orphans(data: str) -> list[tuple[int, int]]:
    """Returns (pid, start) of server processes that work in ``data`` although their postmaster died."""
    return _our_processes(lambda pid: _is_postgres(pid) and _link(pid, "cwd") == data)


def holders(argument: str) -> list[tuple[int, int]]:
    """Returns (pid, start) of our user's processes that have this argument on their command line."""
    word = os.fsencode(argument)
    return _our_processes(lambda pid: word in (_command_line(pid) or ()))


def openers(file: str) -> list[tuple[int, int]]:
    """Returns (pid, start) of our user's processes that have this file open."""
    return _our_processes(lambda pid: any(_link(pid, f"fd/{fd}") == file for fd in _names(f"/proc/{pid}/fd")))


def end(process: Process, stops: tuple[tuple[int, float], ...] = STOPS) -> bool:
    """Ends the process: sends each signal in turn and waits up to the seconds beside it. Returns whether
    it is gone."""
    with _Handle(process) as send:
        for sign, patience_s in stops:
            send(sign)
            if _ends_within(process, patience_s):
                return True
    return False


def end_all(processes: list[tuple[int, int]], stops: list[tuple[int, float]]) -> bool:
    """Ends these processes, given as (pid, start). Returns whether all are gone."""
    ended = [end(Process(*p), tuple((s, t) for s, t in stops)) for p in processes]
    return all(ended)


class _Handle:
    """Sends signals to exactly this process by a pidfd, which no later process of the same pid can have."""

    def __init__(self, process: Process) -> None:
        self._process, self._fd = process, -1

    def __enter__(self) -> _Handle:
        try:
            self._fd = os.pidfd_open(self._process.pid)
        except ProcessLookupError:
            return self
        if (
            not self._process.alive
        ):  # checked after the pidfd was opened: else the pid could be reused between
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
    """Waits for leftover processes to notice that their postmaster died, then kills the remaining ones."""
    deadline = time.monotonic() + patience_s
    while (left := orphans(data)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    end_all(left, [(signal.SIGKILL, patience_s)])


def end_session(leader: int, patience_s: float = 2.0) -> None:
    """Kills what a program that began a session of its own, and has ended, left in it. Does nothing while a
    process, perhaps a later one, has the pid. A server's backends have sessions of their own."""
    if start_ticks(leader) is None:
        left = _our_processes(lambda pid: (_stat(pid) or [""] * 4)[3] == str(leader))
        end_all(left, [(signal.SIGKILL, patience_s)])


def _ends_within(process: Process, patience_s: float) -> bool:
    return any(not process.alive for _ in _polls(patience_s))


def _polls(patience_s: float) -> Iterator[None]:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        yield
        time.sleep(_POLL_S)


# -- /proc ------------------------------------------------------------------------------------------
def _our_processes(chosen) -> list[tuple[int, int]]:  # type: ignore[no-untyped-def]
    """Returns (pid, start) of those processes of our user for which ``chosen`` is true."""
    processes = []
    for pid in (int(name) for name in _names("/proc") if name.isdigit()):
        if _uid(pid) == os.geteuid() and chosen(pid) and (ticks := start_ticks(pid)) is not None:
            processes.append((pid, ticks))
    return processes


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stat(pid: int) -> list[str] | None:
    """Returns the fields of stat from the state (field 3) on, None if it cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > 19 else None


def _uid(pid: int) -> int | None:
    """Returns the effective user id, None if unknown."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    return next((int(x.split()[2]) for x in status.split("\n") if x.startswith("Uid:")), None)


def _command_line(pid: int) -> list[bytes] | None:
    """Returns the command line. None if it is empty or cannot be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") or None
    except OSError:
        return None


def _is_postgres(pid: int) -> bool:
    """Returns whether its program is named postgres; if that cannot be read, whether the process is."""
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


def _names(directory: str) -> list[str]:
    try:
        return [p.name for p in Path(directory).iterdir()]
    except OSError:
        return []
