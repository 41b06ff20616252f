"""The exact part of the ledger, time on a CPU and in the run queue, by group of tasks; and table
``microstates``."""

from __future__ import annotations

import polars as pl

from dbdyno.account.ledger.apportion import Joint
from dbdyno.account.ledger.group_sums import asleep, not_asleep, slack
from dbdyno.account.ledger.groups import Groups, each
from dbdyno.account.ledger.margins import KEY
from dbdyno.model.results.brief import BRIEF, NAME, STATUS, material
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources import counts, process_rates
from dbdyno.model.schema.tables import Tables, conform, empty
from dbdyno.model.sources.wait_families import AT_CLIENT, LOCKS, ROLE
from dbdyno.model.units import NS_PER_S, TICK_NS


def cpu_sums(groups: Groups) -> pl.DataFrame:
    """Returns per group ``run`` and ``runq`` (seconds per second), ``user`` and ``system`` (by ticks), and
    their errors.

    A sum with unknown parts is the sum of the known ones. Its upper end includes the whole wall time of
    the others (``missing``), and its status names them. It is NULL if no part is known, or if much of it
    is unknown (the run queue of brief sessions).
    """
    over, known, ran = pl.col("over_ns"), pl.col("known"), pl.col("run_ns").is_not_null()
    user, system = ((pl.col(f"{n}_ns") / over).filter(known).sum() for n in ("user", "system"))
    error = slack()
    sums = groups.summed(
        user=user,
        system=system,
        run=pl.when(ran.any()).then((pl.col("run_ns") / over).sum()),
        runq=pl.when(known.any() & ~_left_out()).then((pl.col("runq_ns") / over).sum()),
        tick=(TICK_NS / over).filter(known).sum(),
        missing_run=(pl.col("wall_ns") / over).filter(~ran).sum(),
        missing_runq=(pl.col("wall_ns") / over).filter(~known).sum(),
        throttled=_all_known("throttled_ns", pl.col("traced")),
        blkio=_all_known("blkio_ns", pl.lit(True)),
        status_run=_status(ran),
        status_runq=pl.when(_left_out() & known.any()).then(pl.lit(STATUS)).otherwise(_status(known)),
        slack_run=error["run"],
        slack_runq=error["runq"],
    )
    return sums.join(groups.table, on="group", maintain_order="left")


def task_cpu(tasks: pl.DataFrame) -> pl.DataFrame:
    """Returns per task ``run``, seconds per second on a CPU (NULL if unknown). ``scope`` and ``who`` are
    those of the ledger, with all sessions as one."""
    role = pl.col("role")
    own, helps = role.is_in(["session", BRIEF]), role.str.starts_with(ROLE)
    scope = pl.when(own).then(pl.lit("rung")).when(helps).then(pl.lit("helper")).otherwise(pl.lit("beside"))
    return tasks.select(
        *("cell", "pid", "tid", "session"),
        scope=scope,
        who=pl.when(own).then(pl.lit("rung")).otherwise(role.str.strip_prefix(ROLE)),
        run=pl.col("run_ns") / pl.col("over_ns"),
    )


def _all_known(name: str, needed: pl.Expr) -> pl.Expr:
    """Returns a sum that is NULL if one part is."""
    whole = needed.all() & pl.col(name).is_not_null().all()
    return pl.when(whole).then((pl.col(name) / pl.col("over_ns")).sum())


def _left_out() -> pl.Expr:
    """Returns whether sessions too brief to be sampled used much of the CPU time, so that the run queue is
    unknown."""
    used = pl.col("run_ns") / pl.col("over_ns")
    brief = (pl.col("role") == BRIEF) & ~pl.col("known")
    left_out: pl.Expr = material(used.filter(brief).sum(), used.sum())
    return left_out


def _status(known: pl.Expr) -> pl.Expr:
    some = pl.format("{} of {} tasks", known.sum(), pl.len())
    bad = pl.col("status").filter(~known).min()
    return pl.when(known.all()).then(pl.lit("ok")).when(known.any()).then(some).otherwise(bad)


def cpu_accounts(sums: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of accounts run and runq."""
    parts = [
        sums.select(
            "group",
            account=pl.lit(name),
            **dict(zip(_FIGURES, _exact(name), strict=True)),
            status=f"status_{name}",
            source="cpu_source",
        )
        for name in ("run", "runq")
    ]
    return pl.concat(parts)


_FIGURES = ("aas", "low", "high")
_Ends = tuple[pl.Expr, pl.Expr, pl.Expr]
"""A value, its lower and its upper end."""


def _exact(name: str) -> _Ends:
    value, error = pl.col(name), pl.col(f"slack_{name}")
    return value, (value - error).clip(0), value + error + pl.col(f"missing_{name}")


def halves(sums: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of accounts run.user and run.system: run divided by the ratio of the ticks."""
    unseen = (pl.col("user").clip(0) + pl.col("system").clip(0) == 0) & (pl.col("run") > 0)
    parts = [
        sums.select(
            "group",
            account=pl.lit(f"run.{half}"),
            **dict(zip(_FIGURES, _half(half, other), strict=True)),
            status=pl.when(unseen).then(pl.lit("no tick seen")).otherwise("status_run"),
            source="cpu_source",
        )
        for half, other in _HALVES
    ]
    return pl.concat(parts)


_HALVES = (("user", "system"), ("system", "user"))


def _half(half: str, other: str) -> _Ends:
    """Returns one half and its ends. The ends assume one tick more or less per task on either side."""
    # Where the kernel counts user and system time by ticks (proc_pid_stat(5)), a tick goes whole to one mode.
    run, tick = pl.col("run"), pl.col("tick")
    a, b = pl.col(half).clip(0), pl.col(other).clip(0)

    def part(a: pl.Expr, b: pl.Expr) -> pl.Expr:
        return pl.when(a + b > 0).then(run * a / (a + b))

    return (
        pl.when(run == 0).then(0.0).otherwise(part(a, b)),
        pl.when(run.is_not_null()).then(part((a - tick).clip(0), b + tick).fill_null(0.0)),
        pl.when(run.is_not_null()).then(part(a + tick, (b - tick).clip(0)).fill_null(run)),
    )


def inside(sums: pl.DataFrame) -> pl.DataFrame:
    """Returns accounts that lie inside others: throttled time as traced, and block I/O delay. An unknown
    delay has a row only for helpers and rungs."""
    throttled = sums.filter(pl.col("throttled").is_not_null())
    known = pl.col("blkio").is_not_null()
    delays = sums.filter(known | (pl.col("scope") == "rung"))
    return pl.concat(
        [
            _single_account(throttled, "runq.throttled", "throttled"),
            _single_account(delays, "block_io", "blkio", "off"),
        ],
    )


def _single_account(
    sums: pl.DataFrame, account: str, name: str, absent: str = "not supported"
) -> pl.DataFrame:
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


_SLEEPS = ("lock", "client", "sleep")
_CPU = ("usr", "sys", "cpu_wait")
_ENDS = ("", "_low", "_high")
_LABELLESS = ("driver", "pooler", "dbdyno")


def microstates_of(tasks_joint: Joint, cut: Tables) -> pl.DataFrame:
    """Returns one row per backend, worker, helper and unrelated process. Our own processes have no wait
    events."""
    if tasks_joint.tasks.is_empty():
        return empty("microstates")
    groups = each(tasks_joint.tasks)
    tasks = groups.tasks
    rows = tasks.join(_cpu(groups), on="group", how="left", maintain_order="left")
    rows = rows.join(_sleep_by_family(tasks_joint, groups), on="group", how="left", maintain_order="left")
    rows = _with_rates(_with_plain_sleep(_with_zero_sleeps(rows)), cut, tasks)
    rows = groups.named(rows, "cpu_source")
    rows = rows.join(_names(cut), on=["cell", "pid", "tid"], how="left", maintain_order="left")
    keys = cut["windows"].select(c.name for c in CELL)
    return conform("microstates", keys.join(_microstate_columns(rows), on="cell", maintain_order="right"))


def _cpu(groups: Groups) -> pl.DataFrame:
    parts = dict(zip(_CPU, (*(_half(*names) for names in _HALVES), _exact("runq")), strict=True))
    ends = {f"{n}{e}": end for n, part in parts.items() for e, end in zip(_ENDS, part, strict=True)}
    return cpu_sums(groups).select("group", **ends)


def _sleep_by_family(tasks_joint: Joint, groups: Groups) -> pl.DataFrame:
    lock, client = (tasks_joint.families.among(*f) for f in (LOCKS, AT_CLIENT))
    family = pl.when(lock).then(pl.lit("lock")).when(client).then(pl.lit("client"))
    keys = {"family": family.otherwise(pl.lit("sleep"))}
    hidden = not_asleep(groups).with_columns(family=pl.lit("sleep"))
    rows = pl.concat([asleep(tasks_joint, groups, keys), hidden], how="diagonal")
    return rows.group_by("group").agg(
        pl.when(in_family.any()).then(pl.col(column).filter(in_family).sum()).alias(f"{name}{end}")
        for name, in_family in ((n, pl.col("family") == n) for n in _SLEEPS)
        for end, column in zip(_ENDS, ("value", "low", "high"), strict=True)
    )


def _with_zero_sleeps(rows: pl.DataFrame) -> pl.DataFrame:
    """Sets a sleep without samples to 0 if the task was sampled. It stays NULL for other tasks, and for
    tasks that could have been read but whose run and run queue are unknown."""
    sampled = pl.col("exact") | (pl.col("samples").is_not_null() & (pl.col("known") | pl.col("word")))
    return rows.with_columns(
        pl.when(pl.col(f"{n}{e}").is_null() & sampled).then(0.0).otherwise(f"{n}{e}").alias(f"{n}{e}")
        for n in _SLEEPS
        for e in _ENDS
    )


def _with_plain_sleep(rows: pl.DataFrame) -> pl.DataFrame:
    """Sets the sleep of the driver and dbdyno, which have no wait events, to all their time off the CPU."""
    plain = pl.col("role").is_in(_LABELLESS) & pl.col("known")
    off = pl.col("off_ns") / pl.col("over_ns")
    error = (pl.col("stale_run_ns") + pl.col("stale_runq_ns") + pl.col("switch_ns")) / pl.col("over_ns")
    off = off.clip(0.0)  # a read that is a tick late may exceed the time between the reads
    sleep = {"sleep": off, "sleep_low": (off - error).clip(0.0), "sleep_high": off + error}
    return rows.with_columns(
        pl.when(plain).then(value).otherwise(name).alias(name) for name, value in sleep.items()
    )


def _with_rates(rows: pl.DataFrame, cut: Tables, tasks: pl.DataFrame) -> pl.DataFrame:
    """Adds the rates of optional sources, summed over all labels."""
    for source in counts():
        if (rate := source.rate) is None:
            continue
        counted = tasks.select("task", *KEY).join(cut[f"cut_{source.table}"], on=KEY, nulls_equal=True)
        rates = counted.group_by("task").agg(pl.col(rate.figure).sum().alias(rate.column.name))
        rows = rows.join(rates, on="task", how="left", maintain_order="left")
    return rows


def _names(cut: Tables) -> pl.DataFrame:
    """Returns application, user and database of each process, from the server's last answer."""
    listed = cut["cell_backends"].sort("at_ns", maintain_order=True)
    where = pl.concat_str("user", "database", separator="@", ignore_nulls=True)
    parts = [pl.when(part != "").then(part) for part in (pl.col("application"), where)]
    name = pl.concat_str(*parts, separator=" ", ignore_nulls=True)
    tid = pl.coalesce("tid", "pid")
    return listed.select("cell", "pid", tid=tid, listed_name=name).unique(["cell", "pid", "tid"], keep="last")


def _microstate_columns(rows: pl.DataFrame) -> pl.DataFrame:
    over, seen = pl.col("over_ns"), pl.col("wall_ns") / NS_PER_S
    own = pl.when(pl.col("role") == "session").then(pl.format("session {}", "session"))
    own_or_group = own.when(pl.col("role") == BRIEF).then(pl.lit(NAME)).otherwise("role")
    worker = pl.when("worker").then(pl.format("parallel worker of session {}", "session"))
    helper = pl.when(pl.col("role").str.starts_with("helper:")).then(
        pl.col("role").str.strip_prefix("helper:")
    )
    listed_name = pl.when(pl.col("listed_name") != "").then("listed_name")
    parts = [*_CPU, *_SLEEPS]
    known = pl.col("known") & pl.all_horizontal(pl.col("run_ns").is_not_null())
    accounted = pl.sum_horizontal(
        pl.col("runq_ns") / over, pl.col("run_ns") / over, *(pl.col(n) for n in _SLEEPS)
    )
    rates = {f"{n}_per_s": NS_PER_S * pl.col(n) / over for n in ("voluntary", "involuntary", "slices")}
    rates |= {r.column.name: NS_PER_S * pl.col(r.column.name) / over for r in process_rates()}
    return rows.select(
        *("cell", "pid", "tid", "start_ticks", "role", "session", "worker"),
        *(f"{n}{e}" for n in parts for e in _ENDS),
        name=pl.coalesce(worker, helper, listed_name, own_or_group),
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
