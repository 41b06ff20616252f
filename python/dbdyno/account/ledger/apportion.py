"""From samples to seconds: the joint table of each task, fitted to its exact margins.

A task has as many rows as samples. All results are sums by label and the variance of these between
samples. For a group of one task that variance follows from the sum of squares of its rows; for a group of
several it needs the sums of each sample. Tasks that belong to the same groups are one *bunch*, and the
rows of a sample are summed over it. So these tables have one row per label and task, or per label, sample
and bunch.
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

_GROUP_COLUMNS = ("cell", "role", "worker", "exact", "known")
_OBSERVATION = ("kind", "state", *LABEL, "answers")


@dataclass(frozen=True)
class Moments:
    """Sums of the samples by task and by sample, from which values and their sampling errors follow."""

    by_task: pl.DataFrame
    """One row per ``task`` and observation: sums over the samples of each measure, of its square
    (``MEASURE_2``) and of ``part``."""
    by_sample: pl.DataFrame
    """Sums of each measure by ``bunch``, ``instant`` and observation."""
    bunches: pl.DataFrame
    """Columns ``task``, ``bunch``, ``exact``."""
    measure: str = ""
    """The selected measure: it is positive in all rows."""

    def for_measure(self, measure: str, *, exact: bool = True) -> Moments:
        """Returns the rows with ``measure`` above 0. ``exact`` False: without tasks whose waits are
        traced."""
        moments_ = self if exact else self.sampled
        if measure not in moments_.measured:
            tasks, samples = (
                rows.filter(pl.col(measure) > 0) for rows in (moments_.by_task, moments_.by_sample)
            )
            moments_.measured[measure] = Moments(tasks, samples, moments_.bunches, measure)
        return moments_.measured[measure]

    def each(self, measure: str, questions: Mapping[str, Mapping[str, pl.Expr]]) -> Moments:
        """Returns :meth:`for_measure` once for each of several ``questions``, with further key columns.
        The question's name is in column ``account``."""
        selected, more = (
            self.for_measure(measure),
            [{"account": pl.lit(n), **keys} for n, keys in questions.items()],
        )
        tasks, samples = (
            pl.concat(p.with_columns(**m) for m in more) for p in (selected.by_task, selected.by_sample)
        )
        return Moments(tasks, samples, self.bunches, measure)

    @cached_property
    def measured(self) -> dict[str, Moments]:
        """Cache of :meth:`for_measure` by measure."""
        return {}

    @cached_property
    def sampled(self) -> Moments:
        """The same without tasks whose waits are traced."""
        exact = self.bunches["exact"]
        return self.only(self.bunches.filter(~exact)) if exact.any() else self

    def only(self, tasks: pl.DataFrame) -> Moments:
        """Returns the rows of ``tasks``, which must be whole bunches."""
        members = tasks.select("task")
        bunches = self.bunches.join(members, on="task", how="semi")
        if bunches.height == self.bunches.height:
            return self
        by_task = self.by_task.join(members, on="task", how="semi", maintain_order="left")
        by_sample = self.by_sample.join(bunches, on="bunch", how="semi", maintain_order="left")
        return Moments(by_task, by_sample, bunches)


def moments(
    seen: pl.DataFrame, samples_: Sampled, bunches: pl.DataFrame, measures: Sequence[str], more: Sequence[str]
) -> Moments:
    """Sums ``measures`` and ``more`` by task and by sample.

    ``seen``: one row per observation of a task, with ``part``, the part of its samples that it is, and
    ``measures`` and ``more`` per unit of weight. ``bunches``: :func:`bunched`.
    """
    observed = [n for n in _OBSERVATION if n in seen.columns]
    positive = pl.any_horizontal(pl.col(m) > 0 for m in measures)
    by_task = seen.group_by("task", *observed).agg(
        *((pl.col(n) * pl.col("weight")).sum().alias(n) for n in (*measures, *more)),
        (pl.col("part") * pl.col("with_weight")).filter(positive).sum(),
        pl.col("first").min(),
        *((pl.col(m) ** 2 * pl.col("weight_2") / pl.col("part")).sum().alias(f"{m}_2") for m in measures),
    )
    by_task = by_task.sort("first", "task", *observed).drop("first")
    keys = ["bunch", *(n for n in observed if n != "answers")]
    rows = seen.join(bunches.select("task", "bunch"), on="task", maintain_order="left")
    names = rows.select(keys).unique(maintain_order=True).with_row_index("alike")
    rows = rows.join(names, on=keys, nulls_equal=True, maintain_order="left")
    by_sample = _by_sample(rows.select("seen", "alike", "part", *measures), samples_, measures)
    by_sample = by_sample.join(names, on="alike", maintain_order="left").drop("alike")
    return Moments(by_task, by_sample, bunches)


def _by_sample(seen: pl.DataFrame, samples_: Sampled, measures: Sequence[str]) -> pl.DataFrame:
    parts = [
        rows.group_by("alike", "instant", maintain_order=True).agg(
            (pl.col(m) * pl.col("weight")).sum() for m in measures
        )
        for rows in samples_.each(seen)
    ]
    return pl.concat(parts)


def bunched(tasks: pl.DataFrame) -> pl.DataFrame:
    """Returns ``tasks`` with ``bunch``, equal for tasks that belong to the same groups. A session with
    parallel workers is a group of several tasks by itself."""
    own = tasks.filter(pl.col("role") == "session")
    led = own.group_by("cell", "session").len().filter(pl.col("len") > 1)
    led = led.select("cell", "session", leads="session")
    tasks_with_leader = tasks.with_columns(observed=pl.col("samples").is_not_null())
    tasks_with_leader = tasks_with_leader.join(led, on=["cell", "session"], how="left", maintain_order="left")
    names = (
        tasks_with_leader.select(*_GROUP_COLUMNS, "leads", "observed")
        .unique(maintain_order=True)
        .with_row_index("bunch")
    )
    with_bunch = tasks_with_leader.join(
        names, on=[*_GROUP_COLUMNS, "leads", "observed"], nulls_equal=True, maintain_order="left"
    )
    return with_bunch.drop("leads", "observed")


RUNS = ("run", "run_low", "run_high")


@dataclass(frozen=True)
class Joint:
    """The joint table of all tasks of all cells, before it is summed up."""

    tasks: pl.DataFrame
    """:func:`margins` with further columns.

    ``samples``: effective number of samples; NULL without any. ``stateless``: its states are hidden from our
    role. ``hidden``: the same, and no other source has its waits. ``slept``, ``woken``: weight of the samples
    that saw it asleep and runnable. ``off_low``, ``off_high``: 95 % interval of the time asleep, from the
    samples and the margins' errors. ``asleep_ns``: time that is apportioned to waits. ``blur_ns``: time that
    may be under a wrong label. ``wait_source``: name of the source of its waits; ``raw_source``: of its
    samples."""
    seen: Moments
    """Time that each sampled row stands for, in seconds per second: fitted to the margins (``asleep``;
    ``runnable`` with its part ``run``, ``run_low``, ``run_high``), or by the samples alone (``raw``)."""
    bins: pl.DataFrame
    """Number of samples (``n``) by task, bin (``start_ns``), ``kind`` and ``wait_class``."""
    served: pl.DataFrame
    """Table ``served``."""
    asked: Moments
    """Samples through SQL only: ``y`` is each row's share of the task's time."""
    waits: pl.DataFrame
    """Exactly traced tasks by wait label: ``asleep``, ``queued``, ``throttled``, ``waits`` and ``sleeps`` per
    second.

    ``run`` is divided among the labels by ``ticks`` of a clock on each CPU (NULL if no tick met the task).
    The trace has no ``state``; ``kind`` is sleep."""
    families: WaitFamilies


def joint(cut: Tables, chunks: Iterable[pl.DataFrame] | None = None) -> Joint:
    """Fits the samples of all tasks to their margins. All tables of this room are sums of the result.
    ``chunks``: see :func:`sampled`."""
    families = families_of(cut)
    tasks = with_stolen(margins(cut), cut)
    samples_ = sampled(cut, tasks, chunks)
    inside = samples_.totals.filter("inside")
    everything = inside.filter(~hidden())
    any_hidden = everything.height < inside.height
    hidden_tasks: list[int] = inside.filter(hidden())["task"].to_list() if any_hidden else []
    tasks = tasks.with_columns(stateless=pl.col("task").is_in(hidden_tasks))
    chosen_rows = chosen(everything)
    seen = with_states(chosen_rows, everything)
    tasks = _with_sampled_sleep(tasks, seen, chosen_rows)
    tasks = tasks.with_columns(hidden=pl.col("stateless") & pl.col("samples").is_null() & ~pl.col("exact"))
    waits = _waits(cut, tasks)
    tasks = bunched(_with_labelled(tasks, waits)).with_columns(*_source_names())
    bunches = tasks.select("task", "bunch", "exact")
    answers = moments(_server_samples(tasks, everything), samples_, bunches, ("y",), ())
    rows = moments(
        _apportioned(tasks, seen, families), samples_, bunches, ("asleep", "runnable", "raw"), RUNS
    )
    served = _served(samples_, tasks, cut)
    return Joint(tasks, rows, _binned(chosen_rows, samples_, cut), served, answers, waits, families)


def _source_names() -> list[pl.Expr]:
    """Returns expressions for ``wait_source`` and ``raw_source``: the names of the sources of a task's
    waits and samples."""
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


def _binned(chosen_rows: pl.DataFrame, samples_: Sampled, cut: Tables) -> pl.DataFrame:
    """Counts samples by task, bin, kind and wait class. All sessions of a cell have the same bins."""
    bins = (
        cut["cut_bins"].select("cell", "start_ns", "end_ns").unique().sort("start_ns").with_row_index("bin")
    )
    at = samples_.spans.select("instant", "cell", "at_ns").sort("at_ns")
    at = at.join_asof(
        bins, left_on="at_ns", right_on="start_ns", by="cell", strategy="backward", check_sortedness=False
    )
    inside = at.filter(pl.col("at_ns") < pl.col("end_ns")).select("instant", "bin")
    bin_of = samples_.spans.join(inside, on="instant", how="left", maintain_order="left")["bin"]
    keys = ["task", "kind", "wait_class"]
    names = chosen_rows.select(keys).unique(maintain_order=True).with_row_index("alike")
    seen = chosen_rows.join(names, on=keys, nulls_equal=True, maintain_order="left").select("seen", "alike")
    alike = samples_.totals.join(seen, on="seen", how="left", maintain_order="left")["alike"]
    first = alike.cast(pl.Int64) * bins.height  # one integer per pair: grouping by it is fast
    parts = (
        (first.gather(rows["seen"]) + bin_of.gather(rows["instant"])).alias("code") for rows in samples_.rows
    )
    counts = pl.concat(part.drop_nulls().value_counts(name="n") for part in parts)
    code = pl.col("code")
    counted = (
        counts.group_by("code")
        .agg(pl.col("n").sum())
        .select(alike=(code // bins.height).cast(pl.UInt32), bin=(code % bins.height).cast(pl.UInt32), n="n")
    )
    counted = counted.join(bins.select("bin", "start_ns"), on="bin").sort("start_ns", "alike")
    return counted.join(names, on="alike", maintain_order="left").drop("alike", "bin")


def _served(samples_: Sampled, tasks: pl.DataFrame, cut: Tables) -> pl.DataFrame:
    """Counts the sessions that are being served in each sample of an observation. A driven load has no
    rows, as the driver counts its calls."""
    observed = cut["windows"].join(cut["cell_sessions"], on="cell", how="anti").select(c.name for c in CELL)
    if observed.is_empty():
        return empty("served")
    asleep = families_of(cut).among(*AT_CLIENT) & (pl.col("kind") != "runnable")
    busy = samples_.totals.filter((pl.col("state") != "idle").fill_null(True) & ~asleep)
    sessions = tasks.filter(pl.col("role") == "session").join(observed, on="cell", how="semi")
    busy = busy.join(sessions, on="task", how="semi").select("seen")
    counted = pl.concat(rows.group_by("instant").len("n") for rows in samples_.each(busy))
    counted = counted.group_by("instant").agg(pl.col("n").sum())
    spans = samples_.spans.select("instant", "cell", "sample", "via", "at_ns")
    rows = observed.join(spans, on="cell", maintain_order="right")
    rows = rows.join(counted, on="instant", how="left", maintain_order="left").drop("instant")
    return conform("served", rows.with_columns(pl.col("n").fill_null(0)))


def _with_sampled_sleep(tasks: pl.DataFrame, seen: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """Compares each task's sampled share of sleep with that of its margins, and sets ``asleep_ns`` between
    both. ``whole``: ``seen`` before it was divided among states."""
    with_state = whole.filter((pl.col("kind") != "unknown") | ~_known_by_row(tasks, whole))
    # Effective sample size (Kish 1965): weights differ where samples were late or lost.
    effective = pl.col("weight").sum().cast(pl.Float64) ** 2 / pl.col("weight_2").sum()
    size = with_state.group_by("task").agg(samples=effective.fill_nan(None))
    weight = pl.col("weight") * pl.col("part")
    sums = seen.group_by("task").agg(
        slept=weight.filter(kind="sleep").sum(),
        woken=weight.filter(kind="runnable").sum(),
        unlabelled=weight.filter(kind="unlabelled").sum(),
        sampled_ns=pl.col("sampled_ns").first(),
        word=pl.col("word").any(),
        via=pl.col("via").first(),
        skew_ns=(pl.col("skew_ns").sum() / pl.col("skews").sum()).fill_nan(None).clip(0),
        held_ns=pl.col("held_ns").sum() / pl.col("n").sum(),
    )
    tasks = tasks.join(sums, on="task", how="left", maintain_order="left")
    tasks = tasks.join(size, on="task", how="left", maintain_order="left")
    tasks = tasks.with_columns(blur_ns=_blur("skew_ns"))
    accounted = pl.col("slept") + pl.when("known").then(0.0).otherwise("unlabelled")
    whole_ns = pl.when("known").then(pl.col("slept") + pl.col("woken")).otherwise("sampled_ns")
    tasks = tasks.with_columns(raw_share=pl.when(whole_ns > 0).then(accounted / whole_ns))
    low, high = interval(tasks["raw_share"], tasks["samples"].clip(1.0))
    # Errors of the margins: stale reads at both ends, switches, and time for which the sampler held a CPU.
    slack = pl.sum_horizontal("stale_run_ns", "stale_runq_ns", "switch_ns", _blur("held_ns"))
    off, wall = pl.col("off_ns"), pl.col("wall_ns")
    tasks = tasks.with_columns(off_low=low * wall - slack, off_high=high * wall + slack)
    # The margins are exact up to their errors: their value is moved into the samples' interval only if it
    # contradicts it.
    nearest = pl.min_horizontal(pl.max_horizontal(off, "off_low"), "off_high")
    asleep = pl.when("known").then(nearest.clip(0.0)).otherwise(pl.col("raw_share") * wall)
    unseen = pl.when("ended").then(off.cast(pl.Float64))  # no sample saw it
    return tasks.with_columns(
        asleep_ns=pl.when(pl.col("raw_share").is_not_null()).then(asleep).otherwise(unseen)
    )


def _blur(delay: str) -> pl.Expr:
    """Returns an upper bound of the time that samples show an outdated value: number of sleeps times
    ``delay``.

    With ``skew_ns`` it is time under a wrong label: a task that falls asleep or gets a CPU between the
    reads of its label and its state keeps the old label. With ``held_ns`` it is time in a wrong state: the
    sampler itself occupies a CPU.
    """
    sleeps = pl.coalesce("voluntary", "slices").fill_null(0)
    blur = pl.min_horizontal(sleeps * pl.col(delay), pl.col("wall_ns").cast(pl.Float64))
    return pl.when(pl.col("samples").is_not_null() & ~pl.col("word")).then(blur.fill_null(0.0)).otherwise(0.0)


def _known_by_row(tasks: pl.DataFrame, seen: pl.DataFrame) -> pl.Series:
    return seen.select("task").join(
        tasks.select("task", "known"), on="task", how="left", maintain_order="left"
    )["known"]


def _apportioned(tasks: pl.DataFrame, seen: pl.DataFrame, families: WaitFamilies) -> pl.DataFrame:
    """Returns the rows of ``seen`` with the time that each unit of their weight stands for: ``asleep``,
    ``runnable``, ``run`` and ``raw``."""
    weight = (pl.col("weight") * pl.col("part")).sum()
    awake = seen.filter(kind="runnable").group_by("task", *LABEL, maintain_order=True)
    known = tasks.filter("known").select("task", "run_ns", "runq_ns")
    shares = run_shares(awake.agg(weight=weight), known, families)
    both = pl.col("run_ns") + pl.col("runq_ns")
    factor_by_measure = {
        "asleep": pl.when("known").then(pl.col("asleep_ns") / pl.col("slept")).otherwise(_time_per_weight()),
        "runnable": pl.when("known").then(both / pl.col("woken")),
        "raw": pl.when("known")
        .then(pl.col("wall_ns") / (pl.col("slept") + pl.col("woken")))
        .otherwise(_time_per_weight()),
    }
    factors = tasks.select(
        "task", "known", "exact", **{n: f / pl.col("over_ns") for n, f in factor_by_measure.items()}
    )
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


def _time_per_weight() -> pl.Expr:
    """Returns the time per unit of weight without margins: wall time over the time that all samples stand
    for."""
    return pl.col("wall_ns") / pl.col("sampled_ns")


def _server_samples(tasks: pl.DataFrame, everything: pl.DataFrame) -> pl.DataFrame:
    """Returns samples through SQL, each with its share ``y`` of the task's time."""
    rows = everything.filter(via="sql").join(tasks.select("task", "wall_ns", "over_ns"), on="task")
    whole = pl.col("weight").sum().over("task")
    y = pl.col("wall_ns") / pl.col("over_ns") / whole
    return rows.with_columns(y=pl.when(whole > 0).then(y).otherwise(0.0), part=1.0).drop("kind")


def _with_labelled(tasks: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    labelled = waits.group_by("task").agg(
        label_sleep=pl.col("asleep").sum(), label_runq=pl.col("queued").sum(), label_run=pl.col("run").sum()
    )
    return tasks.join(labelled, on="task", how="left", maintain_order="left")


def _waits(cut: Tables, tasks: pl.DataFrame) -> pl.DataFrame:
    """Returns the trace's times of exactly traced tasks by wait label. Time without a label is left out.
    CPU time is exact in sum, and divided by the ticks that met the task under each label."""
    exact_tasks = tasks.filter("exact").select(
        "task", "cell", "pid", "tid", "start_ticks", "over_ns", "slack_ns", "run_ns"
    )
    rows = exact_tasks.join(cut["cut_waits"], on=["cell", "pid", "tid", "start_ticks"], nulls_equal=True)
    over, ticks = pl.col("over_ns"), pl.col("run_samples")
    all_ticks = ticks.sum().over("task")
    rows = rows.with_columns(run=pl.when(all_ticks > 0).then(pl.col("run_ns") * ticks / all_ticks))
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
