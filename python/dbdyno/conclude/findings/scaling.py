"""The answer first: the peak, where scaling stops, where session time goes; whether a lock limits it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import polars as pl

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import Case, Row, sessions
from dbdyno.model.cell_groups import TOGETHER
from dbdyno.model.claim import GOOD_SCALING, Claim, Estimate, stops_scaling
from dbdyno.model.wait_families import LOCKS, families_of

PLATEAU = 0.97
"""A rung belongs to the plateau below the peak from this share of the peak's rate on."""
_ACCOUNTS = {
    "run_aas": "CPU",
    "runq_aas": "CPU WAIT",
    "sleep_aas": "waits",
    "client_aas": "client",
    "pool_queue_aas": "pool queue",
    "unaccounted_aas": "unaccounted",
}
_LEAST = 0.005  # a share that is named


def headline(case: Case) -> Iterator[Claim]:
    """Of each ladder; one claim where nothing was measured."""
    if case.observed:
        return
    ladders = list(case.ladders())
    if not ladders:
        yield claim("nothing-measured", {}, case="none")
    for name, rungs in ladders:
        rows = sorted(rungs, key=lambda r: int(r["sessions"]))
        if not rows:
            yield _at_least(case, name)
        elif all(r["calls_per_s"] is None for r in rows):
            yield claim("nothing-measured", {}, case="no-rate", subject=name)
        else:
            yield _peak(case, name, rows)
            yield from _limit(name, rows)
            yield _session_time(name, rows[-1])


def _at_least(case: Case, name: str) -> Claim:
    """Nothing usable: what the client limited is what the server can do at least."""
    limited = [r for r in case.limited(name) if r["calls_per_s"]]
    if not limited:
        return claim("nothing-measured", {}, case="unusable", subject=name)
    top = max(limited, key=lambda r: float(r["calls_per_s"]))
    said = {"rate": fmt.rate(top["calls_per_s"], "calls/s"), "load": fmt.load(top["sessions"])}
    return claim("nothing-measured", said, top["calls_per_s"], case="client", subject=name)


def _peak(case: Case, name: str, rows: list[Row]) -> Claim:
    """In units of work where all rungs count them; the claim's value is in calls/s, with its interval."""
    by_work = all(r["work_per_s"] for r in rows)
    column = "work_per_s" if by_work else "calls_per_s"
    known = [r for r in rows if r[column] is not None]
    top, first = max(known, key=lambda r: float(r[column])), known[0]
    plateau = next(r for r in known if r[column] >= PLATEAU * top[column])
    unit = f"{case.work_short(top['workload'])}/s" if by_work else "calls/s"
    parts = {"plateau": plateau is not top, "p95": top["response_p95_ns"] is not None}
    calls = f" ({fmt.rate(top['calls_per_s'], 'calls/s')})" if by_work else ""
    said = {
        "rate": fmt.rate(top[column], unit) + calls,
        "calls": top["calls_per_s"],
        "sessions": top["sessions"],
        "first": first["sessions"],
        "times": top[column] / first[column] if first[column] else None,
        "plateau": plateau["sessions"],
        "share": plateau[column] / top[column] if top[column] else None,
        "p95": top["response_p95_ns"],
    }
    rises = said["times"] is not None and top is not first
    value = Estimate("peak", top["calls_per_s"], "calls/s", top["calls_per_s_low"], top["calls_per_s_high"])
    shown = [part for part, holds in parts.items() if holds]
    return claim("peak", said, value, case="times" if rises else "run", parts=shown, subject=name)


def _limit(name: str, rows: list[Row]) -> Iterator[Claim]:
    """The last rung before the first that scales by less than :data:`GOOD_SCALING`."""
    known = list(takewhile(lambda r: r["scaling"] is not None, rows))
    if len(known) < 2:
        return
    bad = stops_scaling([r["scaling"] for r in known])
    lowest, top = known[0], known[-1]
    said = {"lowest": lowest["sessions"], "good": GOOD_SCALING}
    said |= {"top": top["sessions"], "top_share": top["scaling"]}
    if bad is None:
        yield claim("scales-to-the-top", said, float(top["sessions"]), subject=name)
        return
    last, first = known[max(0, bad - 1)], known[bad]
    said |= {"sessions": last["sessions"], "next": first["sessions"], "share": first["scaling"]}
    shown = "next" if top is first else "top"
    yield claim("scaling-limit", said, float(last["sessions"]), case=shown, subject=name)


def _session_time(name: str, top: Row) -> Claim:
    """What a session-second goes to at the highest load, the two largest accounts."""
    shares = {c: top[c] / top["sessions"] for c in _ACCOUNTS if top.get(c) is not None}
    complete = shares.keys() >= _ACCOUNTS.keys() - {"pool_queue_aas"}
    if not complete:
        shares.pop("unaccounted_aas", None)  # it holds what is unknown
    large = [c for c in sorted(shares, key=lambda c: -shares[c])[:2] if shares[c] >= _LEAST]
    said = {"sessions": top["sessions"], "wait": top["top_wait"], "shares": shares}
    said["accounts"] = ", ".join(f"{_ACCOUNTS[c]} {fmt.percent(shares[c])}" for c in large)
    if not large:
        return claim("session-time", said, case="unknown", subject=name)
    parts = ["wait"] if "sleep_aas" in large and top["top_wait"] else []
    parts += [] if complete else ["partly"]
    return claim("session-time", said, case="known", parts=parts, subject=name)


# -- locks and latches --

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
