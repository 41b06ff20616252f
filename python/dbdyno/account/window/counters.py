"""Counters cut to the window: a session's work by its probes, levels by the reads nearest to t0 and t1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.account.window.attribution import pooled
from dbdyno.account.window.cells import for_each, middle
from dbdyno.model.results.raw import OWN, OWN_READS, WARM_CALLS, RawCell, once_each
from dbdyno.model.results.session_time import in_call
from dbdyno.model.sources.cost_counters import REPORTED_BY_SESSIONS
from dbdyno.model.sources.wait_families import LOG_BYTES

_GAUGES = ("cpus", "procs_running", "procs_blocked")
_LEVEL = ["origin", "scope", "place", "key", "gauge"]
_PROBES = ("before1", "before2", "after1", "after2")


def cut_work(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_work``: the growth of each counter by a session's calls.

    There are four probes, two before the barrier and two after the last call, and each adds the same
    constant. So the work is ``after1 - before2 - (before2 - before1)``; ``after2 - after1`` checks the
    constant.
    """
    return for_each("cut_work", cells, _work)


def cut_levels(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_levels``: growth of cgroup, host and server-wide counters; NULL for a counter
    that went down."""
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
    # A probe itself adds a constant to the counters that it reads.
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
        return pl.col(name).get((pl.col("at_ns") - to).abs().arg_min())

    ok = reads.filter((pl.col("status") == "ok") & pl.col("value").is_not_null()).sort("at_ns")
    inside = pl.col("at_ns").is_between(nearest("at_ns", t0), nearest("at_ns", t1))
    growths = ok.group_by(_LEVEL, maintain_order=True).agg(
        first=nearest("value", t0),
        last=nearest("value", t1),
        growth=nearest("value", t1) - nearest("value", t0),
        wall_ns=nearest("at_ns", t1) - nearest("at_ns", t0),
        reset=(pl.col("value").filter(inside).diff() < 0).any(),
    )
    growths = growths.with_columns(reset=pl.col("reset") | _engine_reset(growths))
    known = ~pl.col("gauge") & ~pl.col("reset") & (pl.col("wall_ns") > 0)
    status = (
        pl.when(known | pl.col("gauge"))
        .then(pl.lit("ok"))
        .when("reset")
        .then(pl.lit("reset"))
        .otherwise(pl.lit("too short"))
    )
    cut = growths.with_columns(delta=pl.when(known).then("growth"), status=status).drop("growth", "reset")
    cut = _by_calls(cut, cell)
    failed = reads.join(cut, on=_LEVEL, how="anti", nulls_equal=True)
    failed = failed.group_by(_LEVEL, maintain_order=True).agg(pl.col("status").first())
    return pl.concat([cut, failed], how="diagonal_relaxed").drop("gauge")


BY_CALLS = (
    *("logical_reads", "physical_reads", "blocks_dirtied", "executions", "db_time_ns", LOG_BYTES),
    *("transactions_committed", "transactions_rolled_back", "temporary_bytes"),
    *REPORTED_BY_SESSIONS,
)
"""Counters of work in calls.

Sessions report them late, so they are read before the barrier and after all sessions have left and reported.
The window gets the part of its calls."""
_AT_ONCE = ("blocks_dirtied", "executions")
"""Counters that grow at the end of a statement, and so never contain calls before the barrier."""
_TRANSACTIONS = ("transactions_committed", "transactions_rolled_back")
SINGLE = "each session is one transaction"


class _Part(NamedTuple):
    """The window's share of a counter's growth between two phases. ``warm_up``: the part of that growth
    before the barrier; None if there is none."""

    first: str
    last: str
    share: float
    warm_up: float | None = None


def _by_calls(levels: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    """Sets ``delta`` without dbdyno's own statements (``own``). Growth by a driven load is scaled to the
    window."""
    engine = cell.tables["counters"].filter(
        pl.col("scope").is_in(["server", "database"]) & (pl.col("status") == "ok")
    )
    names = set(engine["name"].to_list())
    parts = (_parts_by_counter(cell, engine) or _BETWEEN_READS) if names & set(OWN.values()) else {}
    if not parts:
        return levels.with_columns(pl.lit(None, pl.Float64).alias(name) for name in ("own", "warm_up"))
    values, records, between = _values(engine), [], parts is _BETWEEN_READS
    for name, part in parts.items():
        own = _own_growth(cell, values, name, part)
        for scope, grown in _growth(values, name, part):
            if grown >= 0 and own is not None:
                by_calls = max(grown - own, 0.0) * part.share
                records.append(("engine", scope, name, part.warm_up, by_calls, own * part.share))
    columns: dict[str, Any] = dict.fromkeys(("origin", "scope", "key"), pl.String)
    columns |= dict.fromkeys(("warm_up", "by_calls", "own"), pl.Float64)
    by_counter = pl.DataFrame(records, columns, orient="row")
    joined = levels.join(by_counter, on=["origin", "scope", "key"], how="left", maintain_order="left")
    whole = pl.col("by_calls").is_not_null() & pl.col("delta").is_not_null()
    window_ns = pl.lit(cell.meta.t1_ns - cell.meta.t0_ns)
    length = pl.when(whole & pl.lit(not between)).then(window_ns).otherwise("wall_ns")
    delta = pl.when(whole).then("by_calls").otherwise("delta")
    whole_sessions = pl.col("key").is_in(_TRANSACTIONS) & (pl.col("origin") == "engine")
    if OWN["transactions_committed"] in names or between:
        whole_sessions = pl.lit(False)
    return joined.with_columns(
        delta=pl.when(~whole_sessions).then(delta),
        own=pl.when(whole).then("own"),
        wall_ns=length,
        status=pl.when(whole_sessions).then(pl.lit(SINGLE)).otherwise("status"),
    ).drop("by_calls")


_Values = Mapping[tuple[str, str, str], float]
"""Values of the engine's counters by phase, scope and name."""


def _values(engine: pl.DataFrame) -> _Values:
    known = engine.drop_nulls("value").select("phase", "scope", "name", "value").iter_rows()
    return {(phase, scope, name): value for phase, scope, name, value in known}


def _growth(values: _Values, name: str, part: _Part) -> Iterator[tuple[str, float]]:
    """Yields the growth of a counter by scope."""
    for (phase, scope, counter), value in values.items():
        if (phase, counter) == (part.first, name) and (part.last, scope, name) in values:
            yield scope, values[part.last, scope, name] - value


def _parts_by_counter(cell: RawCell, engine: pl.DataFrame) -> dict[str, _Part]:
    """Returns the window's part by counter; empty without calls.

    If calls before the barrier are reported only after it (``warm_calls``), growth begins before the
    sessions existed. Growth of transactions does not, as setting up sessions takes some (those of a pool
    are set up before).
    """
    sessions, length_ns = cell.tables["sessions"], cell.meta.t1_ns - cell.meta.t0_ns
    calls = float(sessions.select((pl.col("calls_total") + pl.col("errors_total")).sum()).item() or 0)
    span = pl.col("last_end_ns") - pl.col("first_start_ns")
    rate = sessions.filter(span > 0).select(((pl.col("calls") + pl.col("errors")) / span).sum()).item()
    if not calls or not rate:
        return {}
    warm = float(engine.filter((pl.col("name") == WARM_CALLS) & (pl.col("phase") == "end"))["value"].sum())
    measured = _Part("start", "end", rate * length_ns / calls)
    parts = dict.fromkeys(BY_CALLS, measured)
    spent, prepared = _in_calls(cell, calls), 0.0
    if warm:
        share = warm / (calls + warm)
        parts = dict.fromkeys(BY_CALLS, _Part("connect", "end", measured.share * (1 - share), share))
        parts |= dict.fromkeys(_AT_ONCE if pooled(cell) else (*_AT_ONCE, *_TRANSACTIONS), measured)
        prepared = float(sessions["prepare_ns"].sum())
    served = in_call(sessions, cell.meta.t0_ns, cell.meta.t1_ns)
    if spent and served and not pooled(cell):
        before = prepared / (spent + prepared)
        share = served * length_ns / (spent + prepared)
        parts["db_time_ns"] = parts["db_time_ns"]._replace(share=share, warm_up=before if warm else None)
    return parts


def _in_calls(cell: RawCell, calls: float) -> float | None:
    """Returns the time in all calls from the barrier on; None if some failed, or progress was not read
    after the last."""
    last = cell.tables["progress"].sort("at_ns").tail(1)
    whole = last.filter((pl.col("calls") == calls) & (pl.col("errors") == 0))
    return float(whole["in_call_ns"][0]) if whole.height else None


def _own_growth(cell: RawCell, values: _Values, name: str, part: _Part) -> float | None:
    """Returns the growth by dbdyno's own connections: statements, samples and probes, each a transaction,
    and blocks that they and probes read. None if unknown."""
    if name in OWN:
        return sum(grown for _, grown in _growth(values, OWN[name], part)) + _answered_samples(cell)
    if name not in OWN_READS:
        return 0.0
    read = [grown for _, grown in _growth(values, OWN_READS[name], part)]
    if not read and part.first != "t0":  # around a driven load there is little but its calls
        read = [0.0]
    if name == "logical_reads":
        probes = _work(cell)
        counted = probes.filter(pl.col("is_work")) if probes is not None else None
        if counted is not None and "lio" in counted["name"]:
            read.append(2 * float(counted["probe"].sum() or 0.0))
    return sum(read) if read else None


_BETWEEN_READS = dict.fromkeys((*OWN, *OWN_READS), _Part("t0", "t1", 1.0))
"""Parts of an observed load."""


@once_each
def _answered_samples(cell: RawCell) -> float:
    """Returns the number of samples that the server answered."""
    asked = (pl.col("via").fill_null("sql") == "sql") & (pl.col("status") == "ok")
    return float(cell.tables["sampler"].select(asked.sum()).item())


def _engine_reset(levels: pl.DataFrame) -> pl.Expr:
    """Returns an expression: whether the engine's own mark of a reset (``..._reset_s``) moved. A counter
    that has outgrown its old value since the reset would not show it otherwise."""
    mark = (pl.col("origin") == "engine") & pl.col("key").str.ends_with("_reset_s")
    moved = levels.filter(mark & (pl.col("last") > pl.col("first"))).height > 0
    return pl.lit(moved) & (pl.col("origin") == "engine") & ~pl.col("gauge")


def _all_levels(cell: RawCell) -> pl.DataFrame:
    """Returns cgroup, host and server-wide counters in one form."""
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
