"""The scheduler trace cut to the window: growth of its sums between the reads nearest to t0 and t1."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.window.attribution import fold, workers
from dbdyno.account.window.brief import folded, folded_labels, told_apart
from dbdyno.account.window.cells import for_each, middle
from dbdyno.account.window.deltas import ENDS, NEAR_NS, TASK, grown, labelled
from dbdyno.account.window.trees import is_tree
from dbdyno.model.brief import BRIEF
from dbdyno.model.data_source import TaskCounts
from dbdyno.model.raw import RawCell, once_each
from dbdyno.model.tables import empty, sum_of_known

SHORTEST_NS = 1
"""Measured at each switch: a life of any length has a difference."""
_SURE = ("run_ns", "runq_ns", "sleep_ns")
_MORE = ("throttled_ns", "blocked_ns", "voluntary", "involuntary")
_WHOSE = ("role", "session", "worker")
_BRACKET = ("from_ns", "to_ns", "wall_ns", "over_ns", "partial", "status")
_LABEL = ("wait_class", "wait_event", "status")
_STATEMENT = ("query_id", "query_status")
_TIMES = ("sleep_ns", "runq_ns", "throttled_ns")
_SLICES = ("run_ns", "came_ns", "left_ns")
_OF_STATEMENTS = (*_STATEMENT, *_SLICES)
_WAITS = ("sleep_ns", "runq_ns", "throttled_ns", "sleeps", "preempted", "run_samples")


def cut_traced(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_traced``. Where events were missed between a task's two reads, its status says lost."""
    figures = [*_SURE, *_MORE]
    return for_each(
        "cut_traced", cells, lambda c: folded(_tasks(c), figures, c) if c.tables["traced"].height else None
    )


@once_each
def traced_tasks(cell: RawCell) -> pl.DataFrame:
    """The tasks of a cell that the trace saw in its window, each by itself; empty without a trace."""
    if cell.tables["traced"].is_empty():
        return empty("cut_traced")
    return _tasks(cell).filter(pl.col("wall_ns") > 0)


def cut_waits(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_waits``: per task and wait event, between the ends of its row in ``cut_traced``."""
    return for_each("cut_waits", cells, lambda c: _labelled(c, "waits", _LABEL, _WAITS))


def cut_statement_waits(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_statement_waits``: all sessions' time by statement and wait event.

    What was under way at a read may have moved to another statement since: a growth may be negative.
    """
    return for_each("cut_statement_waits", cells, _statement_waits)


def cut_wait_times(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_wait_times``: how long waits of all sessions lasted, by statement and wait event."""
    return for_each("cut_wait_times", cells, _wait_times)


def cut_counts(source: TaskCounts, cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_TABLE`` of a source: per task and label; counts that went down are left out."""
    table, label = source.table, [c.name for c in source.labels]
    figures, known = ([f.name for f in source.figures if not (sure and f.null)] for sure in (False, True))
    return for_each(f"cut_{table}", cells, lambda c: _labelled(c, table, label, figures, known))


def _reads(cell: RawCell, table: str) -> pl.DataFrame:
    named = cell.tables[table].rename({"from_ns": "low_ns"}, strict=False)  # that of a task is its bracket's
    reads = fold(named.with_columns(middle().alias("at_ns")), workers(cell))
    return told_apart(reads, cell)


@once_each
def _tasks(cell: RawCell) -> pl.DataFrame:
    reads = _halved(cell)
    told = _lives(cell)
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    found = grown(told, t0, t1, _SURE, _MORE, SHORTEST_NS, come_and_go=is_tree(cell)).drop("status_b")
    return _with_missed(found, reads).select(
        *("pid", "tid", "start_ticks", *_WHOSE, *_SURE, *_MORE),
        *_BRACKET[:-1],
        slack_ns=(pl.col("half_ns") + pl.col("half_ns_b")).cast(pl.Int64),
        status=pl.coalesce("missed", "status"),
    )


@once_each
def _brackets(cell: RawCell) -> pl.DataFrame:
    return _tasks(cell).select(*TASK, *ENDS)


@once_each
def _halved(cell: RawCell) -> pl.DataFrame:
    return _reads(cell, "traced").with_columns(half_ns=(pl.col("after_ns") - pl.col("before_ns")) / 2)


@once_each
def _lives(cell: RawCell) -> pl.DataFrame:
    return _whole_lives(_halved(cell).drop_nulls(_SURE), cell.meta.t0_ns, _alive(cell))


def _alive(cell: RawCell) -> pl.DataFrame:
    """When the operating system last had each task (``alive_ns``)."""
    reads = cell.tables["tasks"].filter(pl.col("status") == "ok").with_columns(at_ns=middle())
    return reads.group_by(TASK).agg(alive_ns=pl.col("at_ns").max())


def _whole_lives(reads: pl.DataFrame, t0: int, alive: pl.DataFrame) -> pl.DataFrame:
    """``reads`` with each task's first and last instants as they were.

    The sums begin where the trace met the task: at the birth of one that came later. So a read minus its
    sums is that instant, all sums are 0 there, and one inside the window is a read of its own. An ended
    task's sums stand still: its last read is true of the instant it ended, unless the task was seen alive
    after that; then time is missing, and stays so.
    """
    lived = pl.sum_horizontal(_SURE)
    met = (pl.col("at_ns") - lived).min().over(TASK)
    end, slip = met + lived, NEAR_NS // 20
    reads = reads.join(alive, on=TASK, how="left", nulls_equal=True, maintain_order="left")
    ended = (pl.col("at_ns") - end > slip) & (pl.col("alive_ns").fill_null(0) <= end + slip)
    reads = reads.with_columns(met_ns=met, ended=ended).with_columns(
        at_ns=pl.when("ended").then(pl.col("met_ns") + lived).otherwise("at_ns")
    )
    zero = [pl.lit(0, dtype=pl.Int64).alias(n) for n in (*_SURE, "voluntary", "involuntary")]
    maybe = [pl.when(pl.col(n).is_not_null()).then(0).alias(n) for n in ("throttled_ns", "blocked_ns")]
    births = reads.sort("at_ns").unique(TASK, keep="first", maintain_order=True).filter(pl.col("met_ns") > t0)
    if births.height:
        births = births.with_columns(*zero, *maybe, at_ns="met_ns")
        reads = pl.concat([reads, births], how="diagonal_relaxed")
    return reads.drop("met_ns", "alive_ns", "ended")


def _with_missed(found: pl.DataFrame, reads: pl.DataFrame) -> pl.DataFrame:
    """``found`` with what the reads inside a task's bracket had to say, where it was not ok (``missed``)."""
    bad = reads.filter(pl.col("status") != "ok")
    if bad.is_empty():
        return found.with_columns(missed=pl.lit(None, pl.String))
    bad = bad.join(found.select(*TASK, "from_ns", "to_ns"), on=TASK, nulls_equal=True, maintain_order="left")
    inside = (pl.col("at_ns") > pl.col("from_ns")) & (pl.col("at_ns") <= pl.col("to_ns"))
    missed = bad.filter(inside).group_by(TASK).agg(missed=pl.col("status").min())
    return found.join(missed, on=TASK, how="left", nulls_equal=True, maintain_order="left")


def _labelled(
    cell: RawCell, table: str, label: Sequence[str], figures: Sequence[str], known: Sequence[str] = ()
) -> pl.DataFrame | None:
    """``known``: figures without which a row is left out."""
    if cell.tables[table].is_empty():
        return None
    found = _grown_labels(cell, table, label, figures).drop("worker", "over_ns")
    return folded_labels(found.drop_nulls(known) if known else found, list(label))


def _grown_labels(
    cell: RawCell, table: str, label: Sequence[str], figures: Sequence[str], *, falls: bool = False
) -> pl.DataFrame:
    rows = _waits(cell) if table == "waits" else _in_lives(cell, table)
    if table == "waits" and label is _LABEL:  # a row a statement
        by = [n for n in rows.columns if n not in (*figures, *_OF_STATEMENTS)]
        rows = rows.group_by(by, maintain_order=True).agg(sum_of_known(n) for n in figures)
    if table == "wait_times":
        rows = _none_under_way(rows)
    found = labelled(rows, _brackets(cell), label, figures, falls=falls)
    whose = traced_tasks(cell).select(*TASK, *_WHOSE, "over_ns")
    return found.join(whose, on=TASK, nulls_equal=True, maintain_order="left")


@once_each
def _waits(cell: RawCell) -> pl.DataFrame:
    return _in_lives(cell, "waits")


def _in_lives(cell: RawCell, table: str) -> pl.DataFrame:
    """Reads of a table at the instants of their tasks' reads (``its_ns``)."""
    key = [*TASK, "after_ns"]
    rows = _reads(cell, table).join(
        _instants(cell), on=key, how="left", nulls_equal=True, maintain_order="left"
    )
    return rows.with_columns(at_ns=pl.coalesce("its_ns", "at_ns"))


@once_each
def _instants(cell: RawCell) -> pl.DataFrame:
    return _lives(cell).group_by(*TASK, "after_ns").agg(its_ns=pl.col("at_ns").max())  # no births


def _none_under_way(rows: pl.DataFrame) -> pl.DataFrame:
    """With a count of 0 where a wait that was under way at one read of a task is not at another."""
    when = ["before_ns", "after_ns", "at_ns", "its_ns"]
    mine = rows.filter(pl.col("low_ns").is_null())
    reads = rows.select(*TASK, *(n for n in when if n in rows.columns)).unique(maintain_order=True)
    each = mine.drop("count", *when, strict=False).unique(maintain_order=True)
    every = each.join(reads, on=TASK, nulls_equal=True, maintain_order="left")
    key = [n for n in every.columns if n != "its_ns"]
    none = every.join(mine, on=key, how="anti", nulls_equal=True, maintain_order="left")
    return pl.concat([rows, none.with_columns(count=pl.lit(0, pl.Int64))], how="diagonal")


def _of_sessions(cell: RawCell, table: str, label: Sequence[str], figures: Sequence[str]) -> pl.DataFrame:
    mine = pl.col("role").is_in(["session", BRIEF])
    return _grown_labels(cell, table, label, figures, falls=True).filter(mine)


def _statement_waits(cell: RawCell) -> pl.DataFrame | None:
    if cell.tables["waits"].is_empty() or cell.tables["waits"]["run_ns"].null_count():
        return None  # of a version that knew no statements
    label = (*_STATEMENT, *_LABEL)
    found = _of_sessions(cell, "waits", label, (*_WAITS, *_SLICES))
    over = pl.col("over_ns")
    return found.group_by("worker", *label, maintain_order=True).agg(
        *((pl.col(n) / over).sum().alias(n.removesuffix("_ns")) for n in (*_TIMES, *_SLICES)),
        *(sum_of_known(n) for n in ("sleeps", "preempted", "run_samples")),
    )


def _wait_times(cell: RawCell) -> pl.DataFrame | None:
    if cell.tables["wait_times"].is_empty():
        return None
    label = (*_STATEMENT, "part", "low_ns", *_LABEL)
    found = _of_sessions(cell, "wait_times", label, ("count",))
    return found.group_by(label, maintain_order=True).agg(pl.col("count").sum()).filter(pl.col("count") != 0)
