"""One measured cell as the store keeps it: what was asked, when it happened, the raw tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from dbdyno.model.plan import Cell
from dbdyno.model.wait_families import WaitFamilies
from dbdyno.model.workload import Calibration, Workload

AWAY = ("dbdyno was stopped", "the machine was suspended")
"""How the reason of a cell begins in which dbdyno itself was not there all the time."""
SLOW = "the server answered "
"""How it begins for a window at whose end the server took long to answer."""

CellStatus = Literal["ok", "short", "invalid"]


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
    wait_families: WaitFamilies = WaitFamilies()  # of the labels in its raw tables
    reason: str | None = None  # why not ok: "stopped by Ctrl-C", "server lost", ...


@dataclass(frozen=True)
class RawCell:
    meta: CellMeta
    tables: Mapping[str, pl.DataFrame]  # every table of tables.RAW; empty where there was none

    @property
    def id(self) -> str:
        return self.meta.cell.id


def labelled(cell: RawCell, families: Callable[[], WaitFamilies]) -> RawCell:
    """``cell``; one that was stored without the families of its wait events has these."""
    if cell.meta.wait_families.root:
        return cell
    return RawCell(cell.meta.model_copy(update={"wait_families": families()}), cell.tables)
