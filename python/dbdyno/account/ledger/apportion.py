"""From samples to seconds: the joint table of each task, raked to its exact margins."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from dbdyno.account.ledger.margins import Tables, margins
from dbdyno.account.ledger.moments import Moments, moments
from dbdyno.account.ledger.raking import run_shares
from dbdyno.account.ledger.sample_rows import LABEL, chosen, observations
from dbdyno.account.ledger.states import with_states
from dbdyno.account.ledger.steal import with_stolen
from dbdyno.model.source import TRACE
from dbdyno.model.wait_families import WaitFamilies, families_of
from dbdyno.stats.shares import effective, interval

RUNS = ("run", "run_low", "run_high")


@dataclass(frozen=True)
class Joint:
    """The joint table of all tasks of all cells, before it is summed up."""

    tasks: pl.DataFrame
    """:func:`margins`, with ``samples`` (effective number; NULL: none), ``stateless`` (its states are hidden
    from our role), ``hidden`` (and nothing else tells its waits), ``slept`` and ``woken`` (the samples'
    weight asleep and runnable), ``off_low``, ``off_high`` (95 % of the time asleep, by the samples and the
    margins' errors) and ``asleep_ns``: what is apportioned to waits; ``blur_ns``: what may stand
    under a wrong label."""
    seen: Moments
    """Of the samples' rows what each stands for (seconds per second), asleep or runnable, by the margins
    (``asleep``, ``runnable`` of which ``run``, ``run_low``, ``run_high``), by the samples alone (``raw``)."""
    bins: pl.DataFrame
    """How many samples (``n``) saw a task as what (``kind``, ``wait_class``) in a bin (``start_ns``)."""
    asked: Moments
    """The server's answers alone: ``y`` is each row's share of the task's time."""
    waits: pl.DataFrame
    """Of exactly traced tasks: ``asleep``, ``queued``, ``throttled``, ``waits`` by label, per second; ``run``
    divided among the labels by ``ticks`` of a clock on each CPU (NULL: none met it)."""
    families: WaitFamilies


def joint(cut: Tables) -> Joint:
    """Everything that the tables of this room are sums of."""
    families = families_of(cut)
    tasks = with_stolen(margins(cut), cut)
    everything = observations(cut, tasks)
    stateless = everything.filter("hidden").select("task").unique().with_columns(stateless=True)
    tasks = tasks.join(stateless, on="task", how="left", maintain_order="left")
    tasks = tasks.with_columns(pl.col("stateless").fill_null(False))
    everything = everything.filter(~pl.col("hidden")).drop("hidden")
    mine = chosen(everything)
    seen = with_states(mine, everything)
    tasks = _with_column(tasks, seen, mine)
    tasks = tasks.with_columns(hidden=pl.col("stateless") & pl.col("samples").is_null() & ~pl.col("exact"))
    answers = moments(_asked(tasks, everything), tasks, ("y",), ())
    del everything, mine  # many rows: no longer than they are needed
    bins = _binned(seen, cut)
    rows = moments(_apportioned(tasks, seen, families), tasks, ("asleep", "runnable", "raw"), RUNS)
    return Joint(tasks, rows, bins, answers, _waits(cut, tasks), families)


def _binned(seen: pl.DataFrame, cut: Tables) -> pl.DataFrame:
    """All sessions of a cell have the same bins."""
    bins = cut["cut_bins"].select("cell", "start_ns", "end_ns").unique().sort("start_ns")
    at = cut["cut_sampler"].select("cell", "at_ns").with_row_index("instant").sort("at_ns")
    at = at.join_asof(
        bins, left_on="at_ns", right_on="start_ns", by="cell", strategy="backward", check_sortedness=False
    )
    inside = at.filter(pl.col("at_ns") < pl.col("end_ns")).select("instant", "start_ns", "at_ns")
    rows = seen.select("task", "instant", "kind", "wait_class", "part").join(inside, on="instant")
    counted = rows.group_by("task", "start_ns", "kind", "wait_class").agg(
        n=pl.col("part").sum(), first=pl.col("at_ns").min()
    )
    words = pl.col("kind", "wait_class").cast(pl.String)
    return counted.sort("first", "task").drop("first").with_columns(words)


def _with_column(tasks: pl.DataFrame, seen: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """How much of each task's time the samples saw asleep, against what the margins leave for that.
    ``whole``: the rows of ``seen`` before they were divided among states."""
    told = whole.filter((pl.col("kind") != "unknown") | ~_known(tasks, whole))
    size = told.group_by("task").agg(samples=effective(pl.col("weight")).fill_nan(None))
    weight = pl.col("weight")
    found = seen.group_by("task").agg(
        slept=weight.filter(kind="sleep").sum(),
        woken=weight.filter(kind="runnable").sum(),
        unlabelled=weight.filter(kind="unlabelled").sum(),
        sampled_ns=pl.col("sampled_ns").first(),
        word=pl.col("word").any(),
        via=pl.col("via").first().cast(pl.String),
        skew_ns=pl.col("skew_ns").mean().clip(0),
        held_ns=pl.col("held_ns").mean(),
    )
    tasks = tasks.join(found, on="task", how="left", maintain_order="left")
    tasks = tasks.join(size, on="task", how="left", maintain_order="left")
    tasks = tasks.with_columns(blur_ns=_blur("skew_ns"))
    accounted = pl.col("slept") + pl.when("known").then(0.0).otherwise("unlabelled")
    of = pl.when("known").then(pl.col("slept") + pl.col("woken")).otherwise("sampled_ns")
    tasks = tasks.with_columns(raw_share=pl.when(of > 0).then(accounted / of))
    low, high = interval(pl.col("raw_share"), pl.col("samples").clip(1.0))
    slack = pl.sum_horizontal("stale_run_ns", "stale_runq_ns", "switch_ns", _blur("held_ns"))
    off, wall = pl.col("off_ns"), pl.col("wall_ns")
    tasks = tasks.with_columns(off_low=low * wall - slack, off_high=high * wall + slack)
    nearest = pl.min_horizontal(pl.max_horizontal(off, "off_low"), "off_high")
    asleep = pl.when("known").then(nearest.clip(0.0)).otherwise(pl.col("raw_share") * wall)
    return tasks.with_columns(asleep_ns=pl.when(pl.col("raw_share").is_not_null()).then(asleep))


def _blur(delay: str) -> pl.Expr:
    """Time that the samples may show what was over, as often as the task slept and as long as ``delay``.

    ``skew_ns``, under a label: a task that falls asleep, or gets a CPU, between its label and its state is
    read is taken for what it was. ``held_ns``, in a state: the sampler, too, holds a CPU.
    """
    sleeps = pl.coalesce("voluntary", "slices").fill_null(0)
    blur = pl.min_horizontal(sleeps * pl.col(delay), pl.col("wall_ns").cast(pl.Float64))
    return pl.when(pl.col("samples").is_not_null() & ~pl.col("word")).then(blur.fill_null(0.0)).otherwise(0.0)


def _known(tasks: pl.DataFrame, seen: pl.DataFrame) -> pl.Series:
    return seen.select("task").join(
        tasks.select("task", "known"), on="task", how="left", maintain_order="left"
    )["known"]


def _apportioned(tasks: pl.DataFrame, seen: pl.DataFrame, families: WaitFamilies) -> pl.DataFrame:
    awake = seen.filter(kind="runnable").group_by("task", *LABEL).agg(pl.col("weight").sum())
    known = tasks.filter("known").select("task", "run_ns", "runq_ns")
    shares = run_shares(awake, known, families)
    both = pl.col("run_ns") + pl.col("runq_ns")
    of = {
        "asleep": pl.when("known").then(pl.col("asleep_ns") / pl.col("slept")).otherwise(_bare()),
        "runnable": pl.when("known").then(both / pl.col("woken")),
        "raw": pl.when("known")
        .then(pl.col("wall_ns") / (pl.col("slept") + pl.col("woken")))
        .otherwise(_bare()),
    }
    factors = tasks.select("task", "known", "exact", **{n: f / pl.col("over_ns") for n, f in of.items()})
    rows = seen.drop("cell", "via", "word", "sampled_ns", "skew_ns", "held_ns").join(
        factors, on="task", maintain_order="left"
    )
    rows = rows.join(shares, on=["task", *LABEL], how="left", nulls_equal=True, maintain_order="left")
    kind, weight = pl.col("kind"), pl.col("weight")
    awake_now = pl.when(kind == "runnable").then(weight * pl.col("runnable")).fill_null(0.0)
    return rows.with_columns(
        asleep=pl.when((kind == "sleep") | ~pl.col("known")).then(weight * pl.col("asleep")).fill_null(0.0),
        runnable=awake_now,
        **{f"run{end}": awake_now * pl.col(f"share{end}").fill_null(0.0) for end in ("", "_low", "_high")},
        raw=pl.when((kind != "unknown") | ~pl.col("known")).then(weight * pl.col("raw")).fill_null(0.0),
    ).drop("share", "share_low", "share_high", "weight")


def _bare() -> pl.Expr:
    """Without margins a sample stands for its share of the time that all samples stand for."""
    return pl.col("wall_ns") / pl.col("sampled_ns")


def _asked(tasks: pl.DataFrame, everything: pl.DataFrame) -> pl.DataFrame:
    rows = everything.filter(via="sql").join(tasks.select("task", "wall_ns", "over_ns"), on="task")
    whole = pl.col("weight").sum().over("task")
    y = pl.col("weight") / whole * pl.col("wall_ns") / pl.col("over_ns")
    return rows.select(
        "task", "instant", "state", *LABEL, y=pl.when(whole > 0).then(y).otherwise(0.0), part=1.0
    )


def _waits(cut: Tables, tasks: pl.DataFrame) -> pl.DataFrame:
    """What the trace wrote down by label; where it has no labels, all sleep has none to be known.

    Time on a CPU is exact in all, and divided by the ticks that met the task under each label.
    """
    mine = tasks.filter("exact").select(
        "task", "cell", "pid", "tid", "start_ticks", "over_ns", "slack_ns", "run_ns"
    )
    rows = mine.join(cut["cut_waits"], on=["cell", "pid", "tid", "start_ticks"], nulls_equal=True)
    over, ticks = pl.col("over_ns"), pl.col("run_samples")
    met = ticks.sum().over("task")
    rows = rows.with_columns(run=pl.when(met > 0).then(pl.col("run_ns") * ticks / met))
    return rows.filter(pl.any_horizontal(pl.col("sleep_ns", "runq_ns", "run_samples") > 0)).select(
        "task",
        *LABEL,
        asleep=pl.col("sleep_ns") / over,
        queued=pl.col("runq_ns") / over,
        throttled=pl.col("throttled_ns") / over,
        waits=pl.col("sleeps") * 1e9 / over,
        run=pl.col("run") / over,
        ticks=ticks,
        slack=pl.col("slack_ns") / over,
        source=pl.lit(TRACE),
    )
