"""A figure with its interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval. ``low`` or ``high`` ``None``: not bounded on that side."""

    name: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    method: str = ""
    """profile likelihood | bootstrap of repeats | Student's t | ...; empty: no interval."""
    std_err: float | None = None
    note: str = ""
    """at its bound, ..."""
