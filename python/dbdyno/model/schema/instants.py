"""Which times of raw tables are instants of CLOCK_MONOTONIC: of other hosts they are mapped to our clock."""

from __future__ import annotations

from functools import cache

from dbdyno.model.schema.rawtables import RAW

INSTANTS = frozenset(
    {
        "after_ns",
        "at_ns",
        "barrier_ns",
        "before_ns",
        "began_ns",
        "due_ns",
        "end_ns",
        "exec_ns",
        "first_start_ns",
        "idle_ns",
        "last_end_ns",
        "read_ns",
        "sql_after_ns",
        "sql_before_ns",
        "start_ns",
        "t_ns",
        "task_ns",
    }
)
"""Names of columns that are such instants, in every table but those of :data:`EXCEPT`."""
EXCEPT = frozenset({("statement_reads", "exec_ns")})
"""Durations of the same name."""
DURATIONS = frozenset(
    {
        "asleep_ns",
        "backlog_age_max_ns",
        "backlog_age_sum_ns",
        "blk_read_ns",
        "blk_write_ns",
        "blkio_ns",
        "blocked_ns",
        "came_ns",
        "children_ns",
        "client_ns",
        "clock_bound_ns",
        "clock_offset_ns",
        "connect_ns",
        "cpu_ns",
        "driver_lag_max_ns",
        "driver_lag_sum_ns",
        "duration_ns",
        "from_ns",
        "high_ns",
        "in_call_ns",
        "jit_ns",
        "lag_max_ns",
        "lag_sum_ns",
        "left_ns",
        "low_ns",
        "max_ns",
        "min_ns",
        "open_ns",
        "plan_ns",
        "prepare_ns",
        "round_trip_ns",
        "run_ns",
        "runq_ns",
        "sleep_ns",
        "slept_ns",
        "system_ns",
        "throttled_ns",
        "time_ns",
        "total_ns",
        "user_ns",
        "waited_ns",
    }
)
WALL_CLOCK = frozenset({"backend_start_ns"})
"""By the clock of the server's host, since 1970."""


@cache
def instants(table: str) -> frozenset[str]:
    """Columns of a raw table that are instants of the clock of the host that wrote it."""
    return frozenset(c.name for c in RAW[table] if c.name in INSTANTS and (table, c.name) not in EXCEPT)
