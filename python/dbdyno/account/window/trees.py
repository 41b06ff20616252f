"""Sessions that are trees of processes: commands, whose processes and threads come and go.

Each task is accounted for once, by the best that is known of it:

1. the scheduler trace, which follows what a tree starts from birth to end;
2. else what the kernel told at its end: of an execution's first process its own books, read before it was
   reaped (table ``executions``), of other tasks the task statistics (rows in state X of ``tasks``);
3. else its reads while it lived.

CPU time of processes that ended and is in none of these is one line, by the books of their parents.
"""

from __future__ import annotations

import polars as pl

from dbdyno.account.window.deltas import ENDED, NEAR_NS, TASK
from dbdyno.model.results.brief import BRIEF, MAIN, Children
from dbdyno.model.results.raw import RawCell, once_each
from dbdyno.model.units import TICK_NS

_BESIDE = ("driver", "pooler", "dbdyno")
ASIDE = "helper:aside"
"""Role of what prepares, verifies and concludes executions."""
_ANY = -1
"""In place of a session that is not known."""
_FIRST = pl.col("pid") == pl.col("tid")


@once_each
def is_tree(cell: RawCell) -> bool:
    """Whether the sessions of a cell are trees."""
    return cell.tables["executions"].height > 0


def with_ends(reads: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    """``reads`` of tasks with the birth and end of each execution's first process.

    It replaces what the task statistics say of these: they are as of the last tick. Of one that the trace
    followed, it tells the halves of its CPU time.
    """
    if not is_tree(cell):
        return reads
    ends, traced = _first_processes(cell), _traced_starts(cell)
    if traced is not None:
        ends = ends.join(traced, on=["pid", "start_ns"], how="semi", maintain_order="left")
    mine = reads.filter(_FIRST).join(ends.select("pid", "start_ns", "end_ns"), on="pid")
    life = pl.col("at_ns").is_between(pl.col("start_ns") - TICK_NS, pl.col("end_ns") + NEAR_NS)
    mine = mine.filter(life)
    starts = mine.group_by("pid", "start_ns").agg(start_ticks=pl.col("start_ticks").min())
    starts = starts if traced is None else traced
    stale = (pl.col("state") == ENDED) | (pl.col("at_ns") >= pl.col("end_ns")) | _zero()
    replaced = mine.filter(stale).select(*TASK, "at_ns")
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
    """``start_ticks`` of executions' first processes as the trace has them, by ``pid`` and ``start_ns``; None
    without a trace."""
    if cell.tables["traced"].is_empty():
        return None
    seen = cell.tables["traced"].filter(_FIRST).select("pid", "start_ticks").unique(maintain_order=True)
    of = (
        cell.tables["executions"]
        .select("pid", "start_ns", "end_ns")
        .join(seen, on="pid", maintain_order="left")
    )
    born = pl.col("start_ticks") * TICK_NS
    inside = of.filter(born.is_between(pl.col("start_ns") - 2 * TICK_NS, pl.col("end_ns")))
    return inside.select("pid", "start_ns", "start_ticks").unique(["pid", "start_ns"], maintain_order=True)


def _zero() -> pl.Expr:
    return (pl.col("run_ns") == 0) & (pl.col("runq_ns") == 0) & (pl.col("state") == "S")


def _first_processes(cell: RawCell) -> pl.DataFrame:
    """Executions whose first process's own books are known. User and kernel time in the tree's proportion."""
    known = cell.tables["executions"].drop_nulls(["pid", "run_ns", "runq_ns"])
    user, both = pl.col("user_ns"), pl.col("user_ns") + pl.col("system_ns")
    half = pl.when(both > 0).then((pl.col("run_ns") * user / both).round()).cast(pl.Int64)
    chosen = known.select("pid", "session", "start_ns", "end_ns", "run_ns", "runq_ns", user_ns=half)
    return chosen.with_columns(system_ns=pl.col("run_ns") - pl.col("user_ns"))


def with_sessions(reads: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    """``reads`` of ``tasks`` or ``traced``: tasks whose session nobody knew have it where they are of an
    execution's first process."""
    if not is_tree(cell):
        return reads
    whose = cell.tables["executions"].drop_nulls("pid")
    whose = whose.select("pid", "start_ns", "end_ns", owner="session")
    lost = reads.filter(pl.col("role").is_in(["other", BRIEF])).select(*TASK, "at_ns")
    met = lost.join(whose, on="pid").filter(
        pl.col("at_ns") >= pl.col("start_ns") - TICK_NS,
        pl.col("start_ticks") * TICK_NS <= pl.col("end_ns") + TICK_NS,
        pl.col("start_ticks") * TICK_NS >= pl.col("start_ns") - 2 * TICK_NS,
    )
    found = met.select(*TASK, "owner").unique(TASK, keep="first", maintain_order=True)
    joined = reads.join(found, on=TASK, how="left", nulls_equal=True, maintain_order="left")
    mine = pl.col("owner").is_not_null()
    return joined.with_columns(
        role=pl.when(mine).then(pl.lit("session")).otherwise("role"),
        session=pl.coalesce("owner", "session"),
    ).drop("owner")


def with_asides(reads: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    """``reads`` of ``tasks`` or ``traced``: tasks that lived between the executions of their session are of
    commands that prepare, verify and conclude them, and no session's (:data:`ASIDE`).

    Of a task whose session nobody knew, between the executions of all of them.
    """
    if not (is_tree(cell) and cell.meta.asides):
        return reads
    mine = reads.filter(pl.col("role").is_in(["session", BRIEF]))
    lives = mine.group_by(TASK, maintain_order=True).agg(
        pl.col("session").drop_nulls().first(), born_ns=pl.col("at_ns").min(), to_ns=pl.col("at_ns").max()
    )
    born = pl.min_horizontal("born_ns", (pl.col("start_ticks") + 1) * TICK_NS)  # within a tick of that
    lives = _not_measured(lives.with_columns(from_ns=born), cell)
    asides = lives.select(*TASK, aside=True)
    joined = reads.join(asides, on=TASK, how="left", nulls_equal=True, maintain_order="left")
    aside = pl.col("aside").fill_null(False)
    return joined.with_columns(
        role=pl.when(aside).then(pl.lit(ASIDE)).otherwise("role"),
        session=pl.when(aside).then(None).otherwise("session"),
    ).drop("aside")


def _not_measured(lives: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    """Less than half of whose life was within executions, and who are no execution's first process."""
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
    """Whether each life began or ended within executions of its session."""
    found = pl.zeros(lives.height, dtype=pl.Boolean, eager=True)
    for end in ("from_ns", "to_ns"):
        after = _busy_before(lives.with_columns(pl.col(end) + 1), end, busy)
        found |= after > _busy_before(lives, end, busy)
    return found


def busy_times(cell: RawCell) -> pl.DataFrame:
    """When each session had an execution, and (session NULL) any: ``start_ns``, ``end_ns``, and the time
    ``before_ns`` that such had taken before. What an execution left is killed after its end."""
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
    """Of each life, how much of the time before the instant ``at`` its session had an execution."""
    asked = lives.with_row_index("n").select("n", _whose(), at_ns=at).sort("at_ns")
    begun = busy.with_columns(_whose()).sort("start_ns")
    met = asked.join_asof(
        begun, left_on="at_ns", right_on="start_ns", by="session", strategy="backward", check_sortedness=False
    )
    within = pl.min_horizontal("at_ns", "end_ns") - pl.col("start_ns")
    return met.with_columns(busy=(pl.col("before_ns") + within).fill_null(0)).sort("n")["busy"]


def _whose() -> pl.Expr:
    return pl.col("session").cast(pl.Int64).fill_null(_ANY)


def outside(t0: int, t1: int) -> pl.Expr:
    """Tasks that ended before the window, or began after it."""
    return (pl.col("to_ns") <= t0) | (pl.col("from_ns") >= t1) | (pl.col("to_ns") == pl.col("from_ns"))


def unseen(reads: pl.DataFrame, t0_ns: int, t1_ns: int) -> Children | None:
    """CPU time of processes that ended between the reads nearest to t0 and t1, less what ``reads`` have of
    it.

    The books of a process have that of its ended children; over all processes that live their sum grows by
    what each process used that ends. None: unknown.
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
    """CPU time that was read of processes that ended then, and how much they may have used after their last
    reads: at twice their rate."""
    mine = reads.filter(~pl.col("role").is_in([*_BESIDE, MAIN])).sort("at_ns")
    last = mine.group_by(TASK).agg(pl.col("run_ns", "at_ns", "state").last())
    next_read = pl.DataFrame({"gone_ns": mains}).sort("gone_ns")
    last = last.with_columns(after_ns=pl.col("at_ns") + NEAR_NS).sort("after_ns")
    last = last.join_asof(next_read, left_on="after_ns", right_on="gone_ns", strategy="forward")
    told = pl.col("state") == ENDED
    last = last.with_columns(gone_ns=pl.when(told).then("at_ns").otherwise("gone_ns"))
    ends = last.filter(_FIRST).select("pid", process_ns="gone_ns", born_ns=pl.col("start_ticks") * TICK_NS)
    ended = last.join(ends, on="pid", how="left").filter(
        pl.col("process_ns").is_between(from_ns, to_ns, closed="right"),
        pl.col("at_ns").is_between("born_ns", pl.col("process_ns") + NEAR_NS),
    )
    ended, born = ended.unique(TASK), pl.col("start_ticks") * TICK_NS
    rate = (2 * pl.col("run_ns") / (pl.col("at_ns") - born)).clip(0, 1).fill_nan(0)
    sums = ended.select(
        pl.col("run_ns").sum(),
        tail=((pl.col("gone_ns") - pl.col("at_ns")) * rate).filter(~told).sum(),
    )
    return int(sums["run_ns"][0]), int(sums["tail"][0])
