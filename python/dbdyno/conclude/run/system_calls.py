"""Checks system calls: where number and cost differ, and whether their time adds up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from dbdyno.conclude.catalogue.criteria import apart, exceeds
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, of_cell
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import account_rows
from dbdyno.model.units import NS_PER_S


@check("frequent-system-call", "costly-system-call")
def number_and_cost(case: Case) -> Iterator[Claim]:
    """Yields the most frequent system call, and the one with most CPU time, if these measures differ."""
    for id, by in (("frequent-system-call", "calls"), ("costly-system-call", "cpu")):
        by_cell = [(_first(case, c["cell"], by), c) for c in case.valid]
        some = [(values, c) for values, c in by_cell if values and apart(values["calls"], values["cpu"])]
        yield from case.worst(id, [f for f in some if f[0][by] == max(f[0]["calls"], f[0]["cpu"])], by)


@of_cell
def _first(case: Case, cell: str, by: str) -> dict[str, Any]:
    """Returns name and shares of the call with the largest share of ``calls`` or ``cpu``; empty if
    unknown."""
    rows = _of_sessions(case, cell).drop_nulls(["calls_share", "cpu_share"])
    if rows.is_empty():
        return {}
    row = rows.sort(f"{by}_share", "name", descending=[True, False]).row(0, named=True)
    return {"name": row["name"], "calls": row["calls_share"], "cpu": row["cpu_share"]}


@check("system-call-time")
def time_inside(case: Case) -> Iterator[Claim]:
    """Yields cells with more CPU time inside system calls than in the kernel, of which it is a part."""
    by_cell = [(_inside(case, c["cell"]), c) for c in case.valid]
    yield from case.worst(
        "system-call-time", [(s, c) for s, c in by_cell if s and exceeds(s["inside"], s["high"])], "inside"
    )


@of_cell
def _inside(case: Case, cell: str) -> dict[str, float]:
    """Returns CPU time inside system calls and the upper end of kernel time, in seconds per second."""
    rows = _of_sessions(case, cell)
    kernel = account_rows(case.table("ledger", cell), "run.system")["high"]
    if rows.is_empty() or rows["cpu_ns"].null_count() or kernel.is_empty() or kernel.null_count():
        return {}
    inside = rows["cpu_ns"].sum() / NS_PER_S / rows["wall_s"][0]
    return {"inside": inside, "high": float(kernel.sum())}


def _of_sessions(case: Case, cell: str) -> pl.DataFrame:
    return case.table("system_calls", cell).filter(pl.col("who") == "rung")
