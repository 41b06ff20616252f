"""Did the test do the reads that it promises: from the cache, or physically?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids
from dbdyno.conclude.findings.facts import of_cell
from dbdyno.model.claim import Claim

CACHED = 0.001
"""Of the logical reads: a cached test may read this part physically (the catalogue, a new page)."""
PHYSICAL = 0.05
"""Of the logical reads: a physical test reads at least this part physically."""
BLOCK_IO = 0.01
"""Of the served time: a device that is asked takes at least this much."""
_PHYSICAL_NAMES = ("physical_reads", "blocks_read")


class _Reads(NamedTuple):
    logical: float
    physical: float
    evidence: str

    @property
    def share(self) -> float:
        return self.physical / self.logical


def cached(case: Case) -> Iterator[Claim]:
    """A test that promises to be cached reads physically; a physical one hardly does."""
    found: dict[bool, list[tuple[_Reads, Row]]] = {True: [], False: []}
    for cell in case.usable():
        workload = case.workloads.get(cell["workload"])
        reads = _reads(case, cell["cell"])
        if workload is None or workload.cached is None or reads is None:
            continue
        if reads.share > CACHED if workload.cached else reads.share < PHYSICAL:
            found[workload.cached].append((reads, cell))
    if found[True]:
        reads, cell = max(found[True], key=lambda f: f[0].share)
        yield claim(
            "not-cached",
            {
                "share": reads.share,
                "place": at(cell, case),
                "measurements": case.many(len(found[True])),
                "source": reads.evidence,
            },
            reads.share,
            cells=ids([c for _, c in found[True]]),
        )
    if found[False]:
        reads, cell = min(found[False], key=lambda f: f[0].share)
        yield claim(
            "hardly-physical",
            {"share": reads.share, "place": at(cell, case), "source": reads.evidence},
            reads.share,
            cells=ids([c for _, c in found[False]]),
        )


def os_cached(case: Case) -> Iterator[Claim]:
    """Blocks were read, and no device was waited for: the operating system had them."""
    found: list[tuple[float, _Reads, Row]] = []
    for cell in case.usable():
        workload, reads = case.workloads.get(cell["workload"]), _reads(case, cell["cell"])
        if workload is None or workload.cached is not False or reads is None or reads.share < PHYSICAL:
            continue
        waited = _block_io(case, cell["cell"])
        if waited is not None and waited < BLOCK_IO * case.served(cell["cell"]):
            found.append((waited, reads, cell))
    if found:
        waited, reads, cell = min(found, key=lambda f: f[0])
        rate = reads.physical / cell["wall_s"]
        yield claim(
            "os-cached",
            {"rate": rate, "place": at(cell, case), "waited": waited, "source": reads.evidence},
            waited,
            cells=ids([c for *_, c in found]),
        )


@of_cell
def _block_io(case: Case, cell: str) -> float | None:
    """Of sessions and helpers; ``None`` where delay accounting is off."""
    rows = case.table("ledger", cell).filter(
        (pl.col("account") == "block_io") & pl.col("scope").is_in(["rung", "helper"])
    )
    known = rows["aas"].drop_nulls()
    return float(known.sum()) if len(known) else None


@of_cell
def _reads(case: Case, cell: str) -> _Reads | None:
    """The sessions' own count where the engine keeps one, else the server's."""
    return _own(case, cell) or _servers(case, cell)


def _own(case: Case, cell: str) -> _Reads | None:
    counted = case.table("cut_work", cell).drop_nulls("value")
    logical = counted.filter(pl.col("is_work") & (pl.col("name") == "lio"))["value"].sum()
    physical = counted.filter(pl.col("name").is_in(_PHYSICAL_NAMES))
    if physical.is_empty() or not logical:
        return None
    return _Reads(float(logical), float(physical["value"].sum()), "engine counters of the sessions")


def _servers(case: Case, cell: str) -> _Reads | None:
    totals = dict(case.table("profile", cell).select("name", "total").rows())
    logical, physical = totals.get("logical reads"), totals.get("physical reads")
    if not logical or physical is None:
        return None
    return _Reads(logical, physical, "engine counters, all of the server's sessions")
