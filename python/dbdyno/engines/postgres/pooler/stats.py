"""What PgBouncer's console tells: how long sessions waited for a server connection (docs/pool.md).

``total_wait_time`` is booked when a client gets its connection. What those that wait now have waited so far
is told beside it (SHOW CLIENTS), so the two together grow with the clock, and are cut where the window is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from dbdyno.engines.postgres import control
from dbdyno.engines.postgres.pooler.config import ALIAS
from dbdyno.model.protocols import Load
from dbdyno.model.tables import CoreColumn

SCOPE = "pooler"
_NS = 1000  # in a microsecond
# name -> (kind, unit); what the values are is said in _figures.
COUNTERS = {
    "pool_wait_ns": ("counter", "ns"),
    "pool_queries": ("counter", "count"),
    "pool_transactions": ("counter", "count"),
    "pool_query_time_ns": ("counter", "ns"),
    "pool_transaction_time_ns": ("counter", "ns"),
    "pool_size": ("gauge", "count"),
    "pool_connections": ("gauge", "count"),
    "pool_clients": ("gauge", "count"),
    "pool_waiting": ("gauge", "count"),
    "pool_read_ns": ("gauge", "ns"),
}

Row = dict[str, Any]


class Console:
    """The pooler's administration console: a connection that speaks the simple protocol."""

    def __init__(self, conninfo: str) -> None:
        self._connection = control.connect(conninfo_to_dict(conninfo))

    def close(self) -> None:
        self._connection.close()

    def show(self, what: str) -> list[Row]:
        """Rows of ``SHOW what``. Raises :class:`psycopg.Error`."""
        with psycopg.ClientCursor(self._connection) as cursor:
            cursor.execute(f"SHOW {what}".encode())
            names = [c.name for c in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def processes(self) -> set[int]:
        """The server's processes that it is connected to. Raises :class:`psycopg.Error`."""
        return {int(row["remote_pid"]) for row in self.show("SERVERS") if row["database"] == ALIAS}

    def read(self, phase: str, size: int, now_ns: Callable[[], int]) -> list[Row]:
        """Rows of the table ``counters``, scope ``pooler``; NULL and a status where the pooler is gone."""
        before_ns = now_ns()
        try:
            stats, clients, servers = self.show("STATS"), self.show("CLIENTS"), self.show("SERVERS")
            figures, status = _figures(stats, clients, servers), "ok"
        except (psycopg.Error, KeyError):
            figures, status = {}, "lost"
        after_ns = now_ns()
        figures |= {"pool_size": size, "pool_read_ns": after_ns - before_ns}
        return list(_rows(figures, status, phase, before_ns, after_ns))


def _figures(stats: list[Row], clients: list[Row], servers: list[Row]) -> dict[str, int]:
    totals = next((row for row in stats if row["database"] == ALIAS), None)
    mine = [row for row in clients if row["database"] == ALIAS]
    waiting = [row for row in mine if row["state"].startswith("waiting")]

    def total(name: str) -> int:
        return 0 if totals is None else int(Decimal(totals[f"total_{name}"]))

    under_way_us = sum(int(row["wait"]) * 1_000_000 + int(row["wait_us"]) for row in waiting)
    return {
        "pool_wait_ns": _NS * (total("wait_time") + under_way_us),
        "pool_queries": total("query_count"),
        "pool_transactions": total("xact_count"),
        "pool_query_time_ns": _NS * total("query_time"),
        "pool_transaction_time_ns": _NS * total("xact_time"),
        "pool_connections": sum(row["database"] == ALIAS for row in servers),
        "pool_clients": len(mine),
        "pool_waiting": len(waiting),
    }


def _rows(figures: dict[str, int], status: str, phase: str, before_ns: int, after_ns: int) -> Iterator[Row]:
    for name, (kind, unit) in COUNTERS.items():
        value = figures.get(name)
        yield {
            "before_ns": before_ns,
            "after_ns": after_ns,
            "phase": phase,
            "scope": SCOPE,
            "name": name,
            "kind": kind,
            "unit": unit,
            "value": None if value is None else float(value),
            "status": status if value is None else "ok",
        }


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
