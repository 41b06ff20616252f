"""Where the time of each session went in the latest seconds: exact sums, and what they are parted by."""

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
    """Time of one session, its parallel workers included in run and runq; seconds per second."""

    session: int
    wall_ns: int
    run: float
    runq: float
    tasks: float = 1.0  # of the session, on average at a time
    user: float | None = None  # tick resolution
    system: float | None = None
    block_io: float | None = None  # delay; NULL where accounting is off
    slices_per_s: float | None = None

    @property
    def off(self) -> float:
        """Neither on a CPU nor in a run queue: asleep."""
        return max(0.0, self.tasks - self.run - self.runq)


class Label(NamedTuple):
    """Seconds per second under one wait event; the first five in the order of ``EventLine``."""

    wait_class: str | None
    event: str | None
    sleep: float | None
    runq: float | None
    run: float | None
    waits: float | None = None  # that began, a second; known to the trace alone


def workers(all_samples: pl.DataFrame, samples: pl.DataFrame) -> dict[int, int]:
    """Parallel workers: pid -> pid of the session that leads them."""
    leaders = set(samples["pid"])
    seen = all_samples.filter(pl.col("leader_pid").is_not_null() & (pl.col("pid") != pl.col("leader_pid")))
    pairs = seen.select("pid", "leader_pid").unique().iter_rows()
    return {pid: leader for pid, leader in pairs if leader in leaders}


def at_rest(samples: pl.DataFrame, tasks: pl.DataFrame, families: WaitFamilies, gone_ns: int) -> pl.DataFrame:
    """``pid`` and ``wall_ns`` of sessions that were idle in all of the server's answers, on no CPU and in
    no run queue meanwhile: they waited for their client all the time. Gone ones are left out.
    """
    asked = samples.filter(pl.col("via") == "sql")
    other = pl.col("wait_class").is_not_null() & ~families.among(*AT_CLIENT)
    elsewhere = samples.filter(other | (pl.col("task_state") != "S"))
    idle = (
        asked.group_by("pid")
        .agg((pl.col("state") == IDLE).fill_null(False).all(), seen_ns=pl.col("sql_after_ns").max())
        .filter(pl.col("state") & (pl.col("seen_ns") >= pl.col("seen_ns").max() - gone_ns))
        .join(elsewhere.select("pid"), on="pid", how="anti")
    )
    mine = tasks.filter((pl.col("role") == "session") & (pl.col("status") == "ok"))
    still = [(pl.col(n).min() == pl.col(n).max()).fill_null(False).alias(n) for n in ("run_ns", "runq_ns")]
    wall = (pl.col("after_ns").max() - pl.col("after_ns").min()).alias("wall_ns")
    ages = pl.col("start_ticks").n_unique().alias("ages")
    found = mine.join(idle, on="pid", how="semi").group_by("pid").agg(*still, wall, ages)
    rested = pl.col("run_ns") & pl.col("runq_ns") & (pl.col("ages") == 1) & (pl.col("wall_ns") > 0)
    return found.filter(rested).select("pid", "wall_ns")


def spent_by_pid(recent: Tables, of_worker: Mapping[int, int]) -> dict[int, Spent]:
    """By the session's pid, from the first to the last reading of each of its tasks."""
    reads = recent["tasks"].filter((pl.col("status") == "ok") & pl.col("run_ns").is_not_null())
    mine = reads.filter((pl.col("role") == "session") | pl.col("pid").is_in(list(of_worker)))
    grown = [(pl.col(n).max() - pl.col(n).min()).alias(n) for n in _GROWING]
    span = (pl.col("after_ns").min().alias("first"), pl.col("after_ns").max().alias("last"))
    by_task = mine.group_by("pid", "tid", "start_ticks").agg(pl.col("session").last(), *span, *grown)
    sums = [pl.when(pl.col(n).is_not_null().any()).then(pl.col(n).sum()).alias(n) for n in _GROWING]
    wall = (pl.col("last").max() - pl.col("first").min()).alias("wall_ns")
    lived = (pl.col("last") - pl.col("first")).sum().alias("lived_ns")
    by_session = by_task.group_by("pid", "session", maintain_order=True).agg(wall, lived, *sums)
    found: dict[int, Spent] = {}
    extra: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in by_session.filter(pl.col("wall_ns") > 0).iter_rows(named=True):
        spent = _spent(row)
        if row["pid"] in of_worker:
            extra[of_worker[row["pid"]]][0] += spent.run
            extra[of_worker[row["pid"]]][1] += spent.runq
        else:
            found[row["pid"]] = spent
    return {
        pid: s._replace(run=s.run + extra[pid][0], runq=s.runq + extra[pid][1]) if pid in extra else s
        for pid, s in found.items()
    }


def _spent(row: Mapping[str, int | None]) -> Spent:
    wall_ns = row["wall_ns"] or 1
    run, runq, user, system, block_io, slices = (
        None if (grown := row[name]) is None else grown / wall_ns for name in _GROWING
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
    """The tier that there is, and its labels by the session's pid."""
    traced = recent["waits"].filter(pl.col("role") == "session")
    if (traced["status"] == "ok").any():  # else it could read no label: its sleeps have no name
        return TRACE, _traced(traced)
    by_word = samples.filter(pl.col("via") == "memory")
    if by_word.height:
        return "wait event word", _sampled(by_word, spent)
    seen = samples.filter(pl.col("state").fill_null("") != HIDDEN)
    return "activity samples", _sampled(seen, spent)


_LABEL = ("pid", "tid", "start_ticks", "wait_class", "wait_event")


def _traced(waits: pl.DataFrame) -> dict[int, tuple[Label, ...]]:
    """Growth of the trace's sums from first to last reading, by label, all statements together. What was not
    there at first began at 0."""
    span = waits.group_by("pid").agg(first=pl.col("after_ns").min(), last=pl.col("after_ns").max())
    there = (pl.col("after_ns") == pl.col("first")).any()
    grown = [
        (pl.col(n).max() - pl.when(there).then(pl.col(n).min()).otherwise(0)).alias(n)
        for n in ("sleep_ns", "runq_ns", "begun", "unclear")
    ]
    cells = (
        waits.join(span, on="pid")
        .filter(pl.col("last") > pl.col("first"))
        .group_by(*_LABEL, "query_id", "query_status", maintain_order=True)
        .agg(*grown, (pl.col("last") - pl.col("first")).first().alias("wall_ns"))
        .group_by(_LABEL, maintain_order=True)
        .agg(
            pl.col("sleep_ns", "runq_ns").sum(),
            *(sum_if_all_known(n) for n in ("begun", "unclear")),
            pl.col("wall_ns").first(),
        )
    )
    found: dict[int, list[Label]] = defaultdict(list)
    for r in cells.iter_rows(named=True):
        sleep, runq = (r[n] / r["wall_ns"] for n in ("sleep_ns", "runq_ns"))
        clear = r["begun"] is not None and r["unclear"] == 0  # else a sleep may go on with an earlier wait
        per_s = r["begun"] * NS_PER_S / r["wall_ns"] if clear else None
        found[r["pid"]].append(Label(r["wait_class"], r["wait_event"], sleep, runq, None, per_s))
    return {pid: tuple(labels) for pid, labels in found.items()}


def _sampled(samples: pl.DataFrame, spent: Mapping[int, Spent]) -> dict[int, tuple[Label, ...]]:
    """Shares of the samples spread over the exact sums: R over run and runq, all else over the rest."""
    runnable = (pl.col("task_state") == "R").fill_null(False)
    counts = samples.group_by("pid", "wait_class", "wait_event").agg(r=runnable.sum(), s=(~runnable).sum())
    totals = counts.group_by("pid").agg(pl.col("r", "s").sum())
    found: dict[int, list[Label]] = defaultdict(list)
    for row in counts.join(totals, on="pid", suffix="_all").iter_rows():
        found[row[0]].append(_label(spent.get(row[0]), *row[1:]))
    return {pid: tuple(labels) for pid, labels in found.items()}


def _label(
    spent: Spent | None, wait_class: str | None, event: str | None, r: int, s: int, r_all: int, s_all: int
) -> Label:
    """Without the task's figures the label's share of the samples is all there is: as if asleep."""
    if spent is None:
        return Label(wait_class, event, (r + s) / (r_all + s_all), None, None)
    ready = r / r_all if r_all else 0.0
    asleep = s / s_all if s_all else 0.0
    return Label(wait_class, event, spent.off * asleep, spent.runq * ready, spent.run * ready)


_SUMS = ("run_ns", "runq_ns", "sleep_ns")
_KEY = ["pid", "start_ticks"]


class Brief(NamedTuple):
    """All of them together, seconds per second. None: unknown."""

    run: float
    runq: float | None = None
    sleep: float | None = None  # not for the client
    client: float | None = None
    processes: int | None = None

    @property
    def db_time(self) -> float | None:
        if self.runq is None or self.sleep is None:
            return None
        return self.run + self.runq + self.sleep

    def matters(self, sessions_run: float) -> bool:
        """Whether a sum of the sessions is unknown without their part, where that is."""
        return bool(material(self.run, self.run + sessions_run))


def brief_seen(tasks: pl.DataFrame) -> bool | None:
    """Whether sessions came and went, by the main process's children in the table ``tasks``. None: it was not
    read for long enough yet."""
    found = _children(tasks)
    if found is None:
        return None if (tasks["role"] == MAIN).any() else False
    return found.any or (None if found.wall_ns < SHORT_NS else False)


def brief(recent: Tables, met: Collection[int], families: WaitFamilies) -> Brief | None:
    """``met``: pids of sessions whose figures are known by themselves. None: nobody was too brief."""
    if recent["traced"].height:
        return _traced_brief(recent, met, families)
    found = _children(recent["tasks"])
    return Brief(found.cpu_ns / found.wall_ns) if found is not None and found.any else None


def _children(tasks: pl.DataFrame) -> Children | None:
    if tasks.is_empty():
        return None
    return children(tasks, int(tasks["before_ns"].min()), int(tasks["after_ns"].max()))  # type: ignore[arg-type]


def _traced_brief(recent: Tables, met: Collection[int], families: WaitFamilies) -> Brief | None:
    traced = recent["traced"].drop_nulls(_SUMS)
    sessions = traced.filter((pl.col("role") == "session") & ~pl.col("pid").is_in(list(met))).select(_KEY)
    mine = pl.concat([unmet(traced, recent["tasks"]), sessions.unique()])
    begin_ns, end_ns = traced["after_ns"].min(), traced["after_ns"].max()
    theirs = traced.join(mine.unique(), on=_KEY, how="semi", nulls_equal=True)
    if theirs.is_empty() or end_ns == begin_ns:
        return None
    grown = theirs.sort("after_ns").group_by(_KEY).agg(_growth(n, begin_ns) for n in _SUMS)  # type: ignore[arg-type]
    sums = {n: float(grown[n].sum()) for n in _SUMS}
    wall_ns = float(end_ns - begin_ns)  # type: ignore[arg-type,operator]
    run, runq, sleep = (sums[n] / wall_ns for n in _SUMS)
    client = _client_share(recent["waits"], mine, families)
    if client is None:
        return Brief(run, runq, processes=grown.height)
    return Brief(run, runq, sleep * (1 - client), sleep * client, grown.height)


def _growth(name: str, begin_ns: int) -> pl.Expr:
    """From the first reading; of one that was born since, all."""
    lived = pl.sum_horizontal(pl.col(n).first() for n in _SUMS)
    born = pl.col("after_ns").first() - lived > begin_ns
    return (pl.col(name).last() - pl.when(born).then(0).otherwise(pl.col(name).first())).alias(name)


def _client_share(waits: pl.DataFrame, mine: pl.DataFrame, families: WaitFamilies) -> float | None:
    """Share of the time asleep, by the latest reading of each; None: the waits of too many were not read."""
    last = waits.join(mine, on=_KEY, how="semi", nulls_equal=True).filter(
        pl.col("after_ns") == pl.col("after_ns").max().over(_KEY)
    )
    lost = last.filter(pl.col("status") != "ok").select(_KEY).n_unique()
    if lost > MOST_LOST * mine.n_unique():
        return None
    slept = float(last["sleep_ns"].sum())
    clients = float(last.filter(families.among(*AT_CLIENT))["sleep_ns"].sum())
    return min(1.0, clients / slept) if slept else 0.0
