"""Growth of the tables that a measurement used, from the snapshots before and after it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.snapshot_figures import relations
from dbdyno.account.window.cells import of_cells
from dbdyno.model.results.interval import LOWER_BOUNDS, STANDING, Interval
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import conform, raw

_COUNTS = ("rows_inserted", "rows_updated", "rows_deleted")


def growth(interval: Interval) -> pl.DataFrame:
    """Returns the raw table ``growth``: rows, dead rows and sizes of each used table at both ends.
    Counters that were reset in between are NULL."""
    frame = relations(interval)
    used = (pl.col("rows_read") > 0) | (pl.col("rows_written") > 0) | (pl.col("size_bytes_growth") != 0)
    scanned = (pl.col("seq_scans") > 0) | (pl.col("index_scans") > 0)
    used_tables = frame.filter(
        pl.col("status").is_in(STANDING) & (pl.col("kind") != "system") & (used | scanned)
    )
    whole = ~pl.col("status").is_in(LOWER_BOUNDS)
    table = pl.sum_horizontal("table_bytes", "toast_bytes")
    table_growth = pl.sum_horizontal("table_bytes_growth", "toast_bytes_growth")
    ends = used_tables.select(
        pl.col("name").alias("relation"),
        *(pl.when(whole).then(pl.col(c)).alias(c) for c in _COUNTS),
        (pl.col("live_rows") - pl.col("live_rows_growth")).alias("live_rows_start"),
        pl.col("live_rows").alias("live_rows_end"),
        (pl.col("dead_rows") - pl.col("dead_rows_growth")).alias("dead_rows_start"),
        pl.col("dead_rows").alias("dead_rows_end"),
        (table - table_growth).alias("table_bytes_start"),
        table.alias("table_bytes_end"),
        (pl.col("index_bytes") - pl.col("index_bytes_growth")).alias("index_bytes_start"),
        pl.col("index_bytes").alias("index_bytes_end"),
    )
    return conform(raw("growth"), ends.sort("relation"))


@makes("growth", "resets", "large_scans")
def left_behind(cells: Sequence[RawCell]) -> dict[str, pl.DataFrame]:
    """Returns the raw tables ``growth``, ``resets`` and ``large_scans`` of these measurements together."""
    return {name: of_cells(name, cells) for name in ("growth", "resets", "large_scans")}
