"""What the samples saw of each task: the server's word and the task's R/S/D, as shares of its time."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from dbdyno.ledger.intervals import effective

Tables = Mapping[str, pl.DataFrame]

NO_EVENT = "no wait event"
UNLABELLED = "active without wait event"
TASK = ("cell", "pid", "tid", "start_ticks")

# Where no task state can be read for a reason that holds for the whole cell, the server's word stands alone.
_LABEL_ONLY = ("not here", "not permitted", "not supported", "off")


def sampling(cut: Tables) -> pl.DataFrame:
    """Per cell: the sampled span and the effective number of samples."""
    length = pl.col("high_ns") - pl.col("low_ns")
    return (
        cut["cut_sampler"]
        .group_by("cell", maintain_order=True)
        .agg(
            sampled_from=pl.col("low_ns").min(),
            sampled_to=pl.col("high_ns").max(),
            samples=effective(length),
        )
    )


def observations(cut: Tables) -> pl.DataFrame:
    """Each session's rows of the samples: ``kind``, ``detail``, the ``weight`` (ns) inside its bracket, and
    whether the server's word stands alone (``label_only``)."""
    tasks = cut["cut_tasks"].filter(pl.col("role") == "session")
    tasks = tasks.select(*TASK, "from_ns", "to_ns", "partial", counted=pl.col("run_ns").is_not_null())
    spans = cut["cut_sampler"].select("cell", "sample", "at_ns", "low_ns", "high_ns")
    rows = cut["cut_samples"].filter(pl.col("role") == "session").drop("at_ns", "start_ticks")
    joined = rows.join(spans, on=["cell", "sample"]).join(tasks, on=["cell", "pid"])
    whole = ~pl.col("partial")
    low = pl.when(whole).then("low_ns").otherwise(pl.max_horizontal("low_ns", "from_ns"))
    high = pl.when(whole).then("high_ns").otherwise(pl.min_horizontal("high_ns", "to_ns"))
    alive = whole | pl.col("at_ns").is_between("from_ns", "to_ns")
    return (
        joined.filter(alive)
        .with_columns(kind=_kind(), detail=_detail(), weight=(high - low).clip(0), label_only=_label_only())
        .select(*TASK, "session", "sample", "kind", "detail", "weight", "label_only")
    )


def shares(cut: Tables, seen: pl.DataFrame) -> pl.DataFrame:
    """The joint table: per session task, kind and detail, the share of its sampled time."""
    tasks = cut["cut_tasks"].filter(pl.col("role") == "session").join(sampling(cut), on="cell")
    inside = pl.min_horizontal("to_ns", "sampled_to") - pl.max_horizontal("from_ns", "sampled_from")
    sampled = pl.when("partial").then(inside).otherwise(pl.col("sampled_to") - pl.col("sampled_from"))
    weights = seen.group_by(*TASK, "kind", "detail", maintain_order=True).agg(
        pl.col("weight").sum(), pl.col("label_only").any()
    )
    return (
        weights.join(tasks.with_columns(sampled_ns=sampled), on=TASK, nulls_equal=True)
        .filter(pl.col("sampled_ns") > 0)
        .with_columns(share=pl.col("weight") / pl.col("sampled_ns"))
    )


def _kind() -> pl.Expr:
    """sleep | client | runnable | unlabelled (active, no event, task state not to be had) | unknown."""
    state, wait = pl.col("task_state"), pl.col("wait_class")
    client = wait == "Client"
    asleep = state.is_in(["S", "D"])
    label_only = _label_only()
    waits = asleep | (label_only & wait.is_not_null())
    return (
        pl.when(waits & client)
        .then(pl.lit("client"))
        .when(waits)
        .then(pl.lit("sleep"))
        .when(state == "R")
        .then(pl.lit("runnable"))
        .when(label_only & (pl.col("state") == "active"))
        .then(pl.lit("unlabelled"))
        .otherwise(pl.lit("unknown"))
    )


def _label_only() -> pl.Expr:
    no_state = pl.col("task_state").is_null() & pl.col("status").is_in(_LABEL_ONLY)
    return no_state & ~pl.col("counted")


def _detail() -> pl.Expr:
    labelled = pl.concat_str("wait_class", pl.lit("/"), pl.col("wait_event").fill_null("?"))
    return pl.when(pl.col("wait_class").is_null()).then(pl.lit(NO_EVENT)).otherwise(labelled)
