"""Growth of cumulative figures between two reads of the same task, for OS tasks and the trace.

A task is identified by its key, start time included, so a reused pid is another task. Its W is the wall
time between its own two reads, those nearest to t0 and t1. A task that appeared or vanished inside the
window keeps its own, shorter bracket and is marked partial.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.model.plan.plan import LEAST_WINDOW_NS
from dbdyno.model.units import TICK_NS

NEAR_NS = 200_000_000
"""Delay of a task's last read after which it counts as vanished: a pass over all tasks takes less."""

SAME_NS = 1_000_000
"""Largest distance of the reads of a task and of its labels; less than from its birth to its first read."""

ENDED = "X"
"""State in a row that the kernel reported at a task's end: its figures are exact. A row of zeros is its
start."""

TASK = ("pid", "tid", "start_ticks")
ENDS = ("from_ns", "to_ns")


def nearest(reads: pl.DataFrame, key: Sequence[str], to: int | str) -> pl.DataFrame:
    """Returns for each ``key`` the read whose ``at_ns`` is nearest to ``to``: an instant, or a column of
    instants."""
    return _ordered(reads, to).unique(key, keep="first", maintain_order=True)


def _ordered(reads: pl.DataFrame, to: int | str) -> pl.DataFrame:
    instant = pl.lit(to) if isinstance(to, int) else pl.col(to)
    return reads.sort((pl.col("at_ns") - instant).abs(), maintain_order=True)


def task_growth(
    reads: pl.DataFrame,
    t0: int,
    t1: int,
    sure: Sequence[str],
    more: Sequence[str] = (),
    shortest_ns: int = LEAST_WINDOW_NS,
    come_and_go: bool = False,
) -> pl.DataFrame:
    """Returns one row per task: bracket, partial or not, status, and the growth of its figures.

    ``sure``: figures that all ``reads`` have; if one of them falls, the status is reset and all figures are
    NULL. ``more``: figures that some reads have; they grow between the reads with them if these are within
    :data:`NEAR_NS` of the task's own ends, else they are NULL. Other columns are those of the first read
    (``NAME``) and of the last (``NAME_b``).

    A difference over less than ``shortest_ns`` is not used. For a task that existed all the time each end
    may be :data:`NEAR_NS` off. If tasks ``come_and_go`` all the time, a task that was born in the window,
    or whose end was reported, did not exist all the time, however close to the window's ends: many such
    lives follow each other.
    """
    # Figures without gaps grow between the task's own ends, which is faster to compute.
    some = [n for n in more if reads[n].null_count()]
    first, last = (_at(reads, instant, some) for instant in (t0, t1))
    both = first.join(last, on=TASK, suffix="_b", nulls_equal=True, maintain_order="left")
    both = _with_falls(both, reads, sure)
    brief = _came_or_went(both, t0, t1) if come_and_go else pl.lit(False)
    bracketed = _bracketed(both, t0, t1, shortest_ns, brief)
    known = pl.col("status") == "ok"
    growths = {n: pl.col(f"{n}_b") - pl.col(n) for n in (*sure, *more)}
    good = {n: known & (growths[n] >= 0) for n in more}
    for name in some:
        growths[name] = pl.col(f"{name}_known_b") - pl.col(f"{name}_known")
        good[name] = (
            known & _near(f"{name}_at", "from_ns") & _near(f"{name}_at_b", "to_ns") & (growths[name] >= 0)
        )
    return bracketed.with_columns(pl.when(good.get(n, known)).then(g).alias(n) for n, g in growths.items())


def _at(reads: pl.DataFrame, instant: int, some: Sequence[str]) -> pl.DataFrame:
    """Returns the read of each task nearest to an instant; and for each of ``some`` figures,
    ``NAME_known`` and ``NAME_at`` of the nearest read that has it."""
    return (
        _ordered(reads, instant)
        .group_by(TASK, maintain_order=True)
        .agg(
            pl.exclude(TASK).first(),
            *(pl.col(n).drop_nulls().first().alias(f"{n}_known") for n in some),
            *(pl.col("at_ns").filter(pl.col(n).is_not_null()).first().alias(f"{n}_at") for n in some),
        )
    )


def _near(instant: str, to: str) -> pl.Expr:
    return (pl.col(instant) - pl.col(to)).abs() <= NEAR_NS


def _came_or_went(both: pl.DataFrame, t0: int, t1: int) -> pl.Expr:
    born = (pl.col("start_ticks") * TICK_NS >= t0).fill_null(False)
    gone = pl.col("at_ns_b") < t1 - min(NEAR_NS, (t1 - t0) // 20)
    return born | (gone & (pl.col("state_b") == ENDED) if "state_b" in both.columns else gone)


def _bracketed(both: pl.DataFrame, t0: int, t1: int, shortest_ns: int, brief: pl.Expr) -> pl.DataFrame:
    first_ns, last_ns = both["at_ns"].min(), both["at_ns_b"].max()
    wall = pl.col("at_ns_b") - pl.col("at_ns")
    late = pl.col("at_ns") > pl.max_horizontal(pl.lit(first_ns), pl.lit(t0)) + NEAR_NS
    early = pl.col("at_ns_b") < pl.min_horizontal(pl.lit(last_ns), pl.lit(t1)) - NEAR_NS
    partial = late | early | brief
    once = (wall == 0) & ~partial  # it existed, but one read has no difference: as if unread
    least = pl.when(partial).then(shortest_ns).otherwise(shortest_ns - 2 * NEAR_NS)
    if "state_b" in both.columns:  # reported at its end: no figure is outdated
        least = pl.when(pl.col("state_b") == ENDED).then(1).otherwise(least)
    short, fallen = (wall < least) | once, pl.col("fallen").fill_null(False)
    # If a window began before the first reads, or ended after the last, only the time between these counts.
    begin_ns = t0 if first_ns is None or first_ns <= t0 + NEAR_NS else first_ns  # type: ignore[operator]
    end_ns = t1 if last_ns is None or last_ns >= t1 - NEAR_NS else last_ns  # type: ignore[operator]
    covered = pl.when(once).then(pl.lit(t1 - t0)).otherwise(pl.lit(end_ns - begin_ns))  # type: ignore[operator]
    status = pl.when(short).then(pl.lit("too short")).when(fallen).then(pl.lit("reset"))
    return both.with_columns(
        from_ns=pl.when(once).then(pl.lit(t0)).otherwise("at_ns"),
        to_ns=pl.when(once).then(pl.lit(t1)).otherwise("at_ns_b"),
        wall_ns=pl.when(once).then(pl.lit(t1 - t0)).otherwise(wall),
        over_ns=pl.when(partial | once).then(covered).otherwise(wall),
        partial=partial,
        status=status.otherwise(pl.lit("ok")),
    )


def _with_falls(both: pl.DataFrame, reads: pl.DataFrame, figures: Sequence[str]) -> pl.DataFrame:
    """Adds ``fallen``: whether one of ``figures`` went down between the task's two reads."""
    before = {n: pl.col(n).shift().over(TASK) for n in ("at_ns", *figures)}
    lower = pl.any_horizontal(pl.col(n) < before[n] for n in figures)
    steps = reads.sort("at_ns", maintain_order=True).select(
        *TASK, high="at_ns", low=before["at_ns"], lower=lower
    )
    falls = steps.filter("lower")
    if falls.is_empty():
        return both.with_columns(fallen=pl.lit(False))
    spanning = both.join(falls, on=TASK, nulls_equal=True)
    inside = (pl.col("low") >= pl.col("at_ns")) & (pl.col("high") <= pl.col("at_ns_b"))
    fallen = spanning.filter(inside).select(*TASK, fallen=True).unique()
    return both.join(fallen, on=TASK, how="left", nulls_equal=True, maintain_order="left")


def labelled(
    rows: pl.DataFrame,
    brackets: pl.DataFrame,
    label: Sequence[str],
    figures: Sequence[str],
    *,
    falls: bool = False,
    levels: Sequence[str] = (),
) -> pl.DataFrame:
    """Returns growth by task and ``label`` between the task's ends. ``brackets``: each task with its
    ``ENDS``, which are instants of ``rows`` or the task's birth.

    A label without a row at the task's first read was 0 then; one whose rows are not repeated has not
    grown. A figure that went down is NULL, unless the caller handles falls (``falls``). ``levels``:
    figures whose values at both ends are returned, too (``NAME_a``, ``NAME_b``).
    """
    key, columns = [*TASK, *label], (*figures, *levels)
    bracketed_rows = rows.join(brackets, on=TASK, nulls_equal=True, maintain_order="left")
    ends = []
    for suffix, end in (("_a", "from_ns"), ("_b", "to_ns")):
        until_end = bracketed_rows.filter(pl.col("at_ns") <= pl.col(end) + SAME_NS)
        ends.append(
            _ordered(until_end, end)
            .group_by(key, maintain_order=True)
            .agg(pl.col(n).first().alias(f"{n}{suffix}") for n in columns)
        )
    both = ends[1].join(ends[0], on=key, how="left", nulls_equal=True, maintain_order="left")
    first = {n: pl.when(pl.col(f"{figures[0]}_a").is_null()).then(0).otherwise(f"{n}_a") for n in columns}
    growth = {n: pl.col(f"{n}_b") - first[n] for n in figures}
    return both.select(
        *key,
        **{n: g if falls else pl.when(g >= 0).then(g) for n, g in growth.items()},
        **{f"{n}_a": first[n] for n in levels},
        **{f"{n}_b": pl.col(f"{n}_b") for n in levels},
    )
