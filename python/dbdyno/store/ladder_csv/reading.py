"""Lines of a file with the columns that are used, and what is noted on the way to a ladder."""

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
    """One line and the numbers in the columns that are used."""

    line: Line
    values: dict[str, float | None]
    repeat: str | None


@dataclass
class Reading:
    """Lines, columns and options, and what is said of them on the way."""

    table: Sheet
    found: dict[str, Column]
    records: Sequence[Record]
    asked: Columns
    cpus: float | None
    think_s: float | None
    notes: list[str] = field(default_factory=list)

    def column(self, role: str) -> Values:
        return [r.values[role] for r in self.records]

    def kind(self, role: str) -> Named:
        return self.found[role].kind

    def heading(self, role: str) -> str:
        return self.found[role].heading

    def error(self, problem: str, cure: str) -> UsageError:
        return UsageError(f"{self.table.source}: {problem}", cure)

    def refused(self, role: str, problem: str, ways: Sequence[Way]) -> Refused:
        """To be read after all without the column, if not in one of these ways."""
        left_out = Way(option_of(role), "none", " leaves the column out")
        return Refused(
            role,
            f"{self.table.source}{problem}",
            [*ways, left_out],
            "correct the column, or its unit in the heading",
        )


def option_of(role: str) -> str:
    """``response_s`` -> --response."""
    return f"--{role.removesuffix('_s').replace('_', '-')}"
