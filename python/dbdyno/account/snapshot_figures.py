"""Figures per second of a difference of two snapshots: load of each database, statements, tables. Pure.

A rate is growth divided by the row's own seconds. If counters were reset, these begin at the reset.
"""

from __future__ import annotations

import polars as pl

from dbdyno.account.table_scans import large_scans
from dbdyno.model.engine.snapshot import TABLES
from dbdyno.model.results.interval import ALL, LOWER_BOUNDS, PER_S, STANDING, Interval, IntervalFigures
from dbdyno.model.schema.tables import sum_of_known

_COUNTERS = [c.name for c in TABLES["databases"].counters]
_LOWER = {
    "reset": "lower bound: counters were reset in between",
    "evicted": "lower bound: the server dropped its counters in between and began anew",
}
_RELATION = TABLES["relations"]
_WORST = ("reset", "partition dropped", "index dropped", "unread", "ok", "remade", "new", "gone")


def figures(interval: Interval) -> IntervalFigures:
    """Returns all figures that a report shows beside the growth."""
    parts = (
        databases(interval),
        statements(interval),
        relations(interval),
        server(interval),
        large_scans(interval),
    )
    return IntervalFigures(interval, *parts)


def databases(interval: Interval) -> pl.DataFrame:
    """Returns load and rates by database, and a row of all. This and the following return columns of
    :class:`~dbdyno.model.results.interval.IntervalFigures`."""
    known = interval.tables["databases"].filter(pl.col("status").is_in(STANDING))
    whole = known.with_columns(
        pl.col("database").fill_null("(shared objects)"),
        transactions=pl.col("commits") + pl.col("rollbacks"),
        logical_reads=pl.col("blocks_hit") + pl.col("blocks_read"),
    )
    growing = [*_COUNTERS, "transactions", "logical_reads"]
    whole = whole.with_columns((pl.col(c) / pl.col("seconds")).alias(c + PER_S) for c in growing)
    sums = [*growing, *(c + PER_S for c in growing), "backends", "size_bytes", "size_bytes_growth"]
    lower = pl.col("status").is_in(LOWER_BOUNDS).any()
    total = whole.select(
        pl.lit(ALL).alias("database"),
        pl.when(lower).then(pl.lit("reset")).otherwise(pl.lit("ok")).alias("status"),
        pl.lit(interval.seconds).alias("seconds"),
        *(sum_of_known(c) for c in sums),
        *(pl.col(c).max() for c in ("transaction_age", "multixact_age")),
    ).head(1)
    order = whole.sort("transactions", "logical_reads", descending=True, nulls_last=True)
    with_total = pl.concat([order, total] if len(order) else [order], how="diagonal_relaxed")
    return with_total.with_columns(hit_ratio=ratio("blocks_hit", "blocks_read"))


def ratio(part: str, other: str) -> pl.Expr:
    """Returns ``part / (part + other)``; NULL if both are 0."""
    both = pl.col(part) + pl.col(other)
    return pl.when(both > 0).then(pl.col(part) / both)


def statements(interval: Interval) -> pl.DataFrame:
    """Returns statements by falling execution time, with rank and share."""
    rows = interval.tables["statements"].filter(pl.col("status").is_in(STANDING) & (pl.col("calls") > 0))
    ranked = rows.sort("exec_ns", descending=True, nulls_last=True).with_row_index("rank", offset=1)
    top = pl.col("exec_ns").filter("toplevel").sum()
    return ranked.with_columns(
        share=pl.when(pl.col("toplevel") & (top > 0)).then(pl.col("exec_ns") / top),
        status=pl.col("status").replace(_LOWER),
        wall_s="seconds",
        others=pl.lit(None, pl.Int64),
        db_time_s=pl.lit(None, pl.Float64),
        cpu_wait_s=pl.lit(None, pl.Float64),
        top_wait=pl.lit(None, pl.String),
        evictions=pl.lit(interval.evictions, pl.Int64),
    )


def relations(interval: Interval) -> pl.DataFrame:
    """Returns growth and ratios by table. Partitions are summed into their root."""
    rows = interval.tables["relations"]
    counters = [c.name for c in _RELATION.counters]
    sizes = [n for n in rows.columns if n.endswith(("_bytes", "_rows_growth", "_bytes_growth"))]
    sizes += ["live_rows", "dead_rows", "changed_rows"]
    own = pl.col("relation_id") == pl.col("_id")
    name = pl.concat_str("schema", pl.lit("."), "relation")
    parts = pl.col("root_id").is_not_null() & ~own
    worst = pl.col("status").cast(pl.Enum([*_WORST, "evicted"])).min().cast(pl.String)
    with_root = rows.with_columns(_id=pl.coalesce("root_id", "relation_id")).with_columns(
        status=pl.when(parts & (pl.col("status") == "gone"))
        .then(pl.lit("partition dropped"))
        .otherwise("status")
    )
    whole = with_root.group_by("database_id", pl.col("_id").alias("relation_id"), maintain_order=True).agg(
        pl.col("database").first(),
        pl.coalesce(name.filter(own).first(), pl.col("root").first(), name.first()).alias("name"),
        pl.coalesce(pl.col("kind").filter(own).first(), pl.lit("table")).alias("kind"),
        parts.sum().alias("partitions"),
        worst.alias("status"),
        pl.col("seconds").min(),
        *(sum_of_known(c) for c in dict.fromkeys([*counters, *sizes])),
        *(pl.col(c).max() for c in ("vacuumed_s", "analyzed_s", "transaction_age")),
        pl.col("sized").all(),
    )
    read = whole.with_columns(
        rows_read=pl.col("seq_rows") + pl.col("index_rows"),
        rows_written=pl.sum_horizontal("rows_inserted", "rows_updated", "rows_deleted", ignore_nulls=False),
        table_hit_ratio=ratio("table_blocks_hit", "table_blocks_read"),
        index_hit_ratio=ratio("index_blocks_hit", "index_blocks_read"),
        hot_share=pl.when(pl.col("rows_updated") > 0).then(
            pl.col("rows_hot_updated") / pl.col("rows_updated")
        ),
        size_bytes=pl.sum_horizontal("table_bytes", "index_bytes", "toast_bytes"),
        size_bytes_growth=pl.sum_horizontal("table_bytes_growth", "index_bytes_growth", "toast_bytes_growth"),
    )
    return read.sort("rows_read", "rows_written", descending=True, nulls_last=True, maintain_order=True)


def server(interval: Interval) -> dict[str, tuple[int | None, float]]:
    """Returns growth and seconds of server-wide counters, by name."""
    rows = interval.tables["server"].filter(pl.col("status").is_in(STANDING))
    return {name: (value, s) for name, value, s in rows.select("figure", "value", "seconds").iter_rows()}


def used_per(
    interval_figures: IntervalFigures, calls: float, work: float | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns tables and indexes per call as :class:`~dbdyno.model.results.interval.ObjectUse` has them.
    ``work``: units of work of all calls; None if there are none."""
    parts = ("table", "index", "toast")
    tables = interval_figures.relations.filter(
        pl.col("status").is_in(STANDING) & (pl.col("kind") != "system")
    ).select(
        "name",
        "rows_read",
        "rows_written",
        blocks=pl.sum_horizontal(f"{p}_blocks_{how}" for p in parts for how in ("hit", "read")),
        blocks_read=pl.sum_horizontal(f"{p}_blocks_read" for p in parts),
        scans=pl.sum_horizontal("seq_scans", "index_scans"),
    )
    rows = interval_figures.interval.tables["indexes"].filter(pl.col("status").is_in(STANDING))
    indexes = rows.select(
        name=pl.concat_str("schema", pl.lit("."), "index"),
        rows_read="entries_read",
        rows_written=pl.lit(None, pl.Int64),
        blocks=pl.col("blocks_read") + pl.col("blocks_hit"),
        blocks_read="blocks_read",
        scans="scans",
    )
    return _per(tables, calls, work), _per(indexes, calls, work)


def _per(frame: pl.DataFrame, calls: float, work: float | None) -> pl.DataFrame:
    used = frame.filter((pl.col("blocks") > 0) | (pl.col("scans") > 0) | (pl.col("rows_written") > 0))
    each = used.sort("blocks", descending=True, nulls_last=True).with_columns(
        blocks_per_work=pl.col("blocks") / pl.lit(work or None, pl.Float64)
    )
    return each.with_columns(pl.exclude("name", "blocks_per_work") / calls)
