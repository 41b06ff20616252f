"""One measured cell as it is stored: the request, the times, the raw tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, Literal, Protocol, TypeVar

import polars as pl
from pydantic import BaseModel, ConfigDict

from dbdyno.model.plan.plan import Calibration, Cell, Workload
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.wait_families import WaitFamilies

OWN = {"transactions_committed": "own_transactions", "executions": "own_executions"}
"""Maps a counter to the counter of dbdyno's own contribution to it, by its connections and probes without
sampling."""
OWN_READS = {"logical_reads": "own_logical_reads", "physical_reads": "own_physical_reads"}
"""Maps a counter of blocks to the counter of those that dbdyno's own connections read, if the server counts
blocks by connection."""
WARM_CALLS = "warm_calls"
"""Calls made before the barrier that may appear in the server's counters only after it."""

REPLAY_LAG, REPLAY_BEHIND = "replay_lag_ns", "replay_behind_bytes"
"""Counters of the replication lag, if the server reports it. They are momentary values."""

CellStatus = Literal["ok", "short", "invalid"]
RungStatus = Literal["ok", "short", "client", "invalid"]
LEFT_OUT: tuple[RungStatus, ...] = ("client", "invalid")
"""Rungs that were limited by the client, and unusable ones. They appear in every table but in no
conclusion."""
PRELIMINARY = "preliminary"
"""Column of the rung of a measurement that has just ended: its sleep is the plain share of the samples."""


class CellMeta(BaseModel):
    """The content of ``cell.json``, stored beside a cell's raw tables."""

    model_config = ConfigDict(frozen=True)

    cell: Cell
    workload: Workload
    calibration: Calibration | None
    start_ns: int  # time at which the barrier opened
    t0_ns: int
    t1_ns: int  # the actual end, which is earlier than planned if the cell was cut short
    end_ns: int  # end of the last session
    driver_threads: int
    usable_cpus: float
    status: CellStatus
    chosen: bool = False  # an observation of selected sessions only
    asides: bool = False  # commands to prepare, verify or conclude run between executions
    wait_families: WaitFamilies = WaitFamilies()  # families of the wait labels in its raw tables
    reason: str | None = None  # reason of a status other than ok: "stopped by Ctrl-C", "server lost", ...


CHUNK_ROWS = 1 << 18
"""Number of rows of a long table that are in memory at a time."""


@dataclass(frozen=True)
class RawCell:
    meta: CellMeta
    tables: Mapping[str, pl.DataFrame]  # every table of tables.RAW; empty if it has no rows
    long: Mapping[str, pl.LazyFrame] = field(default_factory=dict)  # tables that are read on demand

    @property
    def id(self) -> str:
        return self.meta.cell.id

    @cached_property
    def held(self) -> dict[Callable[..., Any], Any]:
        return {}

    def scan(self, table: str) -> pl.LazyFrame:
        """Returns a table of ``long`` or ``tables`` as a lazy frame."""
        return self.tables[table].lazy() if table in self.tables else self.long[table]

    def height(self, table: str) -> int:
        """Returns the number of rows of a table."""
        return self.tables[table].height if table in self.tables else self._heights[table]

    def chunks(
        self, table: str, *names: str, where: pl.Expr | None = None, rows: int = CHUNK_ROWS
    ) -> Iterator[pl.DataFrame]:
        """Yields columns of a table, ``rows`` at a time, in stored order."""
        whole = self.tables[table] if table in self.tables else self.long[table]
        for first in range(0, self.height(table), rows):
            part = whole.slice(first, rows)
            part = (part if where is None else part.filter(where)).select(names)
            yield part.collect() if isinstance(part, pl.LazyFrame) else part

    @cached_property
    def _heights(self) -> dict[str, int]:
        return {t: int(rows.select(pl.len()).collect().item()) for t, rows in self.long.items()}

    @cached_property
    def led(self) -> pl.DataFrame:
        """``pid``, ``leader_pid``, ``start_ticks`` of processes that samples saw working for another
        process."""
        return self._met(pl.col("pid") != pl.col("leader_pid"), "pid", "leader_pid", "start_ticks")

    @cached_property
    def met(self) -> pl.DataFrame:
        """``session``, ``pid``, ``start_ticks`` of processes that samples saw as sessions."""
        is_session = (pl.col("role") == "session") & pl.col("session").is_not_null()
        return self._met(is_session, "session", "pid", "start_ticks")

    def _met(self, where: pl.Expr, *names: str) -> pl.DataFrame:
        """Returns the distinct rows of ``samples`` that match, in stored order."""
        parts = [part.unique(maintain_order=True) for part in self.chunks("samples", *names, where=where)]
        return pl.concat(parts).unique(maintain_order=True) if parts else empty("samples").select(names)


_T = TypeVar("_T")


class Holding(Protocol):
    @property
    def held(self) -> dict[Callable[..., Any], Any]:
        """Cache of the functions decorated with :func:`once_each`."""


_H = TypeVar("_H", bound=Holding)


def once_each(function: Callable[[_H], _T]) -> Callable[[_H], _T]:
    """Caches the result of a function of one argument in that argument, for as long as it lives."""

    @wraps(function)
    def held(holder: _H) -> _T:
        if function not in holder.held:
            holder.held[function] = function(holder)
        result: _T = holder.held[function]
        return result

    return held


def labelled(cell: RawCell, families: Callable[[], WaitFamilies]) -> RawCell:
    """Returns the cell with these wait families, unless it was stored with its own."""
    if cell.meta.wait_families.root:
        return cell
    return replace(cell, meta=cell.meta.model_copy(update={"wait_families": families()}))
