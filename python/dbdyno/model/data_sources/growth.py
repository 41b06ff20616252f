"""Columns of what a measurement left behind, and of how its data were brought back before it."""

from __future__ import annotations

from dbdyno.model.column import CELL, Column
from dbdyno.model.column import column as _c


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
    _c("data_set", "str", "tables that were prepared together: dbdyno workload prepare NAME"),
    _c("how", "str", "loaded (emptied and loaded again) | unchanged (no measurement had changed them)"),
    _c("rows", "i64", "rows loaded", null=True),
    _c("duration_ns", "i64", "how long it took, with vacuum, indexes, checkpoint and caches", null=True),
    _c("cache", "str", "caches after that: warm | as-loaded | dropped; NULL: left as they were", null=True),
    _c("cache_left_share", "f64", "dropped: share of the pages that stayed in the server's cache", null=True),
    _c("page_cache", "str", "dropped: dropped, or why the page cache was not", null=True),
    _c("page_cache_left_share", "f64", "share of the bytes that stayed there; NULL: not known", null=True),
)

RAW_GROWTH = {"growth": GROWTH, "resets": RESETS}
"""By measurement."""
DERIVED_GROWTH = {"grown": (*CELL, *GROWTH), "resets_done": (*CELL, *RESETS)}
"""The same of all measurements."""
