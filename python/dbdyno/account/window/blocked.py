"""Lock waits cut to the window: the rows of its samples, each waiter with its session."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.window.attribution import sessions_of, workers
from dbdyno.account.window.cells import for_each
from dbdyno.account.window.samples import spans_of
from dbdyno.model.results.raw import RawCell
from dbdyno.model.units import NS_PER_S


def cut_blocked(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_blocked``."""
    return for_each("cut_blocked", cells, _rows)


def _rows(cell: RawCell) -> pl.DataFrame | None:
    blocked = cell.tables["blocked"]
    if blocked.is_empty():
        return None
    spans = spans_of(cell).filter(pl.col("via") == "sql")
    spans = spans.select("sample", seconds=(pl.col("high_ns") - pl.col("low_ns")) / NS_PER_S)
    sessions = sessions_of(cell).drop_nulls("pid").select("pid", "session")
    led = workers(cell).drop_nulls("leader").select("pid", session="leader")
    owners = pl.concat([sessions, led]).unique("pid", keep="last")
    return blocked.join(spans, on="sample").join(owners, on="pid", how="left", maintain_order="left")
