"""From samples to seconds: the joint table of each task, fitted to its exact margins.

A task has as many rows as samples; what is asked of them are sums by label, and how much these vary from
sample to sample. For a group of one task that is the sum of squares of its rows; for a group of several the
sums of each sample. Tasks that are in the same groups, whatever is asked, are one *bunch*: of those the
rows of a sample are summed up. So the tables here are as long as there are labels a task, and labels a
sample and bunch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from dbdyno.account.ledger.margins import TASKS, margins, with_stolen
from dbdyno.account.ledger.samples import (
    ASKED,
    LABEL,
    READ,
    WORD_ALONE,
    Sampled,
    chosen,
    hidden,
    run_shares,
    sampled,
    with_states,
)
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.tables import Tables, conform, empty
from dbdyno.model.sources.source import TRACE
from dbdyno.model.sources.wait_families import AT_CLIENT, WaitFamilies, families_of
from dbdyno.stats.estimates import interval

_LIKE = ("cell", "role", "worker", "exact", "known")
_WHAT = ("kind", "state", *LABEL, "answers")


@dataclass(frozen=True)
class Moments:
    by_task: pl.DataFrame
    """``task``, what was seen, the sum of each measure and of its squares over the samples (``MEASURE_2``),
    and of ``part``."""
    by_sample: pl.DataFrame
    """Sums of each measure by ``bunch``, ``instant`` and what was seen."""
    bunches: pl.DataFrame
    """``task``, ``bunch``, ``exact``."""
    measure: str = ""
    """The one that is asked for: all rows have something of it."""

    def of(self, measure: str, *, exact: bool = True) -> Moments:
        """What there is of ``measure``. ``exact`` False: without tasks whose waits are traced."""
        mine = self if exact else self.sampled
        if measure not in mine.measured:
            tasks, samples = (rows.filter(pl.col(measure) > 0) for rows in (mine.by_task, mine.by_sample))
            mine.measured[measure] = Moments(tasks, samples, mine.bunches, measure)
        return mine.measured[measure]

    def each(self, measure: str, questions: Mapping[str, Mapping[str, pl.Expr]]) -> Moments:
        """:meth:`of` with further columns for several ``questions``, whose names are in the column
        ``account``."""
        of, more = self.of(measure), [{"account": pl.lit(n), **keys} for n, keys in questions.items()]
        tasks, samples = (pl.concat(p.with_columns(**m) for m in more) for p in (of.by_task, of.by_sample))
        return Moments(tasks, samples, self.bunches, measure)

    @cached_property
    def measured(self) -> dict[str, Moments]:
        """What :meth:`of` gave, by measure."""
        return {}

    @cached_property
    def sampled(self) -> Moments:
        """Without tasks whose waits are traced."""
        exact = self.bunches["exact"]
        return self.only(self.bunches.filter(~exact)) if exact.any() else self

    def only(self, tasks: pl.DataFrame) -> Moments:
        """Those of ``tasks``, which are whole bunches."""
        mine = tasks.select("task")
        bunches = self.bunches.join(mine, on="task", how="semi")
        if bunches.height == self.bunches.height:
            return self
        by_task = self.by_task.join(mine, on="task", how="semi", maintain_order="left")
        by_sample = self.by_sample.join(bunches, on="bunch", how="semi", maintain_order="left")
        return Moments(by_task, by_sample, bunches)


def moments(
    seen: pl.DataFrame, found: Sampled, bunches: pl.DataFrame, measures: Sequence[str], more: Sequence[str]
) -> Moments:
    """``seen``: sums of what was seen, with the ``part`` of its rows that each is, and, per unit of weight,
    ``measures``, and ``more`` to be summed; ``bunches``: :func:`bunched`."""
    what = [n for n in _WHAT if n in seen.columns]
    some = pl.any_horizontal(pl.col(m) > 0 for m in measures)
    by_task = seen.group_by("task", *what).agg(
        *((pl.col(n) * pl.col("weight")).sum().alias(n) for n in (*measures, *more)),
        (pl.col("part") * pl.col("there")).filter(some).sum(),
        pl.col("first").min(),
        *((pl.col(m) ** 2 * pl.col("weight_2") / pl.col("part")).sum().alias(f"{m}_2") for m in measures),
    )
    by_task = by_task.sort("first", "task", *what).drop("first")
    alike = ["bunch", *(n for n in what if n != "answers")]
    rows = seen.join(bunches.select("task", "bunch"), on="task", maintain_order="left")
    names = rows.select(alike).unique(maintain_order=True).with_row_index("alike")
    rows = rows.join(names, on=alike, nulls_equal=True, maintain_order="left")
    by_sample = _by_sample(rows.select("seen", "alike", "part", *measures), found, measures)
    by_sample = by_sample.join(names, on="alike", maintain_order="left").drop("alike")
    return Moments(by_task, by_sample, bunches)


def _by_sample(seen: pl.DataFrame, found: Sampled, measures: Sequence[str]) -> pl.DataFrame:
    parts = [
        rows.group_by("alike", "instant", maintain_order=True).agg(
            (pl.col(m) * pl.col("weight")).sum() for m in measures
        )
        for rows in found.each(seen)
    ]
    return pl.concat(parts)


def bunched(tasks: pl.DataFrame) -> pl.DataFrame:
    """``tasks`` with ``bunch``: the same of those that no group tells apart. Sessions with parallel workers
    are groups of several tasks by themselves."""
    own = tasks.filter(pl.col("role") == "session")
    led = own.group_by("cell", "session").len().filter(pl.col("len") > 1)
    led = led.select("cell", "session", leads="session")
    alike = tasks.with_columns(heard=pl.col("samples").is_not_null())
    alike = alike.join(led, on=["cell", "session"], how="left", maintain_order="left")
    names = alike.select(*_LIKE, "leads", "heard").unique(maintain_order=True).with_row_index("bunch")
    found = alike.join(names, on=[*_LIKE, "leads", "heard"], nulls_equal=True, maintain_order="left")
    return found.drop("leads", "heard")


RUNS = ("run", "run_low", "run_high")


@dataclass(frozen=True)
class Joint:
    """The joint table of all tasks of all cells, before it is summed up."""

    tasks: pl.DataFrame
    """:func:`margins`, with ``samples`` (effective number; NULL: none), ``stateless`` (its states are hidden
    from our role), ``hidden`` (and nothing else tells its waits), ``slept`` and ``woken`` (the samples'
    weight asleep and runnable), ``off_low``, ``off_high`` (95 % of the time asleep, by the samples and the
    margins' errors) and ``asleep_ns``: what is apportioned to waits; ``blur_ns``: what may stand
    under a wrong label; ``wait_source`` tells its waits, ``raw_source`` sampled it (in words)."""
    seen: Moments
    """What each of the samples' rows stands for (seconds per second), asleep or runnable, by the margins
    (``asleep``, ``runnable`` of which ``run``, ``run_low``, ``run_high``), by the samples alone (``raw``)."""
    bins: pl.DataFrame
    """How many samples (``n``) saw a task as what (``kind``, ``wait_class``) in a bin (``start_ns``)."""
    served: pl.DataFrame
    """Table ``served``."""
    asked: Moments
    """The server's answers alone: ``y`` is each row's share of the task's time."""
    waits: pl.DataFrame
    """For exactly traced tasks: ``asleep``, ``queued``, ``throttled``, ``waits`` and ``sleeps`` by label, per
    second; ``run`` divided among the labels by ``ticks`` of a clock on each CPU (NULL: none met it). The
    trace tells no ``state``; ``kind`` is sleep."""
    families: WaitFamilies


def joint(cut: Tables, chunks: Iterable[pl.DataFrame] | None = None) -> Joint:
    """Everything that the tables of this room are sums of. ``chunks``: as :func:`sampled` has them."""
    families = families_of(cut)
    tasks = with_stolen(margins(cut), cut)
    found = sampled(cut, tasks, chunks)
    inside = found.totals.filter("inside")
    everything = inside.filter(~hidden())
    some = everything.height < inside.height
    unseen: list[int] = inside.filter(hidden())["task"].to_list() if some else []
    tasks = tasks.with_columns(stateless=pl.col("task").is_in(unseen))
    mine = chosen(everything)
    seen = with_states(mine, everything)
    tasks = _with_column(tasks, seen, mine)
    tasks = tasks.with_columns(hidden=pl.col("stateless") & pl.col("samples").is_null() & ~pl.col("exact"))
    waits = _waits(cut, tasks)
    tasks = bunched(_with_labelled(tasks, waits)).with_columns(*_told_by())
    bunches = tasks.select("task", "bunch", "exact")
    answers = moments(_asked(tasks, everything), found, bunches, ("y",), ())
    rows = moments(_apportioned(tasks, seen, families), found, bunches, ("asleep", "runnable", "raw"), RUNS)
    served = _served(found, tasks, cut)
    return Joint(tasks, rows, _binned(mine, found, cut), served, answers, waits, families)


def _told_by() -> list[pl.Expr]:
    """``wait_source``, what tells a task's waits, and ``raw_source``, who sampled it, in words."""
    seen = pl.col("samples").is_not_null()
    sampler = pl.when(pl.col("via") == "memory").then(pl.lit(READ)).otherwise(pl.lit(ASKED))
    sampled = (
        pl.when("exact")
        .then(pl.lit(TRACE))
        .when(pl.col("samples").is_null())
        .then(pl.when("ended").then(pl.when("traced").then(pl.lit(TRACE)).otherwise(pl.lit(TASKS))))
        .when("word")
        .then(pl.lit(WORD_ALONE))
        .when("known")
        .then(pl.concat_str(sampler, pl.lit(", estimated")))
        .otherwise(sampler)
    )
    raw = pl.when("word").then(pl.lit(WORD_ALONE)).otherwise(sampler)
    return [sampled.alias("wait_source"), pl.when(seen).then(raw).alias("raw_source")]


def _binned(mine: pl.DataFrame, found: Sampled, cut: Tables) -> pl.DataFrame:
    """All sessions of a cell have the same bins."""
    bins = (
        cut["cut_bins"].select("cell", "start_ns", "end_ns").unique().sort("start_ns").with_row_index("bin")
    )
    at = found.spans.select("instant", "cell", "at_ns").sort("at_ns")
    at = at.join_asof(
        bins, left_on="at_ns", right_on="start_ns", by="cell", strategy="backward", check_sortedness=False
    )
    inside = at.filter(pl.col("at_ns") < pl.col("end_ns")).select("instant", "bin")
    bin_of = found.spans.join(inside, on="instant", how="left", maintain_order="left")["bin"]
    what = ["task", "kind", "wait_class"]
    names = mine.select(what).unique(maintain_order=True).with_row_index("alike")
    seen = mine.join(names, on=what, nulls_equal=True, maintain_order="left").select("seen", "alike")
    alike = found.totals.join(seen, on="seen", how="left", maintain_order="left")["alike"]
    first = alike.cast(pl.Int64) * bins.height  # one number for both: to count by that is quick
    parts = (
        (first.gather(rows["seen"]) + bin_of.gather(rows["instant"])).alias("code") for rows in found.rows
    )
    counts = pl.concat(part.drop_nulls().value_counts(name="n") for part in parts)
    code = pl.col("code")
    counted = counts.group_by("code").agg(pl.col("n").sum()).select(
        alike=(code // bins.height).cast(pl.UInt32), bin=(code % bins.height).cast(pl.UInt32), n="n"
    )  # fmt: skip
    counted = counted.join(bins.select("bin", "start_ns"), on="bin").sort("start_ns", "alike")
    return counted.join(names, on="alike", maintain_order="left").drop("alike", "bin")


def _served(found: Sampled, tasks: pl.DataFrame, cut: Tables) -> pl.DataFrame:
    """For observations: beside a load of our own the driver counts what was done."""
    observed = cut["windows"].join(cut["cell_sessions"], on="cell", how="anti").select(c.name for c in CELL)
    if observed.is_empty():
        return empty("served")
    asleep = families_of(cut).among(*AT_CLIENT) & (pl.col("kind") != "runnable")
    mine = found.totals.filter((pl.col("state") != "idle").fill_null(True) & ~asleep)
    sessions = tasks.filter(pl.col("role") == "session").join(observed, on="cell", how="semi")
    mine = mine.join(sessions, on="task", how="semi").select("seen")
    counted = pl.concat(rows.group_by("instant").len("n") for rows in found.each(mine))
    counted = counted.group_by("instant").agg(pl.col("n").sum())
    spans = found.spans.select("instant", "cell", "sample", "via", "at_ns")
    rows = observed.join(spans, on="cell", maintain_order="right")
    rows = rows.join(counted, on="instant", how="left", maintain_order="left").drop("instant")
    return conform("served", rows.with_columns(pl.col("n").fill_null(0)))


def _with_column(tasks: pl.DataFrame, seen: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """How much of each task's time the samples saw asleep, against what the margins leave for that.
    ``whole``: ``seen`` before it was divided among states."""
    told = whole.filter((pl.col("kind") != "unknown") | ~_known(tasks, whole))
    effective = pl.col("weight").sum().cast(pl.Float64) ** 2 / pl.col("weight_2").sum()
    size = told.group_by("task").agg(samples=effective.fill_nan(None))
    weight = pl.col("weight") * pl.col("part")
    found = seen.group_by("task").agg(
        slept=weight.filter(kind="sleep").sum(),
        woken=weight.filter(kind="runnable").sum(),
        unlabelled=weight.filter(kind="unlabelled").sum(),
        sampled_ns=pl.col("sampled_ns").first(),
        word=pl.col("word").any(),
        via=pl.col("via").first(),
        skew_ns=(pl.col("skew_ns").sum() / pl.col("skews").sum()).fill_nan(None).clip(0),
        held_ns=pl.col("held_ns").sum() / pl.col("n").sum(),
    )
    tasks = tasks.join(found, on="task", how="left", maintain_order="left")
    tasks = tasks.join(size, on="task", how="left", maintain_order="left")
    tasks = tasks.with_columns(blur_ns=_blur("skew_ns"))
    accounted = pl.col("slept") + pl.when("known").then(0.0).otherwise("unlabelled")
    of = pl.when("known").then(pl.col("slept") + pl.col("woken")).otherwise("sampled_ns")
    tasks = tasks.with_columns(raw_share=pl.when(of > 0).then(accounted / of))
    low, high = interval(tasks["raw_share"], tasks["samples"].clip(1.0))
    slack = pl.sum_horizontal("stale_run_ns", "stale_runq_ns", "switch_ns", _blur("held_ns"))
    off, wall = pl.col("off_ns"), pl.col("wall_ns")
    tasks = tasks.with_columns(off_low=low * wall - slack, off_high=high * wall + slack)
    nearest = pl.min_horizontal(pl.max_horizontal(off, "off_low"), "off_high")
    asleep = pl.when("known").then(nearest.clip(0.0)).otherwise(pl.col("raw_share") * wall)
    unseen = pl.when("ended").then(off.cast(pl.Float64))  # seen by no sample
    return tasks.with_columns(
        asleep_ns=pl.when(pl.col("raw_share").is_not_null()).then(asleep).otherwise(unseen)
    )


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
    weight = (pl.col("weight") * pl.col("part")).sum()
    awake = seen.filter(kind="runnable").group_by("task", *LABEL, maintain_order=True)
    known = tasks.filter("known").select("task", "run_ns", "runq_ns")
    shares = run_shares(awake.agg(weight=weight), known, families)
    both = pl.col("run_ns") + pl.col("runq_ns")
    of = {
        "asleep": pl.when("known").then(pl.col("asleep_ns") / pl.col("slept")).otherwise(_bare()),
        "runnable": pl.when("known").then(both / pl.col("woken")),
        "raw": pl.when("known")
        .then(pl.col("wall_ns") / (pl.col("slept") + pl.col("woken")))
        .otherwise(_bare()),
    }
    factors = tasks.select("task", "known", "exact", **{n: f / pl.col("over_ns") for n, f in of.items()})
    rows = seen.join(factors, on="task", maintain_order="left")
    rows = rows.join(shares, on=["task", *LABEL], how="left", nulls_equal=True, maintain_order="left")
    kind, part = pl.col("kind"), pl.col("part")
    awake_now = pl.when(kind == "runnable").then(part * pl.col("runnable")).fill_null(0.0)
    return rows.with_columns(
        asleep=pl.when((kind == "sleep") | ~pl.col("known")).then(part * pl.col("asleep")).fill_null(0.0),
        runnable=awake_now,
        **{f"run{end}": awake_now * pl.col(f"share{end}").fill_null(0.0) for end in ("", "_low", "_high")},
        raw=pl.when((kind != "unknown") | ~pl.col("known")).then(part * pl.col("raw")).fill_null(0.0),
    )


def _bare() -> pl.Expr:
    """Without margins a sample stands for its share of the time that all samples stand for."""
    return pl.col("wall_ns") / pl.col("sampled_ns")


def _asked(tasks: pl.DataFrame, everything: pl.DataFrame) -> pl.DataFrame:
    rows = everything.filter(via="sql").join(tasks.select("task", "wall_ns", "over_ns"), on="task")
    whole = pl.col("weight").sum().over("task")
    y = pl.col("wall_ns") / pl.col("over_ns") / whole
    return rows.with_columns(y=pl.when(whole > 0).then(y).otherwise(0.0), part=1.0).drop("kind")


def _with_labelled(tasks: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    found = waits.group_by("task").agg(
        label_sleep=pl.col("asleep").sum(), label_runq=pl.col("queued").sum(), label_run=pl.col("run").sum()
    )
    return tasks.join(found, on="task", how="left", maintain_order="left")


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
        waits=pl.col("begun") * 1e9 / over,
        sleeps=pl.col("sleeps") * 1e9 / over,
        run=pl.col("run") / over,
        ticks=ticks,
        slack=pl.col("slack_ns") / over,
        source=pl.lit(TRACE),
        state=pl.lit(None, dtype=pl.String),
        kind=pl.lit("sleep"),
    )
