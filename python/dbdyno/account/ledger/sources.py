"""Source against source: the same quantity from every witness, with relative differences and a verdict.

The first witness of a quantity that knows is the reference; another agrees where it differs by no more than
the stated tolerance. A ``reason`` says where a tolerance comes from and what a difference may mean: some
witnesses measure something else, and are shown for that ("active without wait event" is not CPU time).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from dbdyno.account.ledger.source_cpu import cpu, machine, runnable, sessions_cpu
from dbdyno.account.ledger.source_reading import TOLERANCE, SourceReading, Tables, rung
from dbdyno.account.ledger.source_time import db_time
from dbdyno.account.ledger.source_work import executions, logical_reads, work
from dbdyno.model.column import CELL
from dbdyno.model.tables import ByCell, empty, rows

_CELL = [c.name for c in CELL]
_NEEDED = (
    *("windows", "rates", "cell_sessions", "cell_sources", "events"),
    *("cut_tasks", "cut_work", "cut_levels", "cut_traced", "cut_waits"),
)
_OBSERVED = (cpu, sessions_cpu, machine, db_time, runnable, executions, work, logical_reads)


def witnesses(cut: Tables, ledger: pl.DataFrame) -> pl.DataFrame:
    """Table ``witnesses`` of all cells."""
    made: list[dict[str, Any]] = []
    tables = {name: cut.get(name, empty(name)) for name in _NEEDED}
    parts = ByCell({**tables, "ledger": ledger})
    for cell in cut["windows"]["cell"]:
        mine = parts.of(cell)
        window = mine["windows"].row(0, named=True)
        head = {name: window[name] for name in _CELL}
        heard = [t for hear in _OBSERVED for t in hear(mine)]
        made += [head | row for row in _judged(heard, mine["ledger"], window["wall_s"])]
    return rows("witnesses", made)


def _judged(heard: list[SourceReading], ledger: pl.DataFrame, wall_s: float) -> Iterator[dict[str, Any]]:
    references: dict[str, float] = {}
    for t in heard:
        row = {name: getattr(t, name) for name in ("quantity", "source", "value", "unit", "status")}
        row |= {"relative_difference": None, "verdict": "unknown", "reason": t.reason or None}
        if t.value is not None and t.quantity not in references:
            references[t.quantity] = t.value
            row["verdict"] = "reference"
        elif t.value is not None:
            reference = references[t.quantity]
            difference = t.value - reference
            row["tolerance"] = _tolerance(t, reference, wall_s)
            row["relative_difference"] = difference / reference if reference else None
            agrees = abs(difference) <= row["tolerance"] or _inside(t, reference, ledger)
            row["verdict"] = "agrees" if agrees else "differs"
        yield row


def _tolerance(t: SourceReading, reference: float, wall_s: float) -> float:
    relative, absolute = TOLERANCE[t.quantity]
    return max((relative + t.lag_s / wall_s) * abs(reference), absolute)


def _inside(t: SourceReading, reference: float, ledger: pl.DataFrame) -> bool:
    """The samples' own interval holds the reference."""
    if t.interval_of is None:
        return False
    memo = rung(ledger, t.interval_of, "memo")
    low, high = memo["low"].min(), memo["high"].max()
    return isinstance(low, float) and isinstance(high, float) and low <= reference <= high
