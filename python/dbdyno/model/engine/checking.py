"""What an engine can do that knows what a workload's data must be like after its calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import polars as pl

FAILED = "a check of the data failed after it: "
"""How the reason of a cell begins whose data were wrong at its end."""


class Check(NamedTuple):
    """What was looked at; it must be from ``low`` to ``high``, both included."""

    name: str
    low: int
    high: int
    found: int

    @property
    def holds(self) -> bool:
        return self.low <= self.found <= self.high

    @property
    def words(self) -> str:
        """What was expected and what was found."""
        expected = f"{self.low:,}" if self.low == self.high else f"{self.low:,} to {self.high:,}"
        return f"{self.name}: expected {expected}, found {self.found:,}"


class Checking(Protocol):
    """Whether a workload's data are what its calls must have made of them."""

    def counts(self, workload: str) -> Mapping[str, int] | None:
        """How often each script that changes rows has been committed, by what its rows say now; None: nothing
        is known of that workload."""

    def checks(
        self,
        workload: str,
        params: Mapping[str, object],
        before: Mapping[str, int],
        tables: Mapping[str, pl.DataFrame],
    ) -> list[Check]:
        """All checks, once the sessions have left. ``before``: :meth:`counts` before they came; ``tables``: a
        measurement's raw tables, with the calls that ended well by script."""
