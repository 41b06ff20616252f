"""Operational laws by measurement, and the bounds of throughput by load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.nouns import fill, noun
from dbdyno.model.units import format_average, format_ns, format_rate
from dbdyno.present.document.document import (
    Block,
    Cell,
    Column,
    Section,
    figure_cell,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.figures import figures
from dbdyno.present.figures.figures import percent
from dbdyno.present.figures.selection import Pick, pick_of, rows_of

_NAMES = {"littles-law": "Little's law", "utilisation-law": "utilisation law"}
_COLUMNS = (
    (Column("law"), lambda r: word(_NAMES.get(r["law"], r["law"]))),
    (Column("of"), lambda r: word(r["of"])),
    (numeric("counted"), figure_cell("value", format_average)),
    (numeric("by the law"), figure_cell("by_law", format_average)),
    (numeric("difference, %"), lambda r: known(r["relative_difference"], lambda v: percent(v, digits=1))),
    (numeric("within its error", 3), figure_cell("error", format_average)),
    (Column("verdict", wraps=True), lambda r: word(r["verdict"])),
)


def of_measurement(results: Results, pick: Pick) -> list[Block]:
    """Returns both sides of each law; nothing for an observation, or if it was not checked."""
    if pick.cell is None and results.tables["windows"].height == 1:
        pick = pick_of(results, results.tables["windows"]["cell"].item()) or pick
    rows = rows_of(results, "laws", pick).to_dicts() if pick.cell is not None else []
    if not rows:
        return []
    unknown = dict.fromkeys(f"{r['of']}: {r['status']}" for r in rows if r["verdict"] == "unknown")
    why = [f"Not checked: {'; '.join(unknown)}."] if unknown else []
    return [table(f"Operational laws {pick.at}{pick.which}", _COLUMNS, rows), *remarks(why)]


def bounds(results: Results) -> Section | None:
    """Returns what throughput could be at each load by the lowest one; None without a ladder."""
    frame = results.tables.get("bounds", empty("bounds"))
    blocks: list[Block] = []
    columns: Any = (
        (numeric(noun("at_once")), figure_cell("sessions", "{:,}".format)),
        (numeric("{~calls}/s"), figure_cell("calls_per_s", format_rate)),
        (numeric("as if nobody waited"), _bound("waitless")),
        (numeric("CPU limit"), _bound("cpu_limit")),
        (Column("verdict"), lambda r: word(r["verdict"])),
    )
    series = figures.series_of(results)
    for one in series:
        own = (pl.col("workload") == one.workload) & (pl.col("variant") == one.variant)
        rows = frame.filter(own).to_dicts()
        if rows:
            blocks.append(table(one.label if len(series) > 1 else "", columns, rows, along_axis=True))
            if (demand := rows[0]["cpu_demand_ns"]) is not None:
                cost = fill("CPU limit: {~calls} of ") + f"{format_ns(demand)} of CPU that fit into "
                blocks += remarks([f"{cost}{figures.cpus_text(rows[0]['cpus'])}."])
    if not blocks:
        return None
    blocks += remarks(
        ["In brackets: 95 % interval. A rate within the upper end of the interval is not above the bound."]
    )
    return Section("Bounds from the lowest load", blocks, folded=True)


def _bound(name: str) -> Callable[[dict[str, Any]], Cell]:
    """Returns a function from a row to the cell of a bound with its interval: ``461 (83 to 2.55 k)``."""

    def cell(row: dict[str, Any]) -> Cell:
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        ends = "" if low is None or high is None else f" ({format_rate(low)} to {format_rate(high)})"
        return known(row[f"{name}_per_s"], lambda v: format_rate(v) + ends)

    return cell
