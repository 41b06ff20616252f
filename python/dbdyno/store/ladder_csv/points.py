"""From fields of text to the points of a ladder: every number checked, every unit made the contract's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from dbdyno.model.analyses import POINTS
from dbdyno.model.errors import UsageError
from dbdyno.store.ladder_csv.headings import TIMES, Named
from dbdyno.store.ladder_csv.text import Line, Sheet, is_missing

_CPU = ("cpu", "cpu_user", "cpu_system", "cpu_wait")
_TIMES = ("response_s", "response_p95_s")
MOST = 1e30
"""Figures beyond are none that were measured, and their squares no numbers."""
_EMPTY = "leave the field empty where it was not measured"


class Placed(Protocol):
    """A column: where it is, what it is called, what it holds."""

    @property
    def index(self) -> int: ...
    @property
    def heading(self) -> str: ...
    @property
    def kind(self) -> Named: ...


@dataclass(frozen=True)
class Record:
    """One line: its fields, and the numbers in the columns that are used."""

    line: int
    fields: tuple[str, ...]
    values: Mapping[str, float | None]
    repeat: str | None


def records_of(table: Sheet, found: Mapping[str, Placed]) -> list[Record]:
    """Raises UsageError with the line of whatever is no good number."""
    made = []
    for line in table.lines:
        values = {role: _value(table, line, role, c.index) for role, c in found.items() if role != "repeat"}
        repeat = line.fields[found["repeat"].index] if "repeat" in found else None
        made.append(Record(line.number, line.fields, values, repeat))
    return made


def _value(table: Sheet, line: Line, role: str, index: int) -> float | None:
    text, place = line.fields[index], table.where(line, index)
    needed = role in ("load", "throughput")
    if is_missing(text):
        if needed:
            raise UsageError(f"{place}: no value", "leave out lines that were not measured")
        return None
    value = table.number(line, index)
    if not math.isfinite(value):
        raise UsageError(
            f"{place}: {text} is not a measured value", "leave the line out" if needed else _EMPTY
        )
    _in_range(place, text, value, role)
    return value


def _in_range(place: str, text: str, value: float, role: str) -> None:
    if value < 0:
        raise UsageError(f"{place}: {text} is negative", "a ladder has no negative figures: measure again")
    if role == "throughput" and value == 0:
        raise UsageError(f"{place} is zero: nothing was done there", "leave out loads without work")
    if role == "load" and value == 0:
        raise UsageError(f"{place} is zero: no load", "leave the line out: a ladder begins above 0")
    if value > MOST:
        raise UsageError(f"{place}: {text} is out of range", "at most 1e30")
    if role in (*_TIMES, "duration") and value == 0:
        raise UsageError(f"{place} is zero: no work takes no time", _EMPTY)


def to_points(
    source: str, found: Mapping[str, Placed], records: Sequence[Record], unit: str | None, cpus: float | None
) -> tuple[pl.DataFrame, list[str]]:
    """Points by load and repeat, and notes of what was put in order.

    ``unit``: of response times without one; ``cpus``: what 100 % CPU is."""
    if not records:
        raise UsageError(
            f"{source} has no line of numbers", "a header, then one line per load: sessions,throughput"
        )
    notes: list[str] = []
    loads = [r.values["load"] for r in records]
    columns: dict[str, list[float | None]] = {
        "load": loads,
        "throughput": [(r.values["throughput"] or 0) * found["throughput"].kind.factor for r in records],
    }
    for role in _TIMES:
        if role in found:
            columns[role] = _seconds(source, found[role], records, role, unit, columns, notes)
    for role in _CPU:
        made = _cpu(found, records, role, columns["throughput"], cpus, notes)
        if made is not None:
            columns[role] = made
    repeats = _repeats(records, "repeat" in found, notes)
    if not _climbs(loads, repeats):
        notes.append("the lines were not in the order of load: sorted")
    empty = [None] * len(records)
    data = {name: repeats if name == "repeat" else columns.get(name, empty) for name in POINTS}
    return pl.DataFrame(data, schema=POINTS).sort("load", "repeat"), notes


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


def _seconds(
    source: str,
    column: Placed,
    records: Sequence[Record],
    role: str,
    unit: str | None,
    columns: Mapping[str, Sequence[float | None]],
    notes: list[str],
) -> list[float | None]:
    raw = [r.values[role] for r in records]
    known = column.kind.unit if column.kind.unit in TIMES else unit
    if known is None:
        known = _by_little(columns, raw)
        if known is None:
            raise UsageError(
                f"{source}: {column.heading} has no unit, and none agrees with sessions / throughput",
                "name it in the header (response_ms), or with --response-unit ms",
            )
        notes.append(f"{column.heading} has no unit: taken for {known}, as sessions / throughput has it")
    return [None if v is None else v * TIMES[known] for v in raw]


def _by_little(columns: Mapping[str, Sequence[float | None]], raw: Sequence[float | None]) -> str | None:
    """The unit with which throughput x response time comes nearest to the sessions: Little's law, R X <= N
    for a closed system, and above a thirtieth of it unless sessions think 30 times longer than they wait."""
    shares = sorted(
        v * x / n
        for v, x, n in zip(raw, columns["throughput"], columns["load"], strict=True)
        if v and x and n
    )
    if not shares:
        return None
    middle = shares[len(shares) // 2]
    return next((u for u, factor in TIMES.items() if 1 / 30 <= middle * factor <= 3), None)


def _cpu(
    found: Mapping[str, Placed],
    records: Sequence[Record],
    role: str,
    throughput: Sequence[float | None],
    cpus: float | None,
    notes: list[str],
) -> list[float | None] | None:
    """CPU seconds per second; ``None``: not there, or in a unit that cannot be told (said in ``notes``)."""
    if role not in found:
        if role == "cpu" and "cpu_per_unit" in found:
            factor = TIMES[found["cpu_per_unit"].kind.unit]
            pairs = zip((r.values["cpu_per_unit"] for r in records), throughput, strict=True)
            return [None if v is None or x is None else v * factor * x for v, x in pairs]
        return None
    raw, column = [r.values[role] for r in records], found[role]
    if column.kind.unit == "%":
        return _of_percent(raw, column.heading, cpus, notes)
    if column.kind.unit in TIMES:
        return _of_seconds(raw, column, found, records, notes)
    return raw


def _of_percent(
    raw: Sequence[float | None], heading: str, cpus: float | None, notes: list[str]
) -> list[float | None] | None:
    """Above 100 it is of one CPU; else of the machine, whose CPUs must be known."""
    if max((v for v in raw if v is not None), default=0) > 100:
        notes.append(f"{heading} goes beyond 100 %: taken as per cent of one CPU")
        return [None if v is None else v / 100 for v in raw]
    if cpus is None:
        notes.append(f"{heading} was left out: per cent of how many CPUs? --cpus N")
        return None
    return [None if v is None else v / 100 * cpus for v in raw]


def _of_seconds(
    raw: Sequence[float | None],
    column: Placed,
    found: Mapping[str, Placed],
    records: Sequence[Record],
    notes: list[str],
) -> list[float | None] | None:
    """Over the rung's duration where there is one; else as per second, if sessions could use that."""
    seconds = [None if v is None else v * TIMES[column.kind.unit] for v in raw]
    if "duration" in found:
        factor = TIMES[found["duration"].kind.unit]
        lasted = [r.values["duration"] for r in records]
        return [
            None if v is None or not d else v / (d * factor) for v, d in zip(seconds, lasted, strict=True)
        ]
    pairs = zip(seconds, records, strict=True)
    if any(v is not None and v > 1.5 * (r.values["load"] or 0) for v, r in pairs):
        notes.append(f"{column.heading} was left out: CPU seconds over how long? add a column duration_s")
        return None
    notes.append(
        f"{column.heading} was taken as CPU seconds per second: add a column duration_s if it is not"
    )
    return seconds
