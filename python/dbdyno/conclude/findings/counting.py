"""Was everything counted, and does it agree?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.claims import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids, listed, many, sentence
from dbdyno.model.claim import Claim
from dbdyno.model.units import significant

LOST_SQLSTATE = "08006"


def sessions_lost(case: Case) -> Iterator[Claim]:
    """Sessions whose connection broke; their calls until then are counted."""
    for cell in case.cells():
        mine = case.tables["cell_sessions"].filter(pl.col("cell") == cell["cell"])
        lost = mine.filter(pl.col("end_reason") == "lost")
        if lost.is_empty():
            continue
        words = listed(lost["end_detail"].drop_nulls().to_list(), 2)
        yield claim(
            id="sessions-lost",
            severity="warning",
            text=f"Sessions lost {at(cell, case)}: {lost.height} of {mine.height}: {words}. "
            "Their calls are counted until their last end.",
            value=float(lost.height),
            unit="sessions",
            evidence="driver: table sessions, end_reason",
            advice="see the server's log; measure that rung again",
            cells=(cell["cell"],),
        )


def no_calls(case: Case) -> Iterator[Claim]:
    """Windows that sessions spent in calls that began before them, or ended after them."""
    for cell in case.cells():
        mine = case.tables["cell_sessions"].filter(pl.col("cell") == cell["cell"])
        if mine.is_empty() or int((mine["calls"] + mine["errors"]).sum()) > 0:
            continue
        yield claim(
            id="no-calls",
            severity="warning",
            text=f"No call began within the window and was answered {at(cell, case)}: throughput and "
            "response time are unknown.",
            value=0.0,
            unit="calls",
            evidence="driver: table sessions, calls and errors",
            advice="a call takes longer than the window, or the server did not answer: --measure longer than "
            "a call, or see the server's log",
            cells=(cell["cell"],),
        )


def errors(case: Case) -> Iterator[Claim]:
    """One finding for each SQLSTATE."""
    table = case.tables["cell_errors"].filter(pl.col("sqlstate") != LOST_SQLSTATE)
    calls = case.tables["cell_sessions"].select((pl.col("calls_total") + pl.col("errors_total")).sum()).item()
    grouped = table.group_by("sqlstate", maintain_order=True).agg(
        pl.col("count").sum(), pl.col("message").first(), pl.col("cell").unique(maintain_order=True)
    )
    for row in grouped.sort("count", descending=True).iter_rows(named=True):
        yield claim(
            id=f"errors-{row['sqlstate']}",
            severity="warning",
            text=f"{row['count']:,} of {calls:,} calls ended in SQLSTATE {row['sqlstate']}: {row['message']}",
            value=float(row["count"]),
            unit="calls",
            evidence="driver: table errors, from the barrier on",
            advice="mend the statement or the server; failed calls are in no rate",
            cells=tuple(row["cell"]),
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
        name = f"{known.work_short} per call"
        evidence = f"engine counters, probes taken off, over all calls of {mine.height} sessions"
        cells = tuple(mine["cell"].unique(maintain_order=True))
        if low == high:
            yield claim(
                id="work-constant",
                severity="good",
                text=f"{sentence(name)} constant in all {many(mine.height, 'session')} of {variant}: "
                f"{low:,.10g}.",
                value=low,
                unit=known.work_unit,
                low=low,
                high=high,
                evidence=evidence,
            )
            continue
        nearly = high - low <= known.work_tolerance * high
        yield claim(
            id="work-not-constant",
            severity="note" if nearly else "warning",
            text=f"{sentence(name)} is {'nearly' if nearly else 'not'} constant: {low:,.10g} to "
            f"{high:,.10g} in {many(mine.height, 'session')} of {variant}.",
            value=(high - low) / high,
            unit="relative spread",
            low=low,
            high=high,
            evidence=evidence,
            advice=""
            if nearly
            else "look for a changed plan, autovacuum or a cold cache; rates in work units are means",
            cells=cells,
        )


def executions(case: Case) -> Iterator[Claim]:
    """The engine's count of calls against the driver's."""
    table = case.tables["witnesses"].filter(pl.col("quantity") == "executions")
    engine = table.filter(pl.col("source") != "driver").drop_nulls("value")
    differing = engine.filter(pl.col("verdict") == "differs")
    if engine.height and differing.is_empty():
        total, by_work = float(engine["value"].sum()), engine["source"][0].endswith("by work")
        yield claim(
            id="executions-agree",
            severity="good",
            text=f"The server {'did the work of exactly' if by_work else 'counted'} the driver's calls "
            f"in all {case.many(engine.height)}: {total:,.0f}.",
            value=total,
            unit="calls",
            evidence="table witnesses, executions",
        )
    if differing.height:
        worst = float(differing["relative_difference"].abs().max())  # type: ignore[arg-type]
        yield claim(
            id="executions-disagree",
            severity="warning",
            text="The server's count of calls differs from the driver's by up to "
            f"{significant(100 * worst)} % in {case.many(differing.height)}.",
            value=worst,
            unit="relative difference",
            evidence="table witnesses, executions",
            advice="does something else use these sessions' role, or was a counter reset?",
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
    made = f"{significant(wal)} bytes of WAL a call" if wal else "no WAL"
    if wrong:
        text = f"Calls that {what} made {made} {at(cell, case)} ({case.many(len(wrong))})."
    else:
        most = "at most " if len(cells) > 1 and wal else ""
        text = f"Calls that {what} made {most}{made} in {case.many(len(cells))}."
    cures = {
        True: "is nothing changed, or are the tables unlogged? See the errors",
        False: "what others changed in these blocks is tidied up by their readers: dbdyno clean, and again",
    }
    return claim(
        id="writes-unexpected" if wrong else "writes-as-planned",
        severity="warning" if wrong else "good",
        text=text,
        value=wal,
        unit="bytes per call",
        evidence="engine counters of the sessions: WAL, probes taken off",
        advice=cures[changing] if wrong else "",
        cells=ids([c for _, c in wrong or cells]),
    )


def _own_wal(case: Case, cell: str) -> float | None:
    rates = case.table("rates", cell).filter(
        (pl.col("scope") == "rung")
        & (pl.col("name") == "wal_bytes_per_call")
        & ~pl.col("source").str.contains("server")
    )
    return rates["value"].item() if rates.height else None


def _changes(case: Case, cell: str, parameter: str) -> bool:
    planned = {c.id: c for c in case.plan.cells}
    return cell in planned and float(planned[cell].params.get(parameter) or 0) > 0
