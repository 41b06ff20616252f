"""Holds the lines of a file with the columns in use, and notes for the ladder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dbdyno.model.errors import UsageError
from dbdyno.store.ladder_csv.cures import Refused, Way
from dbdyno.store.ladder_csv.headings import Named
from dbdyno.store.table_text import Line, Sheet

if TYPE_CHECKING:
    from dbdyno.store.ladder_csv import Column, Columns

Values = list[float | None]


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

    def error(self, problem: str, cure: str) -> UsageError:
        return UsageError(f"{self.table.source}: {problem}", cure)

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
