"""Reports data that calls changed: growth within a measurement, and from one measurement to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row, at
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.tables import empty

GROWN = 0.1
"""Share of the data from which on growth is reported: a call reads at most that much more, and repeats seldom
agree more closely."""
DEAD = 0.2
"""Share of a table's rows that are dead at which a database's own maintenance usually begins."""
LEAST_DEAD = 1_000
"""Dead rows below which they fill only a few pages, which stay in the cache."""
LEAST_BYTES = 1 << 20
"""Bytes below which data are in the cache after a call or two."""
_SIZE = {end: pl.sum_horizontal(f"table_bytes_{end}", f"index_bytes_{end}") for end in ("start", "end")}


@check("data-grew", of="whole")
def grew(case: Case) -> Iterator[Claim]:
    """Yields the measurement in which data grew most, else the one with most dead rows."""
    tables = _by_cell(case)
    cells = [({"place": _place(c, case)}, tables[c["cell"]], c) for c in case.valid if c["cell"] in tables]
    grown = [(place | values, c) for place, frame, c in cells if (values := _growth(frame))]
    empty = [f for f in grown if f[0]["empty"]]
    by = "bytes" if empty else "share"
    parts = ["dead"] if grown and max((s for s, _ in empty or grown), key=lambda s: s[by])["dead"] else []
    kind = "empty" if empty else "size"
    yield from case.worst("data-grew", empty or grown, "share", by=by, case=kind, parts=parts)
    if not grown:
        dead = [(place | values, c) for place, frame, c in cells if (values := _dead(frame))]
        yield from case.worst("data-grew", dead, "dead_share", case="dead")


@check("data-not-reset", of="whole")
def not_reset(case: Case) -> Iterator[Claim]:
    """Yields later measurements that began with more data than the first of the same parameters."""
    tables = _by_cell(case)
    params = {c.id: tuple(sorted(c.params.items())) for c in case.plan.cells}
    firsts: dict[Any, Row] = {}
    candidates = []
    for cell in [c for c in case.valid if c["cell"] in tables]:
        first = firsts.setdefault(params.get(cell["cell"]), cell)
        was, now = _sizes(tables.get(first["cell"]), tables.get(cell["cell"]))
        if now - was >= max(LEAST_BYTES, GROWN * was):
            values = {"more": now - was, "now": now, "was": was, "first": _place(first, case)}
            candidates.append((values | {"place": _place(cell, case)}, cell))
    made_in_runs = any(w.changes_with for w in case.workloads.values())
    yield from case.worst("data-not-reset", candidates, "more", case="made" if made_in_runs else "other")


def _place(cell: Row, case: Case) -> str:
    """Returns the place of a cell. The last phase of a measurement has the growth of all phases."""
    if not case.plan.experiment.phases:
        return at(cell, case)
    several = case.plan.experiment.repeats > 1
    return f"of all phases, repeat {cell['repeat']}" if several else "of all phases"


def _by_cell(case: Case) -> Mapping[str, pl.DataFrame]:
    frame = case.tables.get("growth", empty("growth")).with_columns(
        size=_SIZE["start"], size_end=_SIZE["end"]
    )
    return {str(part["cell"][0]): part for part in frame.partition_by("cell") if part.height}


def _growth(frame: pl.DataFrame) -> dict[str, Any]:
    """Returns values of the sentence; empty if data grew little. A measurement that began with nothing grew
    by all there is."""
    size = float(frame["size"].sum())
    each = frame.with_columns(more=pl.col("size_end") - pl.col("size")).sort("more", descending=True)
    more = float(each["more"].sum())
    if more < max(LEAST_BYTES, GROWN * size):
        return {}
    values = {
        "share": more / (size or more),
        "bytes": more,
        "relation": each["relation"][0],
        "empty": not size,
    }
    dead = _dead(frame)
    named = {"dead": 0, "dead_share": 0.0, "dead_relation": ""} | {
        k: dead[k] for k in dead if k != "relation"
    }
    return {**values, **named, "part": each["more"][0]}


def _dead(frame: pl.DataFrame) -> dict[str, Any]:
    """Returns values of the sentence for the table with the largest share of dead rows; empty if there are
    few."""
    dead, live = pl.col("dead_rows_end"), pl.col("live_rows_end")
    many = frame.filter((dead >= LEAST_DEAD) & (dead > pl.col("dead_rows_start")))
    rows = many.with_columns(part=dead / (dead + live)).filter(pl.col("part") >= DEAD)
    if rows.is_empty():
        return {}
    row = rows.sort("part", descending=True).row(0, named=True)
    return {"dead": row["dead_rows_end"], "dead_share": row["part"], "dead_relation": row["relation"]}


def _sizes(first: pl.DataFrame | None, later: pl.DataFrame | None) -> tuple[float, float]:
    """Returns the bytes at the beginning of the first and the later measurement, over tables that both
    have."""
    if first is None or later is None:
        return 0.0, 0.0
    both = first.select("relation", was="size").join(later.select("relation", "size"), on="relation")
    return float(both["was"].sum()), float(both["size"].sum())
