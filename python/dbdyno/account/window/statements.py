"""Growth of each statement's counters between two reads, and the sampled time of sessions by statement.

A count that went down, or a row that the server began anew, was reset or dropped in between, and its
present value is growth since then. That is a lower bound, as the status says. No figure is the difference
of two different rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.window.cells import for_each
from dbdyno.account.window.samples import spans_of
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.data_sources.statements import FIGURES, KEY
from dbdyno.model.units import NS_PER_S

RESET = "lower bound: its counters were reset"
DROPPED = "lower bound: the server dropped rare statements"
_NAMES = [c.name for c in FIGURES]
_RUN, _WAIT, _UNKNOWN = range(3)
_DOING = {_RUN: "run", _WAIT: "wait", _UNKNOWN: "?"}
"""Names of the codes that stand in for text in long tables, as grouping by integers is faster."""


def cut_statements(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_statements``: each statement that was executed between the reads."""
    return for_each("cut_statements", cells, _growth)


def cut_statement_samples(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_statement_samples``: time of sessions by statement and activity."""
    return for_each("cut_statement_samples", cells, _sampled_time)


def _growth(cell: RawCell) -> pl.DataFrame:
    reads = cell.tables["statement_reads"]
    if reads.is_empty():
        return reads
    key = [c.name for c in KEY]
    now, before = reads.filter(pl.col("phase") == "t1"), reads.filter(pl.col("phase") == "t0")
    known = ("since_s", "reset_s", "evictions", "before_ns")
    was = before.select(*key, *(pl.col(n).alias(f"{n}_0") for n in (*_NAMES, *known)))
    both = now.join(was, on=key, how="left", nulls_equal=True, maintain_order="left")
    # A statement that is new in this window takes these from the first read's other rows.
    first = {n: before[n].first() if before.height else None for n in ("reset_s", "evictions", "before_ns")}
    both = both.with_columns(pl.col(f"{n}_0").fill_null(pl.lit(v)) for n, v in first.items())
    fell = pl.any_horizontal((pl.col(n) < pl.col(f"{n}_0")).fill_null(value=False) for n in _NAMES)
    both = both.with_columns(known=pl.col("calls_0").is_not_null()).with_columns(
        anew=pl.col("known") & (fell | pl.col("since_s").ne_missing(pl.col("since_s_0"))),
        reset=pl.col("reset_s").ne_missing(pl.col("reset_s_0")) & pl.col("before_ns_0").is_not_null(),
    )
    in_both, anew, reset = pl.col("known"), pl.col("anew"), pl.col("reset")
    same_row = in_both & pl.col("since_s").is_not_null() & ~anew
    dropped = (pl.col("evictions") > pl.col("evictions_0")).fill_null(value=False) & ~same_row
    both = both.with_columns(dropped=dropped, from_zero=anew | reset | ~in_both)
    growth = {
        n: pl.when("from_zero").then(n).otherwise(pl.col(n) - pl.col(f"{n}_0").fill_null(0)) for n in _NAMES
    }
    wall_s = (pl.col("before_ns") - pl.col("before_ns_0")) / NS_PER_S
    lost = pl.when("dropped").then(pl.lit(DROPPED)).when(anew | reset).then(pl.lit(RESET))
    gone = pl.when(~reset).then(pl.col("evictions") - pl.col("evictions_0")).otherwise("evictions")
    return both.select(
        *key, **growth, evictions=gone, wall_s=wall_s, status=lost.otherwise(pl.lit("ok"))
    ).filter(pl.col("calls") > 0)


def _sampled_time(cell: RawCell) -> pl.DataFrame:
    """Returns sampled time by statement and activity. A runnable task works for its statement, even if its
    wait event is not cleared yet."""
    columns = ("state", "wait_class", "wait_event", "query_id", "task_state")
    of_sessions = (pl.col("role") == "session") & (pl.col("via").fill_null("sql") == "sql")
    spans = (
        spans_of(cell)
        .filter(pl.col("via") == "sql")
        .select("sample", ns=pl.col("high_ns") - pl.col("low_ns"))
    )
    runnable = pl.col("task_state") == "R"
    asleep = (pl.col("state") == "active") & pl.col("wait_class").is_not_null()
    unknown = (pl.col("state") == "active") & pl.col("task_state").is_null()
    doing = pl.when(runnable).then(_RUN).when(asleep).then(_WAIT).when(unknown).then(_UNKNOWN)
    by = ["query_id", "doing", "wait_class", "wait_event"]
    parts = []
    for part in cell.chunks("samples", "sample", *columns, where=of_sessions & (runnable | asleep | unknown)):
        seen = part.select("sample", "query_id", "wait_class", "wait_event", doing=doing.cast(pl.Int8))
        seen = seen.with_columns(
            pl.when(pl.col("doing") == _WAIT).then(c).alias(c) for c in ("wait_class", "wait_event")
        )
        parts.append(seen.join(spans, on="sample").group_by(by).agg(pl.col("ns").sum(), samples=pl.len()))
    if not parts:
        return pl.DataFrame()
    every = (
        pl.concat(parts)
        .group_by(by)
        .agg(seconds=pl.col("ns").sum() / NS_PER_S, samples=pl.col("samples").sum())
    )
    names = pl.col("doing").replace_strict(_DOING, return_dtype=pl.String)
    return every.with_columns(doing=names).sort(by, nulls_last=True)
