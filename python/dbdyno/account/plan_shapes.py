"""Table ``plan_shapes``: how the server would execute each statement of a script, by measurement. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.window.cells import for_each
from dbdyno.model.results.raw import RawCell


@makes("plan_shapes")
def plan_shapes(cells: Sequence[RawCell]) -> pl.DataFrame:
    return for_each("plan_shapes", cells, _of_cell)


def _of_cell(cell: RawCell) -> pl.DataFrame | None:
    found = cell.tables.get("script_plans")
    if found is None:
        return None
    digest = pl.col("shape").map_elements(_digest, pl.String)
    return found.with_columns(digest=digest)


def _digest(shape: str) -> str:
    return hashlib.sha256(shape.encode()).hexdigest()[:12]
