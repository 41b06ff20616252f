"""Statements by query id: how often each was executed, how long that took, and what it read and wrote.

The engine reads them before a measurement's first call and after its last one, and at both ends of an
observation's window; of the texts only those that the run does not have yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbdyno.model.schema.column import Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_source import DataSource, Enabling, KeyedCounters

if TYPE_CHECKING:
    import polars as pl

FIGURES: tuple[Column, ...] = (
    _c("calls", "i64", "executions that ended", null=True),
    _c("exec_ns", "i64", "time of executions", null=True),
    _c("rows", "i64", "rows returned or changed", null=True),
    *(
        _c(f"{kind}_blks_{what}", "i64", f"{words} blocks {what}", null=True)
        for kind, words in (("shared", "shared"), ("local", "temporary tables'"))
        for what in ("hit", "read", "dirtied", "written")
    ),
    _c("temp_blks_read", "i64", "blocks of temporary files read", null=True),
    _c("temp_blks_written", "i64", "blocks of temporary files written", null=True),
    _c("blk_read_ns", "i64", "time of reading blocks, shared and local; NULL: not timed", null=True),
    _c("blk_write_ns", "i64", "time of writing blocks, shared and local; NULL: not timed", null=True),
    _c("wal_records", "i64", "WAL records", null=True),
    _c("wal_bytes", "i64", "WAL bytes", null=True),
    _c("plan_ns", "i64", "time of planning; NULL: not timed", null=True),
    _c("jit_ns", "i64", "time of just-in-time compilation; NULL: not in this version", null=True),
)
LIO = ("shared_blks_hit", "shared_blks_read", "local_blks_hit", "local_blks_read")
"""Together a statement's logical I/O."""
EVICTIONS = _c("evictions", "i64", "times that the server dropped rare statements; NULL: unknown", null=True)
KEY = (
    _c("user", "str", "role that executed it", null=True),
    _c("database", "str", "database", null=True),
    _c("query_id", "i64", "of the statement; NULL: hidden from this role", null=True),
    _c("toplevel", "bool", "false: inside a function, its time is part of the caller's"),
)
OF_KEY = (
    _c("since_s", "f64", "when this row was begun, seconds since 1970, if the server says", null=True),
    EVICTIONS,
    _c("reset_s", "f64", "when all statements were reset, seconds since 1970", null=True),
)
TEXTS: tuple[Column, ...] = (
    _c("query_id", "i64", "of the statement"),
    _c("text", "str", "as the server keeps it, without passwords; NULL: not kept by the server", null=True),
    _c("length", "i64", "characters of it; more than are here where it is cut", null=True),
)
STATEMENTS = DataSource(
    name="statement counters",
    provenance="the server's counters by statement",
    cures={},  # the engine says what is missing
    enabling=Enabling("calls, time and blocks by statement (Top SQL)"),
    keyed=KeyedCounters("statement_reads", KEY, (*FIGURES, *OF_KEY)),
)


def active(first: pl.DataFrame, last: pl.DataFrame) -> pl.DataFrame:
    """Of two reads (table ``statement_reads``) the rows of statements that were executed in between."""
    import polars as pl  # here: what only asks for columns does without

    key = [c.name for c in KEY]
    before = first.select(*key, was="calls", began="since_s")
    both = last.join(before, on=key, how="left", nulls_equal=True, maintain_order="left")
    same = pl.col("calls").eq_missing(pl.col("was")) & pl.col("since_s").eq_missing(pl.col("began"))
    now = both.filter(~same & (pl.col("calls") > 0)).select(last.columns)
    return pl.concat([first.join(now, on=key, how="semi", nulls_equal=True), now])


STATEMENT = (
    _c("query_id", "i64", "the statement that ran, or ran last; NULL: none, or see query_status", null=True),
    _c(
        "query_status",
        "str",
        "ok | others: found no room in the trace | lost: sessions not followed whole | why ids are unknown",
        null=True,
    ),
)
"""Of what a session did for a statement."""
STATEMENT_LEDGER = (
    *STATEMENT,
    _c("worker", "bool", "of parallel workers; NULL: of these, too", null=True),
    _c("account", "str", "run | runq | sleep | client; inside run: run.user | run.system"),
    _c("detail", "str", "class/event in which it slept", null=True),
    _c("seconds", "f64", "of the window, all sessions"),
    _c("low", "f64", "lower end of its 95 % interval; equal where exact", null=True),
    _c("high", "f64", "upper end", null=True),
    _c("share", "f64", "of the DB time of all sessions; NULL: client", null=True),
    _c("sleeps", "i64", "sleeps that began, where traced", null=True),
    _c("run_samples", "i64", "clock ticks, or samples, that met it so", null=True),
    _c("per_call_s", "f64", "of the statement", null=True),
    _c("per_work_s", "f64", "of the workload's unit of work", null=True),
    _c("source", "str", "data source"),
)
WAITS_OF = (
    *STATEMENT,
    _c("wait_class", "str", "NULL: no wait event", null=True),
    _c("wait_event", "str", "NULL: no wait event", null=True),
    _c("part", "str", "sleep | runq: in the run queue after it, or after a preemption"),
)
"""Rows of waits by statement."""
EVERY_STATEMENT = "all"
"""``query_status`` of rows of all statements together."""
