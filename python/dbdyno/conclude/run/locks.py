"""Checks locks and latches: whether one limits throughput, and whether the test itself makes sessions
wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.run import chains
from dbdyno.conclude.run.case import Case, Row, at, ids, of_cell
from dbdyno.model.plan.data_size import FewRows, few_rows
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import together_at
from dbdyno.model.sources.wait_advice import advice_of
from dbdyno.model.sources.wait_families import (
    COUNTED_LOCK_WAITS,
    LOCK_WAIT_NS,
    LOCKS,
    Family,
    families_of,
)

BOUND = 0.25
"""Share of DB time asleep in one lock or latch."""
SURELY = 0.5
"""Part of a limit that the lower end of the interval must exceed as well."""
GROWS = 1.10
"""Ratio of the top rung's throughput to the best lower one above which throughput still grows."""


@check("lock-bound", of="whole")
def lock_bound(case: Case) -> Iterator[Claim]:
    """Yields a wait with a large share of DB time at the top rung, if throughput no longer grows there. In an
    observation several sessions must have waited: :func:`chains.lone_waits` reports one alone."""
    for name, rungs in case.rungs():
        held = _held(case, rungs[-1]) if rungs else None
        if held is None or chains.alone(case, held["name"]) is not None:
            continue
        top, rate = rungs[-1], rungs[-1]["calls_per_s"]
        lower = [r for r in rungs[:-1] if r["calls_per_s"]]
        best = max(lower, key=lambda r: float(r["calls_per_s"]), default=None)
        if best is not None and rate is not None and rate > GROWS * best["calls_per_s"]:
            continue
        place = "" if case.observed else f" {fmt.at_load(top['sessions'])}"
        values = {"event": held["name"], "share": held["share"], "place": place, "source": held["source"]}
        values |= {"queued": held["runq_s"], "top_rate": rate}
        flat = best is not None and rate is not None
        if best is not None:
            values |= {"best_rate": best["calls_per_s"], "best": best["sessions"]}
        parts = [*(["flat"] if flat else []), *(["queued"] if held["runq_s"] else [])]
        low, high = (_end(held, end) for end in ("low", "high"))
        advice = advice_of(case.tables).of(held["name"]).advice or None
        yield claim(
            "lock-bound", values, held["share"], parts=parts, low=low, high=high, advice=advice, subject=name
        )


def _held(case: Case, rung: Row) -> Row | None:
    """Returns the rung's largest wait for a lock over all its cells; None if it is below :data:`BOUND`."""
    families = families_of(case.tables)
    locks = [r for r in _events(case, rung) if families.of(r["name"]) in LOCKS]
    most = max(locks, key=lambda r: float(r["seconds"]), default=None)
    return most if most is not None and _is_over(most, BOUND) else None


def _events(case: Case, rung: Row) -> list[Row]:
    """Returns the rung's largest waits over all its cells, as in ``top_events``."""
    same = [pl.col(c) == rung[c] for c in ("workload", "variant", "sessions")]
    rows = case.table("top_events", together_at(rung["rate_per_s"])).filter(*same)
    return [r for r in rows.to_dicts() if "/" in r["name"]]


def _is_over(event: Row, limit: float) -> bool:
    """Returns whether an event takes at least ``limit`` (a share of DB time) and the lower end of its
    interval is above :data:`SURELY` of that."""
    low = _end(event, "low")
    return (event["share"] or 0.0) >= limit and (low is None or low > SURELY * limit)


def _end(row: Row, end: str) -> float | None:
    """Returns an end of the interval as a share of DB time, None if one of them is unknown."""
    if row[end] is None or row["share"] is None or not row["seconds"]:
        return None
    return float(row[end] / row["seconds"] * row["share"])


# -- what the server itself counts of them --

WAITED = 0.05
"""Seconds per second of lock waits from which on the server's own count is compared with them."""
SAME = 0.1
"""Relative difference up to which the two agree."""


@check("lock-waits-counted")
def counted_lock_waits(case: Case) -> Iterator[Claim]:
    """Yields the share of the measured lock waits that the server's own counter has. The counter is of all
    sessions, so an observation of chosen ones says nothing."""
    both = [(_lock_waits(case, cell["cell"]), cell) for cell in (() if case.chosen else case.valid)]
    known = [(values, cell) for values, cell in both if values]
    values, cell = max(known, key=lambda v: float(v[0]["measured"]), default=({}, {}))
    if not values:
        return
    share = float(values["counted"] / values["measured"])
    kind = "same" if abs(share - 1) <= SAME else "less" if share < 1 else "more"
    yield claim(
        "lock-waits-counted",
        {**values, "share": share, "place": at(cell, case)},
        share,
        case=kind,
        cells=ids([cell]),
    )


@of_cell
def _lock_waits(case: Case, cell: str) -> dict[str, Any]:
    """Returns lock waits in seconds per second by both, and what the counter is; empty if one is unknown."""
    counter = case.levels(cell, "engine").filter(pl.col("key") == LOCK_WAIT_NS).drop_nulls("delta").to_dicts()
    source = case.table("cell_sources", cell).filter(pl.col("name") == COUNTED_LOCK_WAITS).to_dicts()
    waits = case.table("events", cell).filter(
        pl.col("scope") == "rung", families_of(case.tables).among(Family.LOCK)
    )
    parts = [waits[part] for part in ("sleep", "runq")]
    if not counter or not source or any(part.null_count() for part in parts):
        return {}
    measured = sum(float(part.sum()) for part in parts)
    if measured < WAITED:
        return {}
    counted = counter[0]["delta"] / counter[0]["wall_ns"]
    return {
        "counted": counted,
        "measured": measured,
        "counter": source[0]["provenance"],
        "counts": source[0]["detail"],
    }


# -- whether they are the test's own making --

HOT = 0.10
"""Share of DB time that sessions wait for rows of one another."""
LARGEST = 0.5
"""Part of that time that one of several events must have, because its interval is known and that of the sum
is not."""
LATCH = 0.10
"""Share of DB time asleep in one latch."""


@check("hot-rows", of="whole")
def hot_rows(case: Case) -> Iterator[Claim]:
    """Yields a claim if sessions at the top rung wait for rows that others changed: there are too few
    rows."""
    known = advice_of(case.tables)
    for name, rungs in case.rungs():
        if not rungs or rungs[-1]["sessions"] < 2:
            continue
        top = rungs[-1]
        row_waits = [r for r in _events(case, top) if known.of(r["name"]).row]
        share = sum(r["share"] or 0.0 for r in row_waits)
        if share < HOT or not any(_is_over(r, LARGEST * share) for r in row_waits):
            continue
        values = {"share": share, "place": "" if case.observed else f" {fmt.at_load(top['sessions'])}"}
        values |= {"events": ", ".join(r["name"] for r in row_waits), "sessions": top["sessions"]}
        parts = []
        if (locked := _locked_object(case, top, [r["name"] for r in row_waits])) is not None:
            values |= {"relation": locked["name"].rpartition(" (")[0], "part": locked["lock_share"]}
            parts.append("relation")
        few = _few(case, top)
        values |= {} if few is None else few._asdict()
        kind = "waits" if few is None else "few"
        yield claim("hot-rows", values, share, case=kind, parts=parts, subject=name)


def _locked_object(case: Case, rung: Row, events: list[str]) -> Row | None:
    """Returns the object that most of these waits are for, from table ``wait_chains``; None if unknown."""
    kinds = tuple(f" ({e.partition('/')[2]})" for e in events)
    objects = [r for r in chains.rows_at(case, rung) if r["by"] == "object" and r["name"].endswith(kinds)]
    return objects[0] if objects else None


def _few(case: Case, rung: Row) -> FewRows | None:
    workload = case.workloads.get(rung["workload"])
    params = next(
        (
            c.params
            for c in case.plan.cells
            if c.variant == rung["variant"] and c.workload == rung["workload"]
        ),
        {},
    )
    return None if workload is None else few_rows(workload, params, rung["sessions"])


@check("one-latch", of="whole")
def latch(case: Case) -> Iterator[Claim]:
    """Yields a latch or another short lock with a large share of DB time at the top rung while throughput
    still grows. :func:`lock_bound` reports the other case."""
    known, families = advice_of(case.tables), families_of(case.tables)
    bound = {(c.subject, c.slots["event"]) for c in lock_bound(case)}
    for name, rungs in case.rungs():
        for event in _events(case, rungs[-1]) if rungs else []:
            own = known.of(event["name"])
            short = families.of(event["name"]) is Family.LATCH or (own.what and not own.row)
            if not short or not _is_over(event, LATCH) or (name, event["name"]) in bound:
                continue
            if chains.alone(case, event["name"]) is not None:
                continue
            values = {"event": event["name"], "share": event["share"], "what": own.what}
            values |= {"place": "" if case.observed else f" {fmt.at_load(rungs[-1]['sessions'])}"}
            values |= {"source": event["source"]}
            low, high = (_end(event, end) for end in ("low", "high"))
            yield claim(
                "one-latch",
                values,
                event["share"],
                low=low,
                high=high,
                subject=name,
                parts=["what"] if own.what else [],
                advice=own.advice or None,
            )
