"""Whether the server's processes are those that we see here: proven by all there is, or not here.

A process id proves nothing: another pid namespace (a container) uses the same numbers, and the same number
here is a stranger, perhaps of another server. So name, age, title and parent of our backend's process have to
agree with what the server says, and all processes of its activity view have to be children of that parent.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from dbdyno import _core
from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.source import Source

_CLOSE_S = 2.0  # a forked process says its start a little later, and /proc counts in ticks
_ROUNDS = 3
_NAME = "postgres"
_PORT = re.compile(r"\((\d+)\)")  # of a client, in the title of its process
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h
_INSIDE = (
    "run dbdyno inside that container, or let it use the pids of this host (docker run --pid=host) and "
    "restart it"
)
_THERE = "run dbdyno on the server's host"


class Presence(NamedTuple):
    here: bool
    detail: str  # how that was found out; where not here also what would change it
    pid: int | None  # of the control connection's backend, where here
    main_pid: int | None  # of the server's main process, where here
    status: Literal["ok", "not here", "not permitted"] = "ok"

    def sources(self) -> Iterator[Source]:
        """Why the server's tasks cannot be read, where they cannot."""
        if self.status != "ok":
            yield Source(
                name="os tasks", provenance="/proc of this host", status=self.status, detail=self.detail
            )

    def owns(self, pid: int) -> bool:
        """Whether this is a process of the server, now."""
        return self.here and _parent(pid) == self.main_pid


class _Said(NamedTuple):
    """What the server says of our backend: columns of ``backend.sql``."""

    pid: int
    age_s: float
    server_age_s: float
    client_port: int | None  # None: a unix socket


class _Asked(NamedTuple):
    """``said``, and when it was asked: seconds since boot before and after."""

    said: _Said
    before_s: float
    after_s: float

    def started_at(self, pid: int, age_s: float) -> bool:
        """Whether process ``pid`` started when the server says."""
        start_s = _start_s(pid)
        return start_s is not None and -_CLOSE_S <= start_s - self.before_s + age_s <= self._late_s

    def started_by(self, pid: int, age_s: float) -> bool:
        """The same, or before: a container's first process becomes the server only after its preparations."""
        start_s = _start_s(pid)
        return start_s is not None and start_s - self.before_s + age_s <= self._late_s

    @property
    def _late_s(self) -> float:
        return self.after_s - self.before_s + _CLOSE_S


def presence(connection: Connection) -> Presence:
    """Asks where the connection goes, then looks for the server's processes in /proc."""
    asked = _ask(connection)
    pid = asked.said.pid
    way, listener = _way(connection)
    main = _parent(pid)
    doubt = _doubt_backend(asked) or _doubt_main(asked, main, listener)
    if doubt is None and (stranger := _stranger(connection, main)) is not None:
        doubt = f"process {stranger} of its activity view is not a child of process {main}"
    if doubt is None:
        agreed = "name, age, client and parent agree"
        return Presence(True, f"{way}, and process {pid} is our backend ({agreed})", pid, main)
    status, why, cure = _explained(asked, local="unix" in way or "both ends" in way)
    return Presence(False, f"{way}, but {doubt}: {why}; {cure}", None, None, status)


def _ask(connection: Connection) -> _Asked:
    before_s = _boot_s()
    row = connection.execute(sql.text("backend")).fetchone() or (0, 0.0, 0.0, None)
    return _Asked(_Said(*row), before_s, _boot_s())


def _way(connection: Connection) -> tuple[str, int | None]:
    """How the connection goes, and who listens at a unix socket (SO_PEERCRED, unix(7)): a process as seen
    from here, 0 for one of another pid namespace."""
    with socket.socket(fileno=os.dup(connection.fileno())) as ours:
        if ours.family == socket.AF_UNIX:
            size = struct.calcsize("3i")
            return "unix socket", struct.unpack(
                "3i", ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            )[0]
        peer = ours.getpeername()[0]
        same = peer == ours.getsockname()[0]
    return (f"both ends are {peer}" if same else f"the connection goes to {peer}"), None


def _doubt_backend(asked: _Asked) -> str | None:
    """What speaks against the process with our backend's number; None: nothing."""
    said = asked.said
    name = _name(said.pid)
    if name is None:
        return f"process {said.pid} is not visible"
    if name != _NAME:
        return f"process {said.pid} is named {name}"
    if not asked.started_at(said.pid, said.age_s):
        return f"process {said.pid} started at another time"
    if not _serves(said):
        return f"process {said.pid} serves another client"
    return None


def _doubt_main(asked: _Asked, main: int | None, listener: int | None) -> str | None:
    """What speaks against the parent of that process."""
    if main is None or _name(main) != _NAME:
        return f"the parent of process {asked.said.pid} is not {_NAME}"
    if not asked.started_by(main, asked.said.server_age_s):
        return f"process {main} is younger than the server"
    if listener == 0:
        return "a process of another pid namespace listens there"
    if listener not in (None, main) and _name(listener) == _NAME:  # else a pooler or proxy
        return f"process {listener} listens there, and process {asked.said.pid} is a child of {main}"
    return None


def _serves(said: _Said) -> bool:
    """Whether the title names our client's port ("Standard Unix Tools"); a title cut short names none."""
    title = _read(said.pid, "cmdline")
    ports = [int(port) for port in _PORT.findall(title)]
    if said.client_port is None:
        return not ports or "[local]" in title
    return said.client_port in ports or (not ports and "[local]" not in title)


def _stranger(connection: Connection, main: int | None) -> int | None:
    """A process of the activity view that is no child of ``main`` whenever we look; None: there is none.

    Backends end between the two reads, but not the same ones each time.
    """
    left: set[int] | None = None
    for _ in range(_ROUNDS):
        named = {pid for (pid,) in connection.execute(sql.text("pids")).fetchall()}
        foreign = {pid for pid in named if _parent(pid) != main}
        left = foreign if left is None else left & foreign
        if not left:
            return None
    return min(left or ())


# -- why not ----------------------------------------------------------------------------------------
def _explained(asked: _Asked, *, local: bool) -> tuple[Literal["not here", "not permitted"], str, str]:
    """Status, why the server's processes are not seen, and the cure."""
    if (pid := _contained(asked)) is not None:
        why = f"the server runs on this host in another pid namespace (a container; there {asked.said.pid} "
        return "not here", f"{why}is our process {pid})", _INSIDE
    hidden = _hidepid()
    if hidden is not None and _is_hidden(asked.said.pid):
        who = f"user {os.geteuid()}"
        return (
            "not permitted",
            f"/proc is mounted with {hidden}, which hides other users' processes from {who}",
            "run dbdyno as the server's user or as root with CAP_SYS_PTRACE, or mount -o remount,hidepid=0 "
            "/proc (gid=GROUP lets one group see them)",
        )
    if hidden is None and _sees_all():
        return "not here", "the server is on another host", _THERE
    if local:
        return "not here", "the server is in another pid namespace (a container)", _INSIDE
    return (
        "not here",
        "the server is on another host, or in another pid namespace (a container)",
        f"{_THERE}, in its pid namespace",
    )


def _contained(asked: _Asked) -> int | None:
    """Our backend's process where it is seen under another number: its number inside is the last of NSpid
    (proc_pid_status(5))."""
    for pid in _all_processes():
        numbers = said_of(pid).get("NSpid", "").split()
        if len(numbers) > 1 and int(numbers[-1]) == asked.said.pid and _name(pid) == _NAME:
            said = asked.said._replace(pid=pid)
            if asked.started_at(pid, said.age_s) and _serves(said):
                return pid
    return None


def _all_processes() -> Iterator[int]:
    yield from (int(p.name) for p in Path("/proc").iterdir() if p.name.isdecimal())


def _sees_all() -> bool:
    """Whether we are in the host's own pid namespace, and /proc is of it."""
    try:
        ours = str(Path("/proc/self/ns/pid").readlink())
        return ours == _INITIAL_PID_NAMESPACE and Path("/proc/self").readlink() == Path(str(os.getpid()))
    except OSError:
        return False


def _hidepid() -> str | None:
    """How /proc hides processes ("hidepid=2"), in its mount's options (proc(5)); None: it does not."""
    for line in _read("self", "mountinfo").splitlines():
        words = line.split()
        if words[4] == "/proc":
            found = re.search(r"hidepid=(?!0|off)\w+", words[-1])
            if found:
                return found[0]
    return None


def _is_hidden(pid: int) -> bool:
    """Whether a process has that number though /proc does not show it to us."""
    if _name(pid) is not None:
        return False
    try:
        os.kill(pid, 0)  # only asks
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


# -- one process ------------------------------------------------------------------------------------
def _read(pid: int | str, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def _name(pid: int | None) -> str | None:
    return None if pid is None else _read(pid, "comm").strip() or None


def _stat(pid: int) -> list[str]:
    """Fields of stat after the name (proc_pid_stat(5), from 3 on); none: it is gone, or hidden."""
    return _read(pid, "stat").rpartition(")")[2].split()


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _start_s(pid: int) -> float | None:
    """Seconds since boot."""
    fields = _stat(pid)
    return int(fields[19]) / os.sysconf("SC_CLK_TCK") if fields else None


def said_of(pid: int) -> dict[str, str]:
    """proc_pid_status(5); empty: it is gone, or hidden."""
    lines = _read(pid, "status").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# The server's processes on this host that no view of it shows.

_UNLISTED = ("logger", "stats collector")  # processes of the server that its activity view leaves out
_HELPERS = (
    *_UNLISTED,
    *("checkpointer", "background writer", "walwriter", "autovacuum launcher", "archiver", "walsummarizer"),
    *("logical replication launcher", "io worker", "startup", "walreceiver", "slotsync worker"),
)
_TITLE = re.compile(rf"postgres: (?:.*: )?({'|'.join(_HELPERS)})\b")  # a cluster_name may be before it
_CLIENT = re.compile(r"\[local\]|\(\d+\)")  # of a client's title: its host and port


def unlisted(main_pid: int, known: Container[int], *, all_helpers: bool) -> list[tuple[int, str]]:
    """(process, what it is) of the server's helpers that no view shows: the log collector and, in 14, the
    statistics collector; with ``all_helpers`` all that stay, where the view hides from us what they are.

    ``known``: sessions, which are not looked at. By their titles (PostgreSQL, "Standard Unix Tools"), which
    any user may read.
    """
    wanted = _HELPERS if all_helpers else _UNLISTED
    titles = {
        pid: _read_file(f"/proc/{pid}/cmdline").strip("\0 ") for pid in children(main_pid) if pid not in known
    }
    found = {pid: _TITLE.match(title) for pid, title in titles.items() if not _CLIENT.search(title)}
    return [(pid, title[1]) for pid, title in found.items() if title and title[1] in wanted]


def children(pid: int, root: Path = Path("/")) -> list[int]:
    """Empty where the kernel has no CONFIG_PROC_CHILDREN."""
    return [int(child) for child in _read_file(f"{root}/proc/{pid}/task/{pid}/children").split()]


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def run_ns(pid: int) -> int | None:
    """CPU time of the process's main thread (schedstat 1), exact when it sleeps; None: unreadable."""
    found: int | None = _core.read_task(pid, pid)["run_ns"]
    return found
