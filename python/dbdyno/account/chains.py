"""Table ``wait_chains``: who blocks whom on locks, and what the blockers at the ends of the chains do. Pure.

The time that sessions waited for each kind of lock is the ledger's sleep under that event. Samples of the
lock table divide that time. So the parts never exceed the ledger, and a lock that no sample met is a row
of its own. A root is a blocker that waits for nobody. If its task is runnable, its time is divided into
CPU and run queue as the task's whole window was. Intervals are of sampling (Wilson's; each sample is one
cluster of waiters).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.account.making import makes
from dbdyno.model.results.ledger_rows import groups, of_cells
from dbdyno.model.results.session_time import CPU_WAIT, DB_CPU, RUNNABLE, account, db_time, parts
from dbdyno.model.schema.data_sources.blocking import PREPARED
from dbdyno.model.schema.tables import Tables, empty, rows
from dbdyno.model.sources.source import HIDDEN, HIDDEN_STATUS
from dbdyno.model.sources.wait_families import Family, WaitFamilies, families_of
from dbdyno.stats.estimates import wilson_of

DOING, CHAIN, STATEMENT, OBJECT = "doing", "chain", "statement", "object"
CYCLE = "deadlock: the sessions wait for each other"
ENDED = "ended in between"
RELEASED = "no blocker found: the lock was released in between"
PREPARED_TRANSACTION = "prepared transaction"
ASLEEP = "asleep, wait event not seen"
"""State of a root that fell asleep between the server's answer and the read of its task."""
NOT_SAMPLED = "not sampled"
ARROW = " -> "
LEDGER, SAMPLES = "ledger, lock waits", "lock waits"
_LONGEST = 64
"""Longest chain that is followed, in waiters."""
# Shares that differ from 0 or 1 by less are rounding errors.
_ROUNDING = 1e-9

Row = Mapping[str, Any]
_Key = tuple[str, str, int | None]  # by, name, query id


class _Root(NamedTuple):
    path: tuple[str, ...]  # events of the waiters
    doing: str
    who: str
    query_id: int | None
    part: float  # of the waiter's time


class _Counts(NamedTuple):
    """Weights of one wait event by sample: of each key, and of all waiters together."""

    met: dict[_Key, dict[int, float]]
    all: dict[int, float]
    longest_ns: dict[_Key, int]


@makes("wait_chains", reads=("ledger", "events"))
def wait_chains(tables: Tables) -> pl.DataFrame:
    """Returns the chains of each cell. Reads ``windows``, ``ledger``, ``events``, ``cut_blocked``,
    ``cut_tasks`` and the tables that DB time needs."""
    records: list[dict[str, Any]] = []
    families = families_of(tables)
    for head, window, cell in of_cells(tables):
        in_cell = pl.col("cell") == window["cell"]
        blocked = tables["cut_blocked"].filter(in_cell)
        if blocked["session"].drop_nulls().is_empty():
            continue
        runq_shares = _runq_shares(tables["cut_tasks"].filter(in_cell))
        counts = _weights_by_event(blocked.to_dicts(), runq_shares, families)
        whole = db_time(cell, window).aas
        waited = _sleep_by_event(cell, set(blocked["wait_class"].drop_nulls()), window["wall_s"])
        total = None if whole is None else whole * window["wall_s"]
        records += [head | row for row in _ranked(_seconds_by_key(counts, waited), total)]
    return rows("wait_chains", records)


@makes("wait_chains", stage="total")
def wait_chains_total(tables: Tables) -> pl.DataFrame:
    """Returns the chains over all usable cells of a workload, variant and load together (cell ``all``)."""
    records: list[dict[str, Any]] = []
    for head, cells in groups(tables["windows"]):
        names = [w["cell"] for w in cells]
        chains = tables["wait_chains"].filter(pl.col("cell").is_in(names))
        if chains.is_empty():
            continue
        # A share is of the cell's DB time, so seconds / share recovers DB time.
        whole = chains.group_by("cell").agg(
            (pl.col("seconds") / pl.col("share")).filter(pl.col("share") > 0).first()
        )["seconds"]
        total = None if whole.null_count() else float(whole.sum())
        added = chains.group_by("by", "name", "query_id", maintain_order=True).agg(
            pl.col("seconds", "samples").sum(),
            pl.col("longest_s").max(),
            # Cells are independent samples, so half-widths add in quadrature.
            below=(pl.col("seconds") - pl.col("low")).pow(2).sum().sqrt(),
            above=(pl.col("high") - pl.col("seconds")).pow(2).sum().sqrt(),
            status=pl.col("status").sort().last(),
            source=pl.col("source").first(),
        )
        added = added.with_columns(
            low=pl.max_horizontal(pl.lit(0.0), pl.col("seconds") - pl.col("below")),
            high=pl.col("seconds") + pl.col("above"),
        )
        records += [head | row for row in _ranked(added.drop("below", "above").to_dicts(), total)]
    return rows("wait_chains", records) if records else empty("wait_chains")


def _sleep_by_event(cell: Tables, classes: set[str], wall_s: float) -> dict[str, tuple[float, str]] | None:
    """Returns the seconds that sessions slept in each event of these classes; None if the ledger has no
    sleep."""
    if account(cell["ledger"], "sleep").aas is None:
        return None
    slept = {n: p.aas for n, p in parts(cell).items() if n.partition("/")[0] in classes and p.aas > 0}
    return {name: (aas * wall_s, LEDGER) for name, aas in slept.items()}


def _runq_shares(tasks: pl.DataFrame) -> dict[int, float]:
    """Returns run queue / (CPU + run queue) over the whole window, by pid."""
    known = tasks.filter(pl.col("run_ns") + pl.col("runq_ns") > 0)
    share = known.group_by("pid").agg(pl.col("runq_ns").sum() / (pl.col("run_ns") + pl.col("runq_ns")).sum())
    return dict(share.iter_rows())


def _weights_by_event(
    blocked: Sequence[Row], queued: Mapping[int, float], families: WaitFamilies
) -> dict[str, _Counts]:
    """Sums the weights of the waiters by wait event. A waiter with several blockers is divided among them
    evenly."""
    by_sample: dict[int, list[Row]] = defaultdict(list)
    for row in blocked:
        by_sample[row["sample"]].append(row)
    by_event: dict[str, _Counts] = {}
    for sample, answer in by_sample.items():
        edges = _edges(answer)
        for waits in _by_waiter(answer):
            for row in waits:
                weight = row["seconds"] / len(waits)
                counts = by_event.setdefault(_event(row), _Counts({}, defaultdict(float), {}))
                counts.all[sample] += weight
                for root in _split_roots(row, edges, queued, families):
                    for key in _keys(row, root):
                        by = counts.met.setdefault(key, defaultdict(float))
                        by[sample] += weight * root.part
                        longest = max(counts.longest_ns.get(key, 0), row["waited_ns"] or 0)
                        counts.longest_ns[key] = longest
    return by_event


def _edges(answer: Sequence[Row]) -> dict[int, list[Row]]:
    """Groups lock waits by waiter. A parallel worker's wait counts for its leader, since blockers know
    only that."""
    edges: dict[int, list[Row]] = defaultdict(list)
    for row in answer:
        edges[_group(row)].append(row)
    return edges


def _group(row: Row) -> int:
    return int(row["leader_pid"] or row["pid"])


def _by_waiter(answer: Sequence[Row]) -> list[list[Row]]:
    """Returns the lock waits of each process of a measured session: one row per blocker."""
    by_pid: dict[int, list[Row]] = defaultdict(list)
    for row in answer:
        if row["session"] is not None:
            by_pid[row["pid"]].append(row)
    return list(by_pid.values())


def _split_roots(
    row: Row, edges: Mapping[int, list[Row]], queued: Mapping[int, float], families: WaitFamilies
) -> Iterator[_Root]:
    """Yields the roots of a waiter. A runnable root is divided into its CPU and its run-queue part."""
    for path, last, part in _roots(row, edges, (_group(row),)):
        doing = CYCLE if last is None else _blocker_state(last, families)
        root = last or row
        who, query_id = ("", None) if last is None else (_blocker_name(root), root["query_id"])
        share = queued.get(root["blocker"]) if doing == RUNNABLE else None
        if share is None:
            yield _Root(path, doing, who, query_id, part)
        else:
            yield _Root(path, DB_CPU, who, query_id, part * (1 - share))
            yield _Root(path, CPU_WAIT, who, query_id, part * share)


def _roots(
    row: Row, edges: Mapping[int, list[Row]], seen: tuple[int, ...]
) -> Iterator[tuple[tuple[str, ...], Row | None, float]]:
    """Yields (events along the chain, row whose blocker is the root, part of the waiter's time). The row
    is None if the chain is a circle."""
    event, blocker = _event(row), row["blocker"]
    if blocker in seen:
        yield (event,), None, 1.0
    elif blocker not in edges or len(seen) > _LONGEST:
        yield (event,), row, 1.0
    else:
        further = edges[blocker]
        # A waiter that several sessions block is divided among them evenly: nobody knows which releases last.
        for next_wait in further:
            for path, last, part in _roots(next_wait, edges, (*seen, blocker)):
                yield (event, *path), last, part / len(further)


def _event(row: Row) -> str:
    return f"{row['wait_class']}/{row['wait_event']}"


def _blocker_state(row: Row, families: WaitFamilies) -> str:
    """Returns the state of a row's blocker. The task's state outweighs the wait event, as the server shows
    an event until the process that was woken gets a CPU."""
    state, label = row["state"], f"{row['blocker_wait_class']}/{row['blocker_wait_event']}"
    if row["blocker"] is None:
        return RELEASED
    if row["blocker"] == PREPARED:
        return PREPARED_TRANSACTION
    if state is None and row["helper"] is None and row["user"] is None:
        return ENDED
    if row["task_state"] == "R":
        return RUNNABLE
    if state == HIDDEN:
        return HIDDEN_STATUS
    if row["blocker_wait_class"] is None:
        return ASLEEP if row["task_state"] else RUNNABLE
    return f"client ({state})" if families.of(label) is Family.CLIENT else label


def _blocker_name(row: Row) -> str:
    """Names the blocker: application, user and database, or the kind of process."""
    if row["blocker"] is None or row["blocker"] == PREPARED:
        name = row["application"]
        return "" if row["blocker"] is None else f"{PREPARED_TRANSACTION} {name or 'of unknown name'}"
    if row["helper"] is not None:
        return str(row["helper"])
    if row["user"] is None:
        return f"process {row['blocker']}"
    where = f"{row['user']}@{row['database'] or '?'}"
    return f"{row['application']} ({where})" if row["application"] else where


def _keys(row: Row, root: _Root) -> Iterator[_Key]:
    """Yields the key under which a root counts in each of the four views."""
    yield DOING, root.doing, None
    yield CHAIN, ARROW.join((*root.path, root.doing)), None
    yield STATEMENT, root.who or root.doing, root.query_id
    locked = row["relation"] if row["relation"] is not None else row["object"]
    yield OBJECT, f"{locked} ({row['wait_event']})" if locked != row["wait_event"] else str(locked), None


def _seconds_by_key(
    counts: Mapping[str, _Counts], waited: Mapping[str, tuple[float, str]] | None
) -> list[dict[str, Any]]:
    """Returns seconds by key: the exact time of each event, divided by the weights of its samples."""
    sums: dict[_Key, dict[str, Any]] = {}
    for event in sorted({*counts, *(waited or {})}):
        sampled_counts = counts.get(event)
        sampled = 0.0 if sampled_counts is None else sum(sampled_counts.all.values())
        seconds, source = (sampled, SAMPLES) if waited is None else waited.get(event, (0.0, LEDGER))
        if not sampled or sampled_counts is None:
            for by in (DOING, CHAIN, STATEMENT, OBJECT):
                _add(sums, (by, f"{event}: {NOT_SAMPLED}", None), seconds, (0.0, seconds), 0, 0, source)
            continue
        for key, met in sampled_counts.met.items():
            low, high = _interval(met, sampled_counts.all)
            value = sum(met.values()) / sampled * seconds
            ends = (low * seconds, high * seconds)
            _add(sums, key, value, ends, len(met), sampled_counts.longest_ns[key], source)
    return [row for row in sums.values() if row["seconds"] > 0]


def _add(
    sums: dict[_Key, dict[str, Any]],
    key: _Key,
    seconds: float,
    ends: tuple[float, float],
    met: int,
    longest_ns: int,
    source: str,
) -> None:
    by, name, query_id = key
    new = {"by": by, "name": name, "query_id": query_id, "seconds": 0.0, "low": 0.0, "high": 0.0}
    row = sums.setdefault(key, new | {"samples": 0, "longest_s": None, "status": "ok", "source": source})
    row["seconds"] += seconds
    row["low"] += ends[0]
    row["high"] += ends[1]
    row["samples"] += met
    if longest_ns:
        row["longest_s"] = max(row["longest_s"] or 0.0, longest_ns / 1e9)
    if not met:
        row["status"] = NOT_SAMPLED


def _interval(met: Mapping[int, float], every: Mapping[int, float]) -> tuple[float, float]:
    """Returns a 95 % interval of a share by Wilson (1927). The number of trials follows from the variance
    between samples: a ratio estimator over clusters (Cochran, Sampling Techniques, 6.3)."""
    n, total = len(every), sum(every.values())
    p = sum(met.values()) / total
    spread = sum((met.get(sample, 0.0) - p * whole) ** 2 for sample, whole in every.items())
    variance = max(_ROUNDING**2, spread * n / max(1, n - 1) / total**2)
    # p (1 - p) / variance is the number of independent trials with this variance. It is not above the number
    # of samples, and p = 0 or 1 has no variance to go by.
    trials = max(1.0, min(float(n), p * (1 - p) / variance)) if _ROUNDING < p < 1 - _ROUNDING else float(n)
    low, high = wilson_of(p * trials, trials)
    return min(p, low), max(p, high)


def _ranked(records: Sequence[dict[str, Any]], db_time_s: float | None) -> Iterator[dict[str, Any]]:
    """Yields the rows of each view by falling seconds, with rank and shares."""
    for by in (DOING, CHAIN, STATEMENT, OBJECT):
        in_view = sorted((r for r in records if r["by"] == by), key=lambda r: (-r["seconds"], r["name"]))
        whole = sum(r["seconds"] for r in in_view)
        for rank, row in enumerate(in_view, 1):
            share = row["seconds"] / db_time_s if db_time_s else None
            yield {**row, "rank": rank, "share": share, "lock_share": row["seconds"] / whole}
