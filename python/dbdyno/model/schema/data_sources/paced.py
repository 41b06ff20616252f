"""Columns of the driver's optional tables: calls by script, and paced load."""

from __future__ import annotations

from dbdyno.model.schema.column import Column
from dbdyno.model.schema.column import column as _c


def _buckets(what: str) -> tuple[Column, ...]:
    return (
        _c("low_ns", "i64", "lowest duration of the bucket, inclusive"),
        _c("high_ns", "i64", "highest duration of the bucket, inclusive"),
        _c("count", "i64", what),
    )


_DURATIONS = (
    _c("in_call_ns", "i64", "sum of durations of measured calls that ended well"),
    _c("sum_sq_ns2", "f64", "sum of their squares"),
    _c("min_ns", "i64", "shortest", null=True),
    _c("max_ns", "i64", "longest", null=True),
)

SCRIPTS: dict[str, tuple[Column, ...]] = {
    "script_plans": (
        _c("script", "i64", "0.., in the order in which they were given"),
        _c("name", "str", "its name"),
        _c("command", "i64", "0.., in the order of the script"),
        _c("line", "i64", "line of the script on which it begins, from 1"),
        _c("shape", "str", "nodes of the plan for no values in particular, the outermost first", null=True),
        _c("status", "str", "ok, or why there is no plan"),
    ),
    "scripts": (
        _c("session", "i64", "session number"),
        _c("script", "i64", "0.., in the order in which they were given"),
        _c("name", "str", "its name"),
        _c("weight", "i64", "how often it is chosen, relative to the others"),
        _c("calls", "i64", "measured calls that ended well; the sum over scripts is that of table sessions"),
        _c("errors", "i64", "measured calls that ended in an error"),
        _c("settle_calls", "i64", "calls before t0 that ended well"),
        _c("settle_errors", "i64", "calls before t0 that ended in an error"),
        _c("retried", "i64", "measured calls tried more than once"),
        _c("retries", "i64", "their tries beyond the first"),
        *_DURATIONS,
    ),
    "script_histogram": (
        _c("script", "i64", "as in scripts"),
        *_buckets("measured calls of the script in it, all sessions"),
    ),
    "script_errors": (
        _c("script", "i64", "as in scripts"),
        _c("sqlstate", "str", "as in errors"),
        _c("count", "i64", "how often, from the barrier on, all sessions"),
        _c("message", "str", "the first such message"),
    ),
    "script_commands": (
        _c("script", "i64", "as in scripts"),
        _c("command", "i64", "0.., in the order of the script"),
        _c("line", "i64", "line of the script on which it begins, from 1"),
        _c("text", "str", "as it is written, in one line"),
        _c("executions", "i64", "times that it ended well in measured calls, all sessions"),
        _c("failures", "i64", "times that it made a measured call fail"),
        _c("retries", "i64", "times that it made a measured call start again"),
        _c("total_ns", "i64", "sum of the durations; NULL: never waited (part of the next one)", null=True),
        _c("sum_sq_ns2", "f64", "sum of their squares", null=True),
        _c("min_ns", "i64", "shortest", null=True),
        _c("max_ns", "i64", "longest", null=True),
    ),
    "script_connections": (
        _c("session", "i64", "session number"),
        _c("connections", "i64", "connections made at the start of measured calls"),
        _c("connect_ns", "i64", "sum of their durations, set-up included; part of the calls' durations"),
    ),
}
"""Calls by script; absent where calls are of none."""

PACED: dict[str, tuple[Column, ...]] = {
    "pace": (  # one row; backlog_begin (0 where it is NULL) + arrivals = begun + dropped + backlog_end
        _c("arrivals", "i64", "calls due in [t0, t1), or up to the end of a load that ended before t1"),
        _c("begun", "i64", "of which started; one whose session was lost is in no other count of calls"),
        _c("dropped", "i64", "of which never started, as they had waited longer than the latency limit"),
        _c("backlog_end", "i64", "not started at t1; in phases they are begun in the next one"),
        _c(
            "backlog_begin",
            "i64",
            "in phases: due before t0 and not started then, begun in this one; NULL: no phases",
            null=True,
        ),
        _c(
            "idle_ns",
            "i64",
            "when a session was free for the first time while no call was due; NULL: never",
            null=True,
        ),
        _c(
            "backlog_max", "i64", "most calls that were due and not started, found when a session became free"
        ),
        _c("late", "i64", "started more than 1 ms after they were due"),
        _c(
            "late_driver", "i64", "of which more than 1 ms after a session was free, too: the driver was late"
        ),
        _c(
            "over_limit",
            "i64",
            "started calls that ended later than the latency limit after they were due; NULL: no limit",
            null=True,
        ),
        _c("lag_sum_ns", "i64", "sum of the times from due to start, started calls"),
        _c("lag_max_ns", "i64", "longest of them"),
        _c(
            "driver_lag_sum_ns",
            "i64",
            "the part of lag_sum_ns in which a session was free: the driver's delay",
        ),
        _c("driver_lag_max_ns", "i64", "longest delay of the driver"),
        _c("backlog_age_sum_ns", "i64", "how long the calls of backlog_end had waited at t1, sum"),
        _c("backlog_age_max_ns", "i64", "longest of them"),
        _c("settle_arrivals", "i64", "calls due before t0"),
    ),
    "service": (
        _c(
            "session",
            "i64",
            "session number; durations are from the real start, those of sessions from when due",
        ),
        *_DURATIONS,
    ),
    "service_histogram": _buckets("measured calls that ended well, by their duration from the real start"),
    "lag_histogram": _buckets("measured calls that were started, by the time from due to start"),
    "backlog_histogram": _buckets(
        "calls of backlog_end, by how long they had waited at t1: less than their latency would have been"
    ),
}
"""Paced load; absent where calls were not paced."""

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
"""Columns of paced load in table ``rungs``."""
