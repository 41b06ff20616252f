"""Checks the counts: whether all calls were counted, whether sources agree, and whether the test read from
the cache or from storage as promised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue.criteria import writes_as_planned
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row, at, ids, known_aas, listed, of_cell
from dbdyno.model.plan.kinds import SERVED
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.sources.wait_families import LOG_BYTES, STORAGE_BYTES
from dbdyno.model.units import significant

LOST_SQLSTATE = "08006"


@check("sessions-lost", of="whole")
def sessions_lost(case: Case) -> Iterator[Claim]:
    """Yields sessions whose connection broke; their calls until then are counted."""
    for cell in () if case.observed else case.cells:
        sessions = case.table("cell_sessions", cell["cell"])
        lost = sessions.filter(pl.col("end_reason") == "lost")
        if lost.is_empty():
            continue
        words = listed(lost["end_detail"].drop_nulls().to_list(), 2)
        yield claim(
            "sessions-lost",
            {"place": at(cell, case), "lost": lost.height, "sessions": sessions.height, "words": words},
            float(lost.height),
            cells=(cell["cell"],),
        )


@check("no-calls", of="whole")
def no_calls(case: Case) -> Iterator[Claim]:
    """Yields windows in which no call ended: sessions were in calls that began before or ended after the
    window."""
    for cell in () if case.observed else case.cells:
        if none_ended(case, cell["cell"]):
            kind = "closed" if cell["rate_per_s"] is None else "paced"
            yield claim("no-calls", {"place": at(cell, case)}, 0.0, case=kind, cells=(cell["cell"],))


def none_ended(case: Case, cell: str) -> bool:
    """Returns whether no call that counts in the window ended in it, well or in an error."""
    sessions = case.table("cell_sessions", cell)
    return not sessions.is_empty() and not int((sessions["calls"] + sessions["errors"]).sum())


@check("errors", of="whole", kinds=(SERVED,))
def errors(case: Case) -> Iterator[Claim]:
    """Yields a claim per SQLSTATE. Failed executions have their own check:
    :func:`dbdyno.conclude.commands.commands.failed`."""
    table = case.tables["cell_errors"].filter(pl.col("sqlstate") != LOST_SQLSTATE)
    calls = case.tables["cell_sessions"].select((pl.col("calls_total") + pl.col("errors_total")).sum()).item()
    grouped = table.group_by("sqlstate", maintain_order=True).agg(
        pl.col("count").sum(), pl.col("message").first(), pl.col("cell").unique(maintain_order=True)
    )
    for row in grouped.sort("count", descending=True).iter_rows(named=True):
        yield claim(
            "errors",
            {"count": row["count"], "calls": calls, "code": row["sqlstate"], "message": row["message"]},
            float(row["count"]),
            each=row["sqlstate"],
            cells=row["cell"],
        )


@check("work-not-constant", "work-constant", of="whole")
def work_constant(case: Case) -> Iterator[Claim]:
    """Yields whether the work per call is equal over all sessions and rungs, if the workload promises
    that."""
    rates = case.tables["rates"].filter((pl.col("name") == "work_per_call") & (pl.col("scope") == "session"))
    counted = rates.filter(pl.col("source").str.starts_with("engine") & pl.col("value").is_not_null())
    clean = counted.join(_with_errors(case), on=["cell", "session"], how="anti")
    for (workload, variant), rows in clean.group_by("workload", "variant", maintain_order=True):
        known = case.workloads.get(str(workload))
        if known is None or not known.work_constant:
            continue
        low, high = float(rows["value"].min()), float(rows["value"].max())  # type: ignore[arg-type]
        values = {
            "work": known.work_short,
            "sessions": rows.height,
            "variant": variant,
            "of_variant": f" of {variant}" if clean["variant"].n_unique() > 1 else "",
            "low": low,
            "high": high,
        }
        cells = tuple(rows["cell"].unique(maintain_order=True))
        if low == high:
            yield claim("work-constant", values, Estimate("work-constant", low, known.work_unit, low, high))
            continue
        nearly = high - low <= known.work_tolerance * high
        yield claim(
            "work-not-constant",
            values,
            (high - low) / high,
            case="nearly" if nearly else "varies",
            severity="note" if nearly else None,
            low=low,
            high=high,
            cells=cells,
        )


@check("executions-agree", "executions-disagree", of="whole")
def executions(case: Case) -> Iterator[Claim]:
    """Yields whether the engine's count of calls agrees with the driver's."""
    table = case.tables["data_sources"].filter(pl.col("quantity") == "executions")
    engine = table.filter(pl.col("source") != "driver").drop_nulls("value")
    differing = engine.filter(pl.col("verdict") == "differs")
    if engine.height and differing.is_empty():
        total, by_work = float(engine["value"].sum()), engine["source"][0].endswith("by work")
        yield claim("executions-agree", {"calls": total}, total, case="by-work" if by_work else "counted")
    if differing.height:
        worst = float(differing["relative_difference"].abs().max())  # type: ignore[arg-type]
        yield claim(
            "executions-disagree",
            {"difference": significant(100 * worst), "measurements": case.many(differing.height)},
            worst,
            cells=ids(differing.to_dicts()),
        )


def _with_errors(case: Case) -> pl.DataFrame:
    """Returns sessions with failed calls: the counters include the work of these calls before they failed."""
    failed = case.tables["cell_sessions"].filter(pl.col("errors_total") > 0)
    return failed.select("cell", "session")


@check("writes-unexpected", "writes-as-planned")
def changes(case: Case) -> Iterator[Claim]:
    """Yields whether calls that only read wrote no WAL, and calls that change rows wrote some, by the
    sessions' own counters."""
    cells_by_kind: dict[bool, list[tuple[float, Row]]] = {False: [], True: []}
    for cell in case.valid:
        wal = _own_wal(case, cell["cell"])
        workload = case.workloads.get(cell["workload"])
        if wal is None or workload is None or workload.changes_with is None:
            continue
        cells_by_kind[_changes(case, cell["cell"], workload.changes_with)].append((wal, cell))
    for changing, cells in cells_by_kind.items():
        if cells:
            yield _written(case, changing, cells)


def _written(case: Case, changing: bool, cells: list[tuple[float, Row]]) -> Claim:
    calls = {cell["cell"]: case.figures(cell["cell"]).get("calls") for _, cell in cells}
    wrong = [(wal, c) for wal, c in cells if not writes_as_planned(wal, calls[c["cell"]], changing)]
    wal, cell = max(wrong or cells, key=lambda c: c[0])
    values = {
        "what": "change rows" if changing else "only read",
        "wal": f"{significant(wal)} bytes of WAL per call" if wal else "no WAL",
        "most": "at most " if len(cells) > 1 and wal else "",
        "place": at(cell, case),
        "measurements": case.many(len(wrong or cells)),
    }
    return claim(
        "writes-unexpected" if wrong else "writes-as-planned",
        values,
        wal,
        case="changing" if changing else "reading",
        cells=ids([c for _, c in wrong or cells]),
    )


@of_cell
def _own_wal(case: Case, cell: str) -> float | None:
    rates = case.table("rates", cell).filter(
        (pl.col("scope") == "rung")
        & (pl.col("name") == f"{LOG_BYTES}_per_call")
        & ~pl.col("source").str.contains("server")
    )
    return rates["value"].item() if rates.height else None


def _changes(case: Case, cell: str, parameter: str) -> bool:
    planned = {c.id: c for c in case.plan.cells}
    return cell in planned and float(planned[cell].params.get(parameter) or 0) > 0


# -- reads and writes as promised --

CACHED = 0.001
"""Share of the logical reads that a cached test may read physically (the catalogue, a new page)."""
PHYSICAL = 0.05
"""Share of the logical reads that a physical test must read physically."""
BLOCK_IO = 0.01
"""Share of the active time that waits for a device take at least, if it is read."""
_PHYSICAL_NAMES = ("physical_reads", "blocks_read")


class _Reads(NamedTuple):
    logical: float
    physical: float
    evidence: str

    @property
    def share(self) -> float:
        return self.physical / self.logical


@check("not-cached", "hardly-physical")
def cached(case: Case) -> Iterator[Claim]:
    """Yields a test that promises to be cached but reads physically, or the reverse."""
    candidates: dict[bool, list[tuple[dict[str, Any], Row]]] = {True: [], False: []}
    for cell, reads, promised in _promises(case):
        if reads.share > CACHED if promised else reads.share < PHYSICAL:
            values = {"share": reads.share, "least": -reads.share, "source": reads.evidence}
            candidates[promised].append((values, cell))
    yield from case.worst("not-cached", candidates[True], "share")
    yield from case.worst("hardly-physical", candidates[False], "share", by="least")


def _promises(case: Case) -> Iterator[tuple[Row, _Reads, bool]]:
    """Yields cells whose reads are known, and whether their workload promises that they are cached."""
    for cell in case.valid:
        workload, reads = case.workloads.get(cell["workload"]), _reads(case, cell["cell"])
        values = case.plan.experiment.expect
        promised = workload.cached if workload is not None else None
        promised = {"cache": True, "disk": False, "memory": None}.get(values or "", promised)
        if promised is not None and reads is not None:
            yield cell, reads, promised


STORED_BYTES = 8.0
"""Bytes per logical read: 0.1 % of a block of 8 KiB (see :data:`CACHED`)."""


@check("read-from-storage", "storage-reads-unknown", "memory-only")
def from_storage(case: Case) -> Iterator[Claim]:
    """Yields whether a test that should read from memory only read from storage, or that this is unknown."""
    if case.plan.experiment.expect != "memory" or not case.valid:
        return
    by_cell = [(_stored(case, c["cell"]), c) for c in case.valid]
    known = [(values, c) for values, c in by_cell if values]
    read = [(values, c) for values, c in known if values["bytes_per_lio"] > STORED_BYTES]
    yield from case.worst("read-from-storage", read, "bytes_per_lio")
    unknown = [
        ({"unknown": 1.0, "status": _why_not(case, c["cell"])}, c) for values, c in by_cell if not values
    ]
    yield from case.worst("storage-reads-unknown", unknown, "unknown")
    if not read and not unknown:
        yield from case.worst("memory-only", known, "bytes")


@of_cell
def _stored(case: Case, cell: str) -> dict[str, float]:
    """Returns bytes that storage delivered in the window, in total and per logical read; empty if unknown."""
    figures = case.figures(cell)
    stored, calls = figures.get(f"{STORAGE_BYTES}_per_call"), figures.get("calls")
    if stored is None or not calls:
        return {}
    work = figures.get("work_per_call") or 1.0
    return {"bytes": stored * calls, "bytes_per_lio": stored / work}


@of_cell
def _why_not(case: Case, cell: str) -> str:
    counter = case.levels(cell, "engine").filter(pl.col("key") == STORAGE_BYTES)
    return str(counter["status"][0]) if counter.height else "not supported"


@check("os-cached")
def os_cached(case: Case) -> Iterator[Claim]:
    """Yields reads of blocks without waits for a device: the operating system had them in its page cache."""
    candidates = []
    for cell, reads, promised in _promises(case):
        waited = None if promised or reads.share < PHYSICAL else _block_io(case, cell["cell"])
        if waited is not None and waited < BLOCK_IO * case.served(cell["cell"]):
            rate = reads.physical / cell["wall_s"]
            candidates.append(
                ({"rate": rate, "waited": waited, "least": -waited, "source": reads.evidence}, cell)
            )
    yield from case.worst("os-cached", candidates, "waited", by="least")


@of_cell
def _block_io(case: Case, cell: str) -> float | None:
    """Returns block I/O delay of sessions and helpers in seconds per second; None without delay
    accounting."""
    block_io = (pl.col("account") == "block_io") & pl.col("scope").is_in(["rung", "helper"])
    return known_aas(case.table("ledger", cell).filter(block_io))


@of_cell
def _reads(case: Case, cell: str) -> _Reads | None:
    """Returns reads from the sessions' own counters if the engine has them, else from the server's."""
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
