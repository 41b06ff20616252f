"""Counters of statements by query id: executions, their time, and the data read and written.

The engine reads them before the first call and after the last call of a measurement, and at both ends of an
observation's window. It reads only texts that the run does not have yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_source import DataSource, Enabling, KeyedCounters
from dbdyno.model.schema.raw import columns

if TYPE_CHECKING:
    import polars as pl

_BLOCKS = ("hit", "read", "dirtied", "written")
FIGURES = columns(
    "statement_reads",
    *("calls", "exec_ns", "rows"),
    *(f"{kind}_blks_{what}" for kind in ("shared", "local") for what in _BLOCKS),
    *("temp_blks_read", "temp_blks_written", "blk_read_ns", "blk_write_ns"),
    *("wal_records", "wal_bytes", "plan_ns", "jit_ns"),
)
LIO = ("shared_blks_hit", "shared_blks_read", "local_blks_hit", "local_blks_read")
"""Columns that add up to a statement's logical I/O."""
KEY = columns("statement_reads", "user", "database", "query_id", "toplevel")
OF_KEY = columns("statement_reads", "since_s", "evictions", "reset_s")
STATEMENTS = DataSource(
    name="statement counters",
    provenance="the server's counters by statement",
    cures={},  # the engine provides the advice
    enabling=Enabling("calls, time and blocks by statement (Top SQL)"),
    keyed=KeyedCounters("statement_reads", KEY, (*FIGURES, *OF_KEY)),
)


def active(first: pl.DataFrame, last: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of two reads of ``statement_reads`` for statements that were executed between the
    reads."""
    import polars as pl  # imported here, since schemas are needed without polars

    key = [c.name for c in KEY]
    before = first.select(*key, was="calls", began="since_s")
    both = last.join(before, on=key, how="left", nulls_equal=True, maintain_order="left")
    same = pl.col("calls").eq_missing(pl.col("was")) & pl.col("since_s").eq_missing(pl.col("began"))
    now = both.filter(~same & (pl.col("calls") > 0)).select(last.columns)
    return pl.concat([first.join(now, on=key, how="semi", nulls_equal=True), now])


STATEMENT = columns("waits", "query_id", "query_status")
"""Columns that assign a session's time to a statement."""
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
"""Columns of waits by statement."""
EVERY_STATEMENT = "all"
"""``query_status`` of rows that cover all statements."""
