"""Sessions too brief for the samples, in the latest seconds: see :mod:`dbdyno.model.brief`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import polars as pl

from dbdyno.model.brief import MAIN, MOST_LOST, SHORT_NS, Children, children, material, unmet
from dbdyno.model.wait_families import AT_CLIENT, WaitFamilies

Tables = Mapping[str, pl.DataFrame]
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
        return _traced(recent, met, families)
    found = _children(recent["tasks"])
    return Brief(found.cpu_ns / found.wall_ns) if found is not None and found.any else None


def _children(tasks: pl.DataFrame) -> Children | None:
    if tasks.is_empty():
        return None
    return children(tasks, int(tasks["before_ns"].min()), int(tasks["after_ns"].max()))  # type: ignore[arg-type]


def _traced(recent: Tables, met: Collection[int], families: WaitFamilies) -> Brief | None:
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
    """Of the time asleep, by the latest reading of each; None: the waits of too many were not read."""
    last = waits.join(mine, on=_KEY, how="semi", nulls_equal=True).filter(
        pl.col("after_ns") == pl.col("after_ns").max().over(_KEY)
    )
    lost = last.filter(pl.col("status") != "ok").select(_KEY).n_unique()
    if lost > MOST_LOST * mine.n_unique():
        return None
    slept = float(last["sleep_ns"].sum())
    clients = float(last.filter(families.among(*AT_CLIENT))["sleep_ns"].sum())
    return min(1.0, clients / slept) if slept else 0.0
