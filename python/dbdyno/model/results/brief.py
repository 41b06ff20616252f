"""Sessions that came and went between two samples of the server's activity: what is known of them all.

The kernel adds a child's whole CPU time to the server's main process when it ends (``children_ns``:
proc_pid_stat(5), fields 16 and 17; exact but for the rounding to ticks, as cputime_adjust in the kernel
scales a process's ticks to the time it ran). What was read of children that ended is taken off; the rest is
of those never read. The scheduler trace follows each of them from its birth, by itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.units import NS_PER_S, TICK_NS

BRIEF = "brief"
"""Role of all of them together, as one task of process 0."""
SHORT_HELPER = "helper:short-lived"
"""Role of such processes where no session was established: workers of the server."""
STATUS = "too brief"
"""Of a figure that they have an unknown part of."""
NAME = "sessions too brief to be sampled"
SHARE = 0.05
"""From this share of the sessions' CPU time on, sums that lack the rest of their time are unknown."""
MOST_LOST = 0.02
"""Where the trace could not read the waits of more of them than this share, those of all are unknown."""
LEAST_NS = 3 * TICK_NS
"""Less than that, the rounding of user and kernel time may be."""
SHORT_NS = NS_PER_S
"""A task that was read over less has no figures of its own (:mod:`dbdyno.account.window`)."""
NEAR_NS = 200_000_000
"""All tasks are read within less."""
MAIN = "helper:main"
"""Role of the server's main process."""
_OURS = ("driver", "pooler")


class Children(NamedTuple):
    """CPU time of children that ended between two reads of the main process, and were not read before."""

    cpu_ns: int
    tail_ns: (
        int  # how much of it may be of children that were read, after their last read: at twice their rate
    )
    wall_ns: int  # between the two reads
    named: bool  # all that were there at the first of them were read

    @property
    def any(self) -> bool:
        return self.cpu_ns - self.tail_ns > LEAST_NS


def material(cpu: Any, of: Any) -> Any:
    """Whether ``cpu`` of brief sessions is too much of ``of`` (theirs included) to leave their rest out."""
    return cpu > SHARE * of


def children(tasks: pl.DataFrame, t0_ns: int, t1_ns: int) -> Children | None:
    """Children in the raw table ``tasks``, between its reads nearest to t0 and t1; None: unknown.

    One that is older than the first read and was never read brings the CPU time of its whole life. All that
    the server names are read together, so from the first read of processes that nobody else can have named
    on there is none.
    """
    tasks = tasks.with_columns(at_ns=(pl.col("before_ns") + pl.col("after_ns")) // 2)
    good = tasks.filter((pl.col("status") == "ok") & (pl.col("pid") == pl.col("tid")))
    named = pl.col("role").str.starts_with("helper:") | (pl.col("role") == "other")
    named_ns = good.filter(named & (pl.col("role") != MAIN))["at_ns"].min()
    main = good.filter(pl.col("role") == MAIN).drop_nulls("children_ns")
    if named_ns is not None:
        main = main.filter(pl.col("at_ns") >= pl.lit(named_ns, pl.Int64) - NEAR_NS)
    if main.is_empty():
        return None
    first, last = (
        main.sort((pl.col("at_ns") - t).abs(), maintain_order=True).row(0, named=True) for t in (t0_ns, t1_ns)
    )
    wall_ns = int(last["at_ns"] - first["at_ns"])
    if wall_ns <= 0:
        return None
    read_ns, tail_ns = _ended(good.drop_nulls("run_ns"), main, first["at_ns"], last["at_ns"])
    return Children(
        int(last["children_ns"] - first["children_ns"]) - read_ns, tail_ns, wall_ns, named_ns is not None
    )


def _ended(good: pl.DataFrame, mains: pl.DataFrame, from_ns: int, to_ns: int) -> tuple[int, int]:
    """CPU time that was read of children which ended then, and how long they were not read any more.

    All tasks are read together: one that is missing at a read of the main process has ended before it.
    """
    mine = good.filter(~pl.col("role").is_in(_OURS) & (pl.col("role") != MAIN)).sort("at_ns")
    last = mine.group_by("pid", "start_ticks").agg(pl.col("run_ns", "at_ns").last())
    next_read = mains.select(gone_ns="at_ns").sort("gone_ns")
    last = last.with_columns(after_ns=pl.col("at_ns") + NEAR_NS).sort("after_ns")
    ended = last.join_asof(next_read, left_on="after_ns", right_on="gone_ns", strategy="forward")
    ended = ended.filter((pl.col("gone_ns") > from_ns) & (pl.col("gone_ns") <= to_ns))
    born = pl.col("start_ticks") * TICK_NS
    ended = ended.filter((born < from_ns) | (pl.col("at_ns") - born >= SHORT_NS))
    rate = (2 * pl.col("run_ns") / (pl.col("at_ns") - born)).clip(0, 1)
    sums = ended.select(pl.col("run_ns").sum(), tail=((pl.col("gone_ns") - pl.col("at_ns")) * rate).sum())
    return int(sums["run_ns"][0]), int(sums["tail"][0])


def unmet(traced: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """``pid``, ``start_ticks`` of processes that the trace saw, and that were in no sample.

    Of one that a sample met too late to be read, the row of ``tasks`` has no start; the trace was told.
    """
    key = ["pid", "start_ticks"]
    is_stranger = pl.col("role") == "other"
    strangers = traced.filter(is_stranger).select(key).unique(maintain_order=True)
    for met_there in (tasks, traced.filter(~is_stranger)):
        strangers = strangers.join(met_there.select(key), on=key, how="anti", nulls_equal=True)
    return strangers


def logons(counters: pl.DataFrame, met: int) -> int | None:
    """How many sessions were established between the two marks of the raw table ``counters``, less ``met``;
    None: the server does not count them."""
    mine = counters.filter((pl.col("name") == "logons") & (pl.col("scope") == "server")).drop_nulls("value")
    ends = dict(mine.select("phase", "value").rows())
    if not {"t0", "t1"} <= ends.keys():
        return None
    return max(0, int(ends["t1"] - ends["t0"]) - met)


def met(tasks: pl.DataFrame, t0_ns: int) -> int:
    """How many clients' processes that were born since have rows of their own in a table of tasks."""
    mine = tasks.filter(
        pl.col("role").is_in(["session", "other", "dbdyno"]) & (pl.col("pid") == pl.col("tid"))
    )
    born = mine.filter(pl.col("start_ticks") * TICK_NS > t0_ns)
    return int(born.select("pid", "start_ticks").n_unique())
