"""One measured cell as the store keeps it: what was asked, when it happened, the raw tables."""

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
"""Counter -> the counter of what dbdyno's own connections and probes have added to it, samples left out."""
OWN_READS = {"logical_reads": "own_logical_reads", "physical_reads": "own_physical_reads"}
"""The same for blocks that they read, where the server counts them by connection."""
WARM_CALLS = "warm_calls"
"""Calls of the sessions before the barrier that the server's counters may show only after it."""

REPLAY_LAG, REPLAY_BEHIND = "replay_lag_ns", "replay_behind_bytes"
"""Counters of how far replication is behind, where the server says so: values of the moment."""

CellStatus = Literal["ok", "short", "invalid"]
RungStatus = Literal["ok", "short", "client", "invalid"]
LEFT_OUT: tuple[RungStatus, ...] = ("client", "invalid")
"""Rungs that the client limited, and unusable ones: shown in every table, and in no conclusion."""


class CellMeta(BaseModel):
    """``cell.json`` beside a cell's raw tables."""

    model_config = ConfigDict(frozen=True)

    cell: Cell
    workload: Workload
    calibration: Calibration | None
    start_ns: int  # the barrier
    t0_ns: int
    t1_ns: int  # as it was: earlier than planned where the cell was cut short
    end_ns: int  # when the last session had ended
    driver_threads: int
    usable_cpus: float
    status: CellStatus
    chosen: bool = False  # an observation of some sessions only
    asides: bool = False  # commands prepare, verify or conclude executions between them
    wait_families: WaitFamilies = WaitFamilies()  # of the labels in its raw tables
    reason: str | None = None  # why not ok: "stopped by Ctrl-C", "server lost", ...


CHUNK_ROWS = 1 << 18
"""So many rows of a long table are held at once."""


@dataclass(frozen=True)
class RawCell:
    meta: CellMeta
    tables: Mapping[str, pl.DataFrame]  # every table of tables.RAW; empty where there was none
    long: Mapping[str, pl.LazyFrame] = field(default_factory=dict)  # tables that are read as they are needed

    @property
    def id(self) -> str:
        return self.meta.cell.id

    @cached_property
    def held(self) -> dict[Callable[..., Any], Any]:
        return {}

    def scan(self, table: str) -> pl.LazyFrame:
        """A table, of ``long`` or of ``tables``."""
        return self.tables[table].lazy() if table in self.tables else self.long[table]

    def height(self, table: str) -> int:
        """How many rows a table has."""
        return self.tables[table].height if table in self.tables else self._heights[table]

    def chunks(
        self, table: str, *names: str, where: pl.Expr | None = None, rows: int = CHUNK_ROWS
    ) -> Iterator[pl.DataFrame]:
        """Columns of a table, ``rows`` at a time, in the order of reading."""
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
        """``pid``, ``leader_pid``, ``start_ticks`` of processes that samples saw working for another one."""
        return self._met(pl.col("pid") != pl.col("leader_pid"), "pid", "leader_pid", "start_ticks")

    @cached_property
    def met(self) -> pl.DataFrame:
        """``session``, ``pid``, ``start_ticks`` of processes that samples met as sessions."""
        mine = (pl.col("role") == "session") & pl.col("session").is_not_null()
        return self._met(mine, "session", "pid", "start_ticks")

    def _met(self, mine: pl.Expr, *names: str) -> pl.DataFrame:
        """Each once, in the order of reading."""
        parts = [part.unique(maintain_order=True) for part in self.chunks("samples", *names, where=mine)]
        return pl.concat(parts).unique(maintain_order=True) if parts else empty("samples").select(names)


_T = TypeVar("_T")


class Holding(Protocol):
    @property
    def held(self) -> dict[Callable[..., Any], Any]:
        """What :func:`once_each` has kept."""


_H = TypeVar("_H", bound=Holding)


def once_each(made: Callable[[_H], _T]) -> Callable[[_H], _T]:
    """``made``, worked out once for each cell, or what else it is of, and held as long as that is."""

    @wraps(made)
    def held(of: _H) -> _T:
        if made not in of.held:
            of.held[made] = made(of)
        known: _T = of.held[made]
        return known

    return held


def labelled(cell: RawCell, families: Callable[[], WaitFamilies]) -> RawCell:
    """``cell``; one that was stored without the families of its wait events has these."""
    if cell.meta.wait_families.root:
        return cell
    return replace(cell, meta=cell.meta.model_copy(update={"wait_families": families()}))
