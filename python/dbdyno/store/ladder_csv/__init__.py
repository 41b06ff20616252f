"""Reads a table of sessions and throughput, from any tool, as a ladder
(:mod:`dbdyno.model.results.analyses`).

Headings are interpreted generously, numbers strictly: one that is invalid, negative, not finite or missing
is an error that names the line. Response times become seconds, CPU becomes CPU seconds per second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

import polars as pl

from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import POINTS, Ladder, Machine
from dbdyno.store.ladder_csv import headings
from dbdyno.store.ladder_csv.headings import Named, is_time_unit, named
from dbdyno.store.ladder_csv.quantities import quantities
from dbdyno.store.ladder_csv.reading import Column, Columns, Reading, Record, option_of, read_or_refuse
from dbdyno.store.ladder_csv.vocabulary import TIMES
from dbdyno.store.table_cells import is_missing, is_number, number, with_unit
from dbdyno.store.table_text import Line, Sheet, read_text, sheet, source_name

FEWEST = 3
"""Least number of different loads in a ladder."""
_NEEDED = ("load", "throughput")
_NAMES = {"load": "sessions", "throughput": "throughput", "response_s": "response time", "repeat": "repeat"}
_TIMES = ("response_s", "response_p95_s", "duration")
MOST = 1e30
"""Bound of figures: larger ones are no measurements, and their squares overflow."""
_EMPTY = "leave the field empty where it was not measured"
_NONE = "none"
_HINTS = {
    "load": "sessions, clients, threads, users, connections, nodes, processors, N",
    "throughput": "throughput, tps, ktps, rate, calls, orders/s, X",
}


def read_ladder(
    path: str | Path,
    columns: Columns | None = None,
    *,
    machine: Machine | None = None,
    think_s: float | None = None,
) -> Ladder:
    """Reads the ladder in a file, or in standard input (``-``). Raises UsageError with the line and a
    cure."""
    ladder = ladder_of(read_text(path), source_name(path), columns, machine, think_s)
    return replace(ladder, name="standard input" if str(path) == "-" else Path(path).name)


def ladder_of(
    text: str,
    source: str,
    columns: Columns | None = None,
    machine: Machine | None = None,
    think_s: float | None = None,
) -> Ladder:
    """Returns the ladder in ``text``; errors call it ``source``."""
    return read_or_refuse(
        lambda options, think: _read(text, source, options, machine or Machine(), think),
        (columns or Columns()).in_known_units(),
        think_s,
    )


def _read(text: str, source: str, options: Columns, machine: Machine, think_s: float | None) -> Ladder:
    table = sheet(text, source, options.decimal)
    table = replace(table, header=table.header or _from_comment(table))
    by_role, notes = _columns(table, options)
    where = _places(table, options)
    table = replace(table, lines=tuple(n for n in table.lines if _wanted(n.fields, where)))
    table = table.bare(c.index for role, c in by_role.items() if role != "repeat")
    if options.decimal is None:
        table = table.signed(c.index for role, c in by_role.items() if role != "repeat")
    by_role = {role: c.in_unit(options.unit_of(role)) for role, c in by_role.items()}
    records = _records_of(table, by_role)
    _one_ladder(table, by_role)
    reading = Reading(table, by_role, records, options, machine.cpus, think_s)
    points, unit = _to_points(reading)
    _enough(source, points)
    return Ladder(
        name=source,
        points=points,
        throughput_unit=unit,
        load_unit=options.load_unit or by_role["load"].kind.unit or "sessions",
        machine=machine,
        think_s=think_s,
        notes=(*table.notes, *notes, *reading.notes),
    )


def _columns(table: Sheet, columns: Columns) -> tuple[dict[str, Column], list[str]]:
    """Returns columns by role, and a note on unused ones. Raises UsageError if one is missing or
    ambiguous."""
    header = table.header
    if header is None:
        return _different(table, _by_place(table, columns)), []
    _no_twins(table, header)
    chosen = _chosen(table, columns)
    guesses = {i: k for i in range(len(header)) if i not in chosen.values() and (k := named(table.title(i)))}
    by_role = {
        role: Column(i, header[i], headings.chosen(table.title(i), role))
        for role, i in chosen.items()
        if i is not None
    }
    for role in dict.fromkeys(k.role for k in guesses.values()):
        if role not in chosen:
            by_role[role] = _best(table, role, {i: k for i, k in guesses.items() if k.role == role}, header)
    used = {c.index for c in by_role.values()}
    for role in _NEEDED:
        if role not in by_role:
            raise _no_column(table, role, header, used)
    left = [h or f"column {i + 1}" for i, h in enumerate(header) if i not in used]
    return _different(table, by_role), [f"columns left out: {', '.join(left)}"] if left else []


def _chosen(table: Sheet, columns: Columns) -> dict[str, int | None]:
    """Returns the index of the column that an option names, by role; None if the role shall have none."""
    named_so = {h.strip().casefold() for h in table.header or ()}
    none = {r for r, n in columns.chosen().items() if n.casefold() == _NONE and _NONE not in named_so}
    return {r: None if r in none else table.place(n, option_of(r)) for r, n in columns.chosen().items()}


def _no_column(table: Sheet, role: str, header: tuple[str, ...], used: set[int]) -> UsageError:
    """Returns the error for a missing column; its cure names the likeliest column of numbers."""
    free = [i for i in range(len(header)) if i not in used and header[i]]
    of_numbers = [
        i
        for i in free
        if table.lines and all(is_number(n.fields[i]) or with_unit(n.fields[i]) for n in table.lines)
    ]
    likely = header[of_numbers[0]] if of_numbers else "COLUMN"
    return UsageError(
        f"{table.source}: no column for the {_NAMES[role]} among {', '.join(header)}",
        f"name it: {option_of(role)} {quote(likely)}; known headings: {_HINTS[role]}",
    )


def _different(table: Sheet, by_role: dict[str, Column]) -> dict[str, Column]:
    """Returns the columns unchanged. Raises UsageError if two roles have the same column."""
    role_of: dict[int, str] = {}
    for role, column in by_role.items():
        other = role_of.setdefault(column.index, role)
        if other != role:
            raise UsageError(
                f"{table.source}: {column.heading} cannot be both {option_of(other)} and {option_of(role)}",
                "each has a column of its own",
            )
    return by_role


def _by_place(table: Sheet, columns: Columns) -> dict[str, Column]:
    """Returns the columns of a table without a header.

    Two columns are load and throughput; of more, options number them.
    """
    wide = len(table.lines[0].fields) if table.lines else 0
    chosen = {r: i for r, i in _chosen(table, columns).items() if i is not None}
    if wide > 2 and not set(_NEEDED) <= set(chosen):
        raise UsageError(
            f"{table.source} has {wide} columns and no header",
            "add a header line (sessions,throughput,...), or number them: --load 1 --throughput 2",
        )
    for role, place in (("load", 0), ("throughput", 1)):
        chosen.setdefault(role, place)
    return {r: Column(i, f"column {i + 1}", Named(r)) for r, i in chosen.items()}


def _from_comment(table: Sheet) -> tuple[str, ...] | None:
    """Returns a header from the comment before the table, if it names load and throughput."""
    above = table.comment
    if above is None or not table.lines or len(above) != len(table.lines[0].fields):
        return None
    roles = {k.role for h in above if (k := named(h))}
    return above if set(_NEEDED) <= roles else None


def _best(table: Sheet, role: str, candidates: Mapping[int, Named], header: tuple[str, ...]) -> Column:
    """Returns the column of the lowest rank. Raises UsageError if there are several."""
    rank = min(k.rank for k in candidates.values())
    best = [i for i, k in candidates.items() if k.rank == rank]
    if role == "load" and len(best) > 1:
        # A column that is constant describes the machine or the client, not the load.
        best = [i for i in best if len({n.fields[i] for n in table.lines}) > 1] or best
    if len(best) > 1:
        names = " or ".join(header[i] for i in best)
        cures = " or ".join(f"{option_of(role)} {quote(header[i])}" for i in best)
        raise UsageError(
            f"{table.source}: the {_NAMES.get(role, role)} may be {names}", f"choose one: {cures}"
        )
    return Column(best[0], header[best[0]], candidates[best[0]])


def _no_twins(table: Sheet, header: tuple[str, ...]) -> None:
    folded = [h.strip().casefold() for h in header]
    twin = next((h for i, h in enumerate(header) if h and folded[i] in folded[:i]), None)
    if twin is not None:
        raise UsageError(f"{table.source} has two columns {twin!r}", "give each a heading of its own")


def _places(table: Sheet, columns: Columns) -> dict[int, str]:
    if columns.where and table.header is None:
        raise UsageError(f"{table.source} has no header to pick lines by", "add a header line")
    return {table.place(n, "--where"): v.strip() for n, v in columns.where.items()}


def _wanted(fields: tuple[str, ...], where: Mapping[int, str]) -> bool:
    return all(fields[i].casefold() == value.casefold() for i, value in where.items())


def _one_ladder(table: Sheet, by_role: Mapping[str, Column]) -> None:
    """Raises UsageError if loads repeat because a column of words divides the lines into several ladders."""
    keys = [by_role[r].index for r in ("load", "repeat") if r in by_role]
    places = [tuple(line.fields[i] for i in keys) for line in table.lines]
    if len(set(places)) == len(places):
        return
    used = {c.index for c in by_role.values()}
    for i, heading in enumerate(table.header or ()):
        words = [line.fields[i] for line in table.lines]
        if i in used or any(is_number(w) or is_missing(w) for w in words):
            continue
        loads = {w: {p[0] for p, v in zip(places, words, strict=True) if v == w} for w in words}
        if len(loads) > 1 and min(map(len, loads.values())) >= FEWEST:
            shown = ", ".join(list(loads)[:4]) + (", ..." if len(loads) > 4 else "")
            raise UsageError(
                f"{table.source} holds {len(loads)} ladders, by column {heading} ({shown})",
                f"one of them: --where {quote(f'{heading}={words[0]}')}; if they are repeats: "
                f"--repeat {quote(heading)}",
            )


def _enough(source: str, points: pl.DataFrame) -> None:
    loads = points["load"].n_unique()
    if loads < FEWEST:
        raise UsageError(
            f"{source} has {loads} different load{'' if loads == 1 else 's'}: at least {FEWEST} are needed",
            "measure more loads: 1, 2, 4, 8, ... to twice the CPUs",
        )


# -- text fields to points --


def _records_of(table: Sheet, by_role: Mapping[str, Column]) -> list[Record]:
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


def _to_points(reading: Reading) -> tuple[pl.DataFrame, str]:
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


__all__ = ["FEWEST", "Column", "Columns", "ladder_of", "read_ladder"]
