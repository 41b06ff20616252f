"""Columns of derived tables for paced load."""

from __future__ import annotations

from dbdyno.model.schema.column import Column
from dbdyno.model.schema.column import column as _c

RUNG_PACE: tuple[Column, ...] = (
    _c(
        "offered_per_s",
        "f64",
        "calls per second that became due; NULL in these columns: not paced",
        null=True,
    ),
    _c("late", "f64", "calls begun more than 1 ms after they were due, all repeats", null=True),
    _c("dropped", "f64", "calls not begun as they were due for longer than the latency limit", null=True),
    _c(
        "backlog_begin",
        "f64",
        "in phases: calls due and not begun at the begin, mean of repeats; NULL: no phases",
        null=True,
    ),
    _c("backlog_end", "f64", "calls that were due and not begun at the end, mean of repeats", null=True),
    _c(
        "service_mean_ns",
        "f64",
        "mean duration from the real start; response times are from when due",
        null=True,
    ),
    _c("service_p50_ns", "f64", "median from the real start, mean of repeats", null=True),
    _c("service_p95_ns", "f64", "95th percentile; NULL of fewer than 200 calls", null=True),
    _c("service_p99_ns", "f64", "99th percentile; NULL of fewer than 1,000 calls", null=True),
    _c("lag_mean_ns", "f64", "mean time from due to started", null=True),
)
"""Columns of the table ``rungs`` for paced load."""
