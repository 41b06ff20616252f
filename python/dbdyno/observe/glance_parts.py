"""The time of each session in the latest seconds: exact sums, and the labels that divide them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

import polars as pl

from dbdyno.model.results.brief import MAIN, MOST_LOST, SHORT_NS, Children, children, material, unmet
from dbdyno.model.schema.tables import Tables, sum_if_all_known
from dbdyno.model.sources.source import HIDDEN, TRACE
from dbdyno.model.sources.wait_families import AT_CLIENT, WaitFamilies
from dbdyno.model.units import NS_PER_S

IDLE = "idle"

_GROWING = ("run_ns", "runq_ns", "user_ns", "system_ns", "blkio_ns", "slices")


class Spent(NamedTuple):
    """Time of one session in seconds per second. ``run`` and ``runq`` include its parallel workers."""

    session: int
    wall_ns: int
    run: float
    runq: float
    tasks: float = 1.0  # mean number of tasks of the session
    user: float | None = None  # tick resolution
    system: float | None = None
    block_io: float | None = None  # delay; None if accounting is off
    slices_per_s: float | None = None

    @property
    def off(self) -> float:
        """Time neither on a CPU nor in a run queue: asleep."""
        return max(0.0, self.tasks - self.run - self.runq)


class Label(NamedTuple):
    """Seconds per second under one wait event. The first five fields are those of ``EventLine`` in order."""

    wait_class: str | None
    event: str | None
    sleep: float | None
    runq: float | None
    run: float | None
    waits: float | None = None  # that began, a second; known to the trace alone


def workers(all_samples: pl.DataFrame, samples: pl.DataFrame) -> dict[int, int]:
    """Returns the pid of the leading session by pid of the parallel worker."""
    leaders = set(samples["pid"].unique())
    seen = all_samples.filter(pl.col("leader_pid").is_not_null() & (pl.col("pid") != pl.col("leader_pid")))
    pairs = seen.select("pid", "leader_pid").unique().iter_rows()
    return {pid: leader for pid, leader in pairs if leader in leaders}


NONE_AT_REST = pl.DataFrame(schema={"pid": pl.Int64, "wall_ns": pl.Int64})


def at_rest(samples: pl.DataFrame, tasks: pl.DataFrame, families: WaitFamilies, gone_ns: int) -> pl.DataFrame:
    """Returns ``pid`` and ``wall_ns`` of sessions that were idle in all samples, and neither on a CPU nor
    in a run queue: they waited for their client all the time. Sessions that ended are left out."""
    asked = samples.filter(pl.col("via") == "sql")
    other = pl.col("wait_class").is_not_null() & ~families.among(*AT_CLIENT)
    elsewhere = samples.filter(other | (pl.col("task_state") != "S"))
    idle = (
        asked.group_by("pid")
        .agg((pl.col("state") == IDLE).fill_null(False).all(), seen_ns=pl.col("sql_after_ns").max())
        .filter(pl.col("state") & (pl.col("seen_ns") >= pl.col("seen_ns").max() - gone_ns))
        .join(elsewhere.select("pid"), on="pid", how="anti")
    )
    session_reads = tasks.filter((pl.col("role") == "session") & (pl.col("status") == "ok"))
    still = [(pl.col(n).min() == pl.col(n).max()).fill_null(False).alias(n) for n in ("run_ns", "runq_ns")]
    wall = (pl.col("after_ns").max() - pl.col("after_ns").min()).alias("wall_ns")
    ages = pl.col("start_ticks").n_unique().alias("ages")
    resting = session_reads.join(idle, on="pid", how="semi").group_by("pid").agg(*still, wall, ages)
    rested = pl.col("run_ns") & pl.col("runq_ns") & (pl.col("ages") == 1) & (pl.col("wall_ns") > 0)
    return resting.filter(rested).select("pid", "wall_ns")


def spent_by_pid(recent: Tables, of_worker: Mapping[int, int]) -> dict[int, Spent]:
    """Returns the time of each session by pid, from the first to the last read of each of its tasks."""
    reads = recent["tasks"].filter((pl.col("status") == "ok") & pl.col("run_ns").is_not_null())
    session_reads = reads.filter((pl.col("role") == "session") | pl.col("pid").is_in(list(of_worker)))
    growth = [(pl.col(n).max() - pl.col(n).min()).alias(n) for n in _GROWING]
    span = (pl.col("after_ns").min().alias("first"), pl.col("after_ns").max().alias("last"))
    by_task = session_reads.group_by("pid", "tid", "start_ticks").agg(
        pl.col("session").last(), *span, *growth
    )
    sums = [pl.when(pl.col(n).is_not_null().any()).then(pl.col(n).sum()).alias(n) for n in _GROWING]
    wall = (pl.col("last").max() - pl.col("first").min()).alias("wall_ns")
    lived = (pl.col("last") - pl.col("first")).sum().alias("lived_ns")
    by_session = by_task.group_by("pid", "session", maintain_order=True).agg(wall, lived, *sums)
    by_pid: dict[int, Spent] = {}
    extra: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in by_session.filter(pl.col("wall_ns") > 0).iter_rows(named=True):
        spent = _spent(row)
        if row["pid"] in of_worker:
            extra[of_worker[row["pid"]]][0] += spent.run * spent.wall_ns
            extra[of_worker[row["pid"]]][1] += spent.runq * spent.wall_ns
        else:
            by_pid[row["pid"]] = spent
    return {
        pid: s._replace(run=s.run + extra[pid][0] / s.wall_ns, runq=s.runq + extra[pid][1] / s.wall_ns)
        if pid in extra
        else s
        for pid, s in by_pid.items()
    }


def _spent(row: Mapping[str, int | None]) -> Spent:
    wall_ns = row["wall_ns"] or 1
    run, runq, user, system, block_io, slices = (
        None if (growth := row[name]) is None else growth / wall_ns for name in _GROWING
    )
    return Spent(
        session=-1 if row["session"] is None else row["session"],
        wall_ns=wall_ns,
        run=run or 0.0,
        runq=runq or 0.0,
        tasks=(row["lived_ns"] or 0) / wall_ns,
        user=user,
        system=system,
        block_io=block_io,
        slices_per_s=None if slices is None else slices * 1e9,
    )


def labels_of(
    recent: Tables, samples: pl.DataFrame, spent: Mapping[int, Spent]
) -> tuple[str, dict[int, tuple[Label, ...]]]:
    """Returns the available tier, and its labels by pid of the session."""
    traced = recent["waits"].filter(pl.col("role") == "session")
    if (traced["status"] == "ok").any():  # else no label was readable
        return TRACE, _traced(traced)
    by_word = samples.filter(pl.col("via") == "memory")
    if by_word.height:
        return "wait event word", _sampled(by_word, spent)
    seen = samples.filter(pl.col("state").fill_null("") != HIDDEN)
    return "activity samples", _sampled(seen, spent)


_LABEL = ("pid", "tid", "start_ticks", "wait_class", "wait_event")


def _traced(waits: pl.DataFrame) -> dict[int, tuple[Label, ...]]:
    """Returns labels from growth of the trace's sums between first and last read, over all statements. A
    label that is absent at first began at 0."""
    span = waits.group_by("pid").agg(first=pl.col("after_ns").min(), last=pl.col("after_ns").max())
    at_first = (pl.col("after_ns") == pl.col("first")).any()
    growth = [
        (pl.col(n).max() - pl.when(at_first).then(pl.col(n).min()).otherwise(0)).alias(n)
        for n in ("sleep_ns", "runq_ns", "begun", "unclear")
    ]
    cells = (
        waits.join(span, on="pid")
        .filter(pl.col("last") > pl.col("first"))
        .group_by(*_LABEL, "query_id", "query_status", maintain_order=True)
        .agg(*growth, (pl.col("last") - pl.col("first")).first().alias("wall_ns"))
        .group_by(_LABEL, maintain_order=True)
        .agg(
            pl.col("sleep_ns", "runq_ns").sum(),
            *(sum_if_all_known(n) for n in ("begun", "unclear")),
            pl.col("wall_ns").first(),
        )
    )
    by_pid: dict[int, list[Label]] = defaultdict(list)
    for r in cells.iter_rows(named=True):
        sleep, runq = (r[n] / r["wall_ns"] for n in ("sleep_ns", "runq_ns"))
        clear = r["begun"] is not None and r["unclear"] == 0  # else a sleep may continue an earlier wait
        per_s = r["begun"] * NS_PER_S / r["wall_ns"] if clear else None
        by_pid[r["pid"]].append(Label(r["wait_class"], r["wait_event"], sleep, runq, None, per_s))
    return {pid: tuple(labels) for pid, labels in by_pid.items()}


def _sampled(samples: pl.DataFrame, spent: Mapping[int, Spent]) -> dict[int, tuple[Label, ...]]:
    """Returns labels from shares of the samples, applied to the exact sums: state R to run and runq,
    others to sleep."""
    runnable = (pl.col("task_state") == "R").fill_null(False)
    counts = samples.group_by("pid", "wait_class", "wait_event").agg(r=runnable.sum(), s=(~runnable).sum())
    totals = counts.group_by("pid").agg(pl.col("r", "s").sum())
    by_pid: dict[int, list[Label]] = defaultdict(list)
    for row in counts.join(totals, on="pid", suffix="_all").iter_rows():
        by_pid[row[0]].append(_label(spent.get(row[0]), *row[1:]))
    return {pid: tuple(labels) for pid, labels in by_pid.items()}


def _label(
    spent: Spent | None, wait_class: str | None, event: str | None, r: int, s: int, r_all: int, s_all: int
) -> Label:
    """Returns one label. Without the task's figures its share of the samples counts as sleep."""
    if spent is None:
        return Label(wait_class, event, (r + s) / (r_all + s_all), None, None)
    ready = r / r_all if r_all else 0.0
    asleep = s / s_all if s_all else 0.0
    return Label(wait_class, event, spent.off * asleep, spent.runq * ready, spent.run * ready)


_SUMS = ("run_ns", "runq_ns", "sleep_ns")
_KEY = ["pid", "start_ticks"]


class Brief(NamedTuple):
    """All brief sessions together, seconds per second; None if unknown."""

    run: float
    runq: float | None = None
    sleep: float | None = None  # without waits for the client
    client: float | None = None
    processes: int | None = None

    @property
    def db_time(self) -> float | None:
        if self.runq is None or self.sleep is None:
            return None
        return self.run + self.runq + self.sleep

    def matters(self, sessions_run: float) -> bool:
        """Returns whether a sum over sessions is unknown if a figure of the brief ones is."""
        return bool(material(self.run, self.run + sessions_run))


def brief_seen(tasks: pl.DataFrame) -> bool | None:
    """Returns whether sessions came and went, by the main process's children in table ``tasks``; None if
    it was not read for long enough yet."""
    ended = _children(tasks)
    if ended is None:
        return None if (tasks["role"] == MAIN).any() else False
    return ended.any or (None if ended.wall_ns < SHORT_NS else False)


def brief(recent: Tables, met: Collection[int], families: WaitFamilies) -> Brief | None:
    """Returns the time of brief sessions; None if there were none. ``met``: pids of sessions with figures
    of their own."""
    if recent["traced"].height:
        return _traced_brief(recent, met, families)
    ended = _children(recent["tasks"])
    return Brief(ended.cpu_ns / ended.wall_ns) if ended is not None and ended.any else None


def _children(tasks: pl.DataFrame) -> Children | None:
    if tasks.is_empty():
        return None
    return children(tasks, int(tasks["before_ns"].min()), int(tasks["after_ns"].max()))  # type: ignore[arg-type]


def _traced_brief(recent: Tables, met: Collection[int], families: WaitFamilies) -> Brief | None:
    traced = recent["traced"].drop_nulls(_SUMS)
    sessions = traced.filter((pl.col("role") == "session") & ~pl.col("pid").is_in(list(met))).select(_KEY)
    brief_sessions = pl.concat([unmet(traced, recent["tasks"]), sessions.unique()])
    begin_ns, end_ns = traced["after_ns"].min(), traced["after_ns"].max()
    reads = traced.join(brief_sessions.unique(), on=_KEY, how="semi", nulls_equal=True)
    if reads.is_empty() or end_ns == begin_ns:
        return None
    growths = reads.sort("after_ns").group_by(_KEY).agg(_growth(n, begin_ns) for n in _SUMS)  # type: ignore[arg-type]
    sums = {n: float(growths[n].sum()) for n in _SUMS}
    wall_ns = float(end_ns - begin_ns)  # type: ignore[arg-type,operator]
    run, runq, sleep = (sums[n] / wall_ns for n in _SUMS)
    client = _client_share(recent["waits"], brief_sessions, families)
    if client is None:
        return Brief(run, runq, processes=growths.height)
    return Brief(run, runq, sleep * (1 - client), sleep * client, growths.height)


def _growth(name: str, begin_ns: int) -> pl.Expr:
    """Returns growth from the first read; for a process that was born since, its whole sum."""
    lived = pl.sum_horizontal(pl.col(n).first() for n in _SUMS)
    born = pl.col("after_ns").first() - lived > begin_ns
    return (pl.col(name).last() - pl.when(born).then(0).otherwise(pl.col(name).first())).alias(name)


def _client_share(waits: pl.DataFrame, sessions: pl.DataFrame, families: WaitFamilies) -> float | None:
    """Returns the share of time asleep that was for the client, by the latest read of each process; None
    if the waits of too many were not read."""
    last = waits.join(sessions, on=_KEY, how="semi", nulls_equal=True).filter(
        pl.col("after_ns") == pl.col("after_ns").max().over(_KEY)
    )
    lost = last.filter(pl.col("status") != "ok").select(_KEY).n_unique()
    if lost > MOST_LOST * sessions.n_unique():
        return None
    slept = float(last["sleep_ns"].sum())
    clients = float(last.filter(families.among(*AT_CLIENT))["sleep_ns"].sum())
    return min(1.0, clients / slept) if slept else 0.0
