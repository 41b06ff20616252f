"""Sessions that started and ended between two samples of the server's activity: their total figures.

When a child ends, the kernel adds its whole CPU time to the server's main process (``children_ns``:
proc_pid_stat(5), fields 16 and 17). The value is exact but for rounding to ticks: the kernel's
cputime_adjust scales the ticks of a process to its run time. The CPU time that was read for children before
they ended is subtracted, and the rest belongs to children that were never read. The scheduler trace, where
there is one, follows each of them from its start.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.units import NS_PER_S, TICK_NS

BRIEF = "brief"
"""Role of all these sessions together, shown as one task of process 0."""
SHORT_HELPER = "helper:short-lived"
"""Role of brief processes that established no session: the server's own workers."""
STATUS = "too brief"
"""Status of a figure to which brief sessions contribute an unknown part."""
NAME = "sessions too brief to be sampled"
SHARE = 0.05
"""Sums that lack the other time of brief sessions are unknown from this share of the sessions' CPU time
on."""
MOST_LOST = 0.02
"""The waits of all brief sessions are unknown if the trace could not read those of more than this share."""
LEAST_NS = 3 * TICK_NS
"""Differences below this may come from rounding of user and kernel time to ticks."""
SHORT_NS = NS_PER_S
"""A task that was read over a shorter time has no figures of its own (:mod:`dbdyno.account.window`)."""
NEAR_NS = 200_000_000
"""One pass over all tasks takes less than this."""
MAIN = "helper:main"
"""Role of the server's main process."""
_OURS = ("driver", "pooler")


class Children(NamedTuple):
    """CPU time of children that ended between two reads of the main process and were not read before."""

    cpu_ns: int
    tail_ns: (
        # upper bound of the part due to children that were read, after their last read: at twice their rate
        int
    )
    wall_ns: int  # between the two reads
    named: bool  # every child present at the first read was read

    @property
    def any(self) -> bool:
        return self.cpu_ns - self.tail_ns > LEAST_NS


def material(cpu: Any, of: Any) -> Any:
    """Returns whether ``cpu`` of brief sessions is too large a part of ``of``, which includes it, to ignore
    their other time."""
    return cpu > SHARE * of


def children(tasks: pl.DataFrame, t0_ns: int, t1_ns: int) -> Children | None:
    """Returns the CPU time of ended children from the raw table ``tasks``, between the reads nearest to t0
    and t1; None if unknown.

    A child that is older than the first read and was never read contributes the CPU time of its whole life.
    All processes that the server lists are read together. There is no such child from the first read on of
    processes that only the server's list can have named.
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
    """Returns the CPU time that was read of children which ended in this period, and the time between their
    last read and their end, weighted by twice their rate.

    All tasks are read together: a task that is missing at a read of the main process ended before it.
    """
    children = good.filter(~pl.col("role").is_in(_OURS) & (pl.col("role") != MAIN)).sort("at_ns")
    last = children.group_by("pid", "start_ticks").agg(pl.col("run_ns", "at_ns").last())
    next_read = mains.select(gone_ns="at_ns").sort("gone_ns")
    last = last.with_columns(after_ns=pl.col("at_ns") + NEAR_NS).sort("after_ns")
    ended = last.join_asof(next_read, left_on="after_ns", right_on="gone_ns", strategy="forward")
    ended = ended.filter((pl.col("gone_ns") > from_ns) & (pl.col("gone_ns") <= to_ns))
    # Below SHORT_NS a task has no figures of its own, so its CPU time stays with the unread children.
    born = pl.col("start_ticks") * TICK_NS
    ended = ended.filter((born < from_ns) | (pl.col("at_ns") - born >= SHORT_NS))
    # Twice the mean rate since the start, at most one CPU: the last moments may be busier than the average.
    rate = (2 * pl.col("run_ns") / (pl.col("at_ns") - born)).clip(0, 1)
    sums = ended.select(pl.col("run_ns").sum(), tail=((pl.col("gone_ns") - pl.col("at_ns")) * rate).sum())
    return int(sums["run_ns"][0]), int(sums["tail"][0])


def unmet(traced: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """Returns ``pid`` and ``start_ticks`` of processes that the trace saw and no sample did.

    A process that was sampled too late to be read has no start in ``tasks``; the trace has it.
    """
    key = ["pid", "start_ticks"]
    is_stranger = pl.col("role") == "other"
    strangers = traced.filter(is_stranger).select(key).unique(maintain_order=True)
    for already_met in (tasks, traced.filter(~is_stranger)):
        strangers = strangers.join(already_met.select(key), on=key, how="anti", nulls_equal=True)
    return strangers


def logons(counters: pl.DataFrame, met: int) -> int | None:
    """Returns the number of sessions established between the two marks of the raw table ``counters``, minus
    ``met``; None if the server does not count them."""
    logon_rows = counters.filter((pl.col("name") == "logons") & (pl.col("scope") == "server")).drop_nulls(
        "value"
    )
    ends = dict(logon_rows.select("phase", "value").rows())
    if not {"t0", "t1"} <= ends.keys():
        return None
    return max(0, int(ends["t1"] - ends["t0"]) - met)


def met(tasks: pl.DataFrame, t0_ns: int) -> int:
    """Returns the number of clients' processes that started after t0 and have rows of their own in a table
    of tasks."""
    clients = tasks.filter(
        pl.col("role").is_in(["session", "other", "dbdyno"]) & (pl.col("pid") == pl.col("tid"))
    )
    born = clients.filter(pl.col("start_ticks") * TICK_NS > t0_ns)
    return int(born.select("pid", "start_ticks").n_unique())
