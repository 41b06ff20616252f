"""What the samples saw of each task: the server's word and, at once, the task's R/S/D."""

from __future__ import annotations

import polars as pl

from dbdyno.account.ledger.margins import Tables as Tables
from dbdyno.model.source import HIDDEN
from dbdyno.stats.shares import effective

NO_EVENT = "no wait event"
UNLABELLED = "active without wait event"
LABEL = ("wait_class", "wait_event")

ASKED, READ = "activity samples", "wait event word"
SOURCES = {"sql": ASKED, "memory": READ}
WORD_ALONE = "activity samples, the server's word alone"

# Where no task state can be read for a reason that holds for the whole cell, the server's word stands alone.
_LABEL_ONLY = ("not here", "not permitted", "not supported", "off")
KINDS = pl.Enum(["sleep", "runnable", "unlabelled", "unknown"])
_GONE = ("Z", "X")
_ROLES = ("session", "other")


def sampling(cut: Tables) -> pl.DataFrame:
    """Per cell and sampler: the span that its samples stand for."""
    return (
        cut["cut_sampler"]
        .group_by("cell", "via", maintain_order=True)
        .agg(sampled_from=pl.col("low_ns").min(), sampled_to=pl.col("high_ns").max())
    )


def observations(cut: Tables, tasks: pl.DataFrame) -> pl.DataFrame:
    """Every row of the samples that is a task's: ``kind`` and the ``weight`` (ns) inside its bracket.

    ``instant`` numbers the samples of all cells and samplers; ``sampled_ns`` is what the sampler's samples
    stand for of the task's bracket. Kinds: sleep | runnable | unlabelled (active, no event, task state not
    to be had) | unknown. ``word``: the server's word stands alone.
    ``held_ns``: from when the sample was due to this row's read; in that time the sampler may have held a CPU
    that others waited for. ``hidden``: our role could not see what the session did, the row says nothing.
    """
    theirs = pl.col("role").is_in(_ROLES) | pl.col("role").str.starts_with("helper:")
    mine = tasks.filter(theirs).select(
        "task", "cell", "pid", "tid", "start_ticks", "from_ns", "to_ns", "partial", "known"
    )
    spans = cut["cut_sampler"].drop("workload", "variant", "sessions", "repeat")
    spans = spans.with_row_index("instant").join(sampling(cut), on=["cell", "via"], maintain_order="left")
    short = {n: pl.Enum(spans[n].unique(maintain_order=True)) for n in ("cell", "via")}
    texts = pl.col("state", *LABEL, "task_state", "status").cast(pl.Categorical)
    rows = cut["cut_samples"].select(
        *("cell", "via", "sample", "pid", "tid", "state", *LABEL, "task_state", "status", "skew_ns"),
        its_start="start_ticks",
        read_ns="at_ns",
    )
    rows = rows.with_columns(texts, *(pl.col(n).cast(to) for n, to in short.items()))
    mine = mine.with_columns(pl.col("cell").cast(short["cell"], strict=False))
    spans = spans.with_columns(pl.col(n).cast(to) for n, to in short.items())
    joined = rows.join(spans, on=["cell", "via", "sample"], maintain_order="left").join(
        mine, on=["cell", "pid", "tid"], maintain_order="left"
    )
    del rows
    same = pl.col("its_start").is_null() | pl.col("start_ticks").is_null()
    joined = joined.filter(same | (pl.col("its_start") == pl.col("start_ticks")))
    began = (pl.col("read_ns") - pl.col("skew_ns").fill_null(0)).min().over("instant")
    whole = ~pl.col("partial")
    alive = whole | pl.col("at_ns").is_between("from_ns", "to_ns")
    return (
        joined.filter(alive)
        .with_columns(
            kind=_kind().cast(KINDS),
            word=_word_alone(),
            weight=_inside("low_ns", "high_ns"),
            sampled_ns=_inside("sampled_from", "sampled_to"),
            hidden=((pl.col("via") == "sql") & (pl.col("state") == HIDDEN)).fill_null(False),
            held_ns=(pl.col("late_ns") + pl.col("read_ns") - began).clip(0),
        )
        .select(
            "task",
            "cell",
            "via",
            "instant",
            "state",
            *LABEL,
            "kind",
            "word",
            "weight",
            "sampled_ns",
            "skew_ns",
            "held_ns",
            "hidden",
        )
    )


def chosen(seen: pl.DataFrame) -> pl.DataFrame:
    """Of each task the rows of one sampler: memory, unless the server's answers tell more of it."""
    told = pl.col("kind") != "unknown"
    much = seen.group_by("task", "via").agg(
        n=effective(pl.col("weight") * told.cast(pl.Float64)).fill_nan(0.0)
    )
    best = much.sort(["n", "via"], descending=[True, False], maintain_order=True).unique(
        "task", keep="first", maintain_order=True
    )
    return seen.join(best.select("task", "via"), on=["task", "via"], how="semi")


def detail() -> pl.Expr:
    """The label of a wait in one word."""
    labelled = pl.concat_str("wait_class", pl.lit("/"), pl.col("wait_event").fill_null("?"))
    return pl.when(pl.col("wait_class").is_null()).then(pl.lit(NO_EVENT)).otherwise(labelled)


def _inside(low: str, high: str) -> pl.Expr:
    """The part of a span inside the task's bracket; a task that was there all the time takes it whole."""
    cut_low = pl.when("partial").then(pl.max_horizontal(low, "from_ns")).otherwise(low)
    cut_high = pl.when("partial").then(pl.min_horizontal(high, "to_ns")).otherwise(high)
    return (cut_high - cut_low).clip(0)


def _kind() -> pl.Expr:
    state = pl.col("task_state")
    asleep = state.is_not_null() & (state != "R") & ~state.is_in(_GONE)
    return (
        pl.when(asleep | (_word_alone() & pl.col("wait_class").is_not_null()))
        .then(pl.lit("sleep"))
        .when(state == "R")
        .then(pl.lit("runnable"))
        .when(_word_alone() & (pl.col("state") == "active"))
        .then(pl.lit("unlabelled"))
        .otherwise(pl.lit("unknown"))
    )


def _word_alone() -> pl.Expr:
    no_state = pl.col("task_state").is_null() & pl.col("status").is_in(_LABEL_ONLY)
    return (no_state & ~pl.col("known")).fill_null(False)
