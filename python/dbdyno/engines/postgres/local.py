"""The server's processes on this host that no view of it shows."""

from __future__ import annotations

import re
from collections.abc import Container
from pathlib import Path

from dbdyno import _core

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
        pid: _read(f"/proc/{pid}/cmdline").strip("\0 ") for pid in _children(main_pid) if pid not in known
    }
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
