"""Columns of what snapshots say of a measurement: what it left behind, tables too large for the cache.

And of how its data were brought back before it.
"""

from __future__ import annotations

from dbdyno.model.schema.column import CELL, Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.table import Table


def _both(name: str, doc: str) -> tuple[Column, ...]:
    return (
        _c(f"{name}_start", "i64", f"{doc}, before the sessions connected", null=True),
        _c(f"{name}_end", "i64", "the same once they had left", null=True),
    )


GROWTH: tuple[Column, ...] = (
    _c("relation", "str", "table that was read or written, with its schema; partitions are part of theirs"),
    _c("rows_inserted", "i64", "rows inserted, warm-up included; NULL: not known", null=True),
    _c("rows_updated", "i64", "rows updated", null=True),
    _c("rows_deleted", "i64", "rows deleted", null=True),
    *_both("live_rows", "rows, estimated"),
    *_both("dead_rows", "dead rows, estimated"),
    *_both("table_bytes", "size of the table, with long values"),
    *_both("index_bytes", "size of its indexes"),
)

RESETS: tuple[Column, ...] = (
    _c(
        "data_set",
        "str",
        "tables that were prepared together: dbdyno workload prepare NAME; or the workload's",
    ),
    _c("how", "str", "loaded (emptied and loaded again) | unchanged (no measurement had changed them)"),
    _c("rows", "i64", "rows loaded", null=True),
    _c("duration_ns", "i64", "how long it took, with vacuum, indexes, checkpoint and caches", null=True),
    _c("cache", "str", "caches after that: warm | as-loaded | dropped; NULL: left as they were", null=True),
    _c("cache_left_share", "f64", "dropped: share of the pages that stayed in the server's cache", null=True),
    _c("page_cache", "str", "dropped: dropped, or why the page cache was not", null=True),
    _c("page_cache_left_share", "f64", "share of the bytes that stayed there; NULL: not known", null=True),
)

LARGE_SCANS: tuple[Column, ...] = (
    _c("database", "str", "its database", null=True),
    _c("relation", "str", "table or partition that was scanned, with its schema"),
    _c("seq_scans", "i64", "sequential scans of it"),
    _c("index_scans", "i64", "index scans of it; 0: only sequential scans read its blocks", null=True),
    _c("blocks_read", "i64", "its blocks that were not found in the cache", null=True),
    _c("blocks_hit", "i64", "its blocks that were", null=True),
    _c("blocks_read_all", "i64", "the same of all tables and indexes of all databases", null=True),
    _c("table_bytes", "i64", "its size at the end"),
    _c("block_bytes", "i64", "size of a block"),
    _c("cache_bytes", "i64", "size of the server's cache"),
    _c("scan_bytes", "i64", "sequential scans of a table larger than this use a small part of the cache"),
)
"""In an observation: between two snapshots, in the window in which the later one was taken."""

RAW_GROWTH = {"growth": GROWTH, "resets": RESETS, "large_scans": LARGE_SCANS}
"""By measurement."""
GROWTH_TABLES: tuple[Table, ...] = (
    Table("grown", (*CELL, *GROWTH)),
    Table("resets_done", (*CELL, *RESETS)),
    Table("large_scans_read", (*CELL, *LARGE_SCANS)),
)
"""The same of all measurements."""
