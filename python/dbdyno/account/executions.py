"""Tables of executions of commands: one set for each measurement, and one for all repeats together. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.window.cells import for_each, key
from dbdyno.account.window.trees import busy_times
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.ledger_rows import groups
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources.executions import OUTLIER
from dbdyno.model.schema.tables import Tables, conform, empty, schema
from dbdyno.model.units import NS_PER_S

NAMES = ("execution_times", "execution_rates", "execution_failures", "parallelism")
BINS = 120
"""Number of bins into which a window is divided, to show parallelism over time."""
_OF_MAD = 0.6745
"""Third quartile of the normal distribution: converts a median absolute deviation to a standard deviation."""
_OK = pl.col("outcome") == "ok"
_MEANS = (
    *("spawn_ns", "cpu_user_ns", "cpu_system_ns", "minor_faults", "major_faults", "voluntary", "involuntary"),
    *("read_bytes", "written_bytes", "work"),
)
_CELL = [c.name for c in CELL]


@makes(*NAMES)
def executions(cells: Sequence[RawCell], plan: Plan) -> Tables:
    """Returns the tables :data:`NAMES` of these cells."""
    ran = [c for c in cells if "executions" in c.tables and c.tables["executions"].height]
    if not ran:
        return {name: empty(name) for name in NAMES}
    shells = {(v.name, j.name): j.shell_ns for v in plan.variants for j in v.jobs}
    whole = pl.concat([_timed_executions(cell, shells) for cell in ran])
    return {
        "execution_times": _conform_known("execution_times", whole),
        "execution_rates": _rates(whole),
        "execution_failures": _failures(whole),
        "parallelism": for_each("parallelism", ran, parallelism),
    }


def _timed_executions(cell: RawCell, shells: dict[tuple[str, str], int]) -> pl.DataFrame:
    """Returns every execution with its duration (less the shell's start-up) and its modified z-score among
    those of its job."""
    raw, t0 = cell.tables["executions"], cell.meta.t0_ns
    shell = {job: shells.get((cell.meta.cell.variant, job), 0) for job in raw["job"].unique()}
    wall_ns = pl.col("end_ns") - pl.col("start_ns")
    timed = raw.with_columns(
        *(pl.lit(v, _type_of(v)).alias(k) for k, v in key(cell).items()),
        shell_ns=pl.col("job").replace_strict(shell, return_dtype=pl.Int64),
        start_s=(pl.col("start_ns") - t0) / NS_PER_S,
        end_s=(pl.col("end_ns") - t0) / NS_PER_S,
        spawn_ns=pl.col("exec_ns") - pl.col("start_ns"),
    ).rename({"user_ns": "cpu_user_ns", "system_ns": "cpu_system_ns"})
    # A command that is faster than the shell's calibrated start-up must not get a negative duration.
    timed = timed.with_columns(duration_ns=pl.max_horizontal(wall_ns - pl.col("shell_ns"), 0))
    counted = pl.when(_OK & pl.col("measured")).then(pl.col("duration_ns"))
    off = counted - counted.median().over("job")
    spread = off.abs().median().over("job")
    # Modified z-score of Iglewicz and Hoaglin (1993): robust against the outliers that it looks for.
    score = pl.when(spread > 0).then(_OF_MAD * off / spread)
    return timed.with_columns(score=score).with_columns(
        outlier=(pl.col("score").abs() > OUTLIER).fill_null(False)
    )


def _conform_known(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Selects the columns that ``table`` has."""
    return conform(table, frame.select(c for c in schema(table) if c in frame.columns))


def _type_of(value: object) -> type[pl.DataType]:
    return pl.String if isinstance(value, str) else pl.Int64


def _rates(whole: pl.DataFrame) -> pl.DataFrame:
    """Returns the figures of each job and, as job NULL, of all jobs together."""
    by_scope = [
        _figures(whole, [*_CELL, "job"]),
        _figures(whole, _CELL).with_columns(job=pl.lit(None, pl.String)),
    ]
    conformed = pl.concat([_conform_known("execution_rates", f) for f in by_scope])
    return conformed.sort("cell", "job", nulls_last=True, maintain_order=True)


def _figures(whole: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Aggregates executions by the columns ``by``: counts, moments of duration, mean resources, rates."""
    measured = pl.col("measured")
    good, duration = _OK & measured, pl.col("duration_ns").filter(_OK & measured)
    cpu = pl.col("cpu_user_ns") + pl.col("cpu_system_ns")
    known = good & cpu.is_not_null()
    begun, ended = (pl.col(c).filter(measured) for c in ("start_ns", "end_ns"))
    sums = (
        whole.sort("start_ns")
        .group_by(by, maintain_order=True)
        .agg(
            *(pl.col(c).filter(good).mean() for c in _MEANS),
            executions=good.sum().cast(pl.Int64),
            failed=(~_OK & measured).sum().cast(pl.Int64),
            outliers=(pl.col("outlier") & good).sum().cast(pl.Int64),
            left_over=_count_if_known((pl.col("left_over") > 0) & measured, pl.col("left_over")),
            mean_ns=duration.mean(),
            sd_ns=duration.std(),
            min_ns=duration.min().cast(pl.Float64),
            median_ns=duration.median(),
            max_ns=duration.max().cast(pl.Float64),
            first_ns=pl.col("duration_ns").filter(_OK).first().cast(pl.Float64),
            shell_ns=pl.col("shell_ns").mean(),
            # The shell's CPU time cannot be separated from the command's, so its start-up stays in the time,
            # too.
            parallelism=cpu.filter(known).sum() / (pl.col("end_ns") - pl.col("start_ns")).filter(known).sum(),
            max_rss_bytes=pl.col("max_rss_bytes").filter(measured).max(),
            works=pl.col("work").filter(good).sum(),
            makespan_ns=(ended.max() - begun.min()).cast(pl.Float64),
        )
    )
    # Jobs overlap, so throughput is per second of makespan and not of summed durations.
    seconds = pl.when(pl.col("makespan_ns") > 0).then(pl.col("makespan_ns") / NS_PER_S)
    work = pl.when(pl.col("work").is_not_null()).then(pl.col("works"))
    return sums.with_columns(
        pl.col("parallelism").fill_nan(None),
        executions_per_s=pl.col("executions") / seconds,
        work_per_s=work / seconds,
    )


def _count_if_known(counted: pl.Expr, known: pl.Expr) -> pl.Expr:
    """Counts the rows where ``counted`` is true; NULL if ``known`` is NULL in all of them."""
    return pl.when(known.is_not_null().any()).then(counted.sum()).cast(pl.Int64)


@makes("execution_rates", stage="total")
def executions_total(tables: Tables) -> pl.DataFrame:
    """Returns ``execution_rates`` over all usable cells of a load together. Its makespan is the mean of
    the cells'."""
    times, of_cells = tables["execution_times"], tables["execution_rates"]
    frames = [empty("execution_rates")]
    if times.is_empty():
        return frames[0]
    for head, cells in groups(tables["windows"]):
        in_load = pl.col("cell").is_in([w["cell"] for w in cells])
        rows = of_cells.filter(in_load)
        if len(cells) < 2 or rows.is_empty():
            continue
        named = [pl.lit(head[k], _type_of(head[k])).alias(k) for k in _CELL]
        combined = _combine_cells(times.filter(in_load), rows)
        frames.append(_conform_known("execution_rates", combined.with_columns(named)))
    return pl.concat(frames)


def _combine_cells(times: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Combines the cells of a load. Quantiles and moments of duration come from all executions; other
    means are means of the cells, weighted by executions."""
    duration, n = pl.col("duration_ns").cast(pl.Float64), pl.col("executions")
    good = times.filter(_OK & pl.col("measured"))
    figures = [
        duration.mean().alias("mean_ns"),
        duration.std().alias("sd_ns"),
        duration.median().alias("median_ns"),
    ]
    by_job = good.group_by("job", maintain_order=True).agg(figures)
    spread = pl.concat([by_job, good.select(pl.lit(None, pl.String).alias("job"), *figures)])
    weighted = [
        ((pl.col(c) * n).sum() / n.filter(pl.col(c).is_not_null()).sum()).fill_nan(None).alias(c)
        for c in (*_MEANS, "parallelism", "shell_ns")
    ]
    sums = rows.group_by("job", maintain_order=True).agg(
        *(pl.col(c).sum() for c in ("executions", "failed", "outliers", "left_over")),
        *weighted,
        *(pl.col(c).mean() for c in ("first_ns", "makespan_ns", "executions_per_s", "work_per_s")),
        pl.col("min_ns").min(),
        pl.col("max_ns", "max_rss_bytes").max(),
    )
    return sums.join(spread, on="job", how="left", nulls_equal=True, maintain_order="left")


def _failures(whole: pl.DataFrame) -> pl.DataFrame:
    """Counts failed executions by job, outcome and exit code."""
    bad = whole.filter(~_OK & pl.col("measured"))
    by = [*_CELL, "job", "outcome", "exit_code"]
    counted = pl.len().cast(pl.Int64).alias("count")
    counts = bad.group_by(by, maintain_order=True).agg(counted, pl.col("detail").drop_nulls().first())
    return _conform_known("execution_failures", counts)


def parallelism(cell: RawCell) -> pl.DataFrame | None:
    """Returns the mean number of session tasks by state in :data:`BINS` bins of the window; None if no
    task was sampled."""
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    if t1 <= t0 or not cell.height("samples"):
        return None
    state, asked = pl.col("task_state"), pl.coalesce("task_ns", "sql_after_ns")
    sql = pl.col("via").fill_null("sql") == "sql"
    busy = (pl.col("role") == "session") & (pl.col("at") <= pl.col("end_ns"))  # else between executions
    by_sample = (
        cell.scan("samples")
        .filter(sql & asked.is_between(t0, t1, closed="left"))
        .with_columns(pl.col("session").cast(pl.Int64), at=asked)
        .sort("at")
        .join_asof(
            busy_times(cell).drop_nulls("session").sort("start_ns").lazy(),
            left_on="at",
            right_on="start_ns",
            by="session",
            check_sortedness=False,
        )
        .group_by("sample")
        .agg(
            pl.col("at").min(),
            runnable=((state == "R") & busy).sum(),
            disk=((state == "D") & busy).sum(),
            tasks=(state.is_not_null() & busy).sum(),
        )
    )
    width = (t1 - t0) / BINS
    bins = (
        by_sample.with_columns(bin=((pl.col("at") - t0) / width).floor().clip(0, BINS - 1))
        .group_by("bin")
        .agg(
            pl.col("runnable", "disk").mean(),
            asleep=(pl.col("tasks") - pl.col("runnable") - pl.col("disk")).mean(),
            most=pl.col("runnable").max().cast(pl.Int64),
            few=(pl.col("runnable") <= 1).mean(),
            samples=pl.len().cast(pl.Int64),
        )
        .sort("bin")
        .collect()
    )
    start = pl.col("bin") * width / NS_PER_S
    ends = [start.alias("start_s"), (start + width / NS_PER_S).alias("end_s")]
    return bins.select(*ends, pl.exclude("bin"))
