"""Holds the lines of a file with the columns in use, and notes for the ladder.

The cures of a refusal are tried before they are offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import Ladder
from dbdyno.store.ladder_csv.headings import Named, is_time_unit
from dbdyno.store.table_text import Line, Sheet

Values = list[float | None]
_CPU = ("cpu", "cpu_user", "cpu_system", "cpu_wait")
_ROLES = ("load", "throughput", "response_s", "response_p95_s", *_CPU, "repeat", "duration")


@dataclass(frozen=True)
class Columns:
    """The user's assignment of columns: a heading, a number from 1, or ``none``; ``None`` goes by the
    headings.

    Units are those of the file, and override its headings.
    """

    load: str | None = None
    throughput: str | None = None
    response: str | None = None
    response_p95: str | None = None
    cpu: str | None = None
    cpu_user: str | None = None
    cpu_system: str | None = None
    cpu_wait: str | None = None
    repeat: str | None = None
    duration: str | None = None
    """A column, or the length of each measurement: ``60s``."""
    load_unit: str | None = None
    throughput_unit: str | None = None
    response_unit: str | None = None
    """Unit of response times: s, ms, us, ns."""
    duration_unit: str | None = None
    cpu_unit: str | None = None
    """A unit of time, or ``%``."""
    decimal: str | None = None
    """``.`` or ``,``, to resolve numbers like 1,234."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Values by column; only lines with these values are read."""

    def chosen(self) -> dict[str, str]:
        """Returns the columns that options name, by role."""
        named = {role: getattr(self, role.removesuffix("_s")) for role in _ROLES}
        if re.fullmatch(r"\d+(\.\d+)?\s*[a-z]+", self.duration or ""):
            del named["duration"]
        return {role: name for role, name in named.items() if name is not None}

    def unit_of(self, role: str) -> str | None:
        """Returns the unit that an option gives the column of ``role``; None leaves it to the heading."""
        if role in ("response_s", "response_p95_s"):
            return self.response_unit
        return self.duration_unit if role == "duration" else self.cpu_unit if role in _CPU else None

    def in_known_units(self) -> Columns:
        """Returns the columns with normalised units. Raises UsageError for an unknown unit."""
        units: dict[str, Any] = {}
        for name in ("response_unit", "duration_unit", "cpu_unit"):
            given = getattr(self, name)
            known = None if given is None else is_time_unit(given)
            if name == "cpu_unit" and given in ("%", "percent", "pct"):
                known = "%"
            if given is not None and known is None:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} {given!r}: not a unit of time", f"{option} s, ms, us or ns")
            units[name] = known
        return replace(self, **units)


@dataclass(frozen=True)
class Column:
    """The index, heading and unit of the column of a role."""

    index: int
    heading: str
    kind: Named

    def in_unit(self, unit: str | None) -> Column:
        return self if unit is None else replace(self, kind=replace(self.kind, unit=unit))


@dataclass(frozen=True)
class Way:
    """An option that may make a file readable; ``value`` is None to leave it out. ``more`` is a text after
    it."""

    option: str
    value: str | None
    more: str = ""
    think_s: float | None = None
    """For ``--think``, which names no column: a time that would do."""

    def __str__(self) -> str:
        if self.value is None:
            return f"leave {self.option} out"
        quote = "'" if self.option in ("--throughput-unit", "--decimal") else ""
        return f"{self.option} {quote}{self.value}{quote}{self.more}"

    def on(self, columns: Columns) -> Columns:
        if self.think_s is not None:
            return columns
        changed: dict[str, Any] = {self.option.removeprefix("--").replace("-", "_"): self.value}
        return replace(columns, **changed)


class Refused(UsageError):
    """A refusal of impossible figures in the column of ``role``; ``cure`` is used if none of the ways
    helps."""

    def __init__(self, role: str, message: str, ways: Sequence[Way], cure: str) -> None:
        super().__init__(message, cure)
        self.role, self.ways = role, ways


@dataclass(frozen=True)
class Record:
    """One line with the numbers of the columns in use."""

    line: Line
    values: dict[str, float | None]
    repeat: str | None


@dataclass
class Reading:
    """Lines, columns and options, and notes that are added while they are converted."""

    table: Sheet
    by_role: dict[str, Column]
    records: Sequence[Record]
    options: Columns
    cpus: float | None
    think_s: float | None
    notes: list[str] = field(default_factory=list)

    def column(self, role: str) -> Values:
        return [r.values[role] for r in self.records]

    def kind(self, role: str) -> Named:
        return self.by_role[role].kind

    def heading(self, role: str) -> str:
        return self.by_role[role].heading

    def refused(self, role: str, problem: str, ways: Sequence[Way]) -> Refused:
        """Returns a refusal with these cures and, as the last one, leaving the column out."""
        left_out = Way(option_of(role), "none", " leaves the column out")
        return Refused(
            role,
            f"{self.table.source}{problem}",
            [*ways, left_out],
            "correct the column, or its unit in the heading",
        )


def option_of(role: str) -> str:
    """Returns the option of a role: ``response_s`` -> --response."""
    return f"--{role.removesuffix('_s').replace('_', '-')}"


def read_or_refuse(
    read: Callable[[Columns, float | None], Ladder], columns: Columns, think_s: float | None
) -> Ladder:
    """Returns the result of ``read``. Raises UsageError with those cures that were tried and help."""
    try:
        return read(columns, think_s)
    except Refused as e:
        helping = [str(w) for w in e.ways if _helps(read, columns, think_s, w, e.role)]
        raise UsageError(e.message, "; ".join(helping) or e.cure) from None


def _helps(
    read: Callable[[Columns, float | None], Ladder],
    columns: Columns,
    think_s: float | None,
    way: Way,
    role: str,
) -> bool:
    """Returns whether the column is no longer refused; the refusal of another one has its own cures."""
    try:
        read(way.on(columns), think_s if way.think_s is None else way.think_s)
    except Refused as e:
        return e.role != role
    except UsageError:
        return False
    return True
