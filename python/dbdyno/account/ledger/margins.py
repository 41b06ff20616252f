"""The exact margins of each task's window: time on a CPU, in the run queue and off, with their errors.
Also time stolen by the hypervisor, and a bracket of throttled time."""

from __future__ import annotations

import polars as pl

from dbdyno.model.results.brief import BRIEF
from dbdyno.model.schema.tables import Tables, empty
from dbdyno.model.units import TICK_NS

KEY = ("cell", "pid", "tid", "start_ticks")
STALE_NS = 10_000_000
"""Largest age of another task's run time at a read if it is on a CPU then: a tick at HZ=100."""
PENDING = 2.0
"""Largest wait that is not booked yet of a task that is read while runnable, in its mean waits."""
SWITCH_NS = 2_000
"""Time per switch that may be booked wrongly.

Against an exact trace, 8 to 15 % of run time at slices of 10 to 20 us (docs/how-it-works/ledger.md)."""
SWITCH_SHARE = 0.15
TRACED_SWITCH_NS = 8_000
"""The same between the trace and the kernel's books: 0.5 to 8 us per slice were measured."""
SETTLED_NS = 1_000_000
"""Largest error of a sleeping task: its figures are booked, but state and figures are read one after the
other."""
UNREAD = 0.01
"""Largest share of a task's time off the CPU whose label the trace failed to read; above it, samples are
used."""

ENDED = "X"
"""State of a task in a row that the kernel reported at its end."""
TASKS = "os tasks"


def margins(cut: Tables) -> pl.DataFrame:
    """Returns one row per task of ``cut_tasks``, numbered ``task``, with the figures that the ledger uses.

    If the scheduler trace followed it without a gap, bracket and figures are the trace's (``traced``),
    else those of the OS tasks. ``exact``: its waits are the trace's, too, as it could read their labels;
    else waits come from samples, apportioned to these figures. ``ended``: it was followed to its end, so
    that the rest of its time it slept, sampled or not. ``known``: run and run queue are known.
    ``stale_run_ns``, ``stale_runq_ns``: error of each from both ends; ``switch_ns``: error from its
    switches.
    """
    traced = cut["cut_traced"].filter(
        (pl.col("status") == "ok") & pl.all_horizontal(pl.col("run_ns", "runq_ns", "sleep_ns").is_not_null())
    )
    figures = (
        "from_ns",
        "to_ns",
        "wall_ns",
        "over_ns",
        "partial",
        "run_ns",
        "runq_ns",
        "voluntary",
        "involuntary",
    )
    from_trace = traced.select(*KEY, *(pl.col(n).alias(f"x_{n}") for n in figures), *_only_traced())
    tasks = _with_brief(cut["cut_tasks"], traced)
    tasks = tasks.join(from_trace, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    tasks = tasks.join(_unread_shares(cut), on=KEY, how="left", nulls_equal=True, maintain_order="left")
    seen = pl.col("x_run_ns").is_not_null()
    tasks = _without_followed(tasks)
    chosen = {n: pl.when(seen).then(f"x_{n}").otherwise(n) for n in figures[:-2]}
    counted = {n: pl.coalesce(f"x_{n}", n) for n in figures[-2:]}
    read = pl.col("unread").fill_nan(0.0).fill_null(0.0) <= UNREAD
    tasks = tasks.with_columns(
        traced=seen, exact=seen & read, status=pl.when(seen).then(pl.lit("ok")).otherwise("status")
    ).drop("unread")
    tasks = tasks.with_columns(**chosen, **counted).drop(f"x_{n}" for n in figures)
    tasks = tasks.with_columns(known=pl.col("run_ns").is_not_null() & pl.col("runq_ns").is_not_null())
    reported = (pl.col("state_b") == ENDED).fill_null(False) & ~pl.col("traced")
    followed = pl.col("traced") & ~pl.col("exact") & pl.col("cell").is_in(_trees(cut).implode())
    tasks = tasks.with_columns(ended=pl.col("known") & (reported | followed))
    return tasks.with_columns(**_errors(), off_ns=_off_ns()).with_row_index("task")


def _trees(cut: Tables) -> pl.Series:
    """Returns the cells whose sessions are trees of tasks. The trace follows each task to its end, and
    there are no labels."""
    return cut.get("cell_executions", empty("cell_executions"))["cell"].unique()


def _unread_shares(cut: Tables) -> pl.DataFrame:
    """Returns per traced task the part of its time off the CPU whose label the trace could not read."""
    off, refused = pl.col("sleep_ns") + pl.col("runq_ns"), pl.col("status") != "ok"
    return cut["cut_waits"].group_by(KEY).agg(unread=off.filter(refused).sum() / off.sum())


def _with_brief(tasks: pl.DataFrame, traced: pl.DataFrame) -> pl.DataFrame:
    """Returns ``tasks`` with those that lived too briefly for two reads; only the trace has their figures."""
    brief = traced.join(tasks, on=KEY, how="anti", nulls_equal=True)
    known = [c for c in brief.columns if c in tasks.columns]
    return pl.concat([tasks, brief.select(known)], how="diagonal")


def _without_followed(tasks: pl.DataFrame) -> pl.DataFrame:
    """Takes off the CPU time of brief sessions what the trace has of sessions that came and went.

    The children of the server's main process hold both. Where the trace has brief sessions by itself, their
    row is the trace's, and nothing is to be taken off.
    """
    ended = (pl.col("role") == "session") & pl.col("run_ns").is_null() & (pl.col("status") == "vanished")
    followed = (pl.col("x_run_ns") / pl.col("x_over_ns")).filter(ended).sum().over("cell")
    rest = (pl.col("run_ns") - followed * pl.col("over_ns")).clip(0).cast(pl.Int64)
    return tasks.with_columns(run_ns=pl.when(role=BRIEF).then(rest).otherwise("run_ns"))


def _only_traced() -> list[pl.Expr]:
    return [pl.col("sleep_ns").alias("slept_ns"), pl.col("throttled_ns"), pl.col("slack_ns").fill_null(0)]


def _off_ns() -> pl.Expr:
    """Returns the time neither on a CPU nor in the run queue; for unknown figures, all time that is not
    known CPU time."""
    return (
        pl.when("known")
        .then(pl.col("wall_ns") - pl.col("run_ns") - pl.col("runq_ns"))
        .otherwise(pl.col("wall_ns") - pl.col("run_ns").fill_null(0))
    )


def _errors() -> dict[str, pl.Expr]:
    """Returns expressions for the errors of run and run queue."""
    settled = {e: pl.col(f"state_{e}").is_in(["S", "D", "I", ENDED]).fill_null(False) for e in "ab"}
    wait = (PENDING * pl.col("runq_ns") / pl.col("slices")).fill_nan(0.0).fill_null(0.0)
    wait = pl.min_horizontal(wait, pl.col("runq_ns").fill_null(0) / 2)
    pending = pl.max_horizontal(pl.lit(float(STALE_NS)), wait)

    # A whole life comes from the totals of a process when it was reaped, which are exact, or (with slices)
    # from statistics as of the last tick.
    rest = (pl.col("wall_ns") - pl.col("run_ns") - pl.col("runq_ns")).clip(0, STALE_NS).cast(pl.Float64)
    late = pl.when(pl.col("slices").is_null()).then(0.0).otherwise(rest)
    born = pl.col("start_ticks") * TICK_NS
    lived = (
        pl.col("ended")
        & ~pl.col("traced")
        & (pl.col("from_ns").is_between(born - 2 * TICK_NS, born + 2 * TICK_NS))
    )

    def ends(unsettled: pl.Expr) -> pl.Expr:
        worst = pl.max_horizontal(
            pl.when(s).then(float(SETTLED_NS)).otherwise(unsettled) for s in settled.values()
        )
        exact = pl.when("traced").then(pl.col("slack_ns").cast(pl.Float64)).when(lived).then(late)
        return exact.otherwise(worst)

    used = (pl.col("run_ns") + pl.col("runq_ns")).fill_null(0)
    run = pl.col("run_ns").fill_null(0)
    switches = pl.min_horizontal(SWITCH_NS * pl.col("slices").fill_null(0), SWITCH_SHARE * used)
    return {
        "stale_run_ns": ends(pl.lit(float(STALE_NS))),
        "stale_runq_ns": ends(pending),
        "switch_ns": pl.when("traced")
        .then(pl.min_horizontal(TRACED_SWITCH_NS * pl.col("slices").fill_null(0), SWITCH_SHARE * run))
        .when(lived)
        .then(0.0)
        .otherwise(switches)
        .cast(pl.Float64),
    }


def steal(cut: Tables) -> pl.DataFrame:
    """Returns stolen CPUs per cell (``steal``), by the host's counters (proc_stat(5))."""
    rows = cut["cut_levels"].filter((pl.col("origin") == "host") & (pl.col("key") == "cpu.steal_ns"))
    return rows.group_by("cell").agg(steal=(pl.col("delta") / pl.col("wall_ns")).first())


def with_stolen(tasks: pl.DataFrame, cut: Tables) -> pl.DataFrame:
    """Returns ``tasks`` with ``stolen_ns``, the upper bound of a task's time off that was stolen while it
    ran.

    A kernel with steal accounting leaves stolen time out of run time, so it looks like sleep. It hits
    tasks while they run. Tasks that we do not see share it, so this is an upper bound.
    """
    run = pl.when("known").then(pl.col("run_ns")).fill_null(0)
    # Steal hits the task that runs, so it is divided by CPU time.
    part = run / run.sum().over("cell")
    with_steal = tasks.join(steal(cut), on="cell", how="left", maintain_order="left")
    stolen = pl.col("steal") * pl.col("over_ns") * part
    at_most = pl.min_horizontal(stolen, pl.col("off_ns")).fill_nan(0.0).fill_null(0.0).clip(0.0)
    return with_steal.with_columns(stolen_ns=pl.when("traced").then(0.0).otherwise(at_most)).drop("steal")


ACCOUNT = "runq.throttled_bracket"
FOREIGN = 0.05
"""Share of the group's CPU time by unknown tasks above which the throttled time may be theirs."""


def throttle_bracket(cut: Tables) -> pl.DataFrame:
    """Returns bounds ``low`` and ``high`` of the throttled part of the sessions' run-queue time.

    ``throttled`` of cpu.stat sums over per-CPU queues, each with at least one waiting task: so the group's
    tasks waited throttled at least that long in sum. Tasks other than sessions may have borne it: their
    run-queue time is subtracted. A group with sessions alone adds all its throttled time. A group that
    sessions share with others, or that a session entered later, may have throttled none of them. The upper
    end is all run-queue time. Both are 0 only if every group of a session was read over the whole window
    and none was throttled.
    """
    of_server = pl.col("scope").is_in(["server", "sessions", "shared"])
    levels = cut["cut_levels"].filter((pl.col("origin") == "cgroup") & of_server)
    if levels.is_empty():
        return pl.DataFrame()
    rate = pl.col("delta") / pl.col("wall_ns")
    groups = levels.group_by("cell", "scope", "place", maintain_order=True).agg(
        *(rate.filter(pl.col("key") == f"{key}_ns").first().alias(key) for key in ("throttled", "usage")),
        status=pl.col("status").filter(pl.col("key") == "throttled_ns").first(),
        wall_ns=pl.col("wall_ns").filter(pl.col("key") == "throttled_ns").first(),
    )
    most_throttled = (
        groups.filter(scope="server")
        .sort("throttled", descending=True, nulls_last=True)
        .group_by("cell", maintain_order=True)
        .first()
    )
    of_sessions, shared = (
        groups.filter(scope=scope).group_by("cell").agg(pl.col("throttled").sum().alias(name))
        for scope, name in (("sessions", "apart"), ("shared", "shared"))
    )
    joined = groups.select("cell").unique(maintain_order=True)
    for part in (most_throttled, _run_queues(cut), of_sessions, shared, _unread_groups(groups)):
        joined = joined.join(part, on="cell", how="left", maintain_order="left")
    return joined.select("cell", *_bounds())


def _unread_groups(groups: pl.DataFrame) -> pl.DataFrame:
    """Returns per cell whether a group that could have throttled sessions was not read over the whole
    window. A group that no quota can hold (the root, or one without the controller) has the status not
    supported, or no row of throttled time."""
    throttled = pl.col("throttled")
    lost = throttled.is_null() & (pl.col("status") != "not supported").fill_null(False)
    late = throttled.is_not_null() & (pl.col("wall_ns") < pl.col("wall_ns").max().over("cell") - STALE_NS)
    return groups.group_by("cell").agg(unread=(lost | late).any())


def _run_queues(cut: Tables) -> pl.DataFrame:
    """Returns per cell run-queue time of the sessions, that of others who may be in the group, and CPU
    time of all."""
    scope = pl.col("scope")
    places = cut["cut_levels"].filter(scope.is_in(["driver", "server"]) & pl.col("place").is_not_null())
    both = (scope == "driver").any() & (scope == "server").any()
    shared = places.group_by("cell", "place").agg(both=both).filter("both")["cell"]
    session = pl.col("role") == "session"
    inside = ~pl.col("role").is_in(["driver", "pooler", "dbdyno"]) | pl.col("cell").is_in(shared.implode())
    runq, run = pl.col("runq_ns") / pl.col("over_ns"), pl.col("run_ns") / pl.col("over_ns")
    return (
        cut["cut_tasks"]
        .group_by("cell")
        .agg(
            known=runq.filter(session).is_not_null().any(),
            runq=runq.filter(session).sum(),
            beside=runq.filter(inside & ~session).sum(),
            run=run.filter(inside).sum(),
        )
    )


def _bounds() -> list[pl.Expr]:
    throttled, runq = pl.col("throttled"), pl.col("runq")
    apart, shared = pl.col("apart").fill_null(0.0), pl.col("shared").fill_null(0.0)
    foreign = (pl.col("usage") - pl.col("run") > FOREIGN * pl.col("usage")).fill_null(True)
    least = pl.when(foreign).then(0.0).otherwise((throttled - pl.col("beside")).clip(0.0))
    known = (throttled.is_not_null() | (apart + shared > 0)) & pl.col("known")
    none = (throttled == 0).fill_null(False) & (apart + shared == 0) & ~pl.col("unread")
    return [
        pl.lit(ACCOUNT).alias("account"),
        pl.lit(None, dtype=pl.Float64).alias("aas"),
        pl.when(known).then(pl.min_horizontal(least.fill_null(0.0) + apart, runq)).alias("low"),
        pl.when(known).then(pl.when(none).then(0.0).otherwise(runq)).alias("high"),
        pl.when(known)
        .then(pl.lit("bracket"))
        .when(throttled.is_null())
        .then(pl.col("status").fill_null("not supported"))
        .otherwise(pl.lit("run queue unknown"))
        .alias("status"),
        pl.lit("cgroup").alias("source"),
    ]
