"""Sessions that are trees of processes: commands, whose processes and threads come and go.

Each task is counted once, by the best source:

1. the scheduler trace, which follows descendants from birth to end;

2. else the kernel's figures at its end: for an execution's first process its own totals, read before it was
reaped (table ``executions``), for other tasks the task statistics (rows in state X of ``tasks``);

3. else its reads during its life.

CPU time of ended processes that is in none of these is one row, by the totals of their parents.
"""

from __future__ import annotations

import polars as pl

from dbdyno.account.window.deltas import ENDED, NEAR_NS, TASK
from dbdyno.model.results.brief import BRIEF, MAIN, Children
from dbdyno.model.results.raw import RawCell, once_each
from dbdyno.model.units import TICK_NS

_BESIDE = ("driver", "pooler", "dbdyno")
ASIDE = "helper:aside"
"""Role of commands that prepare, verify and conclude executions."""
_ANY = -1
"""Stands in for an unknown session."""
_FIRST = pl.col("pid") == pl.col("tid")


@once_each
def is_tree(cell: RawCell) -> bool:
    """Returns whether the sessions of a cell are trees."""
    return cell.tables["executions"].height > 0


def with_ends(reads: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    """Adds to ``reads`` of tasks the birth and end of each execution's first process.

    These replace the task statistics, which are as of the last tick. For a process that the trace
    followed, they add the halves of its CPU time.
    """
    if not is_tree(cell):
        return reads
    ends, traced = _first_processes(cell), _traced_starts(cell)
    if traced is not None:
        ends = ends.join(traced, on=["pid", "start_ns"], how="semi", maintain_order="left")
    of_first = reads.filter(_FIRST).join(ends.select("pid", "start_ns", "end_ns"), on="pid")
    life = pl.col("at_ns").is_between(pl.col("start_ns") - TICK_NS, pl.col("end_ns") + NEAR_NS)
    of_first = of_first.filter(life)
    starts = of_first.group_by("pid", "start_ns").agg(start_ticks=pl.col("start_ticks").min())
    starts = starts if traced is None else traced
    stale = (pl.col("state") == ENDED) | (pl.col("at_ns") >= pl.col("end_ns")) | _is_zero()
    replaced = of_first.filter(stale).select(*TASK, "at_ns")
    kept = reads.join(replaced, on=[*TASK, "at_ns"], how="anti", nulls_equal=True)
    ends = ends.join(starts, on=["pid", "start_ns"], how="left", maintain_order="left")
    start_ticks = pl.coalesce("start_ticks", pl.col("start_ns") // TICK_NS)
    ends = ends.with_columns(start_ticks=start_ticks, tid="pid", role=pl.lit("session"), status=pl.lit("ok"))
    figures = ("run_ns", "runq_ns", "user_ns", "system_ns")
    births = ends.with_columns(
        *(pl.lit(0, pl.Int64).alias(n) for n in figures), at_ns="start_ns", state=pl.lit("S")
    )
    rows = pl.concat([births, ends.with_columns(at_ns="end_ns", state=pl.lit(ENDED))])
    rows = rows.with_columns(before_ns="at_ns", after_ns="at_ns", worker=pl.lit(False))
    named = rows.select(pl.col(n).cast(reads.schema[n]) for n in reads.columns if n in rows.columns)
    return pl.concat([kept, named], how="diagonal")


def _traced_starts(cell: RawCell) -> pl.DataFrame | None:
    """Returns ``start_ticks`` of executions' first processes in the trace, by ``pid`` and ``start_ns``;
    None without a trace."""
    if cell.tables["traced"].is_empty():
        return None
    seen = cell.tables["traced"].filter(_FIRST).select("pid", "start_ticks").unique(maintain_order=True)
    with_starts = (
        cell.tables["executions"]
        .select("pid", "start_ns", "end_ns")
        .join(seen, on="pid", maintain_order="left")
    )
    born = pl.col("start_ticks") * TICK_NS
    inside = with_starts.filter(born.is_between(pl.col("start_ns") - 2 * TICK_NS, pl.col("end_ns")))
    return inside.select("pid", "start_ns", "start_ticks").unique(["pid", "start_ns"], maintain_order=True)


def _is_zero() -> pl.Expr:
    return (pl.col("run_ns") == 0) & (pl.col("runq_ns") == 0) & (pl.col("state") == "S")


def _first_processes(cell: RawCell) -> pl.DataFrame:
    """Returns executions with known totals of their first process. User and kernel time are in the tree's
    proportion."""
    known = cell.tables["executions"].drop_nulls(["pid", "run_ns", "runq_ns"])
    user, both = pl.col("user_ns"), pl.col("user_ns") + pl.col("system_ns")
    half = pl.when(both > 0).then((pl.col("run_ns") * user / both).round()).cast(pl.Int64)
    chosen = known.select("pid", "session", "start_ns", "end_ns", "run_ns", "runq_ns", user_ns=half)
    return chosen.with_columns(system_ns=pl.col("run_ns") - pl.col("user_ns"))


def with_sessions(reads: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    """Adds the session to tasks in ``reads`` of ``tasks`` or ``traced`` that had none, if they are an
    execution's first process."""
    if not is_tree(cell):
        return reads
    executions = cell.tables["executions"].drop_nulls("pid")
    executions = executions.select("pid", "start_ns", "end_ns", owner="session")
    lost = reads.filter(pl.col("role").is_in(["other", BRIEF])).select(*TASK, "at_ns")
    met = lost.join(executions, on="pid").filter(
        pl.col("at_ns") >= pl.col("start_ns") - TICK_NS,
        pl.col("start_ticks") * TICK_NS <= pl.col("end_ns") + TICK_NS,
        pl.col("start_ticks") * TICK_NS >= pl.col("start_ns") - 2 * TICK_NS,
    )
    owners = met.select(*TASK, "owner").unique(TASK, keep="first", maintain_order=True)
    joined = reads.join(owners, on=TASK, how="left", nulls_equal=True, maintain_order="left")
    has_owner = pl.col("owner").is_not_null()
    return joined.with_columns(
        role=pl.when(has_owner).then(pl.lit("session")).otherwise("role"),
        session=pl.coalesce("owner", "session"),
    ).drop("owner")


def with_asides(reads: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    """Sets the role of tasks that lived between the executions of their session to :data:`ASIDE`: they
    belong to commands that prepare, verify and conclude executions. A task of unknown session must have
    lived between the executions of all sessions."""
    if not (is_tree(cell) and cell.meta.asides):
        return reads
    session_reads = reads.filter(pl.col("role").is_in(["session", BRIEF]))
    lives = session_reads.group_by(TASK, maintain_order=True).agg(
        pl.col("session").drop_nulls().first(), born_ns=pl.col("at_ns").min(), to_ns=pl.col("at_ns").max()
    )
    born = pl.min_horizontal(
        "born_ns", (pl.col("start_ticks") + 1) * TICK_NS
    )  # start times are rounded down to a tick
    lives = _not_measured(lives.with_columns(from_ns=born), cell)
    asides = lives.select(*TASK, aside=True)
    joined = reads.join(asides, on=TASK, how="left", nulls_equal=True, maintain_order="left")
    aside = pl.col("aside").fill_null(False)
    return joined.with_columns(
        role=pl.when(aside).then(pl.lit(ASIDE)).otherwise("role"),
        session=pl.when(aside).then(None).otherwise("session"),
    ).drop("aside")


def _not_measured(lives: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    """Returns lives of which less than half was within executions, other than executions' first processes."""
    ran = cell.tables["executions"].select("pid", "start_ns", "end_ns")
    first = lives.join(ran, on="pid").filter(
        pl.col("from_ns") <= pl.col("end_ns"), pl.col("to_ns") >= pl.col("start_ns")
    )
    busy = busy_times(cell)
    inside = _busy_before(lives, "to_ns", busy) - _busy_before(lives, "from_ns", busy)
    within = lives.with_columns(inside=inside, lived=pl.col("to_ns") - pl.col("from_ns"))
    aside = within.filter((2 * pl.col("inside") < pl.col("lived")) | ~_is_within(lives, busy))
    return aside.join(first, on=TASK, how="anti", nulls_equal=True)


def _is_within(lives: pl.DataFrame, busy: pl.DataFrame) -> pl.Series:
    """Returns whether each life began or ended within executions of its session."""
    within = pl.zeros(lives.height, dtype=pl.Boolean, eager=True)
    for end in ("from_ns", "to_ns"):
        after = _busy_before(lives.with_columns(pl.col(end) + 1), end, busy)
        within |= after > _busy_before(lives, end, busy)
    return within


def busy_times(cell: RawCell) -> pl.DataFrame:
    """Returns the times of executions of each session, and (session NULL) of any: ``start_ns``,
    ``end_ns``, and ``before_ns``, the time that earlier ones took. Processes that an execution left behind
    are killed after its end."""
    ran = cell.tables["executions"].sort("start_ns").select("session", "start_ns", "end_ns", "left_over")
    following = pl.col("start_ns").shift(-1).over("session").fill_null(pl.col("end_ns") + TICK_NS)
    left = pl.col("left_over").fill_null(0) > 0
    ran = ran.with_columns(end_ns=pl.when(left).then(following).otherwise("end_ns")).drop("left_over")
    reach = pl.col("end_ns").cum_max().shift(1).fill_null(0)
    whole = ran.group_by((pl.col("start_ns") > reach).cum_sum().alias("stretch"), maintain_order=True).agg(
        pl.lit(None, ran.schema["session"]).alias("session"), pl.col("start_ns").min(), pl.col("end_ns").max()
    )
    both = pl.concat([ran, whole.select(ran.columns)])
    took = pl.col("end_ns") - pl.col("start_ns")
    return both.with_columns(before_ns=(took.cum_sum() - took).over("session"))


def _busy_before(lives: pl.DataFrame, at: str, busy: pl.DataFrame) -> pl.Series:
    """Returns for each life the time before the instant ``at`` in which its session had an execution."""
    asked = lives.with_row_index("n").select("n", _session_or_any(), at_ns=at).sort("at_ns")
    begun = busy.with_columns(_session_or_any()).sort("start_ns")
    met = asked.join_asof(
        begun, left_on="at_ns", right_on="start_ns", by="session", strategy="backward", check_sortedness=False
    )
    within = pl.min_horizontal("at_ns", "end_ns") - pl.col("start_ns")
    return met.with_columns(busy=(pl.col("before_ns") + within).fill_null(0)).sort("n")["busy"]


def _session_or_any() -> pl.Expr:
    return pl.col("session").cast(pl.Int64).fill_null(_ANY)


def outside(t0: int, t1: int) -> pl.Expr:
    """Returns an expression: whether a task ended before the window, or began after it."""
    return (pl.col("to_ns") <= t0) | (pl.col("from_ns") >= t1) | (pl.col("to_ns") == pl.col("from_ns"))


def unseen(reads: pl.DataFrame, t0_ns: int, t1_ns: int) -> Children | None:
    """Returns CPU time of processes that ended between the reads nearest to t0 and t1, less the part in
    ``reads``; None if unknown.

    A process's totals include those of its ended children. Over all living processes their sum grows by
    the CPU time of each process that ends.
    """
    books = reads.filter(_FIRST & ~pl.col("role").is_in(_BESIDE)).drop_nulls("children_ns")
    main = books.filter(pl.col("role") == MAIN).sort("at_ns")
    if main.is_empty():
        return None
    first, last = (
        main.sort((pl.col("at_ns") - t).abs(), maintain_order=True)["at_ns"][0] for t in (t0_ns, t1_ns)
    )
    if last <= first:
        return None
    grown_ns = _booked(books, last) - _booked(books, first)
    read_ns, tail_ns = _read(reads, main["at_ns"], first, last)
    return Children(grown_ns - read_ns, tail_ns, int(last - first), named=True)


def _booked(books: pl.DataFrame, at_ns: int) -> int:
    near = books.with_columns(off=(pl.col("at_ns") - at_ns).abs()).filter(pl.col("off") <= NEAR_NS)
    return int(near.sort("off").unique(TASK, keep="first")["children_ns"].sum())


def _read(reads: pl.DataFrame, mains: pl.Series, from_ns: int, to_ns: int) -> tuple[int, int]:
    """Returns the CPU time that was read of processes that ended then, and an upper bound of their CPU
    time after the last read: at twice their mean rate."""
    of_server = reads.filter(~pl.col("role").is_in([*_BESIDE, MAIN])).sort("at_ns")
    last = of_server.group_by(TASK).agg(pl.col("run_ns", "at_ns", "state").last())
    next_read = pl.DataFrame({"gone_ns": mains}).sort("gone_ns")
    last = last.with_columns(after_ns=pl.col("at_ns") + NEAR_NS).sort("after_ns")
    last = last.join_asof(next_read, left_on="after_ns", right_on="gone_ns", strategy="forward")
    reported = pl.col("state") == ENDED
    last = last.with_columns(gone_ns=pl.when(reported).then("at_ns").otherwise("gone_ns"))
    ends = last.filter(_FIRST).select("pid", process_ns="gone_ns", born_ns=pl.col("start_ticks") * TICK_NS)
    ended = last.join(ends, on="pid", how="left").filter(
        pl.col("process_ns").is_between(from_ns, to_ns, closed="right"),
        pl.col("at_ns").is_between("born_ns", pl.col("process_ns") + NEAR_NS),
    )
    ended, born = ended.unique(TASK), pl.col("start_ticks") * TICK_NS
    rate = (2 * pl.col("run_ns") / (pl.col("at_ns") - born)).clip(0, 1).fill_nan(0)
    sums = ended.select(
        pl.col("run_ns").sum(),
        tail=((pl.col("gone_ns") - pl.col("at_ns")) * rate).filter(~reported).sum(),
    )
    return int(sums["run_ns"][0]), int(sums["tail"][0])
