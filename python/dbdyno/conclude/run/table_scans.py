"""Tables that sequential scans read again and again, for they do not bring them into the cache."""

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
"""Share of its own blocks: scans that meet often bring a table into the cache that one alone would not."""


@check("scan-not-cached", of="whole")
def not_cached(case: Case) -> Iterator[Claim]:
    """The measurement in which the largest share of the reads was of such a table."""
    frame = case.tables.get("large_scans_read", empty("large_scans_read"))
    parts = {str(part["cell"][0]): part for part in frame.partition_by("cell") if part.height}
    cells = [(_read_again(parts[c["cell"]]), c) for c in case.valid if c["cell"] in parts]
    found = [({"place": _place(c, case), **said}, c) for said, c in cells if said]
    kind, more = _form(max((said for said, _ in found), key=lambda said: said["share"], default={}))
    yield from case.worst("scan-not-cached", found, "share", case=kind, parts=more)


def not_cached_between(found: IntervalFigures) -> Iterator[Claim]:
    """The same of two snapshots."""
    if said := _read_again(found.large_scans):
        kind, more = _form(said)
        said |= {"place": "in this interval", "measurements": "two snapshots"}
        yield claim("scan-not-cached", said, said["share"], case=kind, parts=more)


def _form(said: dict[str, Any]) -> tuple[str, list[str]]:
    """Case and parts of the sentence."""
    return "most" if said.get("index_scans") != 0 else "exact", ["others"] if said.get("others") else []


def _place(cell: Row, case: Case) -> str:
    """Windows are shorter than the time between two snapshots."""
    return f"between the snapshots around window {cell['repeat']}" if case.observed else at(cell, case)


def _read_again(frame: pl.DataFrame) -> dict[str, Any]:
    """Values of the sentence for the table of most reads. Empty: there is none of which more was read than
    once the whole, which the first scan has to read, and as much as :data:`SHARE` and :data:`MISSED` say."""
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
