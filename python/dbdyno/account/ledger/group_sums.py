"""The joint table, and what is known of tasks, summed up by group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from polars.dataframe.group_by import GroupBy

from dbdyno.account.ledger.apportion import RUNS, Joint, Moments
from dbdyno.account.ledger.groups import Groups
from dbdyno.account.ledger.samples import LABEL
from dbdyno.model.results.ledger_rows import ALL
from dbdyno.model.results.raw import once_each
from dbdyno.model.schema.tables import sum_if_all_known
from dbdyno.model.sources.source import TRACE
from dbdyno.stats.estimates import interval, interval_ends, wilson

Keys = Mapping[str, pl.Expr]
"""Columns to sum by, made of ``kind``, ``state``, ``wait_class``, ``wait_event``."""


def _named(keys: Keys) -> Iterator[pl.Expr]:
    return (value.alias(name) for name, value in keys.items())


def sums(
    seen: Moments,
    groups: Groups,
    keys: Keys,
    more: Sequence[str] = (),
    apart: Sequence[str] = (),
) -> pl.DataFrame:
    """Per group and ``keys`` the sum of a measure y over the rows of ``seen``, and its sampling error.

    ``seen``: what a row stands for is its y, and ``part`` how much of a row it is (1, if it is not
    divided); the rows of a group are the whole that the keys divide. Gives ``value``, the ``whole``, the
    least and greatest share of it (``p_low``, ``p_high``), the greatest share of a key that was not seen
    (``p_unseen``), the number of ``samples``, and the sums of ``more``. By each value of the columns
    ``apart`` the rows are a whole of their own.

    The error is that of a ratio of sums over samples (Kish 1965): tasks in one sample are not independent
    of each other. The effective number of observations is that of independent ones with the same variance,
    at least the samples', at most the rows'; :func:`interval` with that number.
    """
    rows = groups.members.join(seen.by_task, on="task", maintain_order="right")
    of, at = ["group", *apart], ["group", *apart, *keys]
    found = rows.group_by(*of, *_named(keys), maintain_order=True).agg(
        *(pl.col(m).sum() for m in more),
        yy=pl.col(f"{seen.measure}_2").sum(),
        value=pl.col(seen.measure).sum(),
        samples=pl.col("part").sum(),
    )
    if found.is_empty():
        ends = ("whole", "p_low", "p_high", "p_unseen")
        return found.drop("yy").with_columns(pl.lit(None, pl.Float64).alias(n) for n in ends)
    found = found.join(_crossed(groups.crowds, seen, of, keys), on=at, how="left", nulls_equal=True)
    whole, yy, xa = (pl.col(n).sum().over(of) for n in ("value", "yy", "xa"))
    aa = pl.coalesce(pl.when(pl.col("xa").is_not_null()).then(xa), yy)  # the sum of a^2: x adds up to a
    found = found.with_columns(whole=whole, aa=aa, yy=yy).sort("group", maintain_order=True)
    return found.select(pl.exclude("xx", "xa", "aa", "yy"), *_ends(found))


def _crossed(crowds: pl.DataFrame, seen: Moments, of: list[str], keys: Keys) -> pl.DataFrame:
    """Over the samples of groups of several tasks: ``xx`` and ``xa`` by ``keys``, of a key's sum x and the
    whole sum a. In a group of one task, its samples are its observations."""
    mine = crowds.join(seen.by_sample, on="bunch")
    parts = mine.group_by(*of, "instant", *_named(keys)).agg(x=pl.col(seen.measure).sum())
    parts = parts.with_columns(a=pl.col("x").sum().over(*of, "instant"))
    return parts.group_by(*of, *keys).agg(xx=(pl.col("x") ** 2).sum(), xa=(pl.col("x") * pl.col("a")).sum())


def _ends(found: pl.DataFrame) -> list[pl.Series]:
    """``p_low``, ``p_high``, ``p_unseen``."""
    value, whole, xx, xa, aa, yy = (found[n].to_numpy() for n in ("value", "whole", "xx", "xa", "aa", "yy"))
    with np.errstate(all="ignore"):
        p, least = value / whole, whole**2 / aa
        variance = xx - 2 * p * xa + p * p * aa  # of a group of one task: not a number
        n_free = np.where(variance > 1e-12 * whole**2, p * (1 - p) * whole**2 / variance, least)
        n = np.fmax(np.fmin(n_free, whole**2 / yy), least)
        low, high = interval_ends(p, n)
        ends = {"p_low": np.fmin(low, p), "p_high": np.fmax(high, p), "p_unseen": wilson(0.0 * p, least)[1]}
    return [pl.Series(name, end) for name, end in ends.items()]


def slack(among: pl.Expr = ALL) -> dict[str, pl.Expr]:
    """How wrong a group's margins may be, seconds per second: ``run``, ``runq``, ``off`` of both; and
    ``blur``, how wrong a label's part of them. Of its tasks ``among``.

    Reads that are stale add up; errors of switches are independent, and add up as squares.
    """
    over, known = pl.col("over_ns"), pl.col("known") & among
    run, runq = ((pl.col(f"stale_{n}_ns") / over).filter(known).sum() for n in ("run", "runq"))
    switch = ((pl.col("switch_ns") / over) ** 2).filter(known).sum().sqrt()
    blur = (pl.col("blur_ns") / over).filter(among).sum()
    return {"run": run + switch, "runq": runq + switch, "off": run + runq + switch, "blur": blur}


def asleep(joint: Joint, groups: Groups, keys: Keys, *, traced: bool = True) -> pl.DataFrame:
    """Per group and ``keys``: ``value``, ``low``, ``high`` (seconds per second), ``samples``, ``waits``.

    ``traced=False``: exactly traced tasks by their samples, too (fitted to the traced margins).
    """
    rows = joint.seen.of("asleep", exact=not traced)
    written = _traced(joint, groups, keys) if traced else None
    if written is not None and rows.by_task.is_empty():
        return _summed(written, list(keys))
    found = sums(rows, groups, {"kind": pl.col("kind"), **keys})
    found = found.filter(pl.col("kind").is_in(["sleep", "unlabelled"])).drop("kind")
    found = found.join(_column(groups, traced=traced), on="group", how="left", maintain_order="left")
    found = _doubted(found, rows, groups, keys)
    least, most = pl.col("whole") - pl.col("less"), pl.col("whole") + pl.col("more")
    low = pl.col("p_low") * least - pl.col("blur") - pl.col("below")
    high = pl.min_horizontal(pl.col("p_high") * most + pl.col("blur") + pl.col("above"), most)
    found = found.select(
        *("group", *keys, "value", "samples"),
        low=pl.min_horizontal(low.clip(0.0), "value"),
        high=pl.max_horizontal(high + pl.col("unseen"), "value"),
        source="sampled_source",
    )
    parts = [found] if written is None else [found, written]
    return _summed(pl.concat(parts, how="diagonal"), list(keys))


def _column(groups: Groups, *, traced: bool) -> pl.DataFrame:
    """Per group how much ``less`` or ``more`` its tasks may have slept than what was apportioned (less, too,
    by what was stolen while they ran), how much of that no sample saw (``unseen``), and ``blur``."""
    sampled = pl.col("asleep_ns").is_not_null() & (~pl.col("exact") if traced else ALL)
    over, given, off = pl.col("over_ns"), pl.col("asleep_ns"), pl.col("off_ns")
    seen = pl.col("slept") > 0
    error = slack()
    found = groups.where(sampled).summed(
        less=(((given - off).clip(0.0) + pl.col("stolen_ns")) / over).filter("known", seen).sum()
        + error["off"],
        more=((off - given).clip(0.0) / over).filter("known", seen).sum() + error["off"],
        unseen=(given / over).filter("known", ~seen).sum(),
        blur=error["blur"],
    )
    every = groups.table.select("group", "sampled_source")
    every = every.join(found, on="group", how="left", maintain_order="left")
    return every.with_columns(pl.col("less", "more", "unseen", "blur").fill_null(0.0))


def runnable(joint: Joint, groups: Groups, keys: Keys, *, traced: bool = True) -> pl.DataFrame:
    """Per group and ``keys``: ``run`` and ``runq`` with their ends (seconds per second), ``samples``.

    Their sum by label is sampled, and exact over all labels; how it divides is estimated: its interval holds
    the range over seeds. Of exactly traced tasks ``runq`` is traced by label, and ``run`` divided by ticks.
    """
    rows = joint.seen.of("runnable", exact=not traced)
    written = _traced_runnable(joint, groups, keys) if traced and joint.waits.height else None
    if written is not None and rows.by_task.is_empty():
        return _summed(written, list(keys))
    found = sums(rows, groups, keys, RUNS)
    error, unseen = slack(~pl.col("exact") if traced else ALL), not_awake(traced=traced)
    errors = groups.summed(
        slack_run=error["run"],
        slack_runq=error["runq"],
        blur=error["blur"],
        hidden=unseen["run"] + unseen["runq"],
    )
    found = found.join(errors, on="group", how="left", maintain_order="left")
    found = _doubted(found, rows, groups, keys).with_columns(
        **_bounds("run", pl.col("run"), pl.col("run_low"), pl.col("run_high")),
        **_bounds("runq", *(pl.col("value") - pl.col(n) for n in ("run", "run_high", "run_low"))),
    )
    named = [f"{n}{end}" for n in ("run", "runq") for end in ("", "_low", "_high")]
    named += ["samples", "source"]
    found = groups.named(found, source="sampled_source").select("group", *keys, *named)
    parts = [found] if written is None else [found, written]
    return _summed(pl.concat(parts, how="diagonal"), list(keys))


def _traced_runnable(joint: Joint, groups: Groups, keys: Keys) -> pl.DataFrame:
    """What the trace wrote down: ``runq``, and ``run`` by shares of ticks, with their interval."""
    runq, error, run = pl.col("queued").sum(), pl.col("slack").sum(), pl.col("run")
    rows = _written(joint.waits, groups, keys).agg(
        runq=runq,
        runq_low=(runq - error).clip(0.0),
        runq_high=runq + error,
        run=pl.when(run.count() > 0).then(run.sum()),
        ticks=pl.col("ticks").filter(run.is_not_null()).sum(),
        samples=pl.lit(None, pl.Float64),
        source=pl.lit(TRACE),
    )
    rows = rows.with_columns(pl.col("ticks").sum().over("group"), whole=run.sum().over("group"))
    low, high = interval(rows["run"] / rows["whole"], rows["ticks"])
    whole = rows["whole"]
    return rows.with_columns(run_low=low * whole, run_high=high * whole).drop("ticks", "whole")


def _bounds(name: str, value: pl.Expr, least: pl.Expr, most: pl.Expr) -> dict[str, pl.Expr]:
    """The range over seeds, wider by what the label's share of all runnable time may be wrong."""
    both, whole = pl.col("value"), pl.col("whole")
    slope = (most / both).clip(0.0, 1.0)
    # all CPU time is given away already where some run queue is left at the least: what the label has less of
    # runnable time is run queue
    below = pl.lit(1.0) if name == "runq" else slope
    error = pl.col(f"slack_{name}") * both / whole
    error += pl.col("blur")
    low = least - (both - pl.col("p_low") * whole + pl.col("below")) * below - error
    high = most + (pl.col("p_high") * whole - both + pl.col("above")) * slope + error + pl.col("hidden")
    return {
        name: value,
        f"{name}_low": pl.min_horizontal(low.clip(0.0), value),
        f"{name}_high": pl.max_horizontal(high, value),
    }


@once_each
def not_asleep(groups: Groups) -> pl.DataFrame:
    """Per group: time asleep under no known label, because no sample (or no label of the trace) tells."""
    over = pl.col("over_ns")
    traced = pl.when(pl.col("label_sleep").is_null()).then(pl.col("slept_ns") / over)
    none_seen = pl.col("known") & (pl.col("slept").fill_null(0) == 0)
    sampled = pl.when(none_seen).then(pl.col("asleep_ns") / over)
    value = pl.when("exact").then(traced).otherwise(sampled)
    found = groups.where(value > 0).summed(value=value.sum(), off=slack()["off"])
    low, high = pl.col("value") - pl.col("off"), pl.col("value") + pl.col("off")
    return found.select("group", "value", low=low.clip(0.0), high=high)


def not_awake(*, traced: bool = True) -> dict[str, pl.Expr]:
    """Of a group: ``run`` and ``runq`` that no sample told the label of; ``traced_run`` and ``traced_runq``,
    those of exactly traced tasks."""
    over, unseen = pl.col("over_ns"), pl.col("woken").fill_null(0) == 0
    exact = pl.col("exact") if traced else pl.lit(False)
    found = {}
    for name in ("run", "runq"):
        whole = pl.col(f"{name}_ns") / over
        rest = (whole - pl.col(f"label_{name}").fill_null(0.0)).clip(0.0)
        found[name] = whole.filter("known", unseen & ~exact).sum()
        found[f"traced_{name}"] = rest.filter("known", exact).sum()
    return found


@once_each
def missed(groups: Groups) -> pl.DataFrame:
    """Per group how much of its time asleep and runnable a label may have that was never seen so."""
    over, wall = pl.col("over_ns"), pl.col("wall_ns") / pl.col("over_ns")
    share = wilson(pl.lit(0.0), (pl.col("samples") * wall).sum().clip(1.0) / pl.len())[1]
    both = pl.col("run_ns") + pl.col("runq_ns")
    given = pl.when("known").then("asleep_ns").otherwise("wall_ns")
    return groups.where(~pl.col("exact") & pl.col("samples").is_not_null()).summed(
        asleep_missed=pl.min_horizontal((given / over).sum(), share * wall.sum()),
        runnable_missed=pl.when(pl.col("known").any()).then(
            pl.min_horizontal((both / over).sum(), share * wall.sum())
        ),
    )


def _written(waits: pl.DataFrame, groups: Groups, keys: Keys) -> GroupBy:
    """What the trace wrote down, by group and ``keys``."""
    mine = groups.members.join(waits, on="task", maintain_order="left_right")
    return mine.group_by("group", *_named(keys), maintain_order=True)


def _traced(joint: Joint, groups: Groups, keys: Keys) -> pl.DataFrame:
    value, error = pl.col("asleep").sum(), pl.col("slack").sum()
    return _written(joint.waits, groups, keys).agg(
        value=value,
        low=(value - error).clip(0.0),
        high=value + error,
        waits=sum_if_all_known("waits"),
        sleeps=pl.col("sleeps").sum(),
        throttled=pl.col("throttled").sum(),
        samples=pl.lit(None, pl.Float64),
        source=pl.lit(TRACE),
    )


def _doubted(found: pl.DataFrame, seen: Moments, groups: Groups, keys: Keys) -> pl.DataFrame:
    """``found`` with how much less (``below``) or more (``above``) than its ``value`` it may be because the
    states come from other samples than the labels: Wilson's interval of a label's share in a state."""
    told = (pl.col("answers") > 0) & pl.col("state").is_not_null()
    told_rows = seen.by_task.filter(told) if "state" in keys else seen.by_task.clear()
    if told_rows.is_empty():
        return found.with_columns(below=0.0, above=0.0)
    answered = groups.members.join(told_rows.with_columns(**keys), on="task")
    at = list(dict.fromkeys(["group", *LABEL, "state", *keys]))
    parts = answered.group_by("task", *at).agg(v=pl.col(seen.measure).sum(), n=pl.col("answers").first())
    parts = parts.group_by(at).agg(pl.col("v", "n").sum())
    parts = parts.with_columns(label=pl.col("v").sum().over("group", *LABEL))
    share = parts["v"] / parts["label"]
    low, high = interval(share, parts["n"])
    errors = parts.with_columns(below=(share - low) * pl.col("label"), above=(high - share) * pl.col("label"))
    errors = errors.group_by("group", *keys).agg((pl.col("below", "above") ** 2).sum().sqrt())
    joined = found.join(errors, on=["group", *keys], how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(pl.col("below", "above").fill_null(0.0))


def _summed(parts: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Sums of what is known; NULL where no part is."""
    figures = [n for n in parts.columns if n not in ("group", "source", *keys)]
    total = [pl.when(pl.col(n).is_not_null().any()).then(pl.col(n).sum()).alias(n) for n in figures]
    return parts.group_by("group", *keys, maintain_order=True).agg(
        *total, pl.col("source").unique().sort().str.join("; ")
    )
