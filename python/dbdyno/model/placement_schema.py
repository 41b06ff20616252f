"""Tables of sessions that were started together: where each call ran, and whether they were served alike."""

from __future__ import annotations

from dbdyno.model.column import CELL, Column
from dbdyno.model.column import column as _c

_CALL = (
    *CELL,
    _c("round", "i64", "1, 2, ...: all sessions began this call together"),
    _c("session", "i64", "0..N-1"),
    _c("start_ns", "i64", "sent"),
    _c("duration_ns", "i64", "sent to ready"),
    _c("cpu", "i64", "CPU it ran on, read at the call's end", null=True),
    _c("migrations", "i64", "moves to another CPU during the call", null=True),
)

ROUNDS: tuple[Column, ...] = _CALL
"""Handed on by the room window: calls of whole rounds."""

PLACED: tuple[Column, ...] = (
    *_CALL,
    _c("slow", "bool", "in the slower group of its round; false also where the round has no groups"),
    _c(
        "shares",
        "str",
        "cpu (another session of the round ran on the same CPU) | core (on another thread of its core) | "
        "none; NULL: its place is unknown, or it was moved",
        null=True,
    ),
)

PLACEMENTS: tuple[Column, ...] = (
    *CELL,
    _c("rounds", "i64", "whole measured rounds"),
    _c("median_ns", "i64", "median duration of its calls"),
    _c("alone_ns", "i64", "the same of one session by itself (same workload, variant)", null=True),
    _c("max_over_min", "f64", "slowest over fastest call of a round, median of the rounds", null=True),
    _c("cv", "f64", "standard deviation over mean within a round, median of the rounds", null=True),
    _c("skew_ns", "i64", "last start less first start of a round, median of the rounds"),
    _c(
        "p_groups",
        "f64",
        "probability of such a separation in one population; NULL: fewer than 3 sessions",
        null=True,
    ),
    _c("groups", "bool", "p_groups below 5 %"),
    _c("group_rounds", "i64", "rounds with two groups"),
    _c("slow_sessions", "i64", "sessions in the slower group, the most frequent number", null=True),
    _c("ratio", "f64", "slower over faster group, median of these rounds", null=True),
    _c("ratio_low", "f64", "95 % interval by bootstrap of rounds; NULL under 5 of them", null=True),
    _c("ratio_high", "f64", "its upper end", null=True),
    _c("known", "i64", "calls of these rounds whose place is known"),
    _c("slow_calls", "i64", "slow calls of these rounds"),
    _c("slow_known", "i64", "of which the place is known"),
    _c("slow_core", "i64", "slow ones that shared a core"),
    _c("slow_cpu", "i64", "slow ones that shared a CPU"),
    _c("fast_core", "i64", "others that shared a core"),
    _c("fast_cpu", "i64", "others that shared a CPU"),
    _c("p_core", "f64", "chance of that, were it all one who shares a core (permutation)", null=True),
    _c("p_cpu", "f64", "the same of a CPU", null=True),
    _c("shared", "str", "why they are slower: core | cpu; NULL: unknown", null=True),
    _c("calls", "i64", "calls of all rounds"),
    _c("moved", "i64", "calls that migrated to another CPU", null=True),
    _c("resettled", "i64", "calls that ran on another CPU than the session's call before", null=True),
    _c("all_core", "i64", "calls that shared a core (all rounds)"),
    _c("all_cpu", "i64", "calls that shared a CPU"),
    _c("all_known", "i64", "calls whose place is known"),
)
