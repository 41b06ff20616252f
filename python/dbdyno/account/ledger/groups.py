"""Groups of tasks that accounts are made for: each session, each rung (all its sessions), each kind of
helper, others; and the joint table summed up by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from dbdyno.account.ledger.apportion import RUNS, Joint, sums
from dbdyno.account.ledger.margins import TASKS
from dbdyno.account.ledger.samples import ASKED, LABEL, READ, WORD_ALONE
from dbdyno.model.brief import BRIEF, NAME
from dbdyno.model.source import TRACE
from dbdyno.stats.estimates import interval, wilson

SCOPES = ("session", "brief", "rung", "helper", "beside")
_BESIDE = ("other", "driver", "pooler", "dbdyno")
_OBSERVED = pl.col("samples").is_not_null() | pl.col("exact") | pl.col("ended")


@dataclass(frozen=True)
class Groups:
    """``table``: one row a group (``group``, ``cell``, ``scope``, ``session``, ``who``, ``total``: its W
    over the window, ``tasks``, how many of them were ``heard`` (sampled or traced) and the W of the others,
    how many are ``hidden`` from our role, or (``stateless``) their states alone, sources in words).
    ``members``: ``group`` of each ``task``, which may have several."""

    table: pl.DataFrame
    members: pl.DataFrame

    def only(self, *scopes: str) -> Groups:
        """The groups of these scopes."""
        table = self.table.filter(pl.col("scope").is_in(scopes))
        return Groups(table, self.members.join(table.select("group"), on="group", how="semi"))

    def named(self, rows: pl.DataFrame, *columns: str, **renamed: pl.Expr | str) -> pl.DataFrame:
        """``rows`` with columns of their group's row in ``table``."""
        return rows.join(self.table.select("group", *columns, **renamed), on="group", maintain_order="left")


def groups(tasks: pl.DataFrame) -> Groups:
    """Sessions (those too brief to be sampled as one), rungs, helpers by role, and who is beside."""
    role = pl.col("role")
    own = tasks.filter(role == "session")
    brief = tasks.filter(role == BRIEF)
    helper = tasks.filter(role.str.starts_with("helper:"))
    beside = tasks.filter(role.is_in(_BESIDE))
    none = pl.lit(None, dtype=pl.Int64)
    parts = [
        own.select("task", "cell", "session", scope=pl.lit("session"), who=pl.lit("session")),
        brief.select("task", "cell", session=none, scope=pl.lit("brief"), who=pl.lit(NAME)),
        pl.concat([own, brief]).select(
            "task", "cell", session=none, scope=pl.lit("rung"), who=pl.lit("rung")
        ),
        helper.select(
            "task", "cell", session=none, scope=pl.lit("helper"), who=role.str.strip_prefix("helper:")
        ),
        beside.select("task", "cell", session=none, scope=pl.lit("beside"), who=role),
    ]
    return _grouped(pl.concat(parts), tasks, ["cell", "scope", "session", "who"])


def each(tasks: pl.DataFrame) -> Groups:
    """Every task for itself."""
    return _grouped(tasks.select("task", "cell", pid_of="task"), tasks, ["cell", "pid_of"])


def _grouped(parts: pl.DataFrame, tasks: pl.DataFrame, key: list[str]) -> Groups:
    names = parts.select(key).unique(maintain_order=True).with_row_index("group")
    members = parts.join(names, on=key, nulls_equal=True, maintain_order="left").select("task", "group")
    table = members.join(tasks.with_columns(*_source()), on="task", maintain_order="left")
    sums = table.group_by("group").agg(
        total=(pl.col("wall_ns") / pl.col("over_ns")).sum(),
        tasks=pl.len(),
        sampled=pl.col("samples").is_not_null().sum(),
        heard=_OBSERVED.sum(),
        stateless=pl.col("stateless").sum(),
        hidden=pl.col("hidden").sum(),
        unheard=(pl.col("wall_ns") / pl.col("over_ns")).filter(~_OBSERVED).sum(),
        known=pl.col("known").sum(),
        whole=(_OBSERVED & (pl.col("known") | pl.col("word"))).sum(),
        why=pl.col("status").filter(~pl.col("known")).min(),
        sampled_source=_words(pl.col("wait_source").filter(~pl.col("exact"))),
        raw_source=_words(pl.col("raw_source")),
        wait_source=_words(pl.col("wait_source")),
        cpu_source=_words(pl.when("traced").then(pl.lit(TRACE)).otherwise(pl.lit(TASKS))),
    )
    return Groups(names.join(sums, on="group", maintain_order="left"), members)


def _words(sources: pl.Expr) -> pl.Expr:
    words = sources.drop_nulls().unique().sort().str.join("; ")
    return pl.when(words != "").then(words)


def _source() -> list[pl.Expr]:
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


Keys = Mapping[str, pl.Expr]
"""Columns to sum by, made of ``kind``, ``state``, ``wait_class``, ``wait_event``."""


def slack(tasks: pl.DataFrame, groups: Groups) -> pl.DataFrame:
    """Per group how wrong its margins may be, seconds per second: ``run``, ``runq``, ``off`` of both; and
    ``blur``, how wrong a label's part of them.

    Reads that are stale add up; errors of switches are independent, and add up as squares.
    """
    over = pl.col("over_ns")
    known = pl.col("known")
    found = (
        groups.members.join(tasks, on="task")
        .group_by("group", maintain_order=True)
        .agg(
            stale_run=(pl.col("stale_run_ns") / over).filter(known).sum(),
            stale_runq=(pl.col("stale_runq_ns") / over).filter(known).sum(),
            switch=((pl.col("switch_ns") / over) ** 2).filter(known).sum().sqrt(),
            blur=(pl.col("blur_ns") / over).sum(),
        )
    )
    run, runq, switch = pl.col("stale_run"), pl.col("stale_runq"), pl.col("switch")
    return found.select("group", "blur", run=run + switch, runq=runq + switch, off=run + runq + switch)


def asleep(joint: Joint, groups: Groups, keys: Keys, *, traced: bool = True) -> pl.DataFrame:
    """Per group and ``keys``: ``value``, ``low``, ``high`` (seconds per second), ``samples``, ``waits``.

    ``traced=False``: exactly traced tasks by their samples, too (fitted to the traced margins).
    """
    rows = joint.seen.of("asleep", keys, exact=not traced)
    written = _traced(joint, groups, keys) if traced else None
    if written is not None and rows.by_task.is_empty():
        return _summed(written, list(keys))
    found = sums(rows, groups.members, ["kind", *keys])
    found = found.filter(pl.col("kind").is_in(["sleep", "unlabelled"])).drop("kind")
    found = found.join(_column(joint, groups, traced=traced), on="group", how="left", maintain_order="left")
    found = _doubted(found, rows.by_task, groups, keys)
    least, most = pl.col("whole") - pl.col("less"), pl.col("whole") + pl.col("more")
    low = pl.col("p_low") * least - pl.col("blur") - pl.col("below")
    high = pl.min_horizontal(pl.col("p_high") * most + pl.col("blur") + pl.col("above"), most)
    found = found.with_columns(low=low.clip(0.0), high=high + pl.col("unseen"), source="sampled_source")
    found = found.with_columns(low=pl.min_horizontal("low", "value"), high=pl.max_horizontal("high", "value"))
    found = found.select("group", *keys, "value", "low", "high", "samples", "source")
    parts = [found] if written is None else [found, written]
    return _summed(pl.concat(parts, how="diagonal"), list(keys))


def _column(joint: Joint, groups: Groups, *, traced: bool) -> pl.DataFrame:
    """Per group how much ``less`` or ``more`` its tasks may have slept than what was apportioned (less, too,
    by what was stolen while they ran), and how much of that no sample saw (``unseen``)."""
    sampled = joint.tasks if not traced else joint.tasks.filter(~pl.col("exact"))
    sampled = sampled.filter(pl.col("asleep_ns").is_not_null())
    tasks = sampled.filter("known")
    over, given, off = pl.col("over_ns"), pl.col("asleep_ns"), pl.col("off_ns")
    seen = pl.col("slept") > 0
    mine = groups.members.join(tasks, on="task", maintain_order="left")
    found = mine.group_by("group").agg(
        less=(((given - off).clip(0.0) + pl.col("stolen_ns")) / over).filter(seen).sum(),
        more=((off - given).clip(0.0) / over).filter(seen).sum(),
        unseen=(given / over).filter(~seen).sum(),
    )
    error = slack(sampled, groups).select("group", "off", "blur")
    base = groups.table.select("group", "sampled_source")
    found = base.join(found, on="group", how="left").join(error, on="group", how="left")
    found = found.with_columns(pl.col("less", "more", "unseen", "off", "blur").fill_null(0.0))
    return found.select(
        "group", "sampled_source", "unseen", "blur", *(pl.col(n) + pl.col("off") for n in ("less", "more"))
    )


def runnable(joint: Joint, groups: Groups, keys: Keys, *, traced: bool = True) -> pl.DataFrame:
    """Per group and ``keys``: ``run`` and ``runq`` with their ends (seconds per second), ``samples``.

    Their sum by label is sampled, and exact over all labels; how it divides is estimated: its interval holds
    the range over seeds. Of exactly traced tasks ``runq`` is traced by label, and ``run`` divided by ticks.
    """
    rows = joint.seen.of("runnable", keys, exact=not traced)
    written = _traced_runnable(joint, groups, keys) if traced and joint.waits.height else None
    if written is not None and rows.by_task.is_empty():
        return _summed(written, list(keys))
    found = sums(rows, groups.members, list(keys), RUNS)
    tasks = joint.tasks if not traced else joint.tasks.filter(~pl.col("exact"))
    error = slack(tasks, groups).select("group", "blur", slack_run="run", slack_runq="runq")
    unseen = not_awake(joint, groups, traced=traced).select("group", hidden=pl.col("run") + pl.col("runq"))
    found = found.join(error, on="group", how="left", maintain_order="left")
    found = found.join(unseen, on="group", how="left", maintain_order="left")
    found = _doubted(found, rows.by_task, groups, keys).with_columns(
        pl.col("hidden", "slack_run", "slack_runq", "blur").fill_null(0.0)
    )
    found = found.with_columns(
        **_bounds("run", pl.col("run"), pl.col("run_low"), pl.col("run_high")),
        **_bounds("runq", *(pl.col("value") - pl.col(n) for n in ("run", "run_high", "run_low"))),
    )
    named = [f"{n}{end}" for n in ("run", "runq") for end in ("", "_low", "_high")]
    named += ["samples", "source"]
    found = groups.named(found, source="sampled_source").select("group", *keys, *named)
    parts = [found] if written is None else [found, written]
    return _summed(pl.concat(parts, how="diagonal"), list(keys))


def _traced_runnable(joint: Joint, groups: Groups, keys: Keys) -> pl.DataFrame:
    mine = _traced(joint, groups, keys, "queued").drop("waits", "throttled")
    mine = mine.rename({"value": "runq", "low": "runq_low", "high": "runq_high"})
    return _with_run(mine, joint, groups, keys)


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


def not_asleep(joint: Joint, groups: Groups) -> pl.DataFrame:
    """Per group: time asleep under no known label, because no sample (or no label of the trace) tells."""
    labelled = joint.waits.group_by("task").agg(labelled=pl.col("asleep").sum())
    tasks = joint.tasks.join(labelled, on="task", how="left", maintain_order="left")
    over = pl.col("over_ns")
    traced = pl.when(pl.col("labelled").is_null()).then(pl.col("slept_ns") / over)
    none_seen = pl.col("known") & (pl.col("slept").fill_null(0) == 0)
    sampled = pl.when(none_seen).then(pl.col("asleep_ns") / over)
    tasks = tasks.with_columns(value=pl.when("exact").then(traced).otherwise(sampled)).filter(
        pl.col("value") > 0
    )
    if tasks.is_empty():
        none = pl.lit(None, pl.Float64)
        return groups.table.clear().select("group", value=none, low=none, high=none)
    found = groups.members.join(tasks, on="task").group_by("group").agg(pl.col("value").sum())
    error = slack(tasks, groups).select("group", "off")
    low, high = pl.col("value") - pl.col("off"), pl.col("value") + pl.col("off")
    return found.join(error, on="group").select("group", "value", low=low.clip(0.0), high=high)


def not_awake(joint: Joint, groups: Groups, *, traced: bool = True) -> pl.DataFrame:
    """Per group: ``run`` and ``runq`` that no sample told the label of; ``traced_run`` and ``traced_runq``,
    those of exactly traced tasks."""
    tasks = joint.tasks.filter("known")
    over, unseen = pl.col("over_ns"), pl.col("woken").fill_null(0) == 0
    exact = pl.col("exact") if traced else pl.lit(False)
    queued = joint.waits.group_by("task").agg(pl.col("queued").sum(), ran=pl.col("run").sum())
    tasks = tasks.join(queued, on="task", how="left", maintain_order="left")
    run, runq = pl.col("run_ns") / over, pl.col("runq_ns") / over
    tasks = tasks.with_columns(
        run=pl.when(unseen & ~exact).then(run),
        runq=pl.when(unseen & ~exact).then(runq),
        traced_run=pl.when(exact).then((run - pl.col("ran").fill_null(0.0)).clip(0.0)),
        traced_runq=pl.when(exact).then((runq - pl.col("queued").fill_null(0.0)).clip(0.0)),
    )
    parts = ("run", "runq", "traced_run", "traced_runq")
    found = groups.members.join(tasks, on="task").group_by("group", maintain_order=True)
    return found.agg(pl.col(parts).sum())


def missed(joint: Joint, groups: Groups) -> pl.DataFrame:
    """Per group how much of its time asleep and runnable a label may have that was never seen so."""
    tasks = joint.tasks.filter(~pl.col("exact") & pl.col("samples").is_not_null())
    members = groups.members.join(tasks, on="task")
    over, wall = pl.col("over_ns"), pl.col("wall_ns") / pl.col("over_ns")
    share = wilson(pl.lit(0.0), (pl.col("samples") * wall).sum().clip(1.0) / pl.len())[1]
    both = pl.col("run_ns") + pl.col("runq_ns")
    given = pl.when("known").then("asleep_ns").otherwise("wall_ns")
    return members.group_by("group").agg(
        asleep_missed=pl.min_horizontal((given / over).sum(), share * wall.sum()),
        runnable_missed=pl.when(pl.col("known").any()).then(
            pl.min_horizontal((both / over).sum(), share * wall.sum())
        ),
    )


def _written(waits: pl.DataFrame, groups: Groups, keys: Keys) -> pl.DataFrame:
    """What the trace wrote down by label, with ``keys``."""
    return groups.members.join(waits.with_columns(**keys), on="task", maintain_order="left_right")


def _traced(joint: Joint, groups: Groups, keys: Keys, name: str = "asleep") -> pl.DataFrame:
    value = pl.col(name).sum()
    return (
        _written(joint.waits, groups, keys)
        .group_by("group", *keys, maintain_order=True)
        .agg(
            value=value,
            low=(value - pl.col("slack").sum()).clip(0.0),
            high=value + pl.col("slack").sum(),
            waits=pl.col("waits").sum(),
            throttled=pl.col("throttled").sum(),
            samples=pl.lit(None, pl.Float64),
            source=pl.lit(TRACE),
        )
    )


def _with_run(traced: pl.DataFrame, joint: Joint, groups: Groups, keys: Keys) -> pl.DataFrame:
    """``traced`` with ``run`` and its ends: shares of ticks, with their interval."""
    rows = _written(joint.waits.drop_nulls("run"), groups, keys)
    found = rows.group_by("group", *keys, maintain_order=True).agg(pl.col("run").sum())
    whole = rows.group_by("group").agg(whole=pl.col("run").sum(), n=pl.col("ticks").sum())
    ends = found.join(whole, on="group")
    low, high = interval(ends["run"] / ends["whole"], ends["n"])
    ends = ends.with_columns(run_low=low * pl.col("whole"), run_high=high * pl.col("whole"))
    by = ["group", *keys]
    return traced.join(ends.drop("whole", "n"), on=by, how="left", nulls_equal=True, maintain_order="left")


def _doubted(found: pl.DataFrame, rows: pl.DataFrame, groups: Groups, keys: Keys) -> pl.DataFrame:
    """``found`` with how much less (``below``) or more (``above``) than their ``y`` it may be because the
    states come from other samples than the labels: Wilson's interval of a label's share in a state."""
    told = (pl.col("answers") > 0) & pl.col("state").is_not_null()
    told_rows = rows.filter(told) if "state" in keys else rows.clear()
    if told_rows.is_empty():
        return found.with_columns(below=0.0, above=0.0)
    answered = groups.members.join(told_rows, on="task")
    at = list(dict.fromkeys(["group", *LABEL, "state", *keys]))
    parts = answered.group_by("task", *at).agg(v=pl.col("y").sum(), n=pl.col("answers").first())
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
