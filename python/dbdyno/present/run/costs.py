"""Shows the costs of a call and of a unit of work: each figure at one load, and a line for each load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from dbdyno.model.plan.kinds import SERVED, current_kind
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.costs import (
    AT_LEAST,
    BY_ID,
    CALL,
    CLIENT_CPU,
    CPU,
    FIGURES,
    INCLUDED,
    INVOLUNTARY,
    NETWORK,
    NO_TICK,
    SERVER_WIDE,
    SMALL,
    SOME_WINDOWS,
    SYSTEM,
    SYSTEM_CALLS,
    USER,
    VOLUNTARY,
    WAL,
    WARM_UP,
    WORK,
)
from dbdyno.model.schema.data_sources.syscalls import SYSTEM_CALLS as TRACED_CALLS
from dbdyno.model.text.nouns import fill, noun
from dbdyno.model.units import NS_PER_S, format_amount, significant
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Column,
    Paragraph,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.figures import selection, sources_used
from dbdyno.present.figures.figures import grouped
from dbdyno.present.figures.selection import Pick, rows_of

TITLE = "Costs of {~a_call}"
_OF_COMMANDS = (CPU, USER, SYSTEM, VOLUNTARY, INVOLUNTARY, "read_bytes", "written_bytes", SYSTEM_CALLS)
"""Figures that executions of commands have; the others are those of a server."""
_NO_TICK = "too little CPU time to be divided by the kernel's ticks"
_SHORT = {INCLUDED: "included", SMALL: "small"}
"""Words for a background's share that is no figure of its own."""
_ORDER = {f.id: n for n, f in enumerate(FIGURES)}
_Row = Mapping[str, Any]
_Load = Mapping[str, _Row]
"""The rows of a load by figure."""


def of_load(results: Results, pick: Pick) -> list[Block]:
    """Returns every figure of a load: of a call, of a unit of work, and the background's share."""
    by_per = {per: _figures(results, pick, per) for per in (CALL, WORK)}
    calls = by_per[CALL]
    if not calls:
        return [Paragraph(fill("No costs: {~calls} were not made by dbdyno, or none was measured."), "muted")]
    work = results.info.workloads[pick.rung[0]].work_short if pick.rung[0] in results.info.workloads else ""
    amount, per_work = _amount("value"), by_per[WORK]

    def of_work(row: _Row) -> Cell:
        return amount(per_work[row["figure"]])

    columns: list[tuple[Column, Callable[[_Row], Cell]]] = [
        (Column(""), lambda row: word(BY_ID[row["figure"]].title)),
        (numeric(fill("per {~call}")), amount),
        (Column("95 % interval", rank=2), _interval),
    ]
    if per_work:
        columns.append((numeric(f"per {work or WORK}"), of_work))
    if current_kind().among((SERVED,)):
        columns.append((numeric("background")._replace(name=fill("background per {~call}")), _background))
    columns.append((Column("source", rank=4), lambda row: word(sources_used.named(row["source"]))))
    repeats = f", all {pick.repeats} repeats together" if pick.repeats > 1 else ""
    return [
        table(f"{fill(TITLE)} {pick.at}{repeats}", columns, calls.values(), named=True),
        *remarks(_notes(results, calls.values())),
    ]


def of_loads(results: Results) -> list[Block]:
    """Returns a line for each load, in the manner of Mark Callaghan's tables of costs per operation."""
    loads = [(p, rows) for p in selection.loads(results) if (rows := _figures(results, p, CALL))]
    if not loads:
        return []
    by_device = any("device_reads" in rows and rows["device_reads"]["value"] is not None for _, rows in loads)
    columns: list[tuple[Column, Callable[[_Item], Cell]]] = [
        (Column("load"), lambda item: word(item[0].label)),
        *_columns("device_" if by_device else ""),
    ]
    shown = [(c, cell) for c, cell in columns if not c.rank or any(cell(i).value for i in loads)]
    return [
        table(f"{fill(TITLE)}, every load", shown, loads, along_axis=True),
        *remarks([_legend(by_device)]),
    ]


def all_loads(results: Results, _: Pick) -> list[Block]:
    """Returns :func:`of_loads` for ``dbdyno show``, where there is more than one."""
    return of_loads(results) if len(selection.loads(results)) > 1 else []


def _figures(results: Results, pick: Pick, per: str) -> dict[str, _Row]:
    rows = (r for r in rows_of(results, "costs", pick).to_dicts() if r["per"] == per)
    shown = _ORDER if current_kind().among((SERVED,)) else _OF_COMMANDS
    return {r["figure"]: r for r in sorted(rows, key=lambda r: _ORDER[r["figure"]]) if r["figure"] in shown}


def _amount(name: str) -> Callable[[_Row], Cell]:
    return lambda row: known(row[name], lambda v: format_amount(v, row["unit"]), row["unit"])


def _interval(row: _Row) -> Cell:
    if row["low"] is None or row["high"] is None:
        return word("")
    return word(f"{format_amount(row['low'], row['unit'])} to {format_amount(row['high'], row['unit'])}")


def _background(row: _Row) -> Cell:
    status = row["background_status"]
    if status.startswith("none"):
        return word("")
    if status in _SHORT:
        return word(_SHORT[status], note=status)
    cell = _amount("background")(row)
    return cell._replace(text=f">= {cell.text}", note=status) if status.startswith(AT_LEAST) else cell


def _notes(results: Results, rows: Iterable[_Row]) -> Iterator[str]:
    """Yields the meaning of the columns, and why figures are unknown."""
    shown = [*rows]
    served = current_kind().among((SERVED,))
    if served:
        yield (
            "Background: what the server's own processes used in the window, divided by its calls. Included: "
            "the server's counter does not tell them apart. Small: its count hardly exceeds the sessions'."
        )
    if wide := [r for r in shown if served and r["value"] is not None and SERVER_WIDE in r["source"]]:
        yield f"Server-wide, so the work of other clients is in it: {_listed(wide)}."
    if devices := [r for r in shown if BY_ID[r["figure"]].device and r["value"] is not None]:
        yield f"Of the whole device, so other programs' work is in it: {_listed(devices)}."
    if warm := [r for r in shown if r["source"].endswith(WARM_UP)]:
        yield (
            f"Warm-up included: {_listed(warm)}. Sessions are counted from their first call, and the "
            "server's count of the window alone does not show as much."
        )
    if any(r["figure"].startswith(("wal_", "writ")) and r["value"] is not None for r in shown if served):
        yield (
            "Reads, writes and WAL are from the server's own counters, not its statistics of statements: "
            "what commits write and sync is in them."
        )
    unknown = grouped((_why(results, r), r) for r in shown if r["value"] is None)
    for reason, of_reason in unknown.items():
        yield f"{UNKNOWN} {_listed(of_reason)}: {reason}."
    for name, where in (("status", ""), ("background_status", ", in the background")):
        some = grouped((r[name], r) for r in shown if r[name].endswith(SOME_WINDOWS))
        for status, of_status in some.items():
            yield f"From {status}{where}: {_listed(of_status)}."
    behind = [r for r in shown if r["value"] is not None and _background(r).text == UNKNOWN]
    bounds = [r for r in shown if served and r["background_status"].startswith(AT_LEAST)]
    for status, of_status in grouped((r["background_status"], r) for r in bounds).items():
        yield f">= in the background, {_listed(of_status)}: {status.removeprefix(AT_LEAST)}."
    for status, of_status in grouped((r["background_status"], r) for r in behind if served).items():
        why = _NO_TICK if status == NO_TICK else sources_used.in_words(status)
        yield f"{UNKNOWN} in the background, {_listed(of_status)}: {why}."


def _listed(rows: Iterable[_Row]) -> str:
    return ", ".join(BY_ID[r["figure"]].title for r in rows)


def _why(results: Results, row: _Row) -> str:
    if row["status"] == "not permitted":  # a source says which right is missing, and how to get it
        source = pl.col("name") == row["source"].partition(",")[0]
        details = results.tables["sources"].filter(source & (pl.col("status") == row["status"]))["detail"]
        return next(filter(None, details), "a right is missing: dbdyno doctor names it")
    if row["status"] != "off":
        return sources_used.in_words(row["status"])
    if row["figure"] == SYSTEM_CALLS:
        return TRACED_CALLS.cures["off"]
    return "no device was read" if row["figure"].startswith("device") else sources_used.in_words("off")


_Item = tuple[Pick, _Load]


def _columns(device: str) -> Iterator[tuple[Column, Callable[[_Item], Cell]]]:
    served = current_kind().among((SERVED,))
    yield numeric("cpu/o"), _of(CPU, scale=1e6 / NS_PER_S)
    if served:
        yield numeric("cli/o", 3), _of(CLIENT_CPU, scale=1e6 / NS_PER_S)
    yield numeric("cs/o"), _of(VOLUNTARY, INVOLUNTARY)
    if served:
        yield numeric("lr/o", 2), _of("logical_reads")
        yield numeric("r/o"), _of(f"{device}reads")
    yield numeric("rKB/o"), _of(f"{device}read_bytes", scale=1 / 1024)
    if served:
        yield numeric("w/o", 4), _of(f"{device}writes")
    yield numeric("wKB/o"), _of(f"{device}written_bytes", scale=1 / 1024)
    if served:
        yield numeric("walKB/o", 1), _of(WAL, scale=1 / 1024)
        yield numeric("netKB/o", 5), _of(NETWORK, scale=1 / 1024)


def _of(*names: str, scale: float = 1.0) -> Callable[[_Item], Cell]:
    def cell(item: _Item) -> Cell:
        parts = [_whole(item[1], n) for n in names]
        total = None if None in parts else scale * sum(p for p in parts if p is not None)
        lacking = any(item[1][n]["background_status"].startswith(AT_LEAST) for n in names)
        return known(total, lambda v: f"{'>= ' if lacking else ''}{significant(v)}")

    return cell


def _whole(rows: _Load, figure: str) -> float | None:
    """Returns a figure of sessions and background together; None if either is unknown."""
    row = rows[figure]
    apart = not row["background_status"].startswith("none") and row["background_status"] not in _SHORT
    if row["value"] is None or (apart and row["background"] is None and current_kind().among((SERVED,))):
        return None
    return float(row["value"] + (row["background"] or 0.0))


def _legend(by_device: bool) -> str:
    if not current_kind().among((SERVED,)):
        return (
            f"o: {noun('call')}; cpu/o: CPU in us; cs/o: context switches; rKB/o, wKB/o: KiB read from "
            "devices and written to them."
        )
    storage = (
        "by the devices, whoever used them"
        if by_device
        else "as the server asked the operating system, whose cache may have had it"
    )
    return (
        "o: call, sessions and background together; cpu/o: CPU in us; cli/o: CPU of the client in us; cs/o: "
        "context switches; lr/o: logical reads; r/o, rKB/o: reads and KiB read, w/o, wKB/o: writes and KiB "
        f"written, {storage}; walKB/o: KiB of WAL; netKB/o: KiB over the network."
    )
