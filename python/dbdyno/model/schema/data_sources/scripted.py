"""Columns of the derived tables of scripts: durations, failures, retries, plans, session time."""

from __future__ import annotations

from enum import StrEnum

from dbdyno.model.schema import quantiles
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.table import Table

_SCRIPT = (
    *CELL,
    _c("script", "i64", "0.., in the order in which they were given"),
    _c("name", "str", "its name"),
)


class ScriptPart(StrEnum):
    """The subject of a row in the table ``script_ledger``."""

    STATEMENT = "statement"
    BETWEEN_STATEMENTS = "between statements"
    BETWEEN_CALLS = "between calls"
    OTHER_STATEMENTS = "other statements"


DIVIDED, NO_ID = "divided by the client's time", "time without a query id, by the client's time"
"""How a statement's server time was derived from that of its query id."""
NO_LEDGER, NO_TEXT = "no times by statement", "not among the server's statements"
"""Reasons why a statement's server time is unknown."""


SCRIPT_TABLES: tuple[Table, ...] = (
    Table(
        "script_rates",
        (
            *_SCRIPT,
            _c("weight", "i64", "how often it is chosen, relative to the others"),
            _c("calls", "i64", "measured calls that ended well"),
            _c("errors", "i64", "measured calls that ended in an error"),
            _c("retried", "i64", "measured calls tried more than once"),
            _c("retries", "i64", "their tries beyond the first"),
            _c("in_call_ns", "i64", "sum of durations of measured calls that ended well"),
            _c("max_ns", "i64", "longest", null=True),
            _c("calls_share", "f64", "of the calls of all scripts", null=True),
            _c("time_share", "f64", "of the time in calls of all scripts", null=True),
            _c("calls_per_s", "f64", "its share of the calls per second of all sessions", null=True),
            _c("mean_ns", "f64", "mean duration", null=True),
            *quantiles.columns("", "i64"),
            _c(
                "lio_per_call", "f64", "logical reads of its statements; NULL: not all are counted", null=True
            ),
            _c("rows_per_call", "f64", "rows that its statements returned or changed", null=True),
        ),
        together=True,
        options=("scripts",),
    ),
    Table(
        "command_rates",
        (
            *_SCRIPT,
            _c("command", "i64", "0.., in the order of the script"),
            _c("line", "i64", "line of the script on which it begins, from 1"),
            _c("text", "str", "as it is written, in one line"),
            _c("executions", "i64", "times that it ended well in measured calls"),
            _c("failures", "i64", "times that it made a measured call fail"),
            _c("retries", "i64", "times that it made a measured call start again"),
            _c("total_ns", "i64", "sum of durations; NULL: never waited (part of the next one)", null=True),
            _c("max_ns", "i64", "longest", null=True),
            _c("mean_ns", "f64", "total_ns / executions", null=True),
            _c("time_share", "f64", "of the time of all commands of its script", null=True),
        ),
        together=True,
        options=("scripts",),
    ),
    Table(
        "script_failures",
        (
            *_SCRIPT,
            _c("kind", "str", "serialization | deadlock | other"),
            _c("code", "str", "the server's code"),
            _c("count", "i64", "calls that failed so, from the barrier on"),
            _c("message", "str", "the first such message"),
        ),
        together=True,
        options=("scripts",),
    ),
    Table(
        "plan_shapes",
        (
            *_SCRIPT,
            _c("command", "i64", "0.., in the order of the script"),
            _c("line", "i64", "line of the script on which it begins, from 1"),
            _c(
                "shape",
                "str",
                "nodes of the plan for no values in particular, the outermost first",
                null=True,
            ),
            _c("digest", "str", "of the shape: equal where plans are alike", null=True),
            _c("status", "str", "ok, or why there is no plan"),
        ),
        options=("scripts",),
    ),
    Table(
        "script_durations",
        (
            *CELL,
            _c("script", "i64", "as in script_rates"),
            _c("low_ns", "i64", "lowest duration of the bucket, inclusive"),
            _c("high_ns", "i64", "highest duration of the bucket, inclusive"),
            _c("count", "i64", "measured calls in it"),
        ),
        together=True,
        json=False,
    ),
    Table(
        "script_ledger",
        (
            *CELL,
            _c("part", "str", f"{' | '.join(ScriptPart)}: of no script, inside the client's time of others"),
            _c("script", "i64", "as in script_rates; NULL: of no script", null=True),
            _c("name", "str", "its name", null=True),
            _c("command", "i64", "as in command_rates; NULL: of none", null=True),
            _c("line", "i64", "line of the script on which it begins", null=True),
            _c("text", "str", "as it is written, in one line", null=True),
            _c(
                "account",
                "str",
                "all (exact, by the driver's clock) | run | runq | sleep | client (what is left of all, "
                "signed); inside run: run.user | run.system",
            ),
            _c("detail", "str", "class/event in which it slept", null=True),
            _c("seconds", "f64", "of the window, all sessions; NULL: unknown", null=True),
            _c("low", "f64", "lower end of its 95 % interval; equal where exact", null=True),
            _c("high", "f64", "upper end", null=True),
            _c("share", "f64", "of session time: the rows of account all add up to it", null=True),
            _c("status", "str", "ok | why unknown"),
            _c("source", "str", "data source, and how it was divided"),
        ),
        together=True,
        options=("scripts",),
    ),
)
