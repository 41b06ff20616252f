"""Concludes which activity of lock holders makes sessions wait: the states of the roots of lock waits, and
the holder for whom one session of an observation waits alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row, ids, of_cell
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import together_at
from dbdyno.model.schema.tables import empty

LOCK_SHARE = 0.05
"""Share of DB time from which on lock waits are reported."""
LEAST_SAMPLES = 10
"""Samples with a session waiting for a lock that the claim needs."""
ALONE = 0.9
"""Part of the time in a lock wait that one session must have to wait alone."""
LONG = 0.5
"""Share of the observed time from which on the wait of one session is reported."""
_NAMED = 4
_ROUNDED = 0.005


@check("wait-chains", "deadlocks", of="whole")
def roots(case: Case) -> Iterator[Claim]:
    """Yields the roots of lock waits at the highest load, or over all windows of an observation."""
    for name, rungs in case.rungs():
        if not rungs:
            continue
        top = rungs[-1]
        rows = rows_at(case, top)
        doing = [r for r in rows if r["by"] == "doing"]
        waited = sum(r["share"] or 0.0 for r in doing)
        if waited < LOCK_SHARE or sum(r["samples"] for r in doing) < LEAST_SAMPLES:
            continue
        first = {by: next(r for r in rows if r["by"] == by) for by in ("object", "chain")}
        named = [r for r in doing if r["lock_share"] >= _ROUNDED][:_NAMED]
        place = "" if case.observed else f" {fmt.at_load(top['sessions'])}"
        values = {
            "share": waited,
            "roots": ", ".join(f"{fmt.percent(r['lock_share'])} {r['name']}" for r in named),
            "locked": first["object"]["name"],
            "locked_share": first["object"]["lock_share"],
            "root": named[0]["name"],
            "low": named[0]["low"] / named[0]["seconds"] * named[0]["lock_share"],
            "high": named[0]["high"] / named[0]["seconds"] * named[0]["lock_share"],
            "place": place,
        }
        yield claim("wait-chains", values, waited, subject=name)
        if cycle := [r for r in doing if r["name"].startswith("deadlock")]:
            yield claim("deadlocks", {"seconds": cycle[0]["seconds"], "place": place}, cycle[0]["seconds"])


def rows_at(case: Case, rung: Row) -> list[Row]:
    """Returns the rows over all cells of a load, or a single cell's own rows."""
    table = case.tables.get("wait_chains", empty("wait_chains"))
    rows = [
        r
        for r in table.sort("by", "rank").to_dicts()
        if all(r[c] == rung[c] for c in ("workload", "variant", "sessions"))
    ]
    return [r for r in rows if r["cell"] == together_at(rung["rate_per_s"])] or rows


# -- one session alone --


@check("lone-wait")
def lone_waits(case: Case) -> Iterator[Claim]:
    """Yields each lock that one session alone waited for during most of an observation, with its holder."""
    for event in sorted({e for c in case.usable for e in _lock_events(case, c["cell"])}):
        waiter = alone(case, event)
        if waiter is None or waiter["share"] < LONG or waiter["samples"] < LEAST_SAMPLES:
            continue
        kind = "transaction" if waiter["state"].startswith("idle in transaction") else "other"
        values = waiter | {"pid": str(waiter["pid"]), "root": str(waiter["root"])}
        yield claim("lone-wait", values, waiter["share"], case=kind, cells=ids(case.usable))


def alone(case: Case, event: str) -> Row | None:
    """Returns the session that has nearly all of an observation's time in a lock wait, and whom it waited
    for. None if several sessions waited, or if that is unknown."""
    if not case.observed:
        return None
    met = [c["cell"] for c in case.usable if event in _lock_events(case, c["cell"])]
    known = [w for cell in met if (w := _longest_waiter(case, cell, event))]
    waited = Counter[int]()
    for row in known:
        waited[row["pid"]] += row["seconds"]
    if not known or max(waited.values()) < ALONE * sum(row["together"] for row in known):
        return None
    pid = max(waited, key=lambda p: waited[p])
    own = [row for row in known if row["pid"] == pid]
    share = min(1.0, waited[pid] / sum(c["wall_s"] for c in case.usable))
    return own[-1] | {"share": share, "samples": sum(row["samples"] for row in own), "event": event}


@of_cell
def _lock_events(case: Case, cell: str) -> list[str]:
    blocked = case.table("cut_blocked", cell).drop_nulls(["session", "wait_class", "wait_event"])
    return [f"{a}/{b}" for a, b in blocked.select("wait_class", "wait_event").unique().sort(pl.all()).rows()]


@of_cell
def _longest_waiter(case: Case, cell: str, event: str) -> Row:
    """Returns who waited most in an event, its sampled seconds and those of all sessions, and the root of its
    wait; empty without a known root."""
    blocked = case.table("cut_blocked", cell)
    waiter = pl.coalesce("leader_pid", "pid")
    named = pl.format("{}/{}", "wait_class", "wait_event") == event
    waits = blocked.with_columns(waiter=waiter).filter(named & pl.col("session").is_not_null())
    waited = waits.unique(["sample", "waiter"]).group_by("waiter").agg(pl.col("seconds").sum(), n=pl.len())
    if waited.is_empty():
        return {}
    pid, seconds, samples = waited.sort("seconds", "waiter", descending=True).row(0)
    first = root = _most_often(waits.filter(waiter=pid))
    seen = {pid}
    while root is not None and root["blocker"] not in seen:
        seen.add(root["blocker"])
        further = _most_often(blocked.filter(waiter == root["blocker"]))
        if further is None:
            break
        root = further
    if first is None or root is None:
        return {}
    return {
        "pid": pid,
        "seconds": seconds,
        "samples": samples,
        "together": float(waited["seconds"].sum()),
        "locked": first["relation"] or first["object"] or event,
        "root": root["blocker"],
        "name": root["application"] or root["user"] or root["helper"] or "?",
        "state": root["state"] or "?",
    }


def _most_often(waits: pl.DataFrame) -> Row | None:
    """Returns the latest row of the blocker that the most samples met; None without a process that blocks."""
    met = waits.filter(pl.col("blocker") > 0).with_columns(times=pl.len().over("blocker"))
    rows = met.sort("times", "blocker", "sample").tail(1).to_dicts()
    return rows[0] if rows else None
