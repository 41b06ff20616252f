"""The exact part: time on a CPU and in the run queue, by group of tasks."""

from __future__ import annotations

import polars as pl

from dbdyno.account.ledger.group_sums import slack
from dbdyno.account.ledger.groups import Groups
from dbdyno.model.brief import BRIEF, STATUS, material
from dbdyno.model.units import TICK_NS


def cpu_sums(tasks: pl.DataFrame, groups: Groups) -> pl.DataFrame:
    """Per group ``run`` and ``runq`` (seconds per second), ``user`` and ``system`` (by ticks), and errors.

    A sum with unknown parts is that of the known ones, up to what the others may have had (``missing``);
    its status says so. With no known part, or without much of it (run queue of brief sessions), it is NULL.
    """
    over, known, ran = pl.col("over_ns"), pl.col("known"), pl.col("run_ns").is_not_null()
    found = (
        groups.members.join(tasks, on="task", maintain_order="left")
        .group_by("group", maintain_order=True)
        .agg(
            *((pl.col(f"{n}_ns") / over).filter(known).sum().alias(n) for n in ("user", "system")),
            run=pl.when(ran.any()).then((pl.col("run_ns") / over).sum()),
            runq=pl.when(known.any() & ~_left_out()).then((pl.col("runq_ns") / over).sum()),
            tick=(TICK_NS / over).filter(known).sum(),
            missing_run=(pl.col("wall_ns") / over).filter(~ran).sum(),
            missing_runq=(pl.col("wall_ns") / over).filter(~known).sum(),
            throttled=_all_known("throttled_ns", pl.col("traced")),
            blkio=_all_known("blkio_ns", pl.lit(True)),
            status_run=_status(ran),
            status_runq=pl.when(_left_out() & known.any()).then(pl.lit(STATUS)).otherwise(_status(known)),
        )
    )
    errors = slack(tasks, groups).select("group", slack_run="run", slack_runq="runq")
    found = found.join(errors, on="group", how="left", maintain_order="left")
    return found.join(groups.table, on="group", maintain_order="left")


def _all_known(name: str, needed: pl.Expr) -> pl.Expr:
    """A sum that is unknown as soon as one part is."""
    whole = needed.all() & pl.col(name).is_not_null().all()
    return pl.when(whole).then((pl.col(name) / pl.col("over_ns")).sum())


def _left_out() -> pl.Expr:
    """Sessions too brief to be sampled used much of the CPU time, and for how long they waited is unknown."""
    used = pl.col("run_ns") / pl.col("over_ns")
    brief = (pl.col("role") == BRIEF) & ~pl.col("known")
    left_out: pl.Expr = material(used.filter(brief).sum(), used.sum())
    return left_out


def _status(known: pl.Expr) -> pl.Expr:
    some = pl.format("{} of {} tasks", known.sum(), pl.len())
    bad = pl.col("status").filter(~known).min()
    return pl.when(known.all()).then(pl.lit("ok")).when(known.any()).then(some).otherwise(bad)


def cpu_accounts(sums: pl.DataFrame) -> pl.DataFrame:
    """Rows of accounts run and runq."""
    return pl.concat([_exact(sums, name) for name in ("run", "runq")])


def _exact(sums: pl.DataFrame, name: str) -> pl.DataFrame:
    value, error = pl.col(name), pl.col(f"slack_{name}")
    return sums.select(
        "group",
        account=pl.lit(name),
        aas=value,
        low=(value - error).clip(0),
        high=value + error + pl.col(f"missing_{name}"),
        status=f"status_{name}",
        source="cpu_source",
    )


def halves(sums: pl.DataFrame) -> pl.DataFrame:
    """Rows of accounts run.user and run.system: run split by the ratio of the ticks."""
    return pl.concat([half(sums, "user", "system"), half(sums, "system", "user")])


def half(sums: pl.DataFrame, mine: str, other: str) -> pl.DataFrame:
    """One of the two; low and high: one tick more or less a task on either side."""
    run, tick = pl.col("run"), pl.col("tick")
    a, b = pl.col(mine).clip(0), pl.col(other).clip(0)

    def part(a: pl.Expr, b: pl.Expr) -> pl.Expr:
        return pl.when(a + b > 0).then(run * a / (a + b))

    unseen = (a + b == 0) & (run > 0)
    return sums.select(
        "group",
        account=pl.lit(f"run.{mine}"),
        aas=pl.when(run == 0).then(0.0).otherwise(part(a, b)),
        low=pl.when(run.is_not_null()).then(part((a - tick).clip(0), b + tick).fill_null(0.0)),
        high=pl.when(run.is_not_null()).then(part(a + tick, (b - tick).clip(0)).fill_null(run)),
        status=pl.when(unseen).then(pl.lit("no tick seen")).otherwise("status_run"),
        source="cpu_source",
    )


def inside(sums: pl.DataFrame) -> pl.DataFrame:
    """What lies inside other accounts: throttled time as traced, block I/O delay. Helpers and rungs say
    where the delay is not known; sessions are silent then."""
    throttled = sums.filter(pl.col("throttled").is_not_null())
    told = pl.col("blkio").is_not_null()
    delays = sums.filter(told | (pl.col("scope") == "rung"))
    return pl.concat(
        [_plain(throttled, "runq.throttled", "throttled"), _plain(delays, "block_io", "blkio", "off")],
    )


def _plain(sums: pl.DataFrame, account: str, name: str, absent: str = "not supported") -> pl.DataFrame:
    value = pl.col(name)
    source = "block I/O delay" if name == "blkio" else "scheduler trace"
    return sums.select(
        "group",
        account=pl.lit(account),
        aas=value,
        low=value,
        high=value,
        status=pl.when(value.is_null()).then(pl.lit(absent)).otherwise(pl.lit("ok")),
        source=pl.lit(source),
    )
