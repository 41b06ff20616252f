"""The table ``strips``: each session's time in bins, for a picture of the window."""

from __future__ import annotations

import polars as pl

from dbdyno.account.ledger.apportion import Joint
from dbdyno.account.ledger.sample_rows import NO_EVENT, UNLABELLED, Tables
from dbdyno.model.column import CELL
from dbdyno.model.tables import conform, empty
from dbdyno.model.units import NS_PER_S

ASLEEP, UNKNOWN = "asleep", "unknown"


def strips_of(found: Joint, cut: Tables) -> pl.DataFrame:
    """Run and run queue from the reads of tasks, the rest by the classes that samples saw asleep in the bin.

    The shares of a bin add up to 1. Time off that no sample in the bin saw is "asleep"; where the tasks
    cannot be read, the shares are those of the server's words, and what they don't tell is "unknown".
    """
    bins = cut["cut_bins"]
    if bins.is_empty():
        return empty("strips")
    keys = [c.name for c in CELL]
    bins = bins.with_row_index("bin").with_columns(
        length=(pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    )
    read = pl.col("known_ns") > pl.col("length") / 2
    scale = pl.col("length") / pl.col("known_ns")
    bins = bins.with_columns(
        run=pl.when(read).then(pl.col("run_ns") * scale), runq=pl.when(read).then(pl.col("runq_ns") * scale)
    ).with_columns(off=(pl.col("length") - (pl.col("run") + pl.col("runq")).fill_null(0.0)).clip(0.0))
    slept = _classes(found, bins)
    parts = [bins.filter(pl.col(n) > 0).select("bin", part=pl.lit(n), time=n) for n in ("run", "runq")]
    rows = pl.concat([*parts, slept, _rest(bins, [*parts, slept])])
    rows = bins.select("bin", *keys, "session", "start_ns", "end_ns").join(
        rows, on="bin", maintain_order="left"
    )
    t0 = cut["windows"].select("cell", "t0_ns")
    rows = rows.join(t0, on="cell", maintain_order="left")
    whole = pl.col("time").sum().over("bin")
    return conform(
        "strips",
        rows.select(
            *keys,
            "session",
            "part",
            start_s=(pl.col("start_ns") - pl.col("t0_ns")) / NS_PER_S,
            end_s=(pl.col("end_ns") - pl.col("t0_ns")) / NS_PER_S,
            share=pl.col("time") / whole,
        ),
    )


def _classes(found: Joint, bins: pl.DataFrame) -> pl.DataFrame:
    """Time off of each bin by the wait classes of its samples asleep; without task reads by their words."""
    tasks = found.tasks.filter((pl.col("role") == "session") & ~pl.col("worker"))
    rows = found.bins.join(tasks.select("task", "cell", "session"), on="task", maintain_order="left")
    named = bins.select("bin", "cell", "session", "start_ns", "off", read=pl.col("run").is_not_null())
    rows = rows.join(named, on=["cell", "session", "start_ns"], maintain_order="left")
    kind = pl.col("kind")
    word = (
        pl.when(kind == "sleep")
        .then(pl.col("wait_class").fill_null(NO_EVENT))
        .when(kind == "unlabelled")
        .then(pl.lit(UNLABELLED))
        .otherwise(pl.lit(UNKNOWN))
    )
    rows = rows.with_columns(part_of=word).filter(~pl.col("read") | (pl.col("kind") == "sleep"))
    counted = rows.group_by("bin", "part_of", maintain_order=True).agg(
        n=pl.col("n").sum(), off=pl.col("off").first()
    )
    share = pl.col("n") / pl.col("n").sum().over("bin")
    return counted.select("bin", part="part_of", time=share * pl.col("off")).filter(pl.col("time") > 0)


def _rest(bins: pl.DataFrame, parts: list[pl.DataFrame]) -> pl.DataFrame:
    """What is left of a bin: asleep where its task was read, else unknown."""
    used = pl.concat(parts).group_by("bin").agg(used=pl.col("time").sum())
    left = bins.join(used, on="bin", how="left").with_columns(
        time=pl.col("length") - pl.col("used").fill_null(0.0),
        part=pl.when(pl.col("run").is_not_null()).then(pl.lit(ASLEEP)).otherwise(pl.lit(UNKNOWN)),
    )
    return left.filter(pl.col("time") > 1e-6 * pl.col("length")).select("bin", "part", "time")
