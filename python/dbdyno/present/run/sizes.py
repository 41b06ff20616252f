"""Shows the cost of a transaction by size of the data: a row per script and size."""

from __future__ import annotations

from typing import Any

import polars as pl

from dbdyno.model.plan.data_size import size_of, size_words
from dbdyno.model.results.ledger_rows import TOGETHER
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.visible import visible
from dbdyno.model.units import format_ns, significant
from dbdyno.present.document.document import Block, Column, figure_cell, numeric, table, word
from dbdyno.present.figures import tails
from dbdyno.present.figures.selection import Pick

_Row = dict[str, Any]


def by_size(results: Results, pick: Pick) -> list[Block]:
    """Returns the costs at the load of the pick; empty if all data have the same size."""
    rows = _rows(results, pick)
    if len({r["size"] for r in rows}) < 2:
        return []
    at = f"{pick.rung[2]} session{'' if pick.rung[2] == 1 else 's'}"
    return tails.with_reason(table(f"By size of the data at {at}", _COLUMNS, rows, along_axis=True))


def _rows(results: Results, pick: Pick) -> list[_Row]:
    workload = results.info.workloads.get(pick.rung[0])
    if workload is None:
        return []
    params = {c.variant: c.params for c in results.plan.cells}
    sizes = {v: size_of(workload, p) for v, p in params.items()}
    rates = results.tables.get("script_rates", empty("script_rates"))
    same = (pl.col("workload") == pick.rung[0]) & (pl.col("sessions") == pick.rung[2])
    together = rates.filter(same & (pl.col("cell") == TOGETHER)).to_dicts()
    shapes = _shapes(results)
    sized = [
        r
        | {
            "size": sizes[r["variant"]],
            "words": size_words(workload, sizes[r["variant"]] or 0),
            "plans": shapes.get((r["variant"], r["name"])),
        }
        for r in together
        if sizes.get(r["variant"]) is not None
    ]
    return sorted(sized, key=lambda r: (r["script"], r["name"], r["size"], r["variant"]))


def _shapes(results: Results) -> dict[tuple[str, str], str]:
    """Returns the only plan by variant and script, or the number of plans."""
    plans = results.tables.get("plan_shapes", empty("plan_shapes")).drop_nulls("shape")
    shapes = plans.group_by("variant", "name").agg(pl.col("shape").unique(maintain_order=True))
    return {(v, n): s[0] if len(s) == 1 else f"{len(s)} plans" for v, n, s in shapes.rows()}


_COLUMNS = (
    (Column("script", shortens=True), lambda r: word(visible(r["name"]))),
    (Column("size"), lambda r: word(r["words"])),
    (Column("variant"), lambda r: word(visible(r["variant"]))),
    (numeric("LIO/call"), figure_cell("lio_per_call", significant)),
    (numeric("rows/call", 3), figure_cell("rows_per_call", significant)),
    (numeric("p50"), figure_cell("p50_ns", format_ns, "ns")),
    (numeric("p95", 4), figure_cell("p95_ns", format_ns, "ns")),
    (Column("plan", shortens=True), lambda r: word(visible(r["plans"] or "-"))),
)
