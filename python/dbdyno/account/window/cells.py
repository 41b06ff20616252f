"""The window of each cell, and helpers of all its cuts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import polars as pl

from dbdyno.model.plan.plan import LEAST_WINDOW_NS
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.tables import conform, empty, rows
from dbdyno.model.units import NS_PER_S


def windows(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``windows``, one row per cell."""
    return rows("windows", [_window(cell) for cell in cells])


def key(cell: RawCell) -> dict[str, Any]:
    """Returns the columns with which every derived table begins."""
    c = cell.meta.cell
    return dict(zip((k.name for k in CELL), (c.id, c.workload, c.variant, c.sessions, c.repeat), strict=True))


def for_each(
    table: str, cells: Iterable[RawCell], cut: Callable[[RawCell], pl.DataFrame | None]
) -> pl.DataFrame:
    """Applies ``cut`` to every cell and returns one conforming frame, with the cell's key in front."""
    cuts = ((cell, cut(cell)) for cell in cells)
    frames = [conform(table, frame, key(cell)) for cell, frame in cuts if frame is not None and frame.height]
    return pl.concat(frames) if frames else empty(table)


def of_cells(table: str, cells: Iterable[RawCell]) -> pl.DataFrame:
    """Returns the rows of the raw table NAME of all cells as the table NAME or ``cell_NAME``."""
    return for_each(table, cells, lambda cell: cell.tables[table.removeprefix("cell_")])


def middle() -> pl.Expr:
    """Returns the middle of a read's bracket."""
    before = pl.col("before_ns")
    return before + (pl.col("after_ns") - before) // 2


def _window(cell: RawCell) -> dict[str, Any]:
    meta = cell.meta
    wall_ns = meta.t1_ns - meta.t0_ns
    status, reason = meta.status, meta.reason
    # the duration of a set of jobs is exact, however short
    if wall_ns < LEAST_WINDOW_NS and status != "invalid" and not meta.cell.once:
        status, reason = "invalid", reason or f"the window is shorter than {LEAST_WINDOW_NS // NS_PER_S} s"
    return key(cell) | {
        "t0_ns": meta.t0_ns,
        "t1_ns": meta.t1_ns,
        "wall_s": wall_ns / NS_PER_S,
        "status": status,
        "reason": reason,
        "rate_per_s": meta.cell.rate_per_s,
    }
