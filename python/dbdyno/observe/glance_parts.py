"""Where the time of each session went in the latest seconds: exact sums, and what they are parted by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

Tables = Mapping[str, pl.DataFrame]
_TASK = ("pid", "tid", "start_ticks")


class Spent(NamedTuple):
    """Of one session, its parallel workers included in run and runq."""

    pid: int
    wall_ns: int
    run: float  # seconds per second
    runq: float


class Label(NamedTuple):
    """Seconds per second under one wait event; the order of ``EventLine``."""

    wait_class: str | None
    event: str | None
    sleep: float | None
    runq: float | None
    run: float | None


def workers(all_samples: pl.DataFrame, samples: pl.DataFrame) -> dict[int, int]:
    """Parallel workers: pid -> session of the leader."""
    leaders = dict(samples.filter(pl.col("session").is_not_null()).select("pid", "session").iter_rows())
    seen = all_samples.filter(pl.col("leader_pid").is_not_null() & (pl.col("pid") != pl.col("leader_pid")))
    pairs = seen.select("pid", "leader_pid").unique().iter_rows()
    return {pid: leaders[leader] for pid, leader in pairs if leader in leaders}


def spent_by_session(recent: Tables, of_worker: Mapping[int, int]) -> dict[int, Spent]:
    """By session, from the first to the last reading of its task."""
    reads = recent["tasks"].filter((pl.col("status") == "ok") & pl.col("run_ns").is_not_null())
    mine = reads.filter((pl.col("role") == "session") | pl.col("pid").is_in(list(of_worker)))
    grown = [(pl.col(n).max() - pl.col(n).min()).alias(n) for n in ("run_ns", "runq_ns")]
    wall = (pl.col("after_ns").max() - pl.col("after_ns").min()).alias("wall_ns")
    by_task = mine.group_by(_TASK).agg(pl.col("session").first(), wall, *grown)
    found: dict[int, Spent] = {}
    extra: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in by_task.filter(pl.col("wall_ns") > 0).iter_rows(named=True):
        run, runq = row["run_ns"] / row["wall_ns"], (row["runq_ns"] or 0) / row["wall_ns"]
        if row["session"] is not None:
            found[row["session"]] = Spent(row["pid"], row["wall_ns"], run, runq)
        else:
            extra[of_worker[row["pid"]]][0] += run
            extra[of_worker[row["pid"]]][1] += runq
    return {
        n: s._replace(run=s.run + extra[n][0], runq=s.runq + extra[n][1]) if n in extra else s
        for n, s in found.items()
    }


def labels_of(
    recent: Tables, samples: pl.DataFrame, spent: Mapping[int, Spent]
) -> tuple[str, dict[int, tuple[Label, ...]]]:
    """The tier that there is, and its labels by session."""
    if recent["waits"].height:
        return "scheduler trace", _traced(recent["waits"])
    by_word = samples.filter(pl.col("via") == "memory")
    if by_word.height:
        return "wait event word", _sampled(by_word, spent)
    return "activity samples", _sampled(samples, spent)


def _traced(waits: pl.DataFrame) -> dict[int, tuple[Label, ...]]:
    """Growth of the trace's sums from first to last reading; a label not there at first began at 0."""
    mine = waits.filter((pl.col("role") == "session") & pl.col("session").is_not_null())
    span = mine.group_by("session").agg(first=pl.col("after_ns").min(), last=pl.col("after_ns").max())
    cells = (
        mine.join(span, on="session")
        .filter(pl.col("last") > pl.col("first"))
        .group_by("session", *_TASK, "wait_class", "wait_event", maintain_order=True)
        .agg(
            *[
                (
                    pl.col(n).max()
                    - pl.when((pl.col("after_ns") == pl.col("first")).any())
                    .then(pl.col(n).min())
                    .otherwise(0)
                ).alias(n)
                for n in ("sleep_ns", "runq_ns")
            ],
            (pl.col("last") - pl.col("first")).first().alias("wall_ns"),
        )
    )
    found: dict[int, list[Label]] = defaultdict(list)
    for r in cells.iter_rows(named=True):
        wall_ns = r["wall_ns"]
        label = Label(r["wait_class"], r["wait_event"], r["sleep_ns"] / wall_ns, r["runq_ns"] / wall_ns, None)
        found[r["session"]].append(label)
    return {n: tuple(labels) for n, labels in found.items()}


def _sampled(samples: pl.DataFrame, spent: Mapping[int, Spent]) -> dict[int, tuple[Label, ...]]:
    """Shares of the samples spread over the exact sums: R over run and runq, all else over the rest."""
    runnable = (pl.col("task_state") == "R").fill_null(False)
    counts = (
        samples.filter(pl.col("session").is_not_null())
        .group_by("session", "wait_class", "wait_event")
        .agg(r=runnable.sum(), s=(~runnable).sum(), seen=pl.col("task_state").is_not_null().any())
    )
    totals = counts.group_by("session").agg(pl.col("r", "s").sum())
    found: dict[int, list[Label]] = defaultdict(list)
    for row in counts.join(totals, on="session", suffix="_all").iter_rows(named=True):
        found[row["session"]].append(_label(row, spent.get(row["session"])))
    return {n: tuple(labels) for n, labels in found.items()}


def _label(row: Mapping[str, int], spent: Spent | None) -> Label:
    """Without the task's figures the label's share of the samples is all there is: as if asleep."""
    who = (row["wait_class"], row["wait_event"])
    if spent is None:
        return Label(*who, (row["r"] + row["s"]) / (row["r_all"] + row["s_all"]), None, None)  # type: ignore[arg-type]
    off = max(0.0, 1 - spent.run - spent.runq)
    ready = row["r"] / row["r_all"] if row["r_all"] else 0.0
    asleep = row["s"] / row["s_all"] if row["s_all"] else 0.0
    return Label(*who, off * asleep, spent.runq * ready, spent.run * ready)  # type: ignore[arg-type]
