"""Was everything counted, and does it agree?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids, listed
from dbdyno.conclude.findings.facts import of_cell
from dbdyno.model.claim import Claim
from dbdyno.model.counter_names import LOG_BYTES
from dbdyno.model.estimate import Estimate
from dbdyno.model.units import significant

LOST_SQLSTATE = "08006"


def sessions_lost(case: Case) -> Iterator[Claim]:
    """Sessions whose connection broke; their calls until then are counted."""
    for cell in () if case.observed else case.cells():
        mine = case.table("cell_sessions", cell["cell"])
        lost = mine.filter(pl.col("end_reason") == "lost")
        if lost.is_empty():
            continue
        words = listed(lost["end_detail"].drop_nulls().to_list(), 2)
        yield claim(
            "sessions-lost",
            {"place": at(cell, case), "lost": lost.height, "sessions": mine.height, "words": words},
            float(lost.height),
            cells=(cell["cell"],),
        )


def no_calls(case: Case) -> Iterator[Claim]:
    """Windows that sessions spent in calls that began before them, or ended after them."""
    for cell in () if case.observed else case.cells():
        mine = case.table("cell_sessions", cell["cell"])
        if mine.is_empty() or int((mine["calls"] + mine["errors"]).sum()) > 0:
            continue
        yield claim("no-calls", {"place": at(cell, case)}, 0.0, cells=(cell["cell"],))


def errors(case: Case) -> Iterator[Claim]:
    """One finding for each SQLSTATE."""
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


def work_constant(case: Case) -> Iterator[Claim]:
    """Where the workload promises it: the same work in every call of every session and rung."""
    rates = case.tables["rates"].filter((pl.col("name") == "work_per_call") & (pl.col("scope") == "session"))
    counted = rates.filter(pl.col("source").str.starts_with("engine") & pl.col("value").is_not_null())
    clean = counted.join(_with_errors(case), on=["cell", "session"], how="anti")
    for (workload, variant), mine in clean.group_by("workload", "variant", maintain_order=True):
        known = case.workloads.get(str(workload))
        if known is None or not known.work_constant:
            continue
        low, high = float(mine["value"].min()), float(mine["value"].max())  # type: ignore[arg-type]
        said = {
            "work": known.work_short,
            "sessions": mine.height,
            "variant": variant,
            "low": low,
            "high": high,
        }
        cells = tuple(mine["cell"].unique(maintain_order=True))
        if low == high:
            yield claim("work-constant", said, Estimate("work-constant", low, known.work_unit, low, high))
            continue
        nearly = high - low <= known.work_tolerance * high
        yield claim(
            "work-not-constant",
            said,
            (high - low) / high,
            case="nearly" if nearly else "varies",
            severity="note" if nearly else None,
            low=low,
            high=high,
            cells=cells,
        )


def executions(case: Case) -> Iterator[Claim]:
    """The engine's count of calls against the driver's."""
    table = case.tables["witnesses"].filter(pl.col("quantity") == "executions")
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
    """Sessions with failed calls: what those had done already is in the counters."""
    failed = case.tables["cell_sessions"].filter(pl.col("errors_total") > 0)
    return failed.select("cell", "session")


def changes(case: Case) -> Iterator[Claim]:
    """What only reads makes no WAL, and what changes rows does: by the sessions' own counters."""
    found: dict[bool, list[tuple[float, Row]]] = {False: [], True: []}
    for cell in case.usable():
        wal = _own_wal(case, cell["cell"])
        workload = case.workloads.get(cell["workload"])
        if wal is None or workload is None or workload.changes_with is None:
            continue
        found[_changes(case, cell["cell"], workload.changes_with)].append((wal, cell))
    for changing, cells in found.items():
        if cells:
            yield _written(case, changing, cells)


def _written(case: Case, changing: bool, cells: list[tuple[float, Row]]) -> Claim:
    wrong = [c for c in cells if (c[0] > 0) != changing]
    wal, cell = max(wrong or cells, key=lambda c: c[0])
    what = "change rows" if changing else "only read"
    said = {
        "what": what,
        "wal": f"{significant(wal)} bytes of WAL per call" if wal else "no WAL",
        "most": "at most " if len(cells) > 1 and wal else "",
        "place": at(cell, case),
        "measurements": case.many(len(wrong or cells)),
    }
    return claim(
        "writes-unexpected" if wrong else "writes-as-planned",
        said,
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
