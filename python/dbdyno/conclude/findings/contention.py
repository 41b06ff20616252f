"""Is one lock or latch what holds the sessions back?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import Case, Row, sessions
from dbdyno.model.cell_groups import TOGETHER
from dbdyno.model.claim import Claim
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
        said = {"event": held["name"], "share": held["share"], "place": place, "source": held["source"]}
        parts = []
        if best is not None:
            said |= {
                "top_rate": top["calls_per_s"],
                "best_rate": best["calls_per_s"],
                "best": best["sessions"],
            }
            parts.append("flat")
        if held["runq_s"]:
            said["queued"] = held["runq_s"]
            parts.append("queued")
        yield claim(
            "lock-bound",
            said,
            held["share"],
            parts=parts,
            low=_share(held, "low"),
            high=_share(held, "high"),
            subject=name,
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
