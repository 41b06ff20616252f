"""Counters cut to the window: a session's work by its probes, levels by the reads nearest to t0 and t1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from dbdyno.account.window.cells import for_each, middle
from dbdyno.model.raw import OWN, RawCell
from dbdyno.model.wait_families import LOG_BYTES

_GAUGES = ("cpus", "procs_running", "procs_blocked")
_LEVEL = ["origin", "scope", "place", "key", "gauge"]
_PROBES = ("before1", "before2", "after1", "after2")


def cut_work(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_work``: per session and counter what its calls added.

    Four probes, two before the barrier and two after the last call, each adding the same constant: the
    work is ``after1 - before2 - (before2 - before1)``; ``after2 - after1`` checks the constant.
    """
    return for_each("cut_work", cells, _work)


def cut_levels(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_levels``: growth of cgroup, host and server-wide counters; NULL where one went down."""
    return for_each("cut_levels", cells, _levels)


def _work(cell: RawCell) -> pl.DataFrame | None:
    probes = cell.tables["counters"].filter(
        (pl.col("scope") == "session") & (pl.col("kind") == "counter") & pl.col("phase").is_in(_PROBES)
    )
    if probes.is_empty():
        return None
    values = [pl.col("value").filter(pl.col("phase") == p).first().alias(p) for p in _PROBES]
    failed = pl.col("status").filter(pl.col("status") != "ok").first().alias("failed")
    by_session = probes.group_by("session", "name", "unit", maintain_order=True).agg(*values, failed)
    probe = pl.col("before2") - pl.col("before1")
    work = pl.col("after1") - pl.col("before2") - probe
    drift = (pl.col("after2") - pl.col("after1") != probe).fill_null(False)
    status = (
        pl.when(work.is_null())
        .then(pl.col("failed").fill_null("lost"))
        .when(work < 0)
        .then(pl.lit("reset"))
        .when(drift)
        .then(pl.lit("probe not constant"))
        .otherwise(pl.lit("ok"))
    )
    is_work = pl.col("name") == cell.meta.workload.work_short.lower()  # "lio" for LIO, in every engine
    return by_session.select(
        "session",
        "name",
        "unit",
        is_work=is_work,
        value=pl.when(work >= 0).then(work),
        probe=probe,
        status=status,
    )


def _levels(cell: RawCell) -> pl.DataFrame | None:
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    reads = _all_levels(cell)
    if reads.is_empty():
        return None

    def nearest(name: str, to: int) -> pl.Expr:
        return pl.col(name).sort_by((pl.col("at_ns") - to).abs(), maintain_order=True).first()

    ok = reads.filter((pl.col("status") == "ok") & pl.col("value").is_not_null()).sort("at_ns")
    inside = pl.col("at_ns").is_between(nearest("at_ns", t0), nearest("at_ns", t1))
    found = ok.group_by(_LEVEL, maintain_order=True).agg(
        first=nearest("value", t0),
        last=nearest("value", t1),
        growth=nearest("value", t1) - nearest("value", t0),
        wall_ns=nearest("at_ns", t1) - nearest("at_ns", t0),
        reset=(pl.col("value").filter(inside).diff() < 0).any(),
    )
    found = found.with_columns(reset=pl.col("reset") | _told_of_reset(found))
    known = ~pl.col("gauge") & ~pl.col("reset") & (pl.col("wall_ns") > 0)
    status = (
        pl.when(known | pl.col("gauge"))
        .then(pl.lit("ok"))
        .when("reset")
        .then(pl.lit("reset"))
        .otherwise(pl.lit("too short"))
    )
    cut = found.with_columns(delta=pl.when(known).then("growth"), status=status).drop("growth", "reset")
    cut = _by_calls(cut, cell)
    failed = reads.join(cut, on=_LEVEL, how="anti", nulls_equal=True)
    failed = failed.group_by(_LEVEL, maintain_order=True).agg(pl.col("status").first())
    return pl.concat([cut, failed], how="diagonal_relaxed").drop("gauge")


BY_CALLS = (
    *("logical_reads", "physical_reads", "blocks_dirtied", "executions", "db_time_ns", LOG_BYTES),
    *("transactions_committed", "transactions_rolled_back", "temporary_bytes"),
)
"""What sessions do in calls. The server hears of it late, so these are counted from before the barrier until
all sessions have left and reported, and the window has the part of its calls."""


def _by_calls(found: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    """``delta`` of what a load of our own did, without dbdyno's statements (``own``, scaled alike)."""
    share = _share_of_calls(cell)
    names = pl.col("name").is_in([*BY_CALLS, *OWN.values()]) & pl.col("scope").is_in(["server", "database"])
    counters = cell.tables["counters"].filter(names & (pl.col("status") == "ok"))
    first, last = (
        counters.filter(pl.col("phase") == phase).select("scope", "name", pl.col("value").alias(phase))
        for phase in ("start", "end")
    )
    grown = first.join(last, on=["scope", "name"]).with_columns(grown=pl.col("end") - pl.col("start"))
    if share is None or not grown["name"].is_in([*OWN.values()]).any():  # else warm-up calls are in it
        return found.with_columns(own=pl.lit(None, pl.Float64))
    own = _own(cell, dict(grown.select("name", "grown").rows()))
    grown = grown.with_columns(
        own=pl.col("name").replace_strict(own, default=0.0, return_dtype=pl.Float64)
    ).filter(pl.col("name").is_in(BY_CALLS) & (pl.col("grown") >= 0))
    mine = grown.select(
        "scope",
        origin=pl.lit("engine"),
        key="name",
        by_calls=(pl.col("grown") - pl.col("own")).clip(0) * share,
        own=pl.col("own") * share,
    )
    joined = found.join(mine, on=["origin", "scope", "key"], how="left", maintain_order="left")
    whole = pl.col("by_calls").is_not_null() & pl.col("delta").is_not_null()
    length = pl.when(whole).then(pl.lit(cell.meta.t1_ns - cell.meta.t0_ns)).otherwise("wall_ns")
    return joined.with_columns(
        delta=pl.when(whole).then("by_calls").otherwise("delta"),
        own=pl.when(whole).then("own"),
        wall_ns=length,
    ).drop("by_calls")


def _share_of_calls(cell: RawCell) -> float | None:
    """Calls in the window, by the sessions' rates, over all calls from the barrier on."""
    sessions = cell.tables["sessions"]
    calls = (
        sessions.select((pl.col("calls_total") + pl.col("errors_total")).sum()).item()
        if sessions.height
        else 0
    )
    span = pl.col("last_end_ns") - pl.col("first_start_ns")
    rate = sessions.filter(span > 0).select(((pl.col("calls") + pl.col("errors")) / span).sum()).item()
    return rate * (cell.meta.t1_ns - cell.meta.t0_ns) / calls if calls and rate else None


def _own(cell: RawCell, grown: Mapping[str, float]) -> dict[str, float]:
    """What dbdyno's own connections added: statements, samples and probes, each a transaction; blocks that a
    probe reads."""
    samples = cell.tables["sampler"].filter(
        (pl.col("via").fill_null("sql") == "sql") & (pl.col("status") == "ok")
    )
    probes = _work(cell)
    counted = probes.filter(pl.col("is_work")) if probes is not None else None
    found = {name: grown.get(own, 0.0) + samples.height for name, own in OWN.items()}
    if counted is not None and "lio" in counted["name"]:
        found["logical_reads"] = 2 * float(counted["probe"].sum() or 0.0)
    return found


def _told_of_reset(found: pl.DataFrame) -> pl.Expr:
    """The engine's own mark of a reset (``..._reset_s``) moved: a counter that has outgrown its old value
    since then would show nothing."""
    mark = (pl.col("origin") == "engine") & pl.col("key").str.ends_with("_reset_s")
    moved = found.filter(mark & (pl.col("last") > pl.col("first"))).height > 0
    return pl.lit(moved) & (pl.col("origin") == "engine") & ~pl.col("gauge")


def _all_levels(cell: RawCell) -> pl.DataFrame:
    """cgroup, host and server-wide counters in one form."""
    at = middle().alias("at_ns")
    value = pl.col("value").cast(pl.Float64)
    none = pl.lit(None, dtype=pl.String).alias("place")
    gauge = pl.col("key").is_in(_GAUGES).alias("gauge")
    groups = cell.tables["cgroup"].select(
        pl.lit("cgroup").alias("origin"),
        "scope",
        place="path",
        key="key",
        value=value,
        status="status",
        at_ns=at,
    )
    host = cell.tables["host"].select(
        pl.lit("host").alias("origin"),
        pl.lit("host").alias("scope"),
        none,
        "key",
        value,
        "status",
        at,
    )
    engine = cell.tables["counters"].filter(
        (pl.col("scope") != "session") & pl.col("phase").is_in(["t0", "t1"])
    )
    own = engine.select(
        pl.lit("engine").alias("origin"),
        "scope",
        none,
        pl.col("name").alias("key"),
        value,
        "status",
        at,
        (pl.col("kind") == "gauge").alias("gauge"),
    )
    machine = pl.concat([groups, host]).with_columns(gauge)
    return pl.concat([machine, own.select(machine.columns)])
