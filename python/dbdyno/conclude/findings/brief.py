"""Sessions that came and went between two samples: how many, and what they used."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids, many
from dbdyno.conclude.findings.facts import of_cell
from dbdyno.model.brief import STATUS, met
from dbdyno.model.claim import Claim

GRAVE = 0.05
"""From this share of DB CPU on it is more than a note."""


def sessions(case: Case) -> Iterator[Claim]:
    """The windows of an observation in which sessions were never, or too seldom, in a sample."""
    if not case.observed or case.chosen:
        return
    found = [(n, cell) for cell in case.usable() if (n := unseen(case, cell)) or _cpu(case, cell) is not None]
    if not found:
        return
    counts = [n for n, _ in found if n is not None]
    cells = [cell for _, cell in found]
    worst = max(cells, key=lambda c: _cpu(case, c) or 0.0)
    used, all_used = _cpu(case, worst), case.aas(worst["cell"], "run")
    share = used / all_used if used and all_used else 0.0
    whole = case.aas(worst["cell"], "runq", scope="brief") if _traced(case, worst) else None
    number = many(sum(counts), "session") if counts else "Some sessions"
    yield claim(
        "brief-sessions",
        {"sessions": number, "used": used, "share": share, "waited": whole, "place": at(worst, case)},
        float(sum(counts)) if counts else None,
        case="unknown" if used is None else "used" if whole is None else "traced",
        severity="warning" if share >= GRAVE else None,
        cells=ids(cells),
    )


@of_cell
def unseen(case: Case, cell: Row) -> int | None:
    """How many sessions were established and have no row of their own; None: the server does not count."""
    levels = case.levels(cell["cell"], "engine")
    rows = levels.filter((pl.col("key") == "logons") & pl.col("delta").is_not_null())
    if rows.is_empty():
        return None
    return max(0, round(rows["delta"].sum()) - met(case.table("cut_tasks", cell["cell"]), cell["t0_ns"]))


@of_cell
def _cpu(case: Case, cell: Row) -> float | None:
    known = case.accounts(cell["cell"], "brief").filter(pl.col("account") == "run")["aas"].drop_nulls()
    return float(known.sum()) if len(known) else None


@of_cell
def _traced(case: Case, cell: Row) -> bool:
    rows = case.accounts(cell["cell"], "brief").filter(pl.col("account") == "runq")
    return rows.height > 0 and rows["status"][0] != STATUS
