"""Converts text fields to the points of a ladder: checks every number, and converts units."""

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
"""Bound of figures: larger ones are no measurements, and their squares overflow."""
_EMPTY = "leave the field empty where it was not measured"


def records_of(table: Sheet, by_role: Mapping[str, Column]) -> list[Record]:
    """Returns the numbers of each line. Raises UsageError with the line of an invalid one."""
    records = []
    for line in table.lines:
        values = {role: _value(table, line, role, c) for role, c in by_role.items() if role != "repeat"}
        records.append(
            Record(line, values, line.fields[by_role["repeat"].index] if "repeat" in by_role else None)
        )
    if not records:
        raise UsageError(
            f"{table.source} has no line of numbers", "a header, then one line per load: sessions,throughput"
        )
    return records


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
    """Converts ``1900us`` in a column of ``unit``; None if the cell or the column is no time."""
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
    """Returns points by load and repeat, and the unit of throughput. Decisions are added to
    ``reading.notes``."""
    columns, unit = quantities(reading)
    loads = columns["load"]
    repeats = _repeats(reading.records, "repeat" in reading.by_role, reading.notes)
    if not _climbs(loads, repeats):
        reading.notes.append("the lines were not in the order of load: sorted")
    empty = [None] * len(loads)
    data = {name: repeats if name == "repeat" else columns.get(name, empty) for name in POINTS}
    return pl.DataFrame(data, schema=POINTS).sort("load", "repeat"), unit


def _climbs(loads: Sequence[float | None], repeats: Sequence[int]) -> bool:
    """Returns whether loads rise within each repeat."""
    highest: dict[int, float] = {}
    for load, repeat in zip(loads, repeats, strict=True):
        if (load or 0) < highest.get(repeat, 0):
            return False
        highest[repeat] = load or 0
    return True


def _repeats(records: Sequence[Record], has_column: bool, notes: list[str]) -> list[int]:
    """Returns repeat numbers from the repeat column; without one, the n-th line of a load is repeat n."""
    order = {name: i for i, name in enumerate(dict.fromkeys(r.repeat for r in records), start=1)}
    used: set[tuple[float | None, int]] = set()
    repeats = []
    for r in records:
        repeat = order[r.repeat] if has_column else 1
        while (r.values["load"], repeat) in used:
            repeat += 1
        used.add((r.values["load"], repeat))
        repeats.append(repeat)
    if len({(r.values["load"], r.repeat) for r in records}) < len(records):
        notes.append("some loads are there more than once: taken as repeats, in the order of the lines")
    return repeats
