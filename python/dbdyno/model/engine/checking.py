"""The capability of an engine to verify a workload's data after its calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import polars as pl

FAILED = "a check of the data failed after it: "
"""Prefix of the reason that a cell fails with if its data were wrong at its end."""


class Check(NamedTuple):
    """One value that was read. It is correct between ``low`` and ``high``, both included."""

    name: str
    low: int
    high: int
    found: int

    @property
    def holds(self) -> bool:
        return self.low <= self.found <= self.high

    @property
    def words(self) -> str:
        """The expected and the actual value, in words."""
        expected = f"{self.low:,}" if self.low == self.high else f"{self.low:,} to {self.high:,}"
        return f"{self.name}: expected {expected}, found {self.found:,}"


class Checking(Protocol):
    """Verifies that a workload's data agree with the calls that were made."""

    def counts(self, workload: str) -> Mapping[str, int] | None:
        """Returns the number of commits of each script that changes rows, derived from the rows themselves;
        None if the workload is unknown."""

    def checks(
        self,
        workload: str,
        params: Mapping[str, object],
        before: Mapping[str, int],
        tables: Mapping[str, pl.DataFrame],
    ) -> list[Check]:
        """Returns all checks, made after the sessions have disconnected. ``before`` is the result of
        :meth:`counts` before they connected. ``tables`` holds the measurement's raw tables, with the
        successful calls of each script."""
