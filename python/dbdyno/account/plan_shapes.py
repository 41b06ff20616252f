"""Table ``plan_shapes``: the shape of each script statement's execution plan, by measurement. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.window.cells import for_each
from dbdyno.model.results.raw import RawCell


@makes("plan_shapes")
def plan_shapes(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns the plans of these cells, each with a digest of its shape."""
    return for_each("plan_shapes", cells, _of_cell)


def _of_cell(cell: RawCell) -> pl.DataFrame | None:
    plans = cell.tables.get("script_plans")
    if plans is None:
        return None
    digest = pl.col("shape").map_elements(_digest, pl.String)
    return plans.with_columns(digest=digest)


def _digest(shape: str) -> str:
    return hashlib.sha256(shape.encode()).hexdigest()[:12]
