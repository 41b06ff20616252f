"""Reports tables that sequential scans read from outside the cache again and again. A database scans a large
table through a small ring of buffers, so the scan leaves it uncached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row, at
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.interval import IntervalFigures
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.visible import one_line

SHARE = 0.1
"""Share of all blocks read from outside the cache."""
MISSED = 0.01
"""Share of the table's own blocks. Scans that overlap often bring a table into the cache that one alone would
not."""


@check("scan-not-cached", of="whole")
def not_cached(case: Case) -> Iterator[Claim]:
    """Yields the measurement in which the largest share of the reads came from such a table."""
    frame = case.tables.get("large_scans", empty("large_scans"))
    parts = {str(part["cell"][0]): part for part in frame.partition_by("cell") if part.height}
    cells = [(_read_again(parts[c["cell"]]), c) for c in case.valid if c["cell"] in parts]
    candidates = [({"place": _place(c, case), **values}, c) for values, c in cells if values]
    kind, more = _form(
        max((values for values, _ in candidates), key=lambda values: values["share"], default={})
    )
    yield from case.worst("scan-not-cached", candidates, "share", case=kind, parts=more)


def not_cached_between(figures: IntervalFigures) -> Iterator[Claim]:
    """Yields the same claim for the interval between two snapshots."""
    if values := _read_again(figures.large_scans):
        kind, more = _form(values)
        values |= {"place": "in this interval", "measurements": "two snapshots"}
        yield claim("scan-not-cached", values, values["share"], case=kind, parts=more)


def _form(values: dict[str, Any]) -> tuple[str, list[str]]:
    """Returns case and parts of the sentence."""
    return "most" if values.get("index_scans") != 0 else "exact", ["others"] if values.get("others") else []


def _place(cell: Row, case: Case) -> str:
    """Returns the place of a cell. A window is shorter than the time between its snapshots."""
    return f"between the snapshots around window {cell['repeat']}" if case.observed else at(cell, case)


def _read_again(frame: pl.DataFrame) -> dict[str, Any]:
    """Returns values of the sentence for the table with most reads. Empty unless a table was read more than
    once in full (the first scan must read it) and at least by :data:`SHARE` and :data:`MISSED`."""
    again = pl.col("blocks_read") * pl.col("block_bytes") > pl.col("table_bytes")
    share = pl.col("blocks_read") / pl.max_horizontal("blocks_read", "blocks_read_all")
    missed = pl.col("blocks_read") / pl.sum_horizontal("blocks_read", "blocks_hit")
    much = (pl.col("share") >= SHARE) & (pl.col("missed") >= MISSED)
    rows = frame.with_columns(share=share, missed=missed).filter(again & much)
    if rows.is_empty():
        return {}
    row = rows.sort("share", descending=True).row(0, named=True)
    return {
        "relation": one_line(row["relation"]),
        "others": rows["relation"].n_unique() - 1,
        **{name: row[name] for name in ("share", "missed", "index_scans")},
        "scans": row["seq_scans"],
        "size": row["table_bytes"],
        "cache": row["cache_bytes"],
        "limit": row["scan_bytes"],
        "needed": row["table_bytes"] * row["cache_bytes"] / row["scan_bytes"],
    }
