"""A connection pooler in front: the queue for its server connections, the way through it, its own CPU."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids
from dbdyno.conclude.findings.facts import of_cell
from dbdyno.model.claim import Claim
from dbdyno.model.session_time import UNLABELLED

QUEUE = "pool.queue"
WAY = 0.05
"""The way through the pooler is told from this share of the sessions' time on."""
BUSY = 0.8
"""A pooler has one thread: from so much of one CPU on (its run queue included) it is a limit itself."""
_OTHERS = (("run",), ("runq",), ("sleep", UNLABELLED), ("client",), ("unaccounted",))


@of_cell
def is_pooled(case: Case, cell: str) -> bool:
    return case.accounts(cell).filter(pl.col("account") == QUEUE).height > 0


def pooled(case: Case) -> list[Row]:
    """Usable cells behind a pooler."""
    return [cell for cell in case.usable() if is_pooled(case, cell["cell"])]


def queue(case: Case) -> Iterator[Claim]:
    """The rung where sessions queued for the largest part of their time, if that is the largest account."""
    found = [(f, c) for c in pooled(case) if (f := case.aas(c["cell"], QUEUE)) > _largest(case, c["cell"])]
    if not found:
        return
    queued, cell = max(found, key=lambda f: f[0] / f[1]["sessions"])
    wall = case.wall(cell["cell"])
    row = case.accounts(cell["cell"]).filter(pl.col("account") == QUEUE).row(0, named=True)
    yield claim(
        "pool-queue",
        {
            "connection": _size(case, cell["cell"]),
            "queued": queued,
            "wall": wall,
            "place": at(cell, case),
            "share": queued / wall,
            "measurements": case.many(len(found)),
        },
        queued,
        low=row["low"],
        high=row["high"],
        cells=ids([c for _, c in found]),
    )


def way(case: Case) -> Iterator[Claim]:
    """What is neither queue nor service nor client: the hops to the pooler and back, its own work."""
    shares = [
        (case.aas(c["cell"], "unaccounted") / wall, c) for c in pooled(case) if (wall := case.wall(c["cell"]))
    ]
    large = [(share, c) for share, c in shares if abs(share) > WAY]
    if not large:
        return
    share, cell = max(large, key=lambda s: abs(s[0]))
    run, runq = _own(case, cell["cell"])
    yield claim(
        "pool-way",
        {"share": share, "place": at(cell, case), "run": run, "runq": runq},
        share,
        cells=ids([c for _, c in large]),
    )


def busy(case: Case) -> Iterator[Claim]:
    """A pooler that is runnable all the time is the limit, not its pool."""
    found = [(sum(_own(case, c["cell"])), c) for c in pooled(case)]
    full = [(used, c) for used, c in found if used > BUSY]
    if full:
        used, cell = max(full, key=lambda f: f[0])
        run, runq = _own(case, cell["cell"])
        yield claim(
            "pooler-busy",
            {"place": at(cell, case), "run": run, "runq": runq},
            used,
            cells=ids([c for _, c in full]),
        )


def _largest(case: Case, cell: str) -> float:
    return max(case.aas(cell, *accounts) for accounts in _OTHERS)


@of_cell
def _size(case: Case, cell: str) -> str:
    sizes = case.levels(cell, "engine").filter(pl.col("key") == "pool_size")["last"].drop_nulls()
    if not len(sizes):
        return "a server connection of the pool"
    one = sizes[0] == 1
    return "the pool's only server connection" if one else f"one of {sizes[0]:.0f} server connections"


@of_cell
def _own(case: Case, cell: str) -> tuple[float, float]:
    """CPU and run queue of the pooler's process, seconds per second."""
    mine = case.accounts(cell, "beside").filter(pl.col("who") == "pooler")
    run, runq = (
        float(mine.filter(pl.col("account") == name)["aas"].drop_nulls().sum()) for name in ("run", "runq")
    )
    return run, runq
