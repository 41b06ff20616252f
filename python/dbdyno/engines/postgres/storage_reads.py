"""Reads of the server's processes as the kernel counts them: bytes read from storage, and read calls.

``/proc/PID/io`` (proc_pid_io(5)): ``read_bytes`` counts bytes that a block device or network file system had
to deliver, for buffered and for direct I/O, but not hits in the page cache. ``syscr`` counts read(2),
pread(2) and the like, not recv(2). Only the server's user and root may read it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dbdyno.engines.postgres.counters import WHOLE
from dbdyno.engines.postgres.presence import Presence, children
from dbdyno.kernel.machine import HERE, machine_of
from dbdyno.model.sources.wait_families import READ_CALLS, STORAGE_BYTES

_FIELDS = {STORAGE_BYTES: ("read_bytes", "bytes"), READ_CALLS: ("syscr", "count")}


class _Io(NamedTuple):
    read_bytes: int
    syscr: int


class StorageReads:
    """Sums over all processes of a server. They never decrease: last values of ended processes are kept."""

    def __init__(self, root: Path = HERE.root) -> None:
        self._root = root
        self._main: int | None = None
        self._last: dict[int, _Io] = {}
        self._ended = dict.fromkeys(_FIELDS, 0)

    def rows(self, presence: Presence, phase: str, now_ns: Callable[[], int]) -> list[dict[str, Any]]:
        """Returns rows of the table ``counters``, only at the ends of a window."""
        if phase in WHOLE:
            return []
        before_ns = now_ns()
        status = presence.status if presence.main_pid is None else self._read(presence.main_pid)
        head = {"before_ns": before_ns, "after_ns": now_ns(), "phase": phase}
        head |= {"scope": "server", "kind": "counter", "status": status}
        return [
            {
                **head,
                "name": name,
                "unit": unit,
                "value": float(self._sum(name)) if status == "ok" else None,
            }
            for name, (_, unit) in _FIELDS.items()
        ]

    def _sum(self, name: str) -> int:
        field = _FIELDS[name][0]
        return self._ended[name] + sum(int(getattr(io, field)) for io in self._last.values())

    def _read(self, main_pid: int) -> str:
        """Reads all processes. Returns the status."""
        now: dict[int, _Io] = {}
        pids = [main_pid, *children(main_pid, self._root)]
        with machine_of(self._root).ahead(self._root / f"proc/{pid}/io" for pid in pids):
            for pid in pids:
                try:
                    now[pid] = self._io(pid)
                except PermissionError:
                    return "not permitted"
                except (OSError, ValueError):
                    continue  # it has ended, or the kernel has no CONFIG_TASK_IO_ACCOUNTING
        if main_pid not in now:
            return "not supported"
        if main_pid == self._main:
            self._add_ended(now)
        self._main, self._last = main_pid, now
        return "ok"

    def _add_ended(self, now: dict[int, _Io]) -> None:
        """Adds up the last values of processes that have ended. If a pid was reused, the new values are
        lower."""
        for pid, io in self._last.items():
            later = now.get(pid)
            if later is None or later.syscr < io.syscr:
                for name, (field, _) in _FIELDS.items():
                    self._ended[name] += getattr(io, field)

    def _io(self, pid: int) -> _Io:
        lines = (self._root / f"proc/{pid}/io").read_text().splitlines()
        fields = {name: int(value) for name, _, value in (line.partition(":") for line in lines)}
        return _Io(*(fields.get(field, 0) for field in _Io._fields))
