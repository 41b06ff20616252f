"""Claims are made here, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

from dbdyno.model.claim import Claim, Severity
from dbdyno.model.estimate import Estimate


def claim(
    id: str,
    text: str,
    value: Estimate | float | None = None,
    evidence: str = "",
    *,
    severity: Severity = "note",
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    advice: str = "",
    cells: Sequence[str] = (),
) -> Claim:
    """``value``: with its interval, or a number in ``unit`` with ``low`` and ``high``."""
    if value is not None and not isinstance(value, Estimate):
        value = Estimate(id, value, unit, low, high)
    return Claim(
        id=id, text=text, severity=severity, value=value, evidence=evidence, advice=advice, cells=tuple(cells)
    )
