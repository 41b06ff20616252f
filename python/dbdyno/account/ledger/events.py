"""The table ``events``: the joint table of state, wait event and what the task did, raked or traced."""

from __future__ import annotations

import polars as pl

from dbdyno.account.ledger.apportion import Joint
from dbdyno.account.ledger.group_sums import asleep, missed, not_asleep, not_awake, runnable
from dbdyno.account.ledger.groups import Groups, groups
from dbdyno.account.ledger.pooled import through_pool
from dbdyno.account.ledger.sample_rows import LABEL, UNLABELLED, Tables
from dbdyno.account.ledger.waits import UNSEEN
from dbdyno.model.column import CELL
from dbdyno.model.source import TRACE
from dbdyno.model.tables import conform, empty

_KEYS = ("state", *LABEL)
_ENDS = ("", "_low", "_high")


def events_of(found: Joint, cut: Tables) -> pl.DataFrame:
    """Sessions, rungs and helpers: seconds per second on a CPU, asleep, in the run queue under each label.

    Time that no sample saw has a row of its own with the status "seen by no sample". Where no task states
    are to be had, ``sleep`` is the time the server's word says so, and time that is active without a wait
    event has that status.
    """
    serving = groups(found.tasks).only("session", "rung", "helper")
    if serving.table.is_empty():
        return empty("events")
    rows = pl.concat([_labelled(found, serving), _unseen(found, serving)], how="diagonal")
    keys = cut["windows"].select(c.name for c in CELL)
    whose = serving.table.select("group", "cell", "scope", "session", "who")
    rows = rows.join(whose, on="group", maintain_order="left").sort("group", maintain_order=True)
    rows = through_pool(rows.drop("group"), cut)
    return conform("events", keys.join(rows, on="cell", maintain_order="right"))


def _labelled(found: Joint, serving: Groups) -> pl.DataFrame:
    keys = {"unlabelled": pl.col("kind") == "unlabelled", **{k: pl.col(k) for k in _KEYS}}
    slept = asleep(found, serving, keys).rename(
        {"value": "sleep", "low": "sleep_low", "high": "sleep_high", "waits": "waits_per_s"}
    )
    awake = runnable(found, serving, keys)
    by = ["group", *keys]
    both = pl.concat([slept.drop("throttled"), awake], how="diagonal").group_by(by, maintain_order=True)
    figures = [f"{part}{end}" for part in ("run", "sleep", "runq") for end in _ENDS]
    rows = both.agg(
        pl.col(*figures, "waits_per_s").drop_nulls().first(),
        pl.when(pl.col("samples").is_not_null().any()).then(pl.col("samples").sum()),
        pl.col("source").drop_nulls().unique().sort().str.join("; "),
    )
    return _with_zeros(rows, found, serving).with_columns(status=_status()).drop("unlabelled", "why")


def _with_zeros(rows: pl.DataFrame, found: Joint, serving: Groups) -> pl.DataFrame:
    """A label that was seen on one side only has none of the other, up to what so many samples miss."""
    raked = rows.join(missed(found, serving), on="group", how="left", maintain_order="left")
    raked = raked.join(serving.table.select("group", "why"), on="group", maintain_order="left")
    sampled = (pl.col("source") != TRACE) & ~pl.col("unlabelled")
    filled = {}
    for name in ("run", "sleep", "runq"):
        column = "asleep" if name == "sleep" else "runnable"
        none = sampled & pl.col(name).is_null() & pl.col(f"{column}_missed").is_not_null()
        bounds = (pl.lit(0.0), pl.lit(0.0), pl.col(f"{column}_missed"))
        for end, value in zip(_ENDS, bounds, strict=True):
            filled[f"{name}{end}"] = pl.when(none).then(value).otherwise(f"{name}{end}")
    hidden = {f"sleep{e}": pl.when(~pl.col("unlabelled")).then(f"sleep{e}") for e in _ENDS}
    return raked.with_columns(**filled).with_columns(**hidden).drop("asleep_missed", "runnable_missed")


def _status() -> pl.Expr:
    raked = pl.col("run").is_not_null() | (pl.col("source") == TRACE)
    return (
        pl.when("unlabelled").then(pl.lit(UNLABELLED)).when(raked).then(pl.lit("ok")).otherwise(pl.col("why"))
    )


def _unseen(found: Joint, serving: Groups) -> pl.DataFrame:
    """Exact time that no sample, or no label of the trace, tells the label of."""
    slept = not_asleep(found, serving).rename({"value": "sleep", "low": "sleep_low", "high": "sleep_high"})
    run, runq = (pl.col(n) + pl.col(f"traced_{n}") for n in ("run", "runq"))
    awake = not_awake(found, serving).filter((run > 1e-9) | (runq > 1e-9))
    ends = {f"{n}{e}": v for n, v in (("run", run), ("runq", runq)) for e in _ENDS}
    rows = slept.join(awake.select("group", **ends), on="group", how="full", coalesce=True)
    told = serving.table.select("group", "wait_source", "cpu_source", "sampled")
    rows = rows.join(told, on="group", maintain_order="left")
    some = pl.col("sampled") > 0
    unseen = some | (pl.col("wait_source") == TRACE)
    return rows.select(
        pl.exclude("wait_source", "cpu_source", "sampled"),
        samples=pl.when(some).then(0.0),
        status=pl.when(unseen).then(pl.lit(UNSEEN)).otherwise(pl.lit("no samples")),
        source=pl.when(some).then("wait_source").otherwise("cpu_source"),
    )
