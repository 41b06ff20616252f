"""The exact part: time on a CPU and in the run queue, by group of tasks."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

TICK_NS = 10_000_000
"""USER_HZ is 100 on every architecture Linux runs PostgreSQL on: utime and stime count in 10 ms."""
STALE_NS = 10_000_000
"""Another task's run and run-queue time may be this old at a read (a tick at HZ=100)."""

SOURCE = "os tasks"


def cpu_accounts(tasks: pl.DataFrame, by: Sequence[str], *, split: bool = True) -> pl.DataFrame:
    """Rows of accounts run, runq (and run.user, run.system) for each group ``by`` of ``tasks``.

    A sum with unknown parts is that of the known ones, up to what the others may have had; its status
    says so. With no known part it is NULL.
    """
    known = tasks.with_columns(known=pl.col("run_ns").is_not_null())
    grouped = known.group_by(by, maintain_order=True).agg(
        *(_sum(name).alias(name) for name in ("run_ns", "runq_ns")),
        *(_ticks(name).alias(name) for name in ("user_ns", "system_ns")),
        slack=(STALE_NS / pl.col("over_ns")).filter("known").sum(),
        tick=(TICK_NS / pl.col("over_ns")).filter("known").sum(),
        missing=(pl.col("wall_ns") / pl.col("over_ns")).filter(~pl.col("known")).sum(),
        status=_status(),
    )
    exact = [_exact(grouped, by, "run", "run_ns"), _exact(grouped, by, "runq", "runq_ns")]
    halves = [_half(grouped, by, "user", "system"), _half(grouped, by, "system", "user")] if split else []
    return pl.concat([*halves, *exact])


def _sum(name: str) -> pl.Expr:
    return pl.when(pl.col("known").any()).then((pl.col(name) / pl.col("over_ns")).sum())


def _ticks(name: str) -> pl.Expr:
    return (pl.col(name) / pl.col("over_ns")).filter("known").sum()


def _status() -> pl.Expr:
    some = pl.format("{} of {} tasks", pl.col("known").sum(), pl.len())
    bad = pl.col("status").filter(~pl.col("known")).first()
    return (
        pl.when(pl.col("known").all())
        .then(pl.lit("ok"))
        .when(pl.col("known").any())
        .then(some)
        .otherwise(bad)
    )


def _exact(grouped: pl.DataFrame, by: Sequence[str], account: str, name: str) -> pl.DataFrame:
    value = pl.col(name)
    return grouped.select(
        *by,
        account=pl.lit(account),
        detail=pl.lit(None, dtype=pl.String),
        aas=value,
        low=(value - pl.col("slack")).clip(0),
        high=value + pl.col("slack") + pl.col("missing"),
        status="status",
        source=pl.lit(SOURCE),
    )


def _half(grouped: pl.DataFrame, by: Sequence[str], mine: str, other: str) -> pl.DataFrame:
    """run split by the ratio of the ticks; low and high: one tick more or less a task on either side."""
    run, tick = pl.col("run_ns"), pl.col("tick")
    a, b = pl.col(f"{mine}_ns").clip(0), pl.col(f"{other}_ns").clip(0)

    def part(a: pl.Expr, b: pl.Expr) -> pl.Expr:
        return pl.when(a + b > 0).then(run * a / (a + b))

    unseen = (a + b == 0) & (run > 0)
    return grouped.select(
        *by,
        account=pl.lit(f"run.{mine}"),
        detail=pl.lit(None, dtype=pl.String),
        aas=pl.when(run == 0).then(0.0).otherwise(part(a, b)),
        low=pl.when(run.is_not_null()).then(part((a - tick).clip(0), b + tick).fill_null(0.0)),
        high=pl.when(run.is_not_null()).then(part(a + tick, (b - tick).clip(0)).fill_null(run)),
        status=pl.when(unseen).then(pl.lit("no tick seen")).otherwise("status"),
        source=pl.lit(SOURCE),
    )
