"""Columns of raw tables that are instants of CLOCK_MONOTONIC. Those of other hosts are converted to this
host's clock."""

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
        "first_ns",
        "first_start_ns",
        "idle_ns",
        "last_end_ns",
        "last_ns",
        "read_ns",
        "sql_after_ns",
        "sql_before_ns",
        "start_ns",
        "t_ns",
        "task_ns",
    }
)
"""Names of columns that are instants in every table except those of :data:`EXCEPT`."""
EXCEPT = frozenset({("statement_reads", "exec_ns"), ("devices", "read_ns")})
"""Columns of these names that are durations."""
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
        "discard_ns",
        "driver_lag_max_ns",
        "driver_lag_sum_ns",
        "duration_ns",
        "flush_ns",
        "from_ns",
        "high_ns",
        "in_call_ns",
        "io_ns",
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
        "weighted_ns",
        "write_ns",
    }
)
WALL_CLOCK = frozenset({"backend_start_ns"})
"""Instants in ns since 1970 by the wall clock of the server's host."""


@cache
def instants(table: str) -> frozenset[str]:
    """Returns the columns of a raw table that are instants of the clock of the host that wrote it."""
    return frozenset(c.name for c in RAW[table] if c.name in INSTANTS and (table, c.name) not in EXCEPT)
