"""Whether the server is on this host, in a process namespace that we see."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path
from typing import NamedTuple

from dbdyno import _core
from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.embedded.postmaster import start_ticks

_CLOSE_S = 2.0
_UNLISTED = ("logger", "stats collector")  # processes of the server that its activity view leaves out
_HELPERS = (
    *_UNLISTED,
    *("checkpointer", "background writer", "walwriter", "autovacuum launcher", "archiver", "walsummarizer"),
    *("logical replication launcher", "io worker", "startup", "walreceiver", "slotsync worker"),
)
_TITLE = re.compile(rf"postgres: (?:.*: )?({'|'.join(_HELPERS)})\b")  # a cluster_name may be before it
_CLIENT = re.compile(r"\[local\]|\(\d+\)")  # of a client's title: its host and port


class Presence(NamedTuple):
    here: bool
    detail: str  # how that was found out
    pid: int | None  # of the control connection's backend, where here
    main_pid: int | None  # of the server's main process, where here


def presence(connection: Connection) -> Presence:
    """Asks where the connection goes, then looks for its backend in /proc: same pid, name and age."""
    pid, server_age_s = connection.execute(sql.text("backend")).fetchone() or (0, 0.0)
    near = _nearness(connection)
    if near is None:
        return Presence(False, "the connection goes to another host", None, None)
    ticks = start_ticks(pid)
    if ticks is None or _comm(pid) != "postgres":
        return Presence(
            False, f"{near}, but no process {pid} named postgres is seen: another pid namespace", None, None
        )
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    if abs(age_s - server_age_s) > _CLOSE_S:
        return Presence(
            False, f"{near}, but process {pid} is of another age: another pid namespace", None, None
        )
    parent = _parent(pid)
    main = parent if parent is not None and _comm(parent) == "postgres" else None
    return Presence(True, f"{near}, and process {pid} is our backend (name and age agree)", pid, main)


def _nearness(connection: Connection) -> str | None:
    """How the connection stays on this host; None: it does not, as far as its addresses say."""
    with socket.socket(fileno=os.dup(connection.fileno())) as ours:
        if ours.family == socket.AF_UNIX:
            return "unix socket"
        if ours.getpeername()[0] == ours.getsockname()[0]:
            return f"both ends are {ours.getpeername()[0]}"
    return None


def unlisted(main_pid: int, *, all_helpers: bool) -> list[tuple[int, str]]:
    """(process, what it is) of the server's helpers that no view shows: the log collector and, in 14, the
    statistics collector; with ``all_helpers`` all that stay, where the view hides from us what they are.

    By their titles (PostgreSQL, "Standard Unix Tools"), which any user may read.
    """
    wanted = _HELPERS if all_helpers else _UNLISTED
    titles = {pid: _read(f"/proc/{pid}/cmdline").strip("\0 ") for pid in _children(main_pid)}
    found = {pid: _TITLE.match(title) for pid, title in titles.items() if not _CLIENT.search(title)}
    return [(pid, title[1]) for pid, title in found.items() if title and title[1] in wanted]


def _children(pid: int) -> list[int]:
    """Empty where the kernel has no CONFIG_PROC_CHILDREN."""
    return [int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def run_ns(pid: int) -> int | None:
    """CPU time of the process's main thread (schedstat 1), exact when it sleeps; None: unreadable."""
    found: int | None = _core.read_task(pid, pid)["run_ns"]
    return found


def _comm(pid: int) -> str | None:
    return _read(f"/proc/{pid}/comm").strip() or None


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return None
