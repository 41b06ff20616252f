"""Shows system calls: number, errors, time, CPU time inside, shares, and sizes of transfers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results.ledger_rows import account_rows
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.syscalls import SYSTEM_CALLS
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.nouns import fill
from dbdyno.model.units import NS_PER_S, counted, format_count, format_ns, format_rate, significant
from dbdyno.present.document.document import (
    Block,
    Cell,
    Column,
    Paragraph,
    known,
    numeric,
    optional,
    remarks,
    table,
    word,
)
from dbdyno.present.figures.figures import percent
from dbdyno.present.figures.selection import Pick, rows_of

TOTAL = "TOTAL"
_SHOWN = 25
"""Most system calls (by CPU time), sessions and other processes; the export has more."""
_MEANS = (
    "elapsed: from entry to exit. CPU: on a CPU inside. % {~db_time}: without sleep for {~client}. % CPU: of "
    "all their CPU time. A call in progress at an end of the window has its time inside the window here, and "
    "is counted when it returns."
)
_VDSO = "Clock reads that stay in the vDSO (clock_gettime, gettimeofday) are no system calls"
_Row = dict[str, Any]


def traced(results: Results) -> bool:
    """Returns whether system calls were traced."""
    return bool(results.tables.get("system_calls", empty("system_calls")).height)


def tables(results: Results, pick: Pick) -> list[Block]:
    """Returns all sessions together, each session, other processes and sizes, then notes."""
    frame = rows_of(results, "system_calls", pick)
    sessions = frame.filter(pl.col("who") == "rung")
    if sessions.is_empty():
        return [Paragraph(f"No system calls: {_why(results)}", "muted")]
    total = _total(sessions, TOTAL)
    some = sessions.sort("cpu_ns", "time_ns", descending=True, nulls_last=True).head(_SHOWN)
    repeats = f", all {pick.repeats} repeats together" if pick.repeats > 1 else ""
    rows = [*some.to_dicts(), total]
    return [
        table(f"System calls {pick.at}{repeats}, by CPU time", _useful(rows), rows, named=True),
        *remarks(_notes(results, sessions, total, pick)),
        *_sizes(rows_of(results, "system_call_sizes", pick)),
        *_each(results, frame, pick),
    ]


def _total(frame: pl.DataFrame, name: str) -> _Row:
    """Returns all system calls in ``frame`` as one row of sums and summed shares."""
    bases = ("wall_s", "db_time_s", "cpu_s", "work_calls", "work_units", "who", "session")
    sums = {n: _sum(frame[n]) for n in frame.columns if n not in bases and frame[n].dtype.is_numeric()}
    return {**frame.row(0, named=True), **sums, "name": name}


def _sum(column: pl.Series) -> Any:
    return None if column.null_count() else column.sum()


def _each(results: Results, frame: pl.DataFrame, pick: Pick) -> list[Block]:
    """Returns one row per session of the cell, and one per kind of other processes."""
    own = results.of_cell("system_calls", pick.cell) if pick.cell is not None else frame
    tables: list[Block] = []
    for who, title, where in (
        (pl.col("who") == "session", "by session", own),
        (~pl.col("who").is_in(["session", "rung"]), "of other processes", frame),
    ):
        groups = where.filter(who).sort("session", "who").group_by("session", "who", maintain_order=True)
        rows = [_total(group, _whose(group)) | {"top": _top(group)} for _, group in groups]
        if len(rows) > (1 if title == "by session" else 0):
            shown = rows[:_SHOWN]
            columns = [
                (Column("whose"), _name),
                _COLUMNS[1],
                *_useful(shown)[3:],
                (Column("most CPU in", rank=2), _most),
            ]
            tables.append(table(f"System calls {title}", columns, shown))
    return tables


def _whose(frame: pl.DataFrame) -> str:
    who, session = frame["who"][0], frame["session"][0]
    return f"session {session}" if who == "session" else str(who).removeprefix("helper:")


def _top(frame: pl.DataFrame) -> str:
    return str(frame.sort("cpu_ns", descending=True, nulls_last=True)["name"][0])


def _sizes(frame: pl.DataFrame) -> list[Block]:
    rows = frame.filter(pl.col("who") == "rung").sort("name", "size_bytes")
    if rows.is_empty():
        return []
    shares = rows.with_columns(share=pl.col("calls") / pl.col("calls").sum().over("name"))
    return [table("Sizes of transfers", _SIZE, shares.to_dicts())]


def _notes(results: Results, frame: pl.DataFrame, total: _Row, pick: Pick) -> list[str]:
    notes = [_inside(results, total, pick), fill(_MEANS), _clock_reads(results, pick)]
    if unclear := _sum(frame["unclear"]):
        notes.append(
            f"The CPU time of {counted(unclear, 'system call')} is a lower bound: a switch was not seen."
        )
    if len(frame) > _SHOWN:
        notes.append(f"{len(frame) - _SHOWN} more are in the JSON document and the workbook.")
    if any(status == "lost" for status, _ in _source(results)):
        notes.append(f"Some were lost: {SYSTEM_CALLS.cures['lost']}.")
    return [n for n in notes if n]


def _inside(results: Results, total: _Row, pick: Pick) -> str:
    """Returns a note on how much of the kernel's CPU time is inside system calls."""
    if pick.cell is None or total["cpu_ns"] is None or pick.repeats > 1:
        return ""
    ledger = account_rows(results.of_cell("ledger", pick.cell), "run.system")
    inside = total["cpu_ns"] / NS_PER_S / total["wall_s"]
    if ledger.is_empty() or ledger["aas"].null_count():
        return f"CPU time inside system calls: {significant(inside)} s/s."
    kernel, low, high = (significant(float(ledger[n].sum())) for n in ("aas", "low", "high"))
    return (
        f"CPU time inside system calls: {significant(inside)} s/s. In the kernel: {kernel} s/s ({low} to "
        f"{high}), page faults and interrupts included."
    )


def _clock_reads(results: Results, pick: Pick) -> str:
    """Returns a note on clock reads in the vDSO, which are no system calls, from the CPU profile if there
    is one."""
    modules = rows_of(results, "cpu_profile", pick).filter(
        (pl.col("who") == "rung") & (pl.col("by") == "module")
    )
    if modules.is_empty() or not (whole := float(modules["aas"].sum())):
        return f"{_VDSO}; their share of CPU is in a CPU profile, in the module vdso: measure with --profile."
    vdso = modules.filter(pl.col("name") == "vdso").select("aas", "low", "high").rows()
    if not vdso:
        return f"{_VDSO}; no sample of the CPU profile was in the vDSO."
    share, low, high = (percent(v, whole, digits=1) for v in vdso[0])
    return f"{_VDSO}; they are {share} % of CPU ({low} to {high} %; CPU profile, module vdso)."


def _source(results: Results) -> list[tuple[str, str]]:
    sources = results.tables["sources"].filter(pl.col("name") == SYSTEM_CALLS.name)
    return sources.select("status", "detail").rows()


def _why(results: Results) -> str:
    trace = results.tables["sources"].filter(
        (pl.col("name") == "scheduler trace") & (pl.col("status") != "ok") & (pl.col("detail") != "")
    )
    details = [d for s, d in _source(results) if s != "ok" and d] or trace["detail"].to_list()
    return (details or [SYSTEM_CALLS.cures["off"]])[0]


def _name(row: _Row) -> Cell:
    return word(row["name"])


def _most(row: _Row) -> Cell:
    return word(row["top"])


def _time(name: str) -> Callable[[_Row], Cell]:
    return lambda r: known(r[name], format_ns, "ns")


def _share(name: str) -> Callable[[_Row], Cell]:
    def cell(row: _Row) -> Cell:
        share = row[name]
        shown = known(share, lambda v: percent(v, digits=1))
        return (
            shown
            if share is None or row["name"] == TOTAL
            else shown._replace(bar=((min(1.0, share), "accent"),))
        )

    return cell


def _mean(part: str) -> Callable[[_Row], Cell]:
    return lambda r: optional(
        r[part] / r["calls"] if r["calls"] and r[part] is not None else None, format_ns, "ns"
    )


def _transferred(row: _Row) -> Cell:
    """Returns bytes per successful call."""
    good = (row["calls"] or 0) - (row["errors"] or 0)
    return optional(row["bytes"] / good if row["bytes"] and good else None, _bytes, "bytes")


def _bytes(value: float) -> str:
    text = format_rate(value)
    return f"{text}B" if value >= 1e3 else f"{text} B"


def _useful(rows: list[_Row]) -> list[tuple[Column, Callable[[_Row], Cell]]]:
    """Returns the columns that are not empty."""
    return [(c, cell) for c, cell in _COLUMNS if not c.rank or any(cell(r).value for r in rows)]


_COLUMNS: tuple[tuple[Column, Callable[[_Row], Cell]], ...] = (
    (Column("system call"), _name),
    (numeric("calls"), lambda r: known(r["calls"], format_count)),
    (numeric("% calls"), _share("calls_share")),
    (numeric("errors"), lambda r: known(r["errors"], format_count)),
    (numeric("elapsed"), _time("time_ns")),
    (numeric("% DB")._replace(name="% {~db_time}"), _share("db_time_share")),
    (numeric("CPU"), _time("cpu_ns")),
    (numeric("% CPU"), _share("cpu_share")),
    (numeric("CPU WAIT", 1), _time("runq_ns")),
    (numeric("per call", 3), lambda r: optional(r["per_call"], significant)),
    (
        numeric("CPU/call", 4)._replace(note="of the workload"),
        lambda r: optional(r["cpu_per_call_ns"], format_ns, "ns"),
    ),
    (numeric("per unit", 5)._replace(note="of work"), lambda r: optional(r["per_work"], significant)),
    (
        numeric("CPU/unit", 5)._replace(note="of work"),
        lambda r: optional(r["cpu_per_work_ns"], format_ns, "ns"),
    ),
    (numeric("mean CPU", 6), _mean("cpu_ns")),
    (numeric("mean", 6), _mean("time_ns")),
    (numeric("bytes/call", 7), _transferred),
)
_SIZE: tuple[tuple[Column, Callable[[_Row], Cell]], ...] = (
    (Column("system call"), _name),
    (numeric("bytes"), lambda r: known(r["size_bytes"], _power, "bytes")),
    (numeric("calls"), lambda r: known(r["calls"], format_count)),
    (numeric("%"), _share("share")),
)


def _power(value: float) -> str:
    """Returns a bucket of sizes by its lower end, a power of two: ``>= 8 KiB``."""
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f">= {value / size:.0f} {unit}"
    return f">= {value:.0f} B" if value > 1 else f"{value:.0f} B"
