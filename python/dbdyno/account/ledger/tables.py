"""Assembles tables ``ledger``, ``events`` and ``strips`` from the joint table."""

from __future__ import annotations

import polars as pl

from dbdyno.account.ledger.apportion import Joint
from dbdyno.account.ledger.cpu import cpu_accounts, cpu_sums, halves, inside
from dbdyno.account.ledger.group_sums import (
    asleep,
    missed,
    not_asleep,
    not_awake,
    runnable,
)
from dbdyno.account.ledger.groups import SCOPES, Groups
from dbdyno.account.ledger.margins import throttle_bracket
from dbdyno.account.ledger.pooled import through_pool, with_pool
from dbdyno.account.ledger.samples import LABEL
from dbdyno.account.ledger.waits import UNSEEN, by_label, memos, queued, unaccounted, wait_accounts
from dbdyno.model.results.ledger_rows import with_parents
from dbdyno.model.results.session_time import NO_EVENT, UNLABELLED
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.tables import Tables, conform, empty
from dbdyno.model.sources.source import TRACE
from dbdyno.model.units import NS_PER_S


def ledger_of(tasks_joint: Joint, everyone: Groups, cut: Tables) -> pl.DataFrame:
    """Returns table ``ledger``: exact and sampled accounts of sessions, rungs, helpers and unrelated
    processes; then memos."""
    if everyone.table.is_empty():
        return empty("ledger")
    whole = everyone.only("session", "brief", "rung")
    serving = everyone.only("session", "brief", "rung", "helper")
    sums = cpu_sums(everyone)
    both = sums.filter(pl.col("scope").is_in(["session", "brief", "rung"]))
    cpu, waits = cpu_accounts(sums), wait_accounts(tasks_joint, serving, cut)
    accounts = pl.concat([halves(both), cpu, waits], how="diagonal")
    left = unaccounted(tasks_joint, whole, accounts, cut)
    not_beside = sums.filter(pl.col("scope") != "beside")
    labels = by_label(tasks_joint, whole)
    rows = pl.concat([accounts, left, inside(not_beside), queued(labels, cpu, whole)], how="diagonal")
    rows = everyone.named(with_parents(rows), "cell", "scope", "session", "who")
    noted = whole.named(memos(tasks_joint, whole, labels), "cell", "session", "who")
    rows, noted = with_pool(rows, noted, cut)
    bracket = throttle_bracket(cut).with_columns(scope=pl.lit("rung"), who=pl.lit("rung"))
    return _ordered([rows, bracket, noted.with_columns(scope=pl.lit("memo"))], cut)


def _ordered(parts: list[pl.DataFrame], cut: Tables) -> pl.DataFrame:
    """Orders rows by cell, scope and session; accounts keep their order."""
    rows = with_parents(pl.concat([p for p in parts if p.height], how="diagonal_relaxed"))
    scope = pl.col("scope").replace_strict({s: i for i, s in enumerate((*SCOPES, "memo"))})
    keys = cut["windows"].select(c.name for c in CELL).with_row_index("nth")
    rows = keys.join(rows, on="cell", maintain_order="right")
    rows = rows.sort("nth", scope, "who", "session", maintain_order=True)
    return conform("ledger", rows.drop("nth", "group"))


_KEYS = ("state", *LABEL)
_ENDS = ("", "_low", "_high")


def events_of(tasks_joint: Joint, everyone: Groups, cut: Tables) -> pl.DataFrame:
    """Returns table ``events``: per session, rung and helper the seconds per second on a CPU, asleep and in
    the run queue under each state and wait event.

    Time without samples is a row of its own with status "seen by no sample". Without task states,
    ``sleep`` comes from the server's wait event alone, and active time without a wait event has that
    status.
    """
    serving = everyone.only("session", "rung", "helper")
    if serving.table.is_empty():
        return empty("events")
    rows = pl.concat([_labelled(tasks_joint, serving), _unseen(serving)], how="diagonal")
    keys = cut["windows"].select(c.name for c in CELL)
    rows = serving.named(rows, "cell", "scope", "session", "who").sort("group", maintain_order=True)
    rows = through_pool(rows.drop("group"), cut)
    return conform("events", keys.join(rows, on="cell", maintain_order="right"))


def _labelled(tasks_joint: Joint, serving: Groups) -> pl.DataFrame:
    keys = {"unlabelled": pl.col("kind") == "unlabelled", **{k: pl.col(k) for k in _KEYS}}
    slept = asleep(tasks_joint, serving, keys).rename(
        {
            "value": "sleep",
            "low": "sleep_low",
            "high": "sleep_high",
            "waits": "waits_per_s",
            "sleeps": "sleeps_per_s",
        }
    )
    awake = runnable(tasks_joint, serving, keys)
    by = ["group", *keys]
    both = pl.concat([slept.drop("throttled"), awake], how="diagonal").group_by(by, maintain_order=True)
    figures = [f"{part}{end}" for part in ("run", "sleep", "runq") for end in _ENDS]
    rows = both.agg(
        pl.col(*figures, "waits_per_s", "sleeps_per_s").drop_nulls().first(),
        pl.when(pl.col("samples").is_not_null().any()).then(pl.col("samples").sum()),
        pl.col("source").drop_nulls().unique().sort().str.join("; "),
    )
    return _with_zeros(rows, serving).with_columns(status=_status()).drop("unlabelled", "why")


def _with_zeros(rows: pl.DataFrame, serving: Groups) -> pl.DataFrame:
    """Sets the missing side of a label that was sampled on one side only to 0, with an upper end from the
    number of samples."""
    rows = rows.join(missed(serving), on="group", how="left", maintain_order="left")
    rows = serving.named(rows, "why")
    sampled = (pl.col("source") != TRACE) & ~pl.col("unlabelled")
    filled = {}
    for name in ("run", "sleep", "runq"):
        column = "asleep" if name == "sleep" else "runnable"
        none = sampled & pl.col(name).is_null() & pl.col(f"{column}_missed").is_not_null()
        bounds = (pl.lit(0.0), pl.lit(0.0), pl.col(f"{column}_missed"))
        for end, value in zip(_ENDS, bounds, strict=True):
            filled[f"{name}{end}"] = pl.when(none).then(value).otherwise(f"{name}{end}")
    filled |= {f"sleep{e}": pl.when(~pl.col("unlabelled")).then(filled[f"sleep{e}"]) for e in _ENDS}
    return rows.with_columns(**filled).drop("asleep_missed", "runnable_missed")


def _status() -> pl.Expr:
    known = pl.col("run").is_not_null() | (pl.col("source") == TRACE)
    return (
        pl.when("unlabelled").then(pl.lit(UNLABELLED)).when(known).then(pl.lit("ok")).otherwise(pl.col("why"))
    )


def _unseen(serving: Groups) -> pl.DataFrame:
    """Returns exact time whose label no sample, or no label of the trace, has."""
    slept = not_asleep(serving).rename({"value": "sleep", "low": "sleep_low", "high": "sleep_high"})
    run, runq = (pl.col(n) + pl.col(f"traced_{n}") for n in ("run", "runq"))
    awake = serving.summed(**not_awake()).filter((run > 1e-9) | (runq > 1e-9))
    ends = {f"{n}{e}": v for n, v in (("run", run), ("runq", runq)) for e in _ENDS}
    rows = slept.join(awake.select("group", **ends), on="group", how="full", coalesce=True)
    rows = serving.named(rows, "wait_source", "cpu_source", "sampled")
    some = pl.col("sampled") > 0
    unseen = some | (pl.col("wait_source") == TRACE)
    return rows.select(
        pl.exclude("wait_source", "cpu_source", "sampled"),
        samples=pl.when(some).then(0.0),
        status=pl.when(unseen).then(pl.lit(UNSEEN)).otherwise(pl.lit("no samples")),
        source=pl.when(some).then("wait_source").otherwise("cpu_source"),
    )


ASLEEP, UNKNOWN = "asleep", "unknown"


def strips_of(tasks_joint: Joint, cut: Tables) -> pl.DataFrame:
    """Returns table ``strips``: each session's time in bins. Run and run queue are from the reads of tasks,
    the rest is divided by the wait classes of samples asleep in the bin.

    The shares of a bin add up to 1. Time off without samples in the bin is "asleep". If the tasks cannot
    be read, the shares are those of the samples' wait events, and the rest is "unknown".
    """
    bins = cut["cut_bins"]
    if bins.is_empty():
        return empty("strips")
    keys = [c.name for c in CELL]
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    read = pl.col("known_ns") > length / 2
    run, runq = (pl.when(read).then(pl.col(n) * length / pl.col("known_ns")) for n in ("run_ns", "runq_ns"))
    off = (length - (run + runq).fill_null(0.0)).clip(0.0)
    bins = bins.with_row_index("bin").with_columns(length=length, run=run, runq=runq, off=off)
    tasks = tasks_joint.tasks.filter((pl.col("role") == "session") & ~pl.col("worker"))
    slept = _classes(tasks_joint, tasks, bins)
    parts = [bins.filter(pl.col(n) > 0).select("bin", part=pl.lit(n), time=n) for n in ("run", "runq")]
    rows = pl.concat([*parts, slept, _rest(bins, [*parts, slept])])
    rows = bins.select("bin", *keys, "session", "start_ns", "end_ns").join(
        rows, on="bin", maintain_order="left"
    )
    t0 = cut["windows"].select("cell", "t0_ns")
    rows = rows.join(t0, on="cell", maintain_order="left")
    processes = tasks.group_by("cell", "session").agg(pl.col("pid").min())
    rows = rows.join(processes, on=["cell", "session"], how="left", maintain_order="left")
    whole = pl.col("time").sum().over("bin")
    return conform(
        "strips",
        rows.select(
            *keys,
            "session",
            "pid",
            "part",
            start_s=(pl.col("start_ns") - pl.col("t0_ns")) / NS_PER_S,
            end_s=(pl.col("end_ns") - pl.col("t0_ns")) / NS_PER_S,
            share=pl.col("time") / whole,
        ),
    )


def _classes(tasks_joint: Joint, tasks: pl.DataFrame, bins: pl.DataFrame) -> pl.DataFrame:
    """Divides the time off of each bin by the wait classes of its samples asleep; without task reads, by
    all samples."""
    rows = tasks_joint.bins.join(tasks.select("task", "cell", "session"), on="task", maintain_order="left")
    named = bins.select("bin", "cell", "session", "start_ns", "off", read=pl.col("run").is_not_null())
    rows = rows.join(named, on=["cell", "session", "start_ns"], maintain_order="left")
    kind = pl.col("kind")
    part = (
        pl.when(kind == "sleep")
        .then(pl.col("wait_class").fill_null(NO_EVENT))
        .when(kind == "unlabelled")
        .then(pl.lit(UNLABELLED))
        .otherwise(pl.lit(UNKNOWN))
    )
    rows = rows.with_columns(part_of=part).filter(~pl.col("read") | (pl.col("kind") == "sleep"))
    counted = rows.group_by("bin", "part_of", maintain_order=True).agg(
        n=pl.col("n").sum(), off=pl.col("off").first()
    )
    share = pl.col("n") / pl.col("n").sum().over("bin")
    return counted.select("bin", part="part_of", time=share * pl.col("off")).filter(pl.col("time") > 0)


def _rest(bins: pl.DataFrame, parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Returns the remainder of a bin: asleep if its task was read, else unknown."""
    used = pl.concat(parts).group_by("bin").agg(used=pl.col("time").sum())
    left = bins.join(used, on="bin", how="left").with_columns(
        time=pl.col("length") - pl.col("used").fill_null(0.0),
        part=pl.when(pl.col("run").is_not_null()).then(pl.lit(ASLEEP)).otherwise(pl.lit(UNKNOWN)),
    )
    # Rounding errors are not a part of a bin.
    return left.filter(pl.col("time") > 1e-6 * pl.col("length")).select("bin", "part", "time")
