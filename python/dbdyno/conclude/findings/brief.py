"""Sessions that came and went between two samples: how many, and what they used."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.claims import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids, percent
from dbdyno.model.brief import STATUS, met
from dbdyno.model.claim import Claim
from dbdyno.model.units import significant

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
    number = f"{sum(counts):,}" if counts else "Some"
    yield claim(
        id="brief-sessions",
        severity="warning" if share >= GRAVE else "note",
        text=f"{number} session{'' if counts and sum(counts) == 1 else 's'} were too brief to be sampled: "
        f"{_words(used, share, whole)} {at(worst, case)}.",
        value=float(sum(counts)) if counts else None,
        unit="sessions",
        evidence="ledger: scope brief; engine counters: logons, less the sessions that were met",
        advice="a connection pool keeps sessions open: each new one costs a process and its start"
        + ("" if whole is not None or used is None else "; the scheduler trace shows how long they waited"),
        cells=ids(cells),
    )


def unseen(case: Case, cell: Row) -> int | None:
    """How many sessions were established and have no row of their own; None: the server does not count."""
    levels = case.levels(cell["cell"], "engine")
    rows = levels.filter((pl.col("key") == "logons") & pl.col("delta").is_not_null())
    if rows.is_empty():
        return None
    return max(0, round(rows["delta"].sum()) - met(case.table("cut_tasks", cell["cell"]), cell["t0_ns"]))


def _cpu(case: Case, cell: Row) -> float | None:
    known = case.accounts(cell["cell"], "brief").filter(pl.col("account") == "run")["aas"].drop_nulls()
    return float(known.sum()) if len(known) else None


def _traced(case: Case, cell: Row) -> bool:
    rows = case.accounts(cell["cell"], "brief").filter(pl.col("account") == "runq")
    return rows.height > 0 and rows["status"][0] != STATUS


def _words(used: float | None, share: float, waited: float | None) -> str:
    if used is None:
        return "their CPU time is not known, or too little to be measured,"
    text = f"they used {significant(used)} CPUs, {percent(share)} of DB CPU"
    if waited is None:
        return f"{text}; how long they waited for a CPU, and in the server, is not known"
    return f"{text}, and waited {significant(waited)} s/s for a CPU"
