"""Sums of the joint table, and of the tasks' margins, by group."""

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
"""Columns to sum by, as expressions of ``kind``, ``state``, ``wait_class``, ``wait_event``."""


def _as_columns(keys: Keys) -> Iterator[pl.Expr]:
    return (value.alias(name) for name, value in keys.items())


def sums(
    seen: Moments,
    groups: Groups,
    keys: Keys,
    more: Sequence[str] = (),
    apart: Sequence[str] = (),
) -> pl.DataFrame:
    """Returns by group and ``keys`` the sum of a measure over the rows of ``seen``, and its sampling error.

    The rows of a group, or of a group and a value of ``apart``, are the whole that the keys divide. Returns
    ``value``, ``whole``, the ends of its share of it (``p_low``, ``p_high``), the upper end of the share of a
    key without samples (``p_unseen``), the number of ``samples``, and the sums of ``more``.

    The error is that of a ratio of sums over samples (Kish 1965), as tasks in one sample are not
    independent. The effective number of observations is the number of independent ones with the same
    variance: at least that of the samples, at most that of the rows. :func:`interval` uses it.
    """
    rows = groups.members.join(seen.by_task, on="task", maintain_order="right")
    whole_key, key = ["group", *apart], ["group", *apart, *keys]
    by_key = rows.group_by(*whole_key, *_as_columns(keys), maintain_order=True).agg(
        *(pl.col(m).sum() for m in more),
        yy=pl.col(f"{seen.measure}_2").sum(),
        value=pl.col(seen.measure).sum(),
        samples=pl.col("part").sum(),
    )
    if by_key.is_empty():
        ends = ("whole", "p_low", "p_high", "p_unseen")
        return by_key.drop("yy").with_columns(pl.lit(None, pl.Float64).alias(n) for n in ends)
    by_key = by_key.join(
        _cross_products(groups.crowds, seen, whole_key, keys), on=key, how="left", nulls_equal=True
    )
    whole, yy, xa = (pl.col(n).sum().over(whole_key) for n in ("value", "yy", "xa"))
    aa = pl.coalesce(pl.when(pl.col("xa").is_not_null()).then(xa), yy)  # the sum of a^2: x adds up to a
    by_key = by_key.with_columns(whole=whole, aa=aa, yy=yy).sort("group", maintain_order=True)
    return by_key.select(pl.exclude("xx", "xa", "aa", "yy"), *_ends(by_key))


def _cross_products(crowds: pl.DataFrame, seen: Moments, whole_key: list[str], keys: Keys) -> pl.DataFrame:
    """Returns over the samples of groups of several tasks ``xx`` = sum(x²) and ``xa`` = sum(x·a) by
    ``keys``, with x the sum of a key and a that of the whole in one sample. Groups of one task have no
    row: each sample is one observation there."""
    by_sample = crowds.join(seen.by_sample, on="bunch")
    parts = by_sample.group_by(*whole_key, "instant", *_as_columns(keys)).agg(x=pl.col(seen.measure).sum())
    parts = parts.with_columns(a=pl.col("x").sum().over(*whole_key, "instant"))
    return parts.group_by(*whole_key, *keys).agg(
        xx=(pl.col("x") ** 2).sum(), xa=(pl.col("x") * pl.col("a")).sum()
    )


def _ends(by_key: pl.DataFrame) -> list[pl.Series]:
    """Returns columns ``p_low``, ``p_high``, ``p_unseen``."""
    value, whole, xx, xa, aa, yy = (by_key[n].to_numpy() for n in ("value", "whole", "xx", "xa", "aa", "yy"))
    with np.errstate(all="ignore"):
        p, least = value / whole, whole**2 / aa
        # Variance of a ratio estimator x / a, linearised: sum (x - p a)^2 = xx - 2 p xa + p^2 aa.
        variance = xx - 2 * p * xa + p * p * aa  # NaN for a group of one task
        # p (1 - p) / variance is the number of independent observations with this variance. A variance of 0
        # up to rounding, of p = 0 or 1, has no such number.
        n_free = np.where(variance > 1e-12 * whole**2, p * (1 - p) * whole**2 / variance, least)
        n = np.fmax(np.fmin(n_free, whole**2 / yy), least)
        low, high = interval_ends(p, n)
        ends = {"p_low": np.fmin(low, p), "p_high": np.fmax(high, p), "p_unseen": wilson(0.0 * p, least)[1]}
    return [pl.Series(name, end) for name, end in ends.items()]


def slack(among: pl.Expr = ALL) -> dict[str, pl.Expr]:
    """Returns bounds of the errors of a group's margins, in seconds per second: ``run``, ``runq``, ``off``
    (both), and ``blur``, the error of a label's part. ``among`` selects tasks.

    Errors of stale reads add up; those of switches are independent and add up in quadrature.
    """
    over, known = pl.col("over_ns"), pl.col("known") & among
    run, runq = ((pl.col(f"stale_{n}_ns") / over).filter(known).sum() for n in ("run", "runq"))
    switch = ((pl.col("switch_ns") / over) ** 2).filter(known).sum().sqrt()
    blur = (pl.col("blur_ns") / over).filter(among).sum()
    return {"run": run + switch, "runq": runq + switch, "off": run + runq + switch, "blur": blur}


def asleep(joint: Joint, groups: Groups, keys: Keys, *, traced: bool = True) -> pl.DataFrame:
    """Returns by group and ``keys``: ``value``, ``low``, ``high`` (seconds per second), ``samples``,
    ``waits``. ``traced=False`` uses samples for exactly traced tasks, too, fitted to the traced margins."""
    rows = joint.seen.for_measure("asleep", exact=not traced)
    from_trace = _traced_asleep(joint, groups, keys) if traced else None
    if from_trace is not None and rows.by_task.is_empty():
        return _summed(from_trace, list(keys))
    sampled = sums(rows, groups, {"kind": pl.col("kind"), **keys})
    sampled = sampled.filter(pl.col("kind").is_in(["sleep", "unlabelled"])).drop("kind")
    sampled = sampled.join(
        _sleep_errors(groups, traced=traced), on="group", how="left", maintain_order="left"
    )
    sampled = _with_state_errors(sampled, rows, groups, keys)
    least, most = pl.col("whole") - pl.col("less"), pl.col("whole") + pl.col("more")
    low = pl.col("p_low") * least - pl.col("blur") - pl.col("below")
    high = pl.min_horizontal(pl.col("p_high") * most + pl.col("blur") + pl.col("above"), most)
    sampled = sampled.select(
        *("group", *keys, "value", "samples"),
        low=pl.min_horizontal(low.clip(0.0), "value"),
        high=pl.max_horizontal(high + pl.col("unseen"), "value"),
        source="sampled_source",
    )
    parts = [sampled] if from_trace is None else [sampled, from_trace]
    return _summed(pl.concat(parts, how="diagonal"), list(keys))


def _sleep_errors(groups: Groups, *, traced: bool) -> pl.DataFrame:
    """Returns per group the time by which its tasks may have slept less (``less``, with time stolen while
    they ran) or more (``more``) than was apportioned, the part without samples (``unseen``), and ``blur``."""
    sampled = pl.col("asleep_ns").is_not_null() & (~pl.col("exact") if traced else ALL)
    over, given, off = pl.col("over_ns"), pl.col("asleep_ns"), pl.col("off_ns")
    seen = pl.col("slept") > 0
    error = slack()
    errors = groups.where(sampled).summed(
        less=(((given - off).clip(0.0) + pl.col("stolen_ns")) / over).filter("known", seen).sum()
        + error["off"],
        more=((off - given).clip(0.0) / over).filter("known", seen).sum() + error["off"],
        unseen=(given / over).filter("known", ~seen).sum(),
        blur=error["blur"],
    )
    with_source = groups.table.select("group", "sampled_source")
    with_source = with_source.join(errors, on="group", how="left", maintain_order="left")
    return with_source.with_columns(pl.col("less", "more", "unseen", "blur").fill_null(0.0))


def runnable(joint: Joint, groups: Groups, keys: Keys, *, traced: bool = True) -> pl.DataFrame:
    """Returns by group and ``keys``: ``run`` and ``runq`` with their ends (seconds per second), ``samples``.

    Their sum by label is sampled, and exact over all labels. Its division into both is estimated, and the
    interval holds the range over seeds. For exactly traced tasks ``runq`` is traced by label, and ``run``
    divided by ticks.
    """
    rows = joint.seen.for_measure("runnable", exact=not traced)
    from_trace = _traced_runnable(joint, groups, keys) if traced and joint.waits.height else None
    if from_trace is not None and rows.by_task.is_empty():
        return _summed(from_trace, list(keys))
    sampled = sums(rows, groups, keys, RUNS)
    error, unseen = slack(~pl.col("exact") if traced else ALL), not_awake(traced=traced)
    errors = groups.summed(
        slack_run=error["run"],
        slack_runq=error["runq"],
        blur=error["blur"],
        hidden=unseen["run"] + unseen["runq"],
    )
    sampled = sampled.join(errors, on="group", how="left", maintain_order="left")
    sampled = _with_state_errors(sampled, rows, groups, keys).with_columns(
        **_bounds("run", pl.col("run"), pl.col("run_low"), pl.col("run_high")),
        **_bounds("runq", *(pl.col("value") - pl.col(n) for n in ("run", "run_high", "run_low"))),
    )
    named = [f"{n}{end}" for n in ("run", "runq") for end in ("", "_low", "_high")]
    named += ["samples", "source"]
    sampled = groups.named(sampled, source="sampled_source").select("group", *keys, *named)
    parts = [sampled] if from_trace is None else [sampled, from_trace]
    return _summed(pl.concat(parts, how="diagonal"), list(keys))


def _traced_runnable(joint: Joint, groups: Groups, keys: Keys) -> pl.DataFrame:
    """Returns traced ``runq``, and ``run`` divided by ticks with its interval."""
    runq, error, run = pl.col("queued").sum(), pl.col("slack").sum(), pl.col("run")
    rows = _traced_by_key(joint.waits, groups, keys).agg(
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
    """Returns the range over seeds, widened by the error of the label's share of all runnable time."""
    both, whole = pl.col("value"), pl.col("whole")
    slope = (most / both).clip(0.0, 1.0)
    # At the least CPU time of a label, all CPU time went to others. So a smaller share of runnable time means
    # less run queue one for one.
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
    """Returns per group the time asleep without a known label, as no sample or no label of the trace has
    it."""
    over = pl.col("over_ns")
    traced = pl.when(pl.col("label_sleep").is_null()).then(pl.col("slept_ns") / over)
    none_seen = pl.col("known") & (pl.col("slept").fill_null(0) == 0)
    sampled = pl.when(none_seen).then(pl.col("asleep_ns") / over)
    value = pl.when("exact").then(traced).otherwise(sampled)
    sums_ = groups.where(value > 0).summed(value=value.sum(), off=slack()["off"])
    low, high = pl.col("value") - pl.col("off"), pl.col("value") + pl.col("off")
    return sums_.select("group", "value", low=low.clip(0.0), high=high)


def not_awake(*, traced: bool = True) -> dict[str, pl.Expr]:
    """Returns expressions per group: run and run-queue time without a known wait label; ``traced_*``: the
    same for traced tasks."""
    over, unseen = pl.col("over_ns"), pl.col("woken").fill_null(0) == 0
    exact = pl.col("exact") if traced else pl.lit(False)
    expressions = {}
    for name in ("run", "runq"):
        whole = pl.col(f"{name}_ns") / over
        rest = (whole - pl.col(f"label_{name}").fill_null(0.0)).clip(0.0)
        expressions[name] = whole.filter("known", unseen & ~exact).sum()
        expressions[f"traced_{name}"] = rest.filter("known", exact).sum()
    return expressions


@once_each
def missed(groups: Groups) -> pl.DataFrame:
    """Returns per group the upper end of time asleep and of runnable time under a label that no sample
    saw."""
    over, wall = pl.col("over_ns"), pl.col("wall_ns") / pl.col("over_ns")
    # A label that no sample saw: the upper end of Wilson's interval for 0 hits.
    share = wilson(pl.lit(0.0), (pl.col("samples") * wall).sum().clip(1.0) / pl.len())[1]
    both = pl.col("run_ns") + pl.col("runq_ns")
    given = pl.when("known").then("asleep_ns").otherwise("wall_ns")
    return groups.where(~pl.col("exact") & pl.col("samples").is_not_null()).summed(
        asleep_missed=pl.min_horizontal((given / over).sum(), share * wall.sum()),
        runnable_missed=pl.when(pl.col("known").any()).then(
            pl.min_horizontal((both / over).sum(), share * wall.sum())
        ),
    )


def _traced_by_key(waits: pl.DataFrame, groups: Groups, keys: Keys) -> GroupBy:
    """Groups the trace's times by group and ``keys``."""
    of_group = groups.members.join(waits, on="task", maintain_order="left_right")
    return of_group.group_by("group", *_as_columns(keys), maintain_order=True)


def _traced_asleep(joint: Joint, groups: Groups, keys: Keys) -> pl.DataFrame:
    value, error = pl.col("asleep").sum(), pl.col("slack").sum()
    return _traced_by_key(joint.waits, groups, keys).agg(
        value=value,
        low=(value - error).clip(0.0),
        high=value + error,
        waits=sum_if_all_known("waits"),
        sleeps=pl.col("sleeps").sum(),
        throttled=pl.col("throttled").sum(),
        samples=pl.lit(None, pl.Float64),
        source=pl.lit(TRACE),
    )


def _with_state_errors(values: pl.DataFrame, seen: Moments, groups: Groups, keys: Keys) -> pl.DataFrame:
    """Adds ``below`` and ``above``: errors of ``value`` because states and labels come from different
    samples. Both follow from Wilson's interval of a label's share in a state."""
    with_state = (pl.col("answers") > 0) & pl.col("state").is_not_null()
    stated = seen.by_task.filter(with_state) if "state" in keys else seen.by_task.clear()
    if stated.is_empty():
        return values.with_columns(below=0.0, above=0.0)
    answered = groups.members.join(stated.with_columns(**keys), on="task")
    at = list(dict.fromkeys(["group", *LABEL, "state", *keys]))
    parts = answered.group_by("task", *at).agg(v=pl.col(seen.measure).sum(), n=pl.col("answers").first())
    parts = parts.group_by(at).agg(pl.col("v", "n").sum())
    parts = parts.with_columns(label=pl.col("v").sum().over("group", *LABEL))
    share = parts["v"] / parts["label"]
    low, high = interval(share, parts["n"])
    errors = parts.with_columns(below=(share - low) * pl.col("label"), above=(high - share) * pl.col("label"))
    errors = errors.group_by("group", *keys).agg((pl.col("below", "above") ** 2).sum().sqrt())
    joined = values.join(errors, on=["group", *keys], how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(pl.col("below", "above").fill_null(0.0))


def _summed(parts: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Sums the known values of a group and key; NULL if none is known."""
    figures = [n for n in parts.columns if n not in ("group", "source", *keys)]
    total = [pl.when(pl.col(n).is_not_null().any()).then(pl.col(n).sum()).alias(n) for n in figures]
    return parts.group_by("group", *keys, maintain_order=True).agg(
        *total, pl.col("source").unique().sort().str.join("; ")
    )
