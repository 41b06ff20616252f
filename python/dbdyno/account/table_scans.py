"""Tables too large for sequential scans to bring into the server's cache, from two snapshots. Pure."""

from __future__ import annotations

import polars as pl

from dbdyno.model.results.interval import STANDING, Interval
from dbdyno.model.schema.tables import conform, empty, raw


def large_scans(interval: Interval) -> pl.DataFrame:
    """Returns the raw table ``large_scans``. A partition counts by its own size, as it is scanned by
    itself."""
    cache, frame = interval.last.cache, interval.tables["relations"]
    if cache is None:
        return empty(raw("large_scans"))
    counted = (
        interval.tables["databases"].filter(pl.col("status").is_in(STANDING))["blocks_read"].drop_nulls()
    )
    # The server scans a table above a share of its cache (which, the engine says) through a small ring of
    # buffers, so that it never becomes cached.
    large = (pl.col("table_bytes") > cache.scan_bytes) & (pl.col("seq_scans") > 0)
    scanned = frame.filter(pl.col("status").is_in(STANDING) & (pl.col("kind") != "system") & large)
    columns = scanned.select(
        "database",
        pl.concat_str("schema", pl.lit("."), "relation").alias("relation"),
        *("seq_scans", "index_scans", "table_bytes"),
        *(pl.col(f"table_blocks_{how}").alias(f"blocks_{how}") for how in ("read", "hit")),
        pl.lit(int(counted.sum()) if len(counted) else None, pl.Int64).alias("blocks_read_all"),
        *(pl.lit(value, pl.Int64).alias(name) for name, value in cache.model_dump().items()),
    )
    return conform(raw("large_scans"), columns.sort("blocks_read", descending=True, nulls_last=True))
