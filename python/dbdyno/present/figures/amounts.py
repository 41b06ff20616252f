"""Formats the costs of a call, for a run and for a comparison."""

from __future__ import annotations

from collections.abc import Callable

from dbdyno.model.schema.data_sources.costs import FIGURES
from dbdyno.model.units import format_ns, format_rate, format_size

BY_ID = {f.id: f for f in FIGURES}
"""Figures of a call by id."""
_UNITS: dict[str, Callable[[float], str]] = {"ns": format_ns, "bytes": format_size}


def amount_text(unit: str, value: float) -> str:
    """Returns a figure with its unit; counts have none."""
    return _UNITS.get(unit, format_rate)(value)
