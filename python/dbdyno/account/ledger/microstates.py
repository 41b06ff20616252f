"""The table ``microstates``: where each process's time went, as prstat -m has it, with intervals."""

from __future__ import annotations

import polars as pl

from dbdyno.account.ledger.apportion import Joint
from dbdyno.account.ledger.cpu import cpu_accounts, cpu_sums, halves
from dbdyno.account.ledger.group_sums import asleep, not_asleep
from dbdyno.account.ledger.groups import each
from dbdyno.account.ledger.margins import KEY
from dbdyno.account.ledger.sample_rows import Tables
from dbdyno.model.brief import BRIEF, NAME
from dbdyno.model.column import CELL
from dbdyno.model.data_sources import counts, process_rates
from dbdyno.model.tables import conform, empty
from dbdyno.model.units import NS_PER_S
from dbdyno.model.wait_families import AT_CLIENT, LOCKS

_SLEEPS = ("lock", "client", "sleep")
_CPU = {"run.user": "usr", "run.system": "sys", "runq": "cpu_wait"}
_ENDS = ("", "_low", "_high")
_LABELLESS = ("driver", "pooler", "dbdyno")


def microstates_of(found: Joint, cut: Tables) -> pl.DataFrame:
    """Every backend, worker and helper; who is beside, too. A process of ours waits in no database event."""
    if found.tasks.is_empty():
        return empty("microstates")
    groups = each(found.tasks)
    tasks = found.tasks.join(groups.members, on="task", maintain_order="left")
    rows = tasks.join(_cpu(found), on="group", how="left", maintain_order="left")
    rows = rows.join(_slept(found), on="group", how="left", maintain_order="left")
    rows = _counted(_labelless(_filled(rows)), cut, tasks)
    rows = rows.join(
        groups.table.select("group", "cpu_source", "wait_source"), on="group", maintain_order="left"
    )
    rows = rows.join(_names(cut), on=["cell", "pid", "tid"], how="left", maintain_order="left")
    keys = cut["windows"].select(c.name for c in CELL)
    return conform("microstates", keys.join(_selected(rows), on="cell", maintain_order="right"))


def _cpu(found: Joint) -> pl.DataFrame:
    sums = cpu_sums(found.tasks, each(found.tasks))
    rows = pl.concat([halves(sums), cpu_accounts(sums).filter(account="runq")], how="diagonal")
    wide = rows.with_columns(name=pl.col("account").replace_strict(_CPU)).rename({"aas": "value"})
    made = sums.select("group")
    for name in _CPU.values():
        mine = wide.filter(name=name).select("group", **_ends(name))
        made = made.join(mine, on="group", how="left", maintain_order="left")
    return made


def _ends(name: str) -> dict[str, str]:
    return {f"{name}{end}": source for end, source in zip(_ENDS, ("value", "low", "high"), strict=True)}


def _slept(found: Joint) -> pl.DataFrame:
    lock, client = (found.families.among(*f) for f in (LOCKS, AT_CLIENT))
    family = pl.when(lock).then(pl.lit("lock")).when(client).then(pl.lit("client"))
    keys = {"family": family.otherwise(pl.lit("sleep"))}
    groups = each(found.tasks)
    rows = pl.concat([asleep(found, groups, keys), _hidden(found)], how="diagonal")
    sums = rows.group_by("group", "family").agg(pl.col("value", "low", "high").sum())
    made = sums.select(pl.col("group").unique())
    for name in _SLEEPS:
        mine = sums.filter(family=name).select("group", **_ends(name))
        made = made.join(mine, on="group", how="left")
    return made


def _hidden(found: Joint) -> pl.DataFrame:
    return not_asleep(found, each(found.tasks)).with_columns(family=pl.lit("sleep"))


def _filled(rows: pl.DataFrame) -> pl.DataFrame:
    """A sleep that no sample saw is 0 where there were samples, else unknown; unknown, too, of a task that
    could have been read, but whose run and run queue are not known."""
    told = pl.col("exact") | (pl.col("samples").is_not_null() & (pl.col("known") | pl.col("word")))
    return rows.with_columns(
        pl.when(pl.col(f"{n}{e}").is_null() & told).then(0.0).otherwise(f"{n}{e}").alias(f"{n}{e}")
        for n in _SLEEPS
        for e in _ENDS
    )


def _labelless(rows: pl.DataFrame) -> pl.DataFrame:
    """The driver and dbdyno sleep in no wait event: all their time off is plain sleep."""
    plain = pl.col("role").is_in(_LABELLESS) & pl.col("known")
    off = pl.col("off_ns") / pl.col("over_ns")
    error = (pl.col("stale_run_ns") + pl.col("stale_runq_ns") + pl.col("switch_ns")) / pl.col("over_ns")
    sleep = {"sleep": off, "sleep_low": (off - error).clip(0.0), "sleep_high": off + error}
    return rows.with_columns(
        pl.when(plain).then(value).otherwise(name).alias(name) for name, value in sleep.items()
    )


def _counted(rows: pl.DataFrame, cut: Tables, tasks: pl.DataFrame) -> pl.DataFrame:
    """With the growth, over all labels, of the figures that further sources count."""
    for source in counts():
        found = tasks.select("task", *KEY).join(cut[f"cut_{source.table}"], on=KEY, nulls_equal=True)
        grown = found.group_by("task").agg(pl.col(source.rate.figure).sum().alias(source.rate.column.name))
        rows = rows.join(grown, on="task", how="left", maintain_order="left")
    return rows


def _names(cut: Tables) -> pl.DataFrame:
    """Application, user and database of a pid, as the server last told."""
    listed = cut["cell_backends"].sort("at_ns", maintain_order=True)
    where = pl.concat_str("user", "database", separator="@", ignore_nulls=True)
    parts = [pl.when(part != "").then(part) for part in (pl.col("application"), where)]
    name = pl.concat_str(*parts, separator=" ", ignore_nulls=True)
    tid = pl.coalesce("tid", "pid")
    return listed.select("cell", "pid", tid=tid, told=name).unique(["cell", "pid", "tid"], keep="last")


def _selected(rows: pl.DataFrame) -> pl.DataFrame:
    over, seen = pl.col("over_ns"), pl.col("wall_ns") / NS_PER_S
    own = pl.when(pl.col("role") == "session").then(pl.format("session {}", "session"))
    own_or_group = own.when(pl.col("role") == BRIEF).then(pl.lit(NAME)).otherwise("role")
    worker = pl.when("worker").then(pl.format("parallel worker of session {}", "session"))
    helper = pl.when(pl.col("role").str.starts_with("helper:")).then(
        pl.col("role").str.strip_prefix("helper:")
    )
    told = pl.when(pl.col("told") != "").then("told")
    parts = [*_CPU.values(), *_SLEEPS]
    known = pl.col("known") & pl.all_horizontal(pl.col("run_ns").is_not_null())
    accounted = pl.sum_horizontal(
        pl.col("runq_ns") / over, pl.col("run_ns") / over, *(pl.col(n) for n in _SLEEPS)
    )
    rates = {f"{n}_per_s": NS_PER_S * pl.col(n) / over for n in ("voluntary", "involuntary", "slices")}
    rates |= {r.column.name: NS_PER_S * pl.col(r.column.name) / over for r in process_rates()}
    return rows.select(
        *("cell", "pid", "tid", "start_ticks", "role", "session", "worker"),
        *(f"{n}{e}" for n in parts for e in _ENDS),
        name=pl.coalesce(worker, helper, told, own_or_group),
        wall_s=seen,
        block_io=pl.col("blkio_ns") / over,
        unaccounted=pl.when(known).then(pl.col("wall_ns") / over - accounted),
        status="status",
        source=pl.concat_str(
            "cpu_source",
            pl.when(pl.col("wait_source") != pl.col("cpu_source")).then(
                pl.concat_str(pl.lit("; "), "wait_source")
            ),
            ignore_nulls=True,
        ),
        **rates,
    )
