"""Tries the cures of refusals before they are offered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dbdyno.model.errors import UsageError

if TYPE_CHECKING:
    from dbdyno.model.results.analyses import Ladder
    from dbdyno.store.ladder_csv import Columns


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
