"""What a witness says, and the readings that witnesses share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.ledger_rows import account_rows
from dbdyno.model.source import HIDDEN_STATUS

Tables = Mapping[str, pl.DataFrame]

TOLERANCE: dict[str, tuple[float, float]] = {
    # quantity: (relative, absolute); a difference within either agrees
    "cpu_used": (0.05, 0.05),  # cores; task figures are up to a tick old, one tick a task and read
    "cpu_sessions": (0.05, 0.05),
    "cpu_used_machine": (0.10, 0.10),  # cores; /proc/stat is sampled by ticks
    "db_time": (0.05, 0.05),  # seconds per second
    "run_and_runq": (0.10, 0.10),  # seconds per second; besides, the samples' own interval
    "executions": (0.0, 0.01),  # calls: they are whole, and sums of quotients are not
    "work_per_call": (1e-6, 0.0),
    "logical_reads": (0.05, 100.0),  # blocks a second
}
LAG_S = 1.0
"""A server reports its sessions' figures this much later: at most once a second by the
engines that there are, and a statement under way shows nothing before its end."""


class SourceReading(NamedTuple):
    quantity: str
    source: str
    value: float | None
    unit: str
    status: str
    reason: str = ""
    lag_s: float = 0.0  # adds its share of the window to the tolerance
    interval_of: str | None = None  # memo of the rung whose interval may hold the reference, too


def rung(ledger: pl.DataFrame, account: str, scope: str = "rung") -> pl.DataFrame:
    """Rows of an account (or, with scope ``memo``, of a memo) of the rung."""
    return account_rows(ledger, account, scope=scope).filter(pl.col("who") == "rung")


def hidden(accounts: pl.DataFrame) -> bool:
    """Whether sessions that our role cannot see are missing in rows of the ledger."""
    return bool(accounts["status"].str.contains(HIDDEN_STATUS).any())


def level(
    cut: Tables, origin: str, key: str, scope: str | None = None, absent: str = "off"
) -> tuple[float | None, str]:
    """Growth per ns of wall time of one counter (the innermost group's)."""
    found = cut["cut_levels"].filter((pl.col("origin") == origin) & (pl.col("key") == key))
    if scope is not None:
        found = found.filter(pl.col("scope") == scope)
    if found.is_empty():
        return None, absent
    row = found.row(0, named=True)
    return (None, row["status"]) if row["delta"] is None else (row["delta"] / row["wall_ns"], "ok")


def rung_rate(cut: Tables, name: str) -> dict[str, Any] | None:
    rows = cut["rates"].filter((pl.col("scope") == "rung") & (pl.col("name") == name))
    return rows.row(0, named=True) if rows.height else None
