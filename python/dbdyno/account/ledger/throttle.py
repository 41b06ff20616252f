"""Throttled time: a bracket inside the run queue, never added and never subtracted (DESIGN, section 3)."""

from __future__ import annotations

import polars as pl

from dbdyno.account.ledger.sample_rows import Tables

ACCOUNT = "runq.throttled_bracket"
FOREIGN = 0.05
"""If tasks unknown to us used more than this share of the group's CPU, they may be the ones that wait."""


def throttle_bracket(cut: Tables) -> pl.DataFrame:
    """How much of the sessions' run-queue time was throttling: at least ``low``, at most ``high``.

    ``throttled`` of cpu.stat sums over per-CPU queues, each with at least one task waiting in it: the
    group's tasks waited throttled at least that long in sum. Tasks that are no sessions may have borne it:
    their run-queue time is taken off. The upper end is all run-queue time; without throttling both are 0.
    """
    levels = cut["cut_levels"].filter((pl.col("origin") == "cgroup") & (pl.col("scope") == "server"))
    if levels.is_empty():
        return pl.DataFrame()
    rate = pl.col("delta") / pl.col("wall_ns")
    groups = levels.group_by("cell", "place", maintain_order=True).agg(
        *(rate.filter(pl.col("key") == f"{key}_ns").first().alias(key) for key in ("throttled", "usage")),
        status=pl.col("status").filter(pl.col("key") == "throttled_ns").first(),
    )
    mine = (
        groups.sort("throttled", descending=True, nulls_last=True)
        .group_by("cell", maintain_order=True)
        .first()
    )
    joined = mine.join(_waiting(cut), on="cell", how="left")
    return joined.select("cell", *_bounds())


def _waiting(cut: Tables) -> pl.DataFrame:
    """Per cell: run-queue time of the sessions, of others who may be in the group, and CPU of them all."""
    drivers = cut["cut_levels"].filter(pl.col("scope") == "driver").select("cell", "place")
    servers = cut["cut_levels"].filter(pl.col("scope") == "server").select("cell", "place")
    shared = drivers.drop_nulls().join(servers, on=["cell", "place"], how="semi")["cell"].unique()
    session = pl.col("role") == "session"
    inside = ~pl.col("role").is_in(["driver", "pooler", "dbdyno"]) | pl.col("cell").is_in(shared.implode())
    runq, run = pl.col("runq_ns") / pl.col("over_ns"), pl.col("run_ns") / pl.col("over_ns")
    return (
        cut["cut_tasks"]
        .group_by("cell")
        .agg(
            known=runq.filter(session).is_not_null().any(),
            runq=runq.filter(session).sum(),
            beside=runq.filter(inside & ~session).sum(),
            run=run.filter(inside).sum(),
        )
    )


def _bounds() -> list[pl.Expr]:
    throttled, runq = pl.col("throttled"), pl.col("runq")
    foreign = (pl.col("usage") - pl.col("run") > FOREIGN * pl.col("usage")).fill_null(True)
    least = pl.when(foreign).then(0.0).otherwise((throttled - pl.col("beside")).clip(0.0))
    known = throttled.is_not_null() & pl.col("known")
    return [
        pl.lit(ACCOUNT).alias("account"),
        pl.lit(None, dtype=pl.Float64).alias("aas"),
        pl.when(known).then(pl.min_horizontal(least, runq)).alias("low"),
        pl.when(known).then(pl.when(throttled == 0).then(0.0).otherwise(runq)).alias("high"),
        pl.when(known)
        .then(pl.lit("bracket"))
        .when(throttled.is_null())
        .then(pl.col("status").fill_null("not supported"))
        .otherwise(pl.lit("run queue unknown"))
        .alias("status"),
        pl.lit("cgroup").alias("source"),
    ]
