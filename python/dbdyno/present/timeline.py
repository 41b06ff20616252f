"""When the windows of an observation were: stretches to draw, and the gaps between them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.units import NS_PER_S

MAX_STRETCHES = 120
"""More windows are drawn in stretches of several, weighted by their length."""
GAP_S = 1.0
"""What is shorter lies between two reads and is no gap."""


def clock(results: Results, at_ns: int) -> str:
    """The wall-clock time (UTC) of a monotonic one: ``10:45:31``."""
    info = results.info
    at = info.started + timedelta(microseconds=(at_ns - info.started_monotonic_ns) / 1000)
    return f"{at:%H:%M:%S}"


def windows(results: Results) -> pl.DataFrame:
    """The windows in time: start_s and end_s since the first began; new: a gap lies before it."""
    frame = results.tables["windows"].sort("t0_ns")
    first = frame["t0_ns"].min()
    return frame.with_columns(
        start_s=((pl.col("t0_ns") - first) / NS_PER_S).round(3),
        end_s=((pl.col("t1_ns") - first) / NS_PER_S).round(3),
    ).with_columns(new=(pl.col("start_s") - pl.col("end_s").shift(1) > GAP_S).fill_null(False))


def stretches(results: Results) -> pl.DataFrame:
    """Every window with the stretch it is drawn in: cell, place, weight, start_s, end_s, clock.

    No stretch reaches over a gap.
    """
    frame = windows(results)
    size = -(-len(frame) // MAX_STRETCHES) or 1
    part = pl.col("new").cum_sum()
    number = part * len(frame) + pl.int_range(pl.len()).over(part) // size
    clocks = [clock(results, t) for t in frame["t0_ns"].to_list()]
    return frame.select(
        "cell", place=number.cast(pl.Int64), weight="wall_s", start_s="start_s", end_s="end_s",
        clock=pl.Series(clocks, dtype=pl.String),
    )  # fmt: skip


def gaps(results: Results) -> list[dict[str, Any]]:
    """Between which seconds nothing was measured."""
    frame = windows(results)
    before = frame.select(end=pl.col("end_s").shift(1), start="start_s", new="new", reason="reason")
    return [
        {"start_s": end, "end_s": start, "what": reason or "nothing was measured"}
        for end, start, new, reason in before.rows()
        if new
    ]
