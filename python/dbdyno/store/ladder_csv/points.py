"""From fields of text to the points of a ladder: every number checked, every unit made the contract's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import POINTS
from dbdyno.store.ladder_csv.headings import is_time_unit
from dbdyno.store.ladder_csv.quantities import quantities
from dbdyno.store.ladder_csv.reading import Reading, Record, option_of
from dbdyno.store.ladder_csv.vocabulary import TIMES
from dbdyno.store.table_cells import is_missing, number, with_unit
from dbdyno.store.table_text import Line, Sheet

if TYPE_CHECKING:
    from dbdyno.store.ladder_csv import Column

_TIMES = ("response_s", "response_p95_s", "duration")
MOST = 1e30
"""Figures beyond are none that were measured, and their squares no numbers."""
_EMPTY = "leave the field empty where it was not measured"


def records_of(table: Sheet, found: Mapping[str, Column]) -> list[Record]:
    """Raises UsageError with the line of whatever is no good number."""
    made = []
    for line in table.lines:
        values = {role: _value(table, line, role, c) for role, c in found.items() if role != "repeat"}
        made.append(Record(line, values, line.fields[found["repeat"].index] if "repeat" in found else None))
    if not made:
        raise UsageError(
            f"{table.source} has no line of numbers", "a header, then one line per load: sessions,throughput"
        )
    return made


def _value(table: Sheet, line: Line, role: str, column: Column) -> float | None:
    text, place = line.fields[column.index], table.where(line, column.index)
    needed = role in ("load", "throughput")
    if is_missing(text):
        if needed:
            raise UsageError(f"{place}: no value", "leave out lines that were not measured")
        return None
    try:
        value = _in_unit(text, column.kind.unit)
        if value is None:
            value = table.number(line, column.index, "%" if column.kind.unit == "%" else "")
    except UsageError as e:
        if needed or role == "cpu_per_unit":
            raise
        raise UsageError(e.message, f"{e.cure}; {option_of(role)} none leaves the column out") from None
    if not math.isfinite(value):
        raise UsageError(
            f"{place}: {text} is not a measured value", "leave the line out" if needed else _EMPTY
        )
    _in_range(place, text, value, role)
    return value


def _in_unit(text: str, unit: str) -> float | None:
    """``1900us`` in a column of ``unit``; ``None``: it is no time, or the column is none of times."""
    cell = with_unit(text)
    own = is_time_unit(cell[1]) if cell is not None and unit in TIMES else None
    value = number(cell[0], ".") if cell is not None and own is not None else None
    return None if value is None or own is None else value * TIMES[own] / TIMES[unit]


def _in_range(place: str, text: str, value: float, role: str) -> None:
    if value < 0:
        raise UsageError(f"{place}: {text} is negative", "a ladder has no negative figures: measure again")
    if role == "throughput" and value == 0:
        raise UsageError(f"{place} is zero: nothing was done there", "leave out loads without work")
    if role == "load" and value == 0:
        raise UsageError(f"{place} is zero: no load", "leave the line out: a ladder begins above 0")
    if value > MOST:
        raise UsageError(f"{place}: {text} is out of range", "at most 1e30")
    if role in _TIMES and value == 0:
        raise UsageError(f"{place} is zero: no work takes no time", _EMPTY)


def to_points(reading: Reading) -> tuple[pl.DataFrame, str]:
    """Points by load and repeat, and the unit of throughput; ``reading.notes`` says what was decided."""
    columns, unit = quantities(reading)
    loads = columns["load"]
    repeats = _repeats(reading.records, "repeat" in reading.found, reading.notes)
    if not _climbs(loads, repeats):
        reading.notes.append("the lines were not in the order of load: sorted")
    empty = [None] * len(loads)
    data = {name: repeats if name == "repeat" else columns.get(name, empty) for name in POINTS}
    return pl.DataFrame(data, schema=POINTS).sort("load", "repeat"), unit


def _climbs(loads: Sequence[float | None], repeats: Sequence[int]) -> bool:
    """Whether loads rise within each repeat."""
    highest: dict[int, float] = {}
    for load, repeat in zip(loads, repeats, strict=True):
        if (load or 0) < highest.get(repeat, 0):
            return False
        highest[repeat] = load or 0
    return True


def _repeats(records: Sequence[Record], is_told: bool, notes: list[str]) -> list[int]:
    """As told, by first appearance; without, the second line of a load is its second repeat."""
    order = {name: i for i, name in enumerate(dict.fromkeys(r.repeat for r in records), start=1)}
    seen: set[tuple[float | None, int]] = set()
    made = []
    for r in records:
        repeat = order[r.repeat] if is_told else 1
        while (r.values["load"], repeat) in seen:
            repeat += 1
        seen.add((r.values["load"], repeat))
        made.append(repeat)
    if len({(r.values["load"], r.repeat) for r in records}) < len(records):
        notes.append("some loads are there more than once: taken as repeats, in the order of the lines")
    return made
