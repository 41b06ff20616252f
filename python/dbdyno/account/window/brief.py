"""Sessions too brief to be sampled, as one task per window, in an observation of all sessions.

In a driven load, and in an observation of chosen sessions, they have role ``other``.
"""

from __future__ import annotations

import polars as pl

from dbdyno.account.window.attribution import workers
from dbdyno.account.window.deltas import TASK
from dbdyno.account.window.trees import is_tree, unseen, with_asides, with_sessions
from dbdyno.model.results.brief import (
    BRIEF,
    LEAST_NS,
    MOST_LOST,
    SHORT_HELPER,
    STATUS,
    children,
    logons,
    met,
    unmet,
)
from dbdyno.model.results.raw import RawCell, once_each
from dbdyno.model.schema.tables import sum_if_all_known
from dbdyno.model.units import TICK_NS

_IS_BRIEF = pl.col("role").is_in([BRIEF, SHORT_HELPER])


@once_each
def role(cell: RawCell) -> str:
    """Returns the role of brief processes in this cell."""
    if is_tree(cell):
        return BRIEF
    if cell.meta.cell.sessions or cell.meta.chosen:
        in_parallel = workers(cell)["leader"].count() > 0
        return BRIEF if in_parallel and cell.tables["traced"].is_empty() else "other"
    return SHORT_HELPER if established(cell) == 0 else BRIEF


def established(cell: RawCell) -> int | None:
    """Returns the number of sessions that were established and never read; None if unknown."""
    read = cell.tables["tasks"].filter(pl.col("status") == "ok")
    return logons(cell.tables["counters"], met(read, cell.meta.t0_ns))


def brief_task(cell: RawCell, reads: pl.DataFrame) -> pl.DataFrame | None:
    """Returns the row of ``cut_tasks`` of brief sessions; None if there are none. Their CPU time is that
    of the main process's ended children, everything else is unknown. ``reads``: of all tasks."""
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    its_role, tree = role(cell), is_tree(cell)
    if (its_role == "other" or tree) and cell.tables["traced"].height:
        return None  # the trace has a row for each of them
    ended = unseen(reads, t0, t1) if tree else children(cell.tables["tasks"], t0, t1)
    if ended is None or not (ended.any or ((tree or established(cell)) and ended.cpu_ns > LEAST_NS)):
        return None
    row = {"role": its_role, "run_ns": ended.cpu_ns, "wall_ns": ended.cpu_ns, "over_ns": ended.wall_ns}
    return pl.DataFrame([row | _whole(t0, t1) | {"status": STATUS}], schema_overrides=_SCHEMA)


def without_briefly_met(read: pl.DataFrame, cell: RawCell, followed: pl.DataFrame) -> pl.DataFrame:
    """Removes sessions from ``read`` that came and went without figures, as they are counted among the brief
    ones.

    Processes that the trace ``followed`` have their figures from there. Sessions of the driver, and chosen
    ones, stay, each with its status.
    """
    if (cell.meta.cell.sessions and not is_tree(cell)) or cell.meta.chosen:
        return read
    briefly = (pl.col("role") == "session") & pl.col("run_ns").is_null()
    briefly &= pl.col("status").is_in(["vanished", "too short"])
    born = (pl.col("start_ticks") * TICK_NS > cell.meta.t0_ns).fill_null(True)
    in_trace = followed.select("pid", "start_ticks", followed=True).unique()  # one row per thread
    outside = ~pl.col("partial")  # no sample of the window saw it
    read = read.join(in_trace, on=["pid", "start_ticks"], how="left", maintain_order="left")
    return read.filter(~(briefly & (born | outside)) | pl.col("followed").fill_null(False)).drop("followed")


def with_roles(reads: pl.DataFrame, cell: RawCell) -> pl.DataFrame:
    """Assigns roles to processes in ``reads`` of the trace that were unknown when it met them."""
    its_role = role(cell)
    if its_role == "other":
        return reads
    reads = with_sessions(reads, cell)
    named = unmet(cell.tables["traced"], cell.tables["tasks"]).with_columns(its_role=pl.lit(its_role))
    joined = reads.join(named, on=["pid", "start_ticks"], how="left", nulls_equal=True, maintain_order="left")
    unnamed = pl.col("role") == "other"
    named = joined.with_columns(role=pl.when(unnamed).then(pl.coalesce("its_role", "role")).otherwise("role"))
    return with_asides(named.drop("its_role"), cell)


def folded(tasks: pl.DataFrame, figures: list[str], cell: RawCell) -> pl.DataFrame:
    """Returns the trace's ``tasks`` with brief processes merged into one row, their lives summed."""
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    known = tasks.filter(_IS_BRIEF & (pl.col("wall_ns") > 0))  # others lived outside the window
    if known.is_empty():
        return tasks
    lost = (pl.col("status") != "ok").mean() > MOST_LOST
    one = known.group_by("role", maintain_order=True).agg(
        pl.col(*figures, "wall_ns", "slack_ns").sum(),
        pl.col("over_ns").max(),
        status=pl.when(lost).then(pl.lit("lost")).otherwise(pl.lit("ok")),
        processes=pl.len(),
    )
    whole = {name: pl.lit(value) for name, value in _whole(t0, t1).items()}
    rest = tasks.filter(~_IS_BRIEF)
    return pl.concat([rest, one.with_columns(**whole)], how="diagonal_relaxed")


def folded_labels(rows: pl.DataFrame, label: list[str]) -> pl.DataFrame:
    """Merges brief processes in rows by label."""
    figures = [n for n in rows.columns if n not in (*TASK, *label, "role", "session")]
    one = (
        rows.filter(_IS_BRIEF)
        .group_by("role", *label, maintain_order=True)
        .agg(sum_if_all_known(n) if n == "begun" else pl.col(n).sum() for n in figures)
    )
    one = one.with_columns(pid=pl.lit(0), tid=pl.lit(0))
    return pl.concat([rows.filter(~_IS_BRIEF), one], how="diagonal_relaxed")


def _whole(t0: int, t1: int) -> dict[str, object]:
    return {"pid": 0, "tid": 0, "worker": False, "partial": True, "from_ns": t0, "to_ns": t1}


_SCHEMA = {"run_ns": pl.Int64, "wall_ns": pl.Int64}
