"""Anybody's table of sessions and throughput, read from CSV as a :class:`~dbdyno.model.analyses.Ladder`.

Headings are guessed generously, numbers strictly: what is no number, negative, not finite or missing is an
error that names the line. Response times become seconds, CPU becomes CPU seconds per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from dbdyno.model.analyses import Ladder, Machine
from dbdyno.model.errors import UsageError
from dbdyno.store.ladder_csv.headings import TIMES, Named, is_time_unit, named
from dbdyno.store.ladder_csv.points import records_of, to_points
from dbdyno.store.ladder_csv.text import (
    Sheet,
    is_missing,
    is_number,
    read_numbers,
    read_text,
    sheet,
    source_name,
)

FEWEST = 3
"""Different loads that make a ladder."""
_NEEDED = ("load", "throughput")
_OPTIONS = {"load": "--load", "throughput": "--throughput", "response_s": "--response", "repeat": "--repeat"}
_NAMES = {"load": "sessions", "throughput": "throughput", "response_s": "response time", "repeat": "repeat"}
_HINTS = {
    "load": "sessions, clients, threads, users, connections, processors, N",
    "throughput": "throughput, tps, qps, rate, ops/s, X",
}


@dataclass(frozen=True)
class Columns:
    """Which column is what: a heading, or its number from 1. ``None``: guessed by the heading."""

    load: str | None = None
    throughput: str | None = None
    response: str | None = None
    response_p95: str | None = None
    cpu: str | None = None
    cpu_user: str | None = None
    cpu_system: str | None = None
    cpu_wait: str | None = None
    repeat: str | None = None
    response_unit: str | None = None
    """s, ms, us or ns, where the heading does not say."""
    decimal: str | None = None
    """``.`` or ``,`` where numbers like 1,234 may be either."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Only lines that have these values in these columns."""

    def chosen(self) -> dict[str, str]:
        pairs = {
            "load": self.load, "throughput": self.throughput, "response_s": self.response,
            "response_p95_s": self.response_p95, "cpu": self.cpu, "cpu_user": self.cpu_user,
            "cpu_system": self.cpu_system, "cpu_wait": self.cpu_wait, "repeat": self.repeat,
        }  # fmt: skip
        return {role: name for role, name in pairs.items() if name is not None}


@dataclass(frozen=True)
class Column:
    """Where a role is found, and in what unit."""

    index: int
    heading: str
    kind: Named


def read_ladder(
    path: str | Path,
    columns: Columns | None = None,
    *,
    machine: Machine | None = None,
    think_s: float | None = None,
    load_unit: str | None = None,
    throughput_unit: str | None = None,
) -> Ladder:
    """The ladder in a file of text, or in standard input (``-``). Raises UsageError with line and cure."""
    source = source_name(path)
    name = "standard input" if str(path) == "-" else Path(path).name
    made = ladder_of(read_text(path), source, columns, machine)
    return Ladder(
        name=name,
        points=made.points,
        throughput_unit=throughput_unit or made.throughput_unit,
        load_unit=load_unit or made.load_unit,
        machine=made.machine,
        think_s=think_s,
        notes=made.notes,
    )


def ladder_of(
    text: str, source: str, columns: Columns | None = None, machine: Machine | None = None
) -> Ladder:
    """The ladder in ``text``; ``source`` is what errors call it."""
    columns, machine = columns or Columns(), machine or Machine()
    unit = None if columns.response_unit is None else is_time_unit(columns.response_unit)
    if columns.response_unit is not None and unit is None:
        raise UsageError(
            f"{columns.response_unit!r} is not a unit of time", "--response-unit s, ms, us or ns"
        )
    table = sheet(text, source, columns.decimal)
    table = replace(table, header=table.header or _from_comment(table))
    found, notes = _columns(table, columns)
    where = _places(table, columns)
    table = replace(table, lines=tuple(n for n in table.lines if _wanted(n.fields, where)))
    records = records_of(table, found)
    _one_ladder(table, found)
    points, said = to_points(source, found, records, unit, machine.cpus)
    _enough(source, points)
    return Ladder(
        name=source,
        points=points,
        throughput_unit=found["throughput"].kind.unit or "units/s",
        load_unit=found["load"].kind.unit or "sessions",
        machine=machine,
        notes=(*table.notes, *notes, *said),
    )


def _columns(table: Sheet, columns: Columns) -> tuple[dict[str, Column], list[str]]:
    """Role -> column, and what was left out. Raises UsageError where one is missing or two may be it."""
    header = table.header
    if header is None:
        return _by_place(table, columns), []
    _no_twins(table, header)
    chosen = {r: table.place(name, _OPTIONS.get(r, r)) for r, name in columns.chosen().items()}
    guesses = {i: k for i, h in enumerate(header) if i not in chosen.values() and (k := named(h))}
    found = {}
    for role, i in chosen.items():
        kind = named(header[i])
        found[role] = Column(
            i, header[i], kind if kind and kind.role == role else Named(role, unit=_unit(header[i]))
        )
    for role in dict.fromkeys(k.role for k in guesses.values()):
        if role not in found:
            found[role] = _best(table, role, {i: k for i, k in guesses.items() if k.role == role}, header)
    for role in _NEEDED:
        if role not in found:
            raise UsageError(
                f"{table.source}: no column for the {_NAMES[role]} among {', '.join(header)}",
                f"name it: {_OPTIONS[role]} COLUMN; known headings: {_HINTS[role]}",
            )
    used = {c.index for c in found.values()}
    left = [h or f"column {i + 1}" for i, h in enumerate(header) if i not in used]
    return found, [f"columns left out: {', '.join(left)}"] if left else []


def _by_place(table: Sheet, columns: Columns) -> dict[str, Column]:
    """Without a header: two columns are load and throughput; of more each is named by its number."""
    wide = len(table.lines[0].fields) if table.lines else 0
    chosen = {r: table.place(n, _OPTIONS.get(r, r)) for r, n in columns.chosen().items()}
    if wide > 2 and not set(_NEEDED) <= set(chosen):
        raise UsageError(
            f"{table.source} has {wide} columns and no header",
            "add a header line (sessions,throughput,...), or number them: --load 1 --throughput 2",
        )
    for role, place in (("load", 0), ("throughput", 1)):
        chosen.setdefault(role, place)
    return {r: Column(i, f"column {i + 1}", Named(r)) for r, i in chosen.items()}


def _from_comment(table: Sheet) -> tuple[str, ...] | None:
    """A header behind a # counts if it names both columns that are needed."""
    above = table.comment
    if above is None or not table.lines or len(above) != len(table.lines[0].fields):
        return None
    roles = {k.role for h in above if (k := named(h))}
    return above if set(_NEEDED) <= roles else None


def _best(table: Sheet, role: str, found: Mapping[int, Named], header: tuple[str, ...]) -> Column:
    rank = min(k.rank for k in found.values())
    best = [i for i, k in found.items() if k.rank == rank]
    if len(best) > 1:
        names = " or ".join(header[i] for i in best)
        option = _OPTIONS.get(role, f"--{role.removesuffix('_s').replace('_', '-')}")
        raise UsageError(
            f"{table.source}: the {_NAMES.get(role, role)} may be {names}",
            f"choose one: {option} {header[best[0]]}",
        )
    return Column(best[0], header[best[0]], found[best[0]])


def _no_twins(table: Sheet, header: tuple[str, ...]) -> None:
    folded = [h.strip().casefold() for h in header]
    twin = next((h for i, h in enumerate(header) if h and folded[i] in folded[:i]), None)
    if twin is not None:
        raise UsageError(f"{table.source} has two columns {twin!r}", "give each a heading of its own")


def _unit(heading: str) -> str:
    """The unit of time that any heading ends with: ``what_it_took_ms``."""
    words = heading.replace("(", " ").replace(")", " ").replace("_", " ").split()
    unit = is_time_unit(words[-1]) if len(words) > 1 else None
    return unit if unit in TIMES else ""


def _places(table: Sheet, columns: Columns) -> dict[int, str]:
    if columns.where and table.header is None:
        raise UsageError(f"{table.source} has no header to pick lines by", "add a header line")
    return {table.place(n, "--where"): v.strip() for n, v in columns.where.items()}


def _wanted(fields: tuple[str, ...], where: Mapping[int, str]) -> bool:
    return all(fields[i].casefold() == value.casefold() for i, value in where.items())


def _one_ladder(table: Sheet, found: Mapping[str, Column]) -> None:
    """Raises UsageError where loads come again because a column of words parts the lines into ladders."""
    keys = [found[r].index for r in ("load", "repeat") if r in found]
    places = [tuple(line.fields[i] for i in keys) for line in table.lines]
    if len(set(places)) == len(places):
        return
    used = {c.index for c in found.values()}
    for i, heading in enumerate(table.header or ()):
        words = [line.fields[i] for line in table.lines]
        if i in used or any(is_number(w) or is_missing(w) for w in words):
            continue
        loads = {w: {p[0] for p, v in zip(places, words, strict=True) if v == w} for w in words}
        if len(loads) > 1 and min(map(len, loads.values())) >= FEWEST:
            shown = ", ".join(list(loads)[:4]) + (", ..." if len(loads) > 4 else "")
            raise UsageError(
                f"{table.source} holds {len(loads)} ladders, by column {heading} ({shown})",
                f"one of them: --where {heading}={words[0]}; if they are repeats: --repeat {heading}",
            )


def _enough(source: str, points: pl.DataFrame) -> None:
    loads = points["load"].n_unique()
    if loads < FEWEST:
        raise UsageError(
            f"{source} has {loads} different load{'' if loads == 1 else 's'}: at least {FEWEST} are needed",
            "measure more loads: 1, 2, 4, 8, ... to twice the CPUs",
        )


__all__ = ["FEWEST", "Column", "Columns", "ladder_of", "read_ladder", "read_numbers"]
