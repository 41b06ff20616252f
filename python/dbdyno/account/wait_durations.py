"""Tables ``wait_histogram`` and ``wait_durations``: durations of waits by wait event and statement. Pure.

The trace counts each wait that ends in buckets, four for each power of two: the sleep, and the run queue
after it. A mean is time divided by the number of sleeps or of stays in the run queue; a quantile is the
upper end of its bucket. A mean above the longest wait that ended is not shown: it comes from waits in
progress that outlast all others.
"""

from __future__ import annotations

import polars as pl

from dbdyno.account.making import makes
from dbdyno.model.results.ledger_rows import groups
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources.statements import EVERY_STATEMENT, WAITS_OF
from dbdyno.model.schema.tables import Tables, conform, empty, known_quantile, quantile, sum_if_all_known

SLEEP, QUEUE = "sleep", "runq"
_FIRST_NS = 1024
_CELL = [c.name for c in CELL]
_BY = [c.name for c in WAITS_OF]
_STATEMENT = ("query_id", "query_status")


@makes("wait_histogram")
def wait_histogram(tables: Tables) -> pl.DataFrame:
    """Returns the histogram per cell from ``cut_wait_times``: of each statement, and of all together."""
    low = pl.col("low_ns")
    # A bucket is a quarter of its power of two. 1e-9 keeps log2 of an exact power from falling below it.
    step = pl.lit(2).pow((low.log(2) + 1e-9).floor().cast(pl.Int64) - 2).cast(pl.Int64)
    high = pl.when(low < _FIRST_NS).then(_FIRST_NS).otherwise(low + step)
    ended = tables["cut_wait_times"].filter(low.is_not_null() & (pl.col("count") > 0))
    rows = _with_all(ended.with_columns(high_ns=high))
    counts = rows.group_by(*_CELL, *_BY, "low_ns", "high_ns", maintain_order=True).agg(pl.col("count").sum())
    return conform("wait_histogram", counts)


@makes("wait_durations", reads=("wait_histogram",))
def wait_durations(tables: Tables) -> pl.DataFrame:
    """Returns durations per cell, from ``wait_histogram``, ``cut_statement_waits`` and ``windows``."""
    walls = tables["windows"].select("cell", "wall_s")
    waits = _with_all(tables["cut_statement_waits"]).join(walls, on="cell", maintain_order="left")
    counts = ("waits_per_s", "sleeps_per_s", "preempted_per_s")
    waits = waits.with_columns(pl.col(n) * pl.col("wall_s") for n in counts)
    slept = {"part": pl.lit(SLEEP), "begun": pl.col("sleeps_per_s"), "waits": pl.col("waits_per_s")}
    queued = {
        "part": pl.lit(QUEUE),
        "begun": pl.col("sleeps_per_s") + pl.col("preempted_per_s"),
        "waits": pl.lit(None, pl.Float64),
    }
    parts = {SLEEP: slept, QUEUE: queued}
    both = pl.concat([waits.with_columns(**kind, time=part) for part, kind in parts.items()])
    sums = both.group_by(*_CELL, *_BY, maintain_order=True).agg(
        seconds=(pl.col("time") * pl.col("wall_s")).sum(),
        begun=pl.col("begun").sum(),
        waits=sum_if_all_known("waits"),
    )
    lost = tables["cut_wait_times"].filter(pl.col("status") == "lost")["cell"].unique()
    status = pl.when(pl.col("cell").is_in(lost.implode())).then(pl.lit("lost")).otherwise(pl.lit("ok"))
    return _summed(sums.with_columns(status=status), tables["wait_histogram"])


@makes("wait_histogram", "wait_durations", stage="total")
def wait_durations_total(tables: Tables) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns both tables over all usable cells of a workload, variant and load together (cell ``all``)."""
    histograms, times = [empty("wait_histogram")], [empty("wait_durations")]
    for head, cells in groups(tables["windows"]):
        in_load = pl.col("cell").is_in([w["cell"] for w in cells])
        histogram, sums = (tables[n].filter(in_load) for n in ("wait_histogram", "wait_durations"))
        key = [pl.lit(v).alias(n) for n, v in head.items()]
        merged = histogram.group_by(*_BY, "low_ns", "high_ns", maintain_order=True).agg(pl.col("count").sum())
        merged = conform("wait_histogram", merged.with_columns(key))
        rows = sums.group_by(_BY, maintain_order=True).agg(
            pl.col("seconds", "begun").sum(), sum_if_all_known("waits"), pl.col("status").min()
        )
        histograms.append(merged)
        times.append(_summed(rows.with_columns(key), merged))
    return pl.concat(histograms), pl.concat(times)


def _with_all(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds rows of all statements together."""
    none = {"query_id": pl.lit(None, pl.Int64), "query_status": pl.lit(EVERY_STATEMENT)}
    return pl.concat([rows.with_columns(**none), rows.filter(pl.col("query_id").is_not_null())])


def _summed(sums: pl.DataFrame, histogram: pl.DataFrame) -> pl.DataFrame:
    """Adds means and quantiles, and drops rows without time and waits."""
    key = [*_CELL, *_BY]
    quantiles = {"p50_ns": known_quantile(0.5), "p99_ns": known_quantile(0.99), "max_ns": quantile(1.0)}
    ended = histogram.sort("low_ns", "high_ns").group_by(key).agg(pl.col("count").sum(), **quantiles)
    with_quantiles = sums.join(ended, on=key, how="left", nulls_equal=True, maintain_order="left")
    # The run queue after a wait for the next statement belongs to another statement than the wait.
    times = pl.when(pl.col("part") == QUEUE).then(pl.col("count").fill_null(0)).otherwise("begun")
    mean = pl.col("seconds") * 1e9 / times
    with_quantiles = with_quantiles.with_columns(
        pl.col("count").fill_null(0),
        pl.col("begun", "waits").round(),
        mean_ns=pl.when((times > 0) & (mean <= pl.col("max_ns"))).then(mean),
    )
    return conform("wait_durations", with_quantiles.filter((pl.col("seconds") > 0) | (pl.col("count") > 0)))
