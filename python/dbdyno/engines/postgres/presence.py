"""Decides whether the processes in this /proc are those of the server.

A pid alone proves nothing: in another pid namespace (a container) it means another process, possibly of
another server. So name, age, title and parent of our backend's process must agree with what the server
reports, and all processes of its activity view must be children of that parent.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from dbdyno.engines.postgres import managed, sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.kernel import processes
from dbdyno.kernel.machine import HERE
from dbdyno.kernel.numbers import number
from dbdyno.model.engine.machine import Machine
from dbdyno.model.errors import NotPrivileged
from dbdyno.model.sources.source import Source

_CLOSE_S = 2.0  # a backend records its start some time after the fork, and /proc counts in ticks
_ROUNDS = 3
_NAME = "postgres"
_PORT = re.compile(r"\((\d+)\)")  # of a client, in the title of its process
_INSIDE = (
    "run dbdyno inside that container, or let it use the pids of this host (docker run --pid=host) and "
    "restart it"
)
_THERE = "run dbdyno on the server's host"
_OVER = "name the server's host with --server-ssh"
_ROOT = HERE.root


class Presence(NamedTuple):
    """Whether the server's processes are visible here, and why."""

    here: bool  # whether the server's processes are visible
    detail: str  # the evidence; if not visible, also the cure
    pid: int | None  # of the control connection's backend, if visible
    main_pid: int | None  # of the server's main process, if visible
    status: Literal["ok", "not here", "not permitted"] = "ok"
    machine: Machine = HERE  # whose /proc was read

    @property
    def local(self) -> bool:
        """Whether the server is on this host, where its processes can be changed."""
        return self.here and self.machine.reached is None

    def sources(self) -> Iterator[Source]:
        """Yields a data source with the reason if the server's tasks cannot be read."""
        if self.status != "ok":
            yield Source(
                name="os tasks",
                provenance="/proc of the server's host",
                status=self.status,
                detail=self.detail,
            )

    def owns(self, pid: int) -> bool:
        """Returns whether this is a process of the server, now."""
        return self.here and _parent(pid, self.machine.root) == self.main_pid


class _Backend(NamedTuple):
    """Our backend as the server reports it: columns of ``backend.sql``."""

    pid: int
    age_s: float
    server_age_s: float
    client_port: int | None  # None for a unix socket


class _Evidence(NamedTuple):
    """The backend, and when the server was asked: seconds since boot before and after."""

    backend: _Backend
    before_s: float
    after_s: float
    machine: Machine

    def started_at(self, pid: int, age_s: float) -> bool:
        """Returns whether process ``pid`` started when the server reports."""
        start_s = _start_s(pid, self.machine.root)
        return start_s is not None and -_CLOSE_S <= start_s - self.before_s + age_s <= self._late_s

    def started_by(self, pid: int, age_s: float) -> bool:
        """Returns whether it started then or before: a container's first process does other work before it
        becomes the server."""
        start_s = _start_s(pid, self.machine.root)
        return start_s is not None and start_s - self.before_s + age_s <= self._late_s

    @property
    def _late_s(self) -> float:
        return self.after_s - self.before_s + _CLOSE_S


def presence(
    connection: Connection, machine: Machine = HERE, service: managed.Service | None = None
) -> Presence:
    """Returns whether the server's processes are in /proc of ``machine``. ``service`` runs the server."""
    evidence = _ask(connection, machine)
    pid = evidence.backend.pid
    route, listener = _route(connection, machine)
    with machine.ahead(_proc_files(pid, machine)):
        main = _parent(pid, machine.root)
        doubt = _doubt_backend(evidence) or _doubt_main(evidence, main, listener)
    if doubt is None and (foreign := _stranger(connection, main, machine)) is not None:
        doubt = f"process {foreign} of its activity view is not a child of process {main}"
    if doubt is None:
        agreed = "name, age, client and parent agree"
        detail = f"{route}, and process {pid}{_host_suffix(machine)} is our backend ({agreed})"
        return Presence(True, detail, pid, main, machine=machine)
    if service is not None:
        why = f"{route}: {service.name} runs the server, and lets nobody see its host"
        return Presence(False, why, None, None, "not here", machine)
    status, why, cure = _explain(evidence, local="unix" in route or "both ends" in route)
    detail = f"{route}, but {doubt}{_host_suffix(machine)}: {why}; {cure}"
    return Presence(False, detail, None, None, status, machine)


def _host_suffix(machine: Machine) -> str:
    return "" if machine.reached is None else f" on {machine.reached.host}"


def _proc_files(pid: int, machine: Machine) -> list[Path]:
    names = ("comm", "stat", "cmdline", "status")
    return [machine.root / f"proc/{pid}/{name}" for name in names]


def _ask(connection: Connection, machine: Machine) -> _Evidence:
    before_s = machine.boot_s()
    row = connection.execute(sql.text("backend")).fetchone() or (0, 0.0, 0.0, None)
    if row[1] is None:  # only the session's role and its members can see its age
        (own_role,) = connection.execute(b"select quote_ident(current_user)").fetchone() or ("",)
        raise NotPrivileged(
            f"the session was set to the role {own_role}, which may not see it",
            f"--dsn 'options=-crole=none ...', or as superuser: GRANT pg_read_all_stats TO {own_role};",
        )
    return _Evidence(_Backend(*row), before_s, machine.boot_s(), machine)


def _route(connection: Connection, machine: Machine) -> tuple[str, int | None]:
    """Returns how the connection goes, and the pid that listens at a unix socket (SO_PEERCRED, unix(7)), 0
    if that is in another pid namespace."""
    with socket.socket(fileno=os.dup(connection.fileno())) as ours:
        if ours.family == socket.AF_UNIX:
            size = struct.calcsize("3i")
            listener = struct.unpack("3i", ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0]
            return "unix socket", listener if machine.reached is None else None
        peer = ours.getpeername()[0]
        same = peer == ours.getsockname()[0]
    return (f"both ends are {peer}" if same else f"the connection goes to {peer}"), None


def _doubt_backend(evidence: _Evidence) -> str | None:
    """Returns the evidence against the process with our backend's pid, None if there is none."""
    backend, root = evidence.backend, evidence.machine.root
    name = _name(backend.pid, root)
    if name is None:
        return f"process {backend.pid} is not visible"
    if name != _NAME:
        return f"process {backend.pid} is named {name}"
    if not evidence.started_at(backend.pid, backend.age_s):
        return f"process {backend.pid} started at another time"
    if not _serves(backend, root):
        return f"process {backend.pid} serves another client"
    return None


def _doubt_main(evidence: _Evidence, main: int | None, listener: int | None) -> str | None:
    """Returns the evidence against that process's parent, None if there is none."""
    root = evidence.machine.root
    if main is None or _name(main, root) != _NAME:
        return f"the parent of process {evidence.backend.pid} is not {_NAME}"
    if not evidence.started_by(main, evidence.backend.server_age_s):
        return f"process {main} is younger than the server"
    if listener == 0:
        return "a process of another pid namespace listens there"
    if listener not in (None, main) and _name(listener, root) == _NAME:  # else a pooler or proxy
        return f"process {listener} listens there, and process {evidence.backend.pid} is a child of {main}"
    return None


def _serves(backend: _Backend, root: Path) -> bool:
    """Returns whether the process's title has our client's port ("Standard Unix Tools"), or is truncated
    before it."""
    title = _read(backend.pid, "cmdline", root)
    ports = [int(port) for port in _PORT.findall(title)]
    if backend.client_port is None:
        return not ports or "[local]" in title
    return backend.client_port in ports or (not ports and "[local]" not in title)


def _stranger(connection: Connection, main: int | None, machine: Machine) -> int | None:
    """Returns a process of the activity view that is never a child of ``main``, None if there is none.

    Looks several times, since backends end between the two reads, but not the same ones each time.
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
def _explain(evidence: _Evidence, *, local: bool) -> tuple[Literal["not here", "not permitted"], str, str]:
    """Returns the status, why the server's processes are not visible, and the cure."""
    machine = evidence.machine
    host = "this host" if machine.reached is None else machine.reached.host
    if (pid := _contained(evidence)) is not None:
        why = (
            f"the server runs on {host} in another pid namespace (a container; there {evidence.backend.pid} "
        )
        return "not here", f"{why}is our process {pid})", _INSIDE
    hidden = processes.hidepid(machine.root)
    if hidden is not None and _is_hidden(evidence.backend.pid, machine):
        user = f"user {machine.uid}"
        return (
            "not permitted",
            f"/proc is mounted with {hidden}, which hides other users' processes from {user}",
            "run dbdyno as the server's user or as root with CAP_SYS_PTRACE, or mount -o remount,hidepid=0 "
            "/proc (gid=GROUP lets one group see them)",
        )
    cure = _THERE if machine.reached is None else _OVER
    if hidden is None and _sees_all(machine):
        return "not here", "the server is on another host", cure
    if local and machine.reached is None:
        return "not here", "the server is in another pid namespace (a container)", _INSIDE
    return (
        "not here",
        "the server is on another host, or in another pid namespace (a container)",
        f"{cure}, in its pid namespace",
    )


def _contained(evidence: _Evidence) -> int | None:
    """Returns our backend's pid if it is visible under another number: the last number of NSpid is the pid
    inside the container (proc_pid_status(5))."""
    root = evidence.machine.root
    with evidence.machine.ahead([root / "proc/*/status"]):
        namespace_pids = {pid: status_of(pid, root).get("NSpid", "").split() for pid in _all_processes(root)}
    for pid, numbers in namespace_pids.items():
        if len(numbers) > 1 and int(numbers[-1]) == evidence.backend.pid and _name(pid, root) == _NAME:
            backend = evidence.backend._replace(pid=pid)
            if evidence.started_at(pid, backend.age_s) and _serves(backend, root):
                return pid
    return None


def _all_processes(root: Path) -> Iterator[int]:
    yield from (int(p.name) for p in (root / "proc").iterdir() if p.name.isdecimal())


def _sees_all(machine: Machine) -> bool:
    """Returns whether the reader is in the host's initial pid namespace, and /proc belongs to it."""
    own = machine.root / "proc/self"
    try:
        namespace = str((own / "ns/pid").readlink())
        return namespace == processes.INITIAL_PID_NAMESPACE and str(own.readlink()) == str(machine.pid)
    except OSError:
        return False


def _is_hidden(pid: int, machine: Machine) -> bool:
    """Returns whether the process exists although /proc does not show it. On another host that cannot be
    asked: returns True."""
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
    """Returns the fields of stat after the name (proc_pid_stat(5), from 3 on), empty if it is gone or
    hidden."""
    return _read(pid, "stat", root).rpartition(")")[2].split()


def _parent(pid: int, root: Path) -> int | None:
    fields = _stat(pid, root)
    return number(fields[1]) if len(fields) > 1 else None


def _start_s(pid: int, root: Path) -> float | None:
    """Returns the start in seconds since boot."""
    fields = _stat(pid, root)
    ticks = number(fields[19]) if len(fields) > 19 else None
    return None if ticks is None else ticks / os.sysconf("SC_CLK_TCK")


def status_of(pid: int, root: Path = _ROOT) -> dict[str, str]:
    """Returns the fields of proc_pid_status(5), empty if it is gone or hidden."""
    lines = _read(pid, "status", root).split("\n")
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


# Processes of the server that none of its views shows.

_UNLISTED = ("logger", "stats collector")  # not in the activity view
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
    """Returns (pid, kind) of background processes that no view shows: the log collector and, in version 14,
    the statistics collector. With ``all_helpers`` returns all permanent ones, for roles from which the view
    hides them.

    Reads titles (PostgreSQL, "Standard Unix Tools"), which any user may read, but not those of the sessions
    ``known``.
    """
    wanted, root = _HELPERS if all_helpers else _UNLISTED, machine.root
    files = {p: root / f"proc/{p}/cmdline" for p in children(main_pid, root) if p not in known}
    with machine.ahead(files.values()):
        titles = {pid: _read_file(file).strip("\0 ") for pid, file in files.items()}
    titled = {pid: _TITLE.match(title) for pid, title in titles.items() if not _CLIENT.search(title)}
    return [(pid, title[1]) for pid, title in titled.items() if title and title[1] in wanted]


def unseen_tasks(seen: Presence, known: Container[int], *, all_helpers: bool) -> Iterator[tuple[int, str]]:
    """Yields (pid, role) of processes that the activity query leaves out: see :func:`unlisted`."""
    if seen.pid is not None:
        yield seen.pid, "dbdyno"
    if seen.main_pid is not None:
        for pid, what in unlisted(seen.main_pid, known, all_helpers=all_helpers, machine=seen.machine):
            yield pid, f"helper:{what}"


def children(pid: int, root: Path = _ROOT) -> list[int]:
    """Returns the children of a process, empty if the kernel has no CONFIG_PROC_CHILDREN."""
    words = _read_file(root / f"proc/{pid}/task/{pid}/children").split()
    return [child for word in words if (child := number(word)) is not None]


def _read_file(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def run_ns(pid: int, machine: Machine = HERE) -> int | None:
    """Returns the CPU time of the process's main thread (schedstat, field 1), exact while it sleeps. None
    if unreadable."""
    ns: int | None = machine.read_task(pid, pid)["run_ns"]
    return ns
