"""The pacing and think time of a cell as keys of a driver's specification (docs/core.md)."""

from __future__ import annotations

from typing import Any

from dbdyno.model.plan.pacing import Pacing
from dbdyno.model.plan.plan import Cell
from dbdyno.model.units import NS_PER_S


def spec(cell: Cell) -> dict[str, Any]:
    """Returns when calls begin: keys of the driver's specification (seconds from the barrier on,
    microseconds)."""
    keys: dict[str, Any] = {} if cell.think is None else {"seed": cell.seed}
    keys["rounds"] = cell.driver.rounds
    if cell.pacing is not None and cell.pacing.pieces:
        keys["windows_ns"] = [ns for ns, _, _ in cell.pacing.pieces]
    if cell.think is None:
        keys["think_us"] = round(cell.think_ns / 1000)
    elif cell.think.kind == "uniform":
        low_us, high_us = cell.think.low_ns / 1000, cell.think.high_ns / 1000
        keys["think"] = {"kind": "uniform", "low_us": low_us, "high_us": high_us}
    else:
        keys["think"] = {"kind": cell.think.kind, "mean_us": cell.think_ns / 1000}
    if cell.pacing is not None:
        keys["arrivals"] = _arrivals(cell, cell.pacing)
    return keys


def _arrivals(cell: Cell, pacing: Pacing) -> dict[str, Any]:
    begin, end = pacing.rate_per_s, pacing.to_per_s or pacing.rate_per_s
    limit_ns = pacing.latency_limit_ns
    parts = pacing.pieces or ((cell.measure_ns, begin, end),)
    pieces = [(cell.settle_ns / NS_PER_S, begin, begin), *((ns / NS_PER_S, a, b) for ns, a, b in parts)]
    return {
        "kind": pacing.arrivals,
        "rate": [list(piece) for piece in pieces if piece[0] > 0],
        "seed": cell.seed,
        "latency_limit_us": None if limit_ns is None else round(limit_ns / 1000),
    }
