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
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.kernel.machine import HERE
from dbdyno.kernel.numbers import number
from dbdyno.model.engine.machine import Machine
from dbdyno.model.errors import NotPrivileged
from dbdyno.model.sources.source import Source

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
_OVER = "name the server's host with --server-ssh"
_ROOT = HERE.root


class Presence(NamedTuple):
    here: bool
    detail: str  # how that was found out; where not here also what would change it
    pid: int | None  # of the control connection's backend, where here
    main_pid: int | None  # of the server's main process, where here
    status: Literal["ok", "not here", "not permitted"] = "ok"
    machine: Machine = HERE  # where that was looked for

    @property
    def local(self) -> bool:
        """Whether the server is on this very host, where something can be done to its processes."""
        return self.here and self.machine.reached is None

    def sources(self) -> Iterator[Source]:
        """Why the server's tasks cannot be read, where they cannot."""
        if self.status != "ok":
            yield Source(
                name="os tasks",
                provenance="/proc of the server's host",
                status=self.status,
                detail=self.detail,
            )

    def owns(self, pid: int) -> bool:
        """Whether this is a process of the server, now."""
        return self.here and _parent(pid, self.machine.root) == self.main_pid


class _Said(NamedTuple):
    """What the server says of our backend: columns of ``backend.sql``."""

    pid: int
    age_s: float
    server_age_s: float
    client_port: int | None  # None: a unix socket


class _Asked(NamedTuple):
    """``said``, and when it was asked: seconds since the machine's boot before and after."""

    said: _Said
    before_s: float
    after_s: float
    machine: Machine

    def started_at(self, pid: int, age_s: float) -> bool:
        """Whether process ``pid`` started when the server says."""
        start_s = _start_s(pid, self.machine.root)
        return start_s is not None and -_CLOSE_S <= start_s - self.before_s + age_s <= self._late_s

    def started_by(self, pid: int, age_s: float) -> bool:
        """The same, or before: a container's first process becomes the server only after its preparations."""
        start_s = _start_s(pid, self.machine.root)
        return start_s is not None and start_s - self.before_s + age_s <= self._late_s

    @property
    def _late_s(self) -> float:
        return self.after_s - self.before_s + _CLOSE_S


def presence(connection: Connection, machine: Machine = HERE) -> Presence:
    """Asks where the connection goes, then looks for the server's processes in /proc of ``machine``."""
    asked = _ask(connection, machine)
    pid = asked.said.pid
    way, listener = _way(connection, machine)
    with machine.ahead(_looked_at(pid, machine)):
        main = _parent(pid, machine.root)
        doubt = _doubt_backend(asked) or _doubt_main(asked, main, listener)
    if doubt is None and (stranger := _stranger(connection, main, machine)) is not None:
        doubt = f"process {stranger} of its activity view is not a child of process {main}"
    if doubt is None:
        agreed = "name, age, client and parent agree"
        detail = f"{way}, and process {pid}{_on(machine)} is our backend ({agreed})"
        return Presence(True, detail, pid, main, machine=machine)
    status, why, cure = _explained(asked, local="unix" in way or "both ends" in way)
    detail = f"{way}, but {doubt}{_on(machine)}: {why}; {cure}"
    return Presence(False, detail, None, None, status, machine)


def _on(machine: Machine) -> str:
    return "" if machine.reached is None else f" on {machine.reached.host}"


def _looked_at(pid: int, machine: Machine) -> list[Path]:
    names = ("comm", "stat", "cmdline", "status")
    return [machine.root / f"proc/{pid}/{name}" for name in names]


def _ask(connection: Connection, machine: Machine) -> _Asked:
    before_s = machine.boot_s()
    row = connection.execute(sql.text("backend")).fetchone() or (0, 0.0, 0.0, None)
    if row[1] is None:  # the age of a session is for its role and those who may act as it
        (role,) = connection.execute(b"select quote_ident(current_user)").fetchone() or ("",)
        raise NotPrivileged(
            f"the session was set to the role {role}, which may not see it",
            f"--dsn 'options=-crole=none ...', or as superuser: GRANT pg_read_all_stats TO {role};",
        )
    return _Asked(_Said(*row), before_s, machine.boot_s(), machine)


def _way(connection: Connection, machine: Machine) -> tuple[str, int | None]:
    """How the connection goes, and who listens at a unix socket (SO_PEERCRED, unix(7)): a process as seen
    from here, 0 for one of another pid namespace."""
    with socket.socket(fileno=os.dup(connection.fileno())) as ours:
        if ours.family == socket.AF_UNIX:
            size = struct.calcsize("3i")
            listener = struct.unpack("3i", ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0]
            return "unix socket", listener if machine.reached is None else None
        peer = ours.getpeername()[0]
        same = peer == ours.getsockname()[0]
    return (f"both ends are {peer}" if same else f"the connection goes to {peer}"), None


def _doubt_backend(asked: _Asked) -> str | None:
    """What speaks against the process with our backend's number; None: nothing."""
    said, root = asked.said, asked.machine.root
    name = _name(said.pid, root)
    if name is None:
        return f"process {said.pid} is not visible"
    if name != _NAME:
        return f"process {said.pid} is named {name}"
    if not asked.started_at(said.pid, said.age_s):
        return f"process {said.pid} started at another time"
    if not _serves(said, root):
        return f"process {said.pid} serves another client"
    return None


def _doubt_main(asked: _Asked, main: int | None, listener: int | None) -> str | None:
    """What speaks against the parent of that process."""
    root = asked.machine.root
    if main is None or _name(main, root) != _NAME:
        return f"the parent of process {asked.said.pid} is not {_NAME}"
    if not asked.started_by(main, asked.said.server_age_s):
        return f"process {main} is younger than the server"
    if listener == 0:
        return "a process of another pid namespace listens there"
    if listener not in (None, main) and _name(listener, root) == _NAME:  # else a pooler or proxy
        return f"process {listener} listens there, and process {asked.said.pid} is a child of {main}"
    return None


def _serves(said: _Said, root: Path) -> bool:
    """Whether the title names our client's port ("Standard Unix Tools"); a title cut short names none."""
    title = _read(said.pid, "cmdline", root)
    ports = [int(port) for port in _PORT.findall(title)]
    if said.client_port is None:
        return not ports or "[local]" in title
    return said.client_port in ports or (not ports and "[local]" not in title)


def _stranger(connection: Connection, main: int | None, machine: Machine) -> int | None:
    """A process of the activity view that is no child of ``main`` whenever we look; None: there is none.

    Backends end between the two reads, but not the same ones each time.
    """
    left: set[int] | None = None
    for _ in range(_ROUNDS):
        named = {pid for (pid,) in connection.execute(sql.text("pids")).fetchall()}
        with machine.ahead(machine.root / f"proc/{pid}/stat" for pid in named):
            foreign = {pid for pid in named if _parent(pid, machine.root) != main}
        left = foreign if left is None else left & foreign
        if not left:
            return None
    return min(left or ())


# -- why not ----------------------------------------------------------------------------------------
def _explained(asked: _Asked, *, local: bool) -> tuple[Literal["not here", "not permitted"], str, str]:
    """Status, why the server's processes are not seen, and the cure."""
    machine = asked.machine
    host = "this host" if machine.reached is None else machine.reached.host
    if (pid := _contained(asked)) is not None:
        why = f"the server runs on {host} in another pid namespace (a container; there {asked.said.pid} "
        return "not here", f"{why}is our process {pid})", _INSIDE
    hidden = _hidepid(machine.root)
    if hidden is not None and _is_hidden(asked.said.pid, machine):
        who = f"user {machine.uid}"
        return (
            "not permitted",
            f"/proc is mounted with {hidden}, which hides other users' processes from {who}",
            "run dbdyno as the server's user or as root with CAP_SYS_PTRACE, or mount -o remount,hidepid=0 "
            "/proc (gid=GROUP lets one group see them)",
        )
    there = _THERE if machine.reached is None else _OVER
    if hidden is None and _sees_all(machine):
        return "not here", "the server is on another host", there
    if local and machine.reached is None:
        return "not here", "the server is in another pid namespace (a container)", _INSIDE
    return (
        "not here",
        "the server is on another host, or in another pid namespace (a container)",
        f"{there}, in its pid namespace",
    )


def _contained(asked: _Asked) -> int | None:
    """Our backend's process where it is seen under another number: its number inside is the last of NSpid
    (proc_pid_status(5))."""
    root = asked.machine.root
    with asked.machine.ahead([root / "proc/*/status"]):
        found = {pid: said_of(pid, root).get("NSpid", "").split() for pid in _all_processes(root)}
    for pid, numbers in found.items():
        if len(numbers) > 1 and int(numbers[-1]) == asked.said.pid and _name(pid, root) == _NAME:
            said = asked.said._replace(pid=pid)
            if asked.started_at(pid, said.age_s) and _serves(said, root):
                return pid
    return None


def _all_processes(root: Path) -> Iterator[int]:
    yield from (int(p.name) for p in (root / "proc").iterdir() if p.name.isdecimal())


def _sees_all(machine: Machine) -> bool:
    """Whether who reads there is in the host's own pid namespace, and /proc is of it."""
    us = machine.root / "proc/self"
    try:
        ours = str((us / "ns/pid").readlink())
        return ours == _INITIAL_PID_NAMESPACE and str(us.readlink()) == str(machine.pid)
    except OSError:
        return False


def _hidepid(root: Path) -> str | None:
    """How /proc hides processes ("hidepid=2"), in its mount's options (proc(5)); None: it does not."""
    for line in _read("self", "mountinfo", root).split("\n"):
        words = line.split()
        if words[4:5] == ["/proc"]:
            found = re.search(r"hidepid=(?!0|off)\w+", words[-1])
            if found:
                return found[0]
    return None


def _is_hidden(pid: int, machine: Machine) -> bool:
    """Whether a process has that number though /proc does not show it to us. Of another host that cannot be
    asked: it may have."""
    if _name(pid, machine.root) is not None:
        return False
    if machine.reached is not None:
        return True
    try:
        os.kill(pid, 0)  # only asks
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


# -- one process ------------------------------------------------------------------------------------
def _read(pid: int | str, name: str, root: Path = _ROOT) -> str:
    return _read_file(root / f"proc/{pid}/{name}")


def _name(pid: int | None, root: Path) -> str | None:
    return None if pid is None else _read(pid, "comm", root).strip() or None


def _stat(pid: int, root: Path) -> list[str]:
    """Fields of stat after the name (proc_pid_stat(5), from 3 on); none: it is gone, or hidden."""
    return _read(pid, "stat", root).rpartition(")")[2].split()


def _parent(pid: int, root: Path) -> int | None:
    fields = _stat(pid, root)
    return number(fields[1]) if len(fields) > 1 else None


def _start_s(pid: int, root: Path) -> float | None:
    """Seconds since boot."""
    fields = _stat(pid, root)
    ticks = number(fields[19]) if len(fields) > 19 else None
    return None if ticks is None else ticks / os.sysconf("SC_CLK_TCK")


def said_of(pid: int, root: Path = _ROOT) -> dict[str, str]:
    """proc_pid_status(5); empty: it is gone, or hidden."""
    lines = _read(pid, "status", root).split("\n")
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


# The server's processes on this host that no view of it shows.

_UNLISTED = ("logger", "stats collector")  # processes of the server that its activity view leaves out
_HELPERS = (
    *_UNLISTED,
    *("checkpointer", "background writer", "walwriter", "autovacuum launcher", "archiver", "walsummarizer"),
    *("logical replication launcher", "io worker", "startup", "walreceiver", "slotsync worker"),
)
_TITLE = re.compile(rf"postgres: (?:.*: )?({'|'.join(_HELPERS)})\b")  # a cluster_name may be before it
_CLIENT = re.compile(r"\[local\]|\(\d+\)")  # of a client's title: its host and port


def unlisted(
    main_pid: int, known: Container[int], *, all_helpers: bool, machine: Machine = HERE
) -> list[tuple[int, str]]:
    """(process, what it is) of the server's helpers that no view shows: the log collector and, in 14, the
    statistics collector; with ``all_helpers`` all that stay, where the view hides from us what they are.

    ``known``: sessions, which are not looked at. By their titles (PostgreSQL, "Standard Unix Tools"), which
    any user may read.
    """
    wanted, root = _HELPERS if all_helpers else _UNLISTED, machine.root
    files = {p: root / f"proc/{p}/cmdline" for p in children(main_pid, root) if p not in known}
    with machine.ahead(files.values()):
        titles = {pid: _read_file(file).strip("\0 ") for pid, file in files.items()}
    found = {pid: _TITLE.match(title) for pid, title in titles.items() if not _CLIENT.search(title)}
    return [(pid, title[1]) for pid, title in found.items() if title and title[1] in wanted]


def unseen_tasks(seen: Presence, known: Container[int], *, all_helpers: bool) -> Iterator[tuple[int, str]]:
    """(process, role) of those that the activity query leaves out: see :func:`unlisted`."""
    if seen.pid is not None:
        yield seen.pid, "dbdyno"
    if seen.main_pid is not None:
        for pid, what in unlisted(seen.main_pid, known, all_helpers=all_helpers, machine=seen.machine):
            yield pid, f"helper:{what}"


def children(pid: int, root: Path = _ROOT) -> list[int]:
    """Empty where the kernel has no CONFIG_PROC_CHILDREN."""
    words = _read_file(root / f"proc/{pid}/task/{pid}/children").split()
    return [child for word in words if (child := number(word)) is not None]


def _read_file(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def run_ns(pid: int, machine: Machine = HERE) -> int | None:
    """CPU time of the process's main thread (schedstat 1), exact when it sleeps; None: unreadable."""
    found: int | None = machine.read_task(pid, pid)["run_ns"]
    return found
