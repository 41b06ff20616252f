"""The quantiles of response times that are stored and shown, and the rule from how many calls on each is
known."""

from __future__ import annotations

import math
from typing import NamedTuple

from dbdyno.model.schema.column import Column, Type, column

CALLS_ABOVE = 10
"""A quantile above the median needs this many calls above it. With fewer, it depends on single calls."""
FEW = "too few calls"
"""Status of a quantile that is unknown because of too few calls."""


def fewest_calls(q: float) -> int:
    """Returns the number of calls from which on a quantile is known: 200 for p95, 1,000 for p99, 1 for the
    median."""
    return 1 if q <= 0.5 else math.ceil(CALLS_ABOVE / (1 - q) - 1e-6)


class Quantile(NamedTuple):
    name: str
    """The name that options accept and tables show: ``p99.9``."""
    q: float

    @property
    def key(self) -> str:
        """The name in a column: ``p999``."""
        return self.name.replace(".", "")

    @property
    def response(self) -> str:
        """The column of tables ``rungs`` and ``rates``."""
        return f"response_{self.key}_ns"

    @property
    def words(self) -> str:
        return "median, 3 digits" if self.q == 0.5 else f"{100 * self.q:g}th percentile"

    @property
    def of_few(self) -> str:
        """When it is NULL; empty for the median."""
        fewest = fewest_calls(self.q)
        return f"; NULL of fewer than {fewest:,} calls" if fewest > 1 else ""


QUANTILES = tuple(Quantile(f"p{100 * q:g}", q) for q in (0.50, 0.95, 0.99, 0.999, 0.9999))
TAILS = {one.name: one for one in QUANTILES if fewest_calls(one.q) > 1}
"""Quantiles above the median by name."""
RESPONSE = {one.response: one.q for one in QUANTILES}
"""Quantiles by their columns in tables ``rungs`` and ``rates``."""


def columns(prefix: str, type: Type) -> tuple[Column, ...]:
    """Returns a column for each quantile: ``prefix`` with its key, in ns."""
    return tuple(
        column(f"{prefix}{one.key}_ns", type, f"{one.words}{one.of_few}", null=True) for one in QUANTILES
    )
