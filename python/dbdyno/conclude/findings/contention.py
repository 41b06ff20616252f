"""Is one lock or latch what holds the sessions back?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.claims import claim
from dbdyno.conclude.findings.context import Case, Row, percent, sentence, sessions
from dbdyno.model.cell_groups import TOGETHER
from dbdyno.model.claim import Claim
from dbdyno.model.units import format_rate, significant
from dbdyno.model.wait_families import LOCKS, families_of

BOUND = 0.25
"""Of DB time, asleep in one of them."""
GROWS = 1.10
"""Throughput still grows if the top rung delivers more than this over the best lower one."""


def lock_bound(case: Case) -> Iterator[Claim]:
    """One wait that holds a large part of DB time at the top rung, where throughput no longer grows."""
    for name, rungs in case.ladders():
        top = max(rungs, key=lambda r: int(r["sessions"]), default=None)
        held = None if top is None else _held(case, top)
        if top is None or held is None or _grows(top, rungs):
            continue
        lower = [r for r in rungs if r["sessions"] < top["sessions"] and r["calls_per_s"]]
        best = max(lower, key=lambda r: float(r["calls_per_s"]), default=None)
        place = "" if case.observed else f" at {sessions(top['sessions'])}"
        text = f"{name}bound by one lock: {held['name']} holds {percent(held['share'])} of DB time{place}"
        if best is not None:
            text += f", and throughput no longer grows: {format_rate(top['calls_per_s'])} calls/s after "
            text += f"{format_rate(best['calls_per_s'])} at {sessions(best['sessions'])}"
        if held["runq_s"]:
            text += f" (besides {significant(held['runq_s'])} s in the run queue under its label)"
        yield claim(
            id="lock-bound",
            severity="warning",
            text=sentence(text + "."),
            value=held["share"],
            unit="of DB time",
            low=_share(held, "low"),
            high=_share(held, "high"),
            evidence=f"{held['source']}: table top_events; driver: table rungs",
            advice="see who holds it: what all sessions touch (a row, a page, the log's end); part it among "
            "sessions, hold it for less time, or load with fewer sessions",
        )


def _held(case: Case, rung: Row) -> Row | None:
    """The largest such wait of the rung's cells together."""
    same = [pl.col(c) == rung[c] for c in ("workload", "variant", "sessions")]
    rows = case.table("top_events", TOGETHER).filter(*same)
    families = families_of(case.tables)
    locks = [r for r in rows.to_dicts() if "/" in r["name"] and families.of(r["name"]) in LOCKS]
    most = max(locks, key=lambda r: float(r["seconds"]), default=None)
    if most is None or (most["share"] or 0.0) < BOUND:
        return None
    low = _share(most, "low")
    return most if low is None or low > BOUND / 2 else None


def _share(row: Row, end: str) -> float | None:
    return None if row[end] is None else float(row[end] / row["seconds"] * row["share"])


def _grows(top: Row, rungs: list[Row]) -> bool:
    """Against the best lower rung; without one nothing is known against it."""
    lower = [r["calls_per_s"] for r in rungs if r["sessions"] < top["sessions"] and r["calls_per_s"]]
    return bool(lower) and top["calls_per_s"] is not None and top["calls_per_s"] > GROWS * max(lower)
