"""Checks whether operational laws hold at every load, and whether throughput stays within its bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, ids, many
from dbdyno.model.plan.kinds import SERVED
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.schema.data_sources.laws import HOLDS, LITTLE, UTILISATION, VIOLATED
from dbdyno.model.schema.tables import empty


@check("littles-law-violated", "littles-law", "utilisation-law", of="whole", kinds=(SERVED,))
def laws(case: Case) -> Iterator[Claim]:
    """Yields where Little's law does not hold, and how closely both laws hold at all loads. A violated
    utilisation law is the claim ``cpu-differs``."""
    valid = [c["cell"] for c in case.valid]
    table = case.tables.get("laws", empty("laws")).filter(pl.col("cell").is_in(valid))
    for (of,), rows in table.filter((pl.col("law") == LITTLE) & (pl.col("verdict") == VIOLATED)).group_by(
        "of", maintain_order=True
    ):
        by_cell = {r["cell"]: r for r in rows.to_dicts()}
        # Of a measurement that the client limited, that is the reason, and another claim.
        found = [(_values(by_cell[c["cell"]]), c) for c in case.usable if c["cell"] in by_cell]
        kind = "sessions" if of == "sessions" else "in-progress"
        yield from case.worst("littles-law-violated", found, "off", by="size", each=str(of), case=kind)
    for law in (LITTLE, UTILISATION):
        yield from _holds(case, law, table.filter(pl.col("law") == law))


def _values(row: dict[str, float]) -> dict[str, float]:
    off = row["relative_difference"]
    return {"value": row["value"], "by_law": row["by_law"], "off": off, "size": abs(off)}


def _holds(case: Case, law: str, rows: pl.DataFrame) -> Iterator[Claim]:
    """Yields the claim that a law holds; nothing if it is violated or unknown at all loads."""
    held = rows.filter(pl.col("verdict") == HOLDS)
    if held.is_empty() or (rows["verdict"] == VIOLATED).any():
        return
    loads = {(c["variant"], c["sessions"], c["rate_per_s"]) for c in case.valid}
    known = [c for c in case.valid if c["cell"] in set(held["cell"])]
    n = len({(c["variant"], c["sessions"], c["rate_per_s"]) for c in known})
    worst = float(held["relative_difference"].abs().max())  # type: ignore[arg-type]
    values = {"loads": many(n, "load"), "of": len(loads), "within": worst, "number": n}
    kind = "one" if len(loads) == 1 else "all" if n == len(loads) else "some"
    yield claim(law, values, Estimate(law, worst, ""), case=kind, cells=ids(known))


@check("bound-exceeded", of="whole")
def bound_exceeded(case: Case) -> Iterator[Claim]:
    """Yields the rung that lies farthest above the bound from the lowest load, by ladder."""
    table = case.tables.get("bounds", empty("bounds")).filter(pl.col("verdict") == "above")
    table = table.with_columns(over=pl.col("calls_per_s") / pl.col("bound_per_s") - 1)
    several = case.tables["rungs"].select("workload", "variant").n_unique() > 1
    for (workload, variant), rows in table.group_by("workload", "variant", maintain_order=True):
        row = rows.sort("over").row(-1, named=True)
        by_cpu = row["cpu_limit_per_s"] is not None and row["bound_per_s"] == row["cpu_limit_per_s"]
        same = (pl.col("workload") == workload) & (pl.col("variant") == variant)
        rung = case.tables["rungs"].filter(same & (pl.col("sessions") == row["sessions"])).row(0, named=True)
        values: dict[str, Any] = {"load": fmt.load(row["sessions"]), "first": fmt.load(row["from_sessions"])}
        values |= {"rate": row["calls_per_s"], "over": row["over"], "bound": row["bound_per_s"]}
        values |= {"cpu": row["cpu_demand_ns"] or 0.0, "now": rung["cpu_per_call_ns"] or 0.0}
        where = tuple(
            c["cell"] for c in case.valid if c["sessions"] == row["sessions"] and c["variant"] == variant
        )
        yield claim(
            "bound-exceeded",
            values,
            row["over"],
            case="cpu" if by_cpu else "waitless",
            subject=str(variant) if several else "",
            cells=where,
        )
