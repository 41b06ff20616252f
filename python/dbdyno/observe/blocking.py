"""The tree of blocking sessions by the latest sample of the lock table, roots first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from dbdyno.model.schema.data_sources.blocking import PREPARED
from dbdyno.model.schema.tables import Tables

_DEEPEST = 16
_Row = Mapping[str, Any]


@dataclass(frozen=True)
class Blocked:
    """A line of the tree."""

    depth: int  # 0 is a root, which waits for no lock
    pid: int | None  # None for a prepared transaction, or without a known blocker
    doing: str  # a root's state and wait event; else the lock it waits for
    who: str = ""
    waited_s: float | None = None  # time waited for that lock
    query_id: int | None = None
    waiters: int = 0  # number of all sessions below a root


def blocking(recent: Tables) -> list[Blocked]:
    """Returns the tree; empty if no session waited for a lock in the latest sample."""
    rows = recent["blocked"]
    if rows.is_empty():
        return []
    latest = rows.filter(pl.col("after_ns") == rows["after_ns"].max())
    samples = recent["samples"].filter(pl.col("via").fill_null("sql") == "sql")
    newer = samples.filter(pl.col("sql_before_ns") > latest["after_ns"][0])
    if newer.height:
        newest = newer.filter(pl.col("sample") == newer.sort("sql_before_ns")["sample"][-1])
        if newest.filter(pl.col("wait_class").is_in(latest["wait_class"].unique().implode())).is_empty():
            return []
    return list(_tree(latest.to_dicts()))


def _tree(rows: Sequence[_Row]) -> Iterator[Blocked]:
    below: dict[int | None, dict[int, _Row]] = defaultdict(dict)
    for row in rows:
        below[row["blocker"]][row["leader_pid"] or row["pid"]] = row
    waiting = {pid for waiters in below.values() for pid in waiters}
    roots = [pid for pid in below if pid not in waiting]
    shown: set[int] = set()
    for root in sorted(roots, key=lambda r: -len(_under(r, below))):
        yield _root(root, next(iter(below[root].values())), len(_under(root, below)))
        yield from _waiters(root, below, 1, shown)
    if left := sorted(waiting - shown):  # sessions that are in no tree wait for each other
        yield Blocked(0, None, "deadlock: these sessions wait for each other", waiters=len(left))
        for pid in left:
            row = next(waiters[pid] for waiters in below.values() if pid in waiters)
            yield _waiter(row, 1)


def _under(root: int | None, below: Mapping[int | None, Mapping[int, _Row]]) -> set[int]:
    """Returns the pids of all sessions below a root."""
    pids: set[int] = set()
    fresh = set(below.get(root, ()))
    while fresh:
        pids |= fresh
        fresh = {pid for one in fresh for pid in below.get(one, ())} - pids
    return pids


def _waiters(
    pid: int | None, below: Mapping[int | None, Mapping[int, _Row]], depth: int, shown: set[int]
) -> Iterator[Blocked]:
    for waiter, row in sorted(below.get(pid, {}).items(), key=lambda x: -(x[1]["waited_ns"] or 0)):
        if waiter in shown or depth > _DEEPEST:
            continue
        shown.add(waiter)
        yield _waiter(row, depth)
        yield from _waiters(waiter, below, depth + 1, shown)


def _waiter(row: _Row, depth: int) -> Blocked:
    lock = f"{row['wait_class']}/{row['wait_event']}"
    place = " ".join(t for t in (row["relation"], row["object"]) if t and t != row["wait_event"])
    waited = None if row["waited_ns"] is None else row["waited_ns"] / 1e9
    return Blocked(depth, row["pid"], f"{lock} {place}".strip(), waited_s=waited)


def _root(pid: int | None, row: _Row, waiters: int) -> Blocked:
    if pid is None:
        return Blocked(0, None, "no blocker found: the lock was released in between", waiters=waiters)
    if pid == PREPARED:
        return Blocked(0, None, f"prepared transaction {row['application'] or ''}".strip(), waiters=waiters)
    event = f"{row['blocker_wait_class']}/{row['blocker_wait_event']}" if row["blocker_wait_class"] else ""
    on_cpu = "CPU or CPU WAIT" if row["task_state"] == "R" else event
    doing = ", ".join(t for t in (row["state"] or row["helper"], on_cpu) if t) or "ended"
    who = f"{row['user']}@{row['database'] or '?'}" if row["user"] else row["helper"] or ""
    return Blocked(0, pid, doing, f"{who} {row['application'] or ''}".strip(), None, row["query_id"], waiters)
