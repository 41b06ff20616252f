"""One window of an observation: its sessions, its cost, and the cell that is built from it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from dbdyno import observe
from dbdyno.conduct.hosts.hosts import lost_in
from dbdyno.conduct.measure.cell import NOTHING, Mark, statement_tables
from dbdyno.conduct.measure.presence import Hole
from dbdyno.conduct.measure.progress import Names, ObservationListener
from dbdyno.model.engine.protocols import Clock, Server, Watch
from dbdyno.model.plan.plan import Observation, Plan
from dbdyno.model.results.raw import CellMeta, CellStatus, RawCell
from dbdyno.model.schema.data_sources import TRACED, sampled
from dbdyno.model.schema.rawtables import CLIENT_BACKEND, OF_CLIENT, OWN_CONNECTION
from dbdyno.model.schema.tables import RAW, empty, raw
from dbdyno.model.units import NS_PER_S
from dbdyno.plan import OBSERVED, observed_cell

FAR_NS = 10 * NS_PER_S
_LISTED = 8


class SessionFilter:
    """Reports when no session matches any more, and when one matches again."""

    def __init__(self, chosen: Observation, listener: ObservationListener) -> None:
        self._chosen, self._listener = chosen, listener
        self._nobody, self._found = False, ""

    def look(self, watch: Watch, now_ns: int, names: Names) -> None:
        """Checks whether sessions match; costs next to nothing while they do."""
        if self._somebody(watch, now_ns):
            if self._nobody:
                self._listener.notice(self._found)
            self._nobody = False
        elif not self._nobody:
            self._nobody = True
            self._listener.notice(f"{nobody(self._chosen)}: waiting for one{_connected(names.frame())}")

    def _somebody(self, watch: Watch, now_ns: int) -> bool:
        """Returns whether a session matches; also true before the first answer.

        Samples of very many sessions may be seconds apart.
        """
        self._found = "matching sessions found" if self._chosen.some else "a session is connected"
        if watch.latest():
            return True
        tables = observe.recent_frames(watch, now_ns - FAR_NS, ("samples", "sampler", "tasks"))
        asked = tables["sampler"].filter(pl.col("via").fill_null("sql") == "sql")
        if asked.filter(pl.col("status") == "ok").is_empty():
            return not self._nobody
        if not tables["samples"].filter(pl.col("role") == "session").is_empty():
            return True
        brief = False if self._chosen.some else observe.brief_seen(tables["tasks"])
        self._found = "processes of the server came and went too fast for a sample"
        return not self._nobody if brief is None else brief


def words(chosen: Observation) -> str:
    """Returns ``user app, database prod``; empty without a filter."""
    named = (
        ("user", chosen.user),
        ("database", chosen.database),
        ("application", chosen.application),
        ("pid", ", ".join(map(str, chosen.pids))),
    )
    return ", ".join(f"{name} {value}" for name, value in named if value)


def nobody(chosen: Observation) -> str:
    """Returns ``no session matches user app``."""
    named = words(chosen)
    return f"no session matches {named}" if named else "nobody else is connected"


def _connected(backends: pl.DataFrame) -> str:
    """Returns the connected sessions as `` (connected: app@prod x 12, ...)``."""
    clients = backends.filter(pl.col("kind") == CLIENT_BACKEND)
    counts = clients.group_by("user", "database").len().sort("len", descending=True)
    users = [f"{u}@{d} x {n}" for u, d, n in counts.head(_LISTED).iter_rows() if u and d]
    return f" (connected: {', '.join(users)})" if users else ""


WITH_SESSIONS = ("samples", "tasks", *TRACED)
KNOWN_BY = dict.fromkeys(WITH_SESSIONS, ("session", "pid", "tid", "start_ticks")) | {
    "samples": ("session", "pid", "tid", "start_ticks", "via", "sample")
}
"""Columns by which the sessions of the next watch are known."""
_ROLE_UNKNOWN_AT_FIRST = {*TRACED, *(t for t in sampled() if "role" in {c.name for c in RAW[t]})}
"""Tables in which a process has the role ``other`` until its session is known."""
_Task = tuple[int, int, int | None]  # pid, tid, start time if the task can be read


class Numbers:
    """Session numbers that stay the same over all windows of an observation.

    A watch numbers the sessions that it meets. Two watches overlap for a moment, and may meet the same new
    sessions in another order. Here each session keeps one number, found by any of its known tasks. Only the
    tasks of its last meeting are kept, since a session may have had many.
    """

    def __init__(self) -> None:
        self._numbers: dict[_Task, int] = {}
        self._tasks: list[set[_Task]] = []  # index: session number

    @property
    def met(self) -> int:
        """The number of sessions so far."""
        return len(self._tasks)

    def alive(self, recent: Mapping[str, pl.DataFrame]) -> dict[tuple[int, int], int]:
        """Returns the session number by (pid, tid) of the tasks in the latest sample, with which the next
        watch begins."""
        now = _latest_tasks(recent["samples"])
        numbered = ((self._number(tasks), tasks) for tasks in _sessions(recent).values())
        return {task[:2]: number for number, tasks in numbered for task in tasks if task[:2] in now}

    def of(self, tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """Returns ``tables`` of a watch with these session numbers in place of the watch's own."""
        final = {theirs: self._number(tasks) for theirs, tasks in _sessions(tables).items()}
        return {
            name: _renumbered(frame, final) if "session" in frame.columns else frame
            for name, frame in tables.items()
        }

    def _number(self, tasks: set[_Task]) -> int:
        """Returns the number of a session. A task whose start time was unknown remains the same task once it
        is known."""
        same = (task for pid, tid, ticks in tasks for task in ((pid, tid, ticks), (pid, tid, None)))
        number = next((self._numbers[task] for task in same if task in self._numbers), None)
        if number is None:
            number = len(self._tasks)
            self._tasks.append(set())
        for task in self._tasks[number] - tasks:
            del self._numbers[task]
        self._tasks[number] = tasks
        self._numbers |= dict.fromkeys(tasks, number)
        return number


_TID = pl.col("tid").fill_null(pl.col("pid"))


def _latest_tasks(samples: pl.DataFrame) -> set[tuple[int, int]]:
    asked = samples.filter(pl.col("via").fill_null("sql") == "sql")
    return set(asked.filter(pl.col("sample") == pl.col("sample").max()).select("pid", _TID).iter_rows())


def _sessions(tables: Mapping[str, pl.DataFrame]) -> dict[int, set[_Task]]:
    """Returns a mapping of the watch's own session number to its tasks, in the order of the numbers."""
    seen = pl.concat(
        [tables[t].select("session", "pid", _TID, "start_ticks") for t in WITH_SESSIONS if t in tables]
    ).drop_nulls("session")
    each = seen.group_by("session", "pid", "tid").agg(pl.col("start_ticks").drop_nulls().first())
    tasks_by_session: dict[int, set[_Task]] = {}
    for session, *task in each.sort("session").iter_rows():
        tasks_by_session.setdefault(session, set()).add(tuple(task))
    return tasks_by_session


def _renumbered(frame: pl.DataFrame, final: Mapping[int, int]) -> pl.DataFrame:
    if all(theirs == ours for theirs, ours in final.items()):
        return frame
    return frame.with_columns(
        pl.col("session").replace_strict(dict(final), default=None, return_dtype=pl.Int64)
    )


SAMPLERS = pl.col("comm").str.starts_with(observe.THREADS).fill_null(False)


@dataclass(frozen=True)
class Cost:
    """CPU time of observing, in seconds per second: shares of one CPU."""

    here: float  # all of dbdyno: samplers, store, live view, derivation
    samplers: float | None  # the part of its observing threads
    server: float | None  # the server's processes that answered; None if on another host


class Costing:
    """The cost of observing, window by window: of this process, and of the server's processes that answer
    it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ns, self._cpu_s = clock.now_ns(), time.process_time()
        self._samplers = _Sum()
        self._server = _Sum()
        self._ours = {os.getpid()}

    def add(self, tasks: pl.DataFrame) -> None:
        """Adds the table ``tasks`` of one watch."""
        ours = tasks.filter((pl.col("role") == "dbdyno") & pl.col("run_ns").is_not_null())
        self._samplers.add(ours.filter((pl.col("pid") % OF_CLIENT == os.getpid()) & SAMPLERS))
        self._server.add(ours.filter((pl.col("pid") < OF_CLIENT) & ~pl.col("pid").is_in(self._ours)))

    @property
    def helpers(self) -> set[int]:
        """The processes that work for dbdyno beside this one."""
        return self._ours - {os.getpid()}

    def helped_by(self, pids: Iterable[int]) -> None:
        """Notes processes that work for dbdyno."""
        self._ours.update(pids)

    def cost(self, helpers_s: float = 0.0) -> Cost:
        """Returns the cost of the window. ``helpers_s`` is the CPU time of processes of dbdyno besides this
        one."""
        wall_s = max((self._clock.now_ns() - self._since_ns) / NS_PER_S, 1e-9)
        here = (time.process_time() - self._cpu_s + helpers_s) / wall_s
        return Cost(here, self._samplers.per_second(), self._server.per_second())


class _Sum:
    """CPU time of tasks over the time that they were read."""

    def __init__(self) -> None:
        self._run_ns = self._wall_ns = 0

    def add(self, reads: pl.DataFrame) -> None:
        by_task = reads.group_by("pid", "tid", "start_ticks").agg(
            (pl.col("run_ns").max() - pl.col("run_ns").min()).alias("run_ns")
        )
        if by_task.height:
            self._run_ns += int(by_task["run_ns"].sum())
            span = reads.select(pl.col("after_ns").max() - pl.col("before_ns").min())
            self._wall_ns += int(span.item())

    def per_second(self) -> float | None:
        return self._run_ns / self._wall_ns if self._wall_ns else None


STOPPED = "stopped by the user"


@dataclass
class Window:
    watch: Watch
    t0_ns: int
    t1_ns: int
    first: Mark = field(default=NOTHING)


@dataclass(frozen=True)
class End:
    """The reason why a window ended early."""

    reason: str
    lost: bool  # the server went away
    resume: bool = False  # the observation goes on with a new watch
    silent: bool = False  # the server did not answer in time
    who: str = "the server"  # who is away, if lost


@dataclass(frozen=True)
class Closing:
    """The way a window was closed, after its watch was stopped."""

    number: int
    now_ns: int
    last: Mark = field(default=NOTHING)
    end: End | None = None
    away: Sequence[Hole] = ()
    """Times in which dbdyno itself did not run."""


def closed(server: Server, plan: Plan, window: Window, numbers: Numbers, closing: Closing) -> RawCell:
    """Returns the cell of a window, which may be too short to be of use."""
    tables = _window_tables(server, window, numbers, closing.last)
    t1_ns = _end_ns(window, tables, closing.end, closing.now_ns)
    status, reason = _status(window, t1_ns, closing)
    if (unknown := lost_in(server, window.watch, window.t1_ns - window.t0_ns)) is not None:
        status, reason, t1_ns = "invalid", unknown, min(window.t1_ns, closing.now_ns)
    meta = CellMeta(
        cell=observed_cell(closing.number, window.t1_ns - window.t0_ns),
        workload=OBSERVED,
        calibration=None,
        start_ns=window.t0_ns,
        t0_ns=window.t0_ns,
        t1_ns=t1_ns,
        end_ns=t1_ns,
        driver_threads=0,
        usable_cpus=plan.cpus,
        status=status,
        chosen=(plan.experiment.observation or Observation()).some,
        reason=reason,
        wait_families=server.wait_families,
    )
    return RawCell(meta, {name: tables.get(name, empty(raw(name))) for name in RAW})


def _window_tables(server: Server, window: Window, numbers: Numbers, last: Mark) -> dict[str, pl.DataFrame]:
    tables = numbers.of(observe.frames(window.watch))
    tables["counters"] = pl.concat([window.first.counters, last.counters])
    # A blocker's latest statement may have ended long before the window.
    blockers = tables["blocked"]["query_id"].drop_nulls().unique().to_list() if "blocked" in tables else ()
    tables |= statement_tables(server, window.first.statements, last.statements, blockers)
    tables["backends"] = pl.concat([window.first.backends, last.backends])
    own = tables["backends"].filter(pl.col("kind") == OWN_CONNECTION)["pid"].unique().to_list()
    ours = pl.when(pl.col("pid").is_in(own)).then(pl.lit("dbdyno")).otherwise("role").alias("role")
    tables |= {
        name: tables[name].with_columns(ours) for name in tables if name in _ROLE_UNKNOWN_AT_FIRST and own
    }
    tables["host"] = pl.concat([tables["host"], window.first.host, last.host])
    tables["sources"] = observe.sources(
        server, tables, driven=False, reported=observe.WatchState.by(window.watch)
    )
    return tables


def _status(window: Window, t1_ns: int, closing: Closing) -> tuple[CellStatus, str | None]:
    """Returns whether the window is complete, and if not, the reason."""
    end, away = closing.end, closing.away
    early = end is not None and (end.silent or t1_ns < window.t1_ns)
    status: CellStatus = "short" if early else "ok"
    reason = _reason(end) if early else None
    if missed := _missed_ns(away, window.t0_ns, t1_ns):
        status, reason = "short", f"{max(away).words}: nothing was sampled meanwhile"
        status = "invalid" if 2 * missed >= t1_ns - window.t0_ns else status
    return status, reason


def _missed_ns(away: Sequence[Hole], t0_ns: int, t1_ns: int) -> int:
    """Returns the time missing from a window. The clock stands still while the machine is suspended, so
    suspension takes nothing."""
    return sum(
        max(min(h.to_ns, t1_ns) - max(h.from_ns, t0_ns), 1)
        for h in away
        if h.to_ns > t0_ns and h.from_ns < t1_ns
    )


def _end_ns(window: Window, tables: dict[str, pl.DataFrame], end: End | None, now_ns: int) -> int:
    """Returns the end of the window; if the server went away, the last reading of its tasks."""
    if end is None:
        return window.t1_ns
    if not end.lost:
        return min(window.t1_ns, now_ns)
    tasks = tables["tasks"].filter((pl.col("status") == "ok") & pl.col("run_ns").is_not_null())
    asked = tables["sampler"].filter(pl.col("status") == "ok")
    for reads, at in (
        (tasks.filter(pl.col("role") == "session"), "after_ns"),
        (tasks.filter(pl.col("role").str.starts_with("helper:")), "after_ns"),
        (asked, "end_ns"),
    ):
        if reads.height:
            return min(window.t1_ns, int(reads[at].max()))  # type: ignore[arg-type]
    return window.t0_ns


def _reason(end: End | None) -> str | None:
    if end is None or not end.lost:
        return None if end is None else end.reason
    return f"the server went away ({end.reason}); the window ends with the last reading of its sessions"
