"""A load whose sessions are clients of a pooler: its processes at the server are the pool's connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dbdyno.model.protocols import Load
from dbdyno.model.tables import CoreColumn


class PooledLoad:
    """The driver's load, but for what it believes to know of processes: a pooler invents the numbers that
    its clients are told (they only serve to cancel)."""

    def __init__(self, load: Load, processes: Sequence[int]) -> None:
        self._load, self._processes = load, tuple(processes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._load, name)

    def backends(self) -> Sequence[tuple[int, int, int]]:
        """(number of the server connection, its process and that one's main task) of the pool."""
        return [(number, pid, pid) for number, pid in enumerate(self._processes)]

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        tables = dict(self._load.tables())
        sessions = dict(tables["sessions"])
        kind, payload, _ = sessions["backend_pid"]
        sessions["backend_pid"] = (kind, payload, bytes(len(payload) // 8))  # none is known
        return tables | {"sessions": sessions}
