"""The scheduler trace cut to the window: growth of its sums between the reads nearest to t0 and t1."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.window.attribution import fold, workers
from dbdyno.account.window.brief import folded, folded_labels, with_roles
from dbdyno.account.window.cells import for_each, middle
from dbdyno.account.window.deltas import ENDS, NEAR_NS, TASK, labelled, task_growth
from dbdyno.account.window.label_sums import (
    EVENT,
    MOVES,
    OPEN,
    STAYS,
    begun,
    by_event,
    by_statement,
    check_label_sums,
)
from dbdyno.account.window.trees import is_tree
from dbdyno.model.results.brief import BRIEF, SHORT_HELPER
from dbdyno.model.results.raw import RawCell, once_each
from dbdyno.model.schema.data_source import TaskCounts
from dbdyno.model.schema.tables import empty, sum_if_all_known, sum_of_known
from dbdyno.model.units import NS_PER_S, TICK_NS

SHORTEST_NS = 1
"""Shortest life with a difference: the trace counts at each switch, so any length will do."""
_SURE = ("run_ns", "runq_ns", "sleep_ns")
_MORE = ("throttled_ns", "blocked_ns", "voluntary", "involuntary")
_BRIEF = (BRIEF, SHORT_HELPER)
_OWNER = ("role", "session", "worker")
_BRACKET = ("from_ns", "to_ns", "wall_ns", "over_ns", "partial", "status")
_STATEMENT = ("query_id", "query_status")
_TIMES = ("sleep_ns", "runq_ns", "throttled_ns", "run_ns", "came_ns", "left_ns", "runq_low", "runq_high")
_COUNTS = ("sleeps", "preempted", "run_samples")
_PER_S = {"waits_per_s": "begun", "sleeps_per_s": "sleeps", "preempted_per_s": "preempted"}


def cut_traced(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_traced``. Status lost: events were missed between a task's two reads, or its
    labels do not add up (:func:`check_label_sums`)."""
    figures = [*_SURE, *_MORE]
    return for_each(
        "cut_traced", cells, lambda c: folded(_tasks(c), figures, c) if c.tables["traced"].height else None
    )


@once_each
def traced_tasks(cell: RawCell) -> pl.DataFrame:
    """Returns the tasks of a cell that the trace saw in its window, one row each; empty without a trace."""
    if cell.tables["traced"].is_empty():
        return empty("cut_traced")
    return _tasks(cell).filter(pl.col("wall_ns") > 0)


def cut_waits(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_waits``: by task and wait event, between the ends of its row in ``cut_traced``;
    NULL with that row's status if it is not ok."""
    return for_each("cut_waits", cells, _waits)


def cut_statement_waits(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_statement_waits``: time by statement and wait event, over all sessions that
    ``cut_traced`` has with status ok."""
    return for_each("cut_statement_waits", cells, _statement_waits)


def cut_wait_times(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_wait_times``: durations of the waits of all sessions, by statement and wait
    event."""
    return for_each("cut_wait_times", cells, _wait_times)


def cut_counts(source: TaskCounts, cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_TABLE`` of a source by task and label. Counts that went down are left out."""
    table, label = source.table, [c.name for c in source.labels]
    figures, known = (
        [f.name for f in source.figures if not (required and f.null)] for required in (False, True)
    )
    return for_each(f"cut_{table}", cells, lambda c: _labelled(c, table, label, figures, known))


def _reads(cell: RawCell, table: str) -> pl.DataFrame:
    named = cell.tables[table].rename(
        {"from_ns": "low_ns"}, strict=False
    )  # ``from_ns`` is a column of the task's bracket
    reads = fold(named.with_columns(middle().alias("at_ns")), workers(cell))
    return with_roles(reads, cell)


@once_each
def _tasks(cell: RawCell) -> pl.DataFrame:
    measured = _measured(cell)
    return measured if cell.tables["waits"].is_empty() else check_label_sums(measured, _label_growth(cell))


@once_each
def _measured(cell: RawCell) -> pl.DataFrame:
    reads = _halved(cell)
    lives = _lives(cell)
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    growths = task_growth(lives, t0, t1, _SURE, _MORE, SHORTEST_NS, come_and_go=is_tree(cell)).drop(
        "status_b"
    )
    return _with_missed(growths, reads).select(
        *("pid", "tid", "start_ticks", *_OWNER, *_SURE, *_MORE),
        *_BRACKET[:-1],
        slack_ns=(pl.col("half_ns") + pl.col("half_ns_b")).cast(pl.Int64),
        status=pl.coalesce("missed", "status"),
    )


@once_each
def _brackets(cell: RawCell) -> pl.DataFrame:
    return _measured(cell).select(*TASK, *ENDS)


@once_each
def _halved(cell: RawCell) -> pl.DataFrame:
    return _reads(cell, "traced").with_columns(half_ns=(pl.col("after_ns") - pl.col("before_ns")) / 2)


@once_each
def _lives(cell: RawCell) -> pl.DataFrame:
    return _whole_lives(_halved(cell).drop_nulls(_SURE), cell.meta.t0_ns, _alive(cell))


def _alive(cell: RawCell) -> pl.DataFrame:
    """Returns the last time at which the operating system listed each task (``alive_ns``)."""
    reads = cell.tables["tasks"].filter(pl.col("status") == "ok").with_columns(at_ns=middle())
    return reads.group_by(TASK).agg(alive_ns=pl.col("at_ns").max())


def _whole_lives(reads: pl.DataFrame, t0: int, alive: pl.DataFrame) -> pl.DataFrame:
    """Adds each task's first instant and corrects its last one.

    The sums begin when the trace met the task: at its birth if it came later. So a read's time minus its
    sums is that instant; all sums are 0 there, and an instant inside the window becomes a read of its own.
    The sums of an ended task stand still, so its last read holds for the instant of its end, unless the
    task was seen alive after that; then time is missing.

    A task that ended before its first read was born earlier than that read minus its sums: at its start
    time, known to a tick. Start times count from boot, suspended time included; where the machine was
    suspended they are too late, and change nothing.
    """
    lived = pl.sum_horizontal(_SURE)
    met = (pl.col("at_ns") - lived).min().over(TASK)
    start = pl.col("start_ticks") * TICK_NS
    while_traced = (start > pl.col("at_ns").min()).fill_null(False)
    met = pl.when(while_traced).then(pl.min_horizontal(met, start + TICK_NS)).otherwise(met)
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


def _with_missed(tasks: pl.DataFrame, reads: pl.DataFrame) -> pl.DataFrame:
    """Adds ``missed``: the status of reads inside a task's bracket that were not ok."""
    bad = reads.filter(pl.col("status") != "ok")
    if bad.is_empty():
        return tasks.with_columns(missed=pl.lit(None, pl.String))
    bad = bad.join(tasks.select(*TASK, "from_ns", "to_ns"), on=TASK, nulls_equal=True, maintain_order="left")
    inside = (pl.col("at_ns") > pl.col("from_ns")) & (pl.col("at_ns") <= pl.col("to_ns"))
    missed = bad.filter(inside).group_by(TASK).agg(missed=pl.col("status").min())
    return tasks.join(missed, on=TASK, how="left", nulls_equal=True, maintain_order="left")


def _labelled(
    cell: RawCell, table: str, label: Sequence[str], figures: Sequence[str], known: Sequence[str] = ()
) -> pl.DataFrame | None:
    """Returns growth by task and label of a table; None if it is empty. ``known``: figures without which a
    row is left out."""
    if cell.tables[table].is_empty():
        return None
    growth = labelled(_in_lives(cell, table), _brackets(cell), label, figures)
    growth = _with_owner(growth, cell).drop("worker", "over_ns", "its_status")
    return folded_labels(growth.drop_nulls(known) if known else growth, list(label))


def _with_owner(rows: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    whose = traced_tasks(cell).select(*TASK, *_OWNER, "over_ns", its_status="status")
    return rows.join(whose, on=TASK, nulls_equal=True, maintain_order="left")


@once_each
def _label_growth(cell: RawCell) -> pl.DataFrame:
    """Returns growth of table ``waits`` by task, wait event and statement, and the open queue at its ends."""
    rows, label = _in_lives(cell, "waits"), (*_STATEMENT, *EVENT)
    return labelled(rows, _brackets(cell), label, (*STAYS, *MOVES), falls=True, levels=[OPEN])


def _waits(cell: RawCell) -> pl.DataFrame | None:
    if cell.tables["waits"].is_empty():
        return None
    by_wait = _with_owner(by_event(_label_growth(cell)), cell)
    ok = pl.col("its_status") == "ok"
    by_wait = by_wait.filter(ok | ~pl.col("role").is_in(_BRIEF))  # a few of many brief tasks may be lost
    figures = ("sleep_ns", "runq_ns", "throttled_ns", "begun", *_COUNTS)
    by_wait = by_wait.with_columns(
        *(pl.when(ok).then(n).alias(n) for n in figures),
        status=pl.when(ok).then("status").otherwise("its_status"),
    )
    return folded_labels(by_wait.drop("worker", "over_ns", "its_status"), list(EVENT))


def _in_lives(cell: RawCell, table: str) -> pl.DataFrame:
    """Returns the reads of a table at the instants of their tasks' reads (``its_ns``)."""
    key = [*TASK, "after_ns"]
    rows = _reads(cell, table).join(
        _instants(cell), on=key, how="left", nulls_equal=True, maintain_order="left"
    )
    return rows.with_columns(at_ns=pl.coalesce("its_ns", "at_ns"))


@once_each
def _instants(cell: RawCell) -> pl.DataFrame:
    return _lives(cell).group_by(*TASK, "after_ns").agg(its_ns=pl.col("at_ns").max())  # no births


def _session_rows(rows: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    return _with_owner(rows, cell).filter(pl.col("role").is_in(["session", BRIEF]))


def _statement_waits(cell: RawCell) -> pl.DataFrame | None:
    if cell.tables["waits"].is_empty() or cell.tables["waits"]["run_ns"].null_count():
        return None  # stored by a version without statements
    by_wait = _session_rows(by_statement(_label_growth(cell)), cell).filter(pl.col("its_status") == "ok")
    over = pl.col("over_ns")
    by_wait = by_wait.with_columns(begun=begun()).with_columns(
        (pl.col(n) * NS_PER_S / over).alias(name) for name, n in _PER_S.items()
    )
    return by_wait.group_by("worker", *_STATEMENT, *EVENT, maintain_order=True).agg(
        *(sum_if_all_known(n) for n in _PER_S),
        *((pl.col(n) / over).sum().alias(n.removesuffix("_ns")) for n in _TIMES),
        *(sum_of_known(n) for n in _COUNTS),
    )


def _wait_times(cell: RawCell) -> pl.DataFrame | None:
    """Returns waits that ended. A task whose sums, or counts at one of its ends, are lost has a count of 0
    and status lost."""
    if cell.tables["wait_times"].is_empty():
        return None
    label = (*_STATEMENT, "part", "low_ns", *EVENT)
    rows = _in_lives(cell, "wait_times")
    ended = labelled(rows.drop_nulls("low_ns"), _brackets(cell), label, ("count",))
    counts = _session_rows(ended, cell).join(_uncounted(cell, rows), on=TASK, how="left", nulls_equal=True)
    good = (pl.col("its_status") == "ok") & pl.col("uncounted").is_null() & pl.col("count").is_not_null()
    counts = counts.with_columns(
        pl.when(good).then("count").otherwise(0),
        status=pl.when(good).then("status").otherwise(pl.lit("lost")),
    )
    sums = counts.group_by(label, maintain_order=True).agg(pl.col("count").sum())
    return sums.filter((pl.col("count") > 0) | (pl.col("status") == "lost"))


def _uncounted(cell: RawCell, counted: pl.DataFrame) -> pl.DataFrame:
    """Returns tasks that had waited by an end of the window whose read has no counts of these waits: the
    read with them was lost, and its replacement leaves out long tables."""
    waited = _in_lives(cell, "waits").filter(pl.col("sleeps") + pl.col("preempted") > 0)
    waited = waited.select(*TASK, "at_ns").unique(maintain_order=True)
    without = waited.join(counted, on=[*TASK, "at_ns"], how="anti", nulls_equal=True, maintain_order="left")
    ends = without.join(_brackets(cell), on=TASK, nulls_equal=True, maintain_order="left")
    lost = ends.filter((pl.col("at_ns") == pl.col("from_ns")) | (pl.col("at_ns") == pl.col("to_ns")))
    return lost.select(*TASK, uncounted=True).unique(maintain_order=True)
