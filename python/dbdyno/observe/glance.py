"""The latest seconds of a watch in few figures, for a live view at next to no cost.

CPU and run queue of each session are exact (growth of the tasks' figures, or the trace's). Time asleep is
divided by the trace, or else by the samples of those seconds, whose shares are applied to the exact sums.
A glance has no intervals; the ledger of a stored window has them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from dbdyno.model.schema.tables import Tables
from dbdyno.model.sources.source import HIDDEN
from dbdyno.model.sources.wait_families import AT_CLIENT, Family, WaitFamilies
from dbdyno.model.units import NS_PER_S
from dbdyno.observe import glance_devices
from dbdyno.observe.glance_devices import DevicesNow, devices_now
from dbdyno.observe.glance_parts import (
    IDLE,
    NONE_AT_REST,
    Brief,
    Label,
    Spent,
    at_rest,
    brief,
    labels_of,
    spent_by_pid,
    workers,
)
from dbdyno.observe.watch import THREADS

_HELPER = "helper:"
_CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


NEEDED: Mapping[str, tuple[str, ...]] = {
    "samples": (
        *("sample", "sql_before_ns", "sql_after_ns", "pid", "tid", "role", "session", "via", "state"),
        *("wait_class", "wait_event", "query_id", "leader_pid", "task_state"),
    ),
    "tasks": (
        *("before_ns", "after_ns", "pid", "tid", "start_ticks", "comm", "role", "session", "status"),
        *("run_ns", "runq_ns", "slices", "user_ns", "system_ns", "blkio_ns", "children_ns"),
    ),
    "host": ("after_ns", "key", "value", "status"),
    "sampler": ("end_ns", "via", "status"),
    "waits": (
        *("after_ns", "pid", "tid", "start_ticks", "role", "wait_class", "wait_event", "status"),
        *("sleep_ns", "runq_ns", "begun", "unclear", "query_id", "query_status"),
    ),
    **glance_devices.NEEDED,
    "traced": ("after_ns", "pid", "tid", "start_ticks", "role", "session", "run_ns", "runq_ns", "sleep_ns"),
}
"""Tables and columns that a glance reads. Others are not converted for a live view, as that is its largest
cost."""


@dataclass(frozen=True)
class Machine:
    """CPUs in use. None or absent figures were not read."""

    cpus: int | None = None
    cpu: Mapping[str, float] = field(default_factory=dict)  # kind of time -> CPUs
    helpers: Mapping[str, float] = field(default_factory=dict)  # process of the server -> CPUs
    server: float | None = None  # its sessions and own processes, without brief ones
    server_system: float | None = None  # share of system mode in the server's CPU time, by ticks
    samplers: float | None = None  # our observing threads
    at_server: float | None = None  # the server's processes that answer them
    devices: DevicesNow | None = None
    helping: float = 0.0  # processes that work for dbdyno beside this one


def machine(recent: Tables, helpers: Collection[int] = ()) -> Machine:
    """Returns the machine's figures. ``helpers``: processes of dbdyno that are not at the server."""
    host = recent["host"].filter((pl.col("status") == "ok") & pl.col("value").is_not_null())
    tasks = recent["tasks"].filter((pl.col("status") == "ok") & pl.col("run_ns").is_not_null())
    span = pl.col("after_ns").max() - pl.col("after_ns").min()
    growth = [pl.col(n).max() - pl.col(n).min() for n in ("run_ns", "user_ns", "system_ns")]
    by_task = tasks.group_by("role", "pid", "tid", "start_ticks", maintain_order=True).agg(
        pl.col("comm").last(), *growth, wall=span
    )
    wall_ns = tasks.select(span).item() or 1  # of all, since a brief task used its CPU for a part of it
    sums: dict[str, float] = {}
    others = by_task.filter((pl.col("role") != "session") & (pl.col("wall") > 0))
    for role, pid, comm, run_ns in others.select("role", "pid", "comm", "run_ns").iter_rows():
        names = [role] if role.startswith(_HELPER) else []
        if role == "dbdyno":
            names += ["samplers"] if (comm or "").startswith(THREADS) else []
            names += ["helping" if pid in helpers else "at server"] if pid != os.getpid() else []
        for name in names:
            sums[name] = sums.get(name, 0.0) + run_ns / wall_ns
    of_server = by_task.filter((pl.col("role") == "session") | pl.col("role").str.starts_with(_HELPER))
    run, user, system = of_server.select(pl.col("run_ns", "user_ns", "system_ns").sum()).row(0)
    cpus, cpu = _host(host)
    return Machine(
        cpus=cpus,
        cpu=cpu,
        helpers={name.removeprefix(_HELPER): used for name, used in sums.items() if name.startswith(_HELPER)},
        server=run / wall_ns if (of_server["wall"] > 0).any() else None,
        server_system=system / (user + system) if user + system else None,
        samplers=sums.get("samplers"),
        at_server=sums.get("at server"),
        helping=sums.get("helping", 0.0),
        devices=devices_now(recent),
    )


def _host(host: pl.DataFrame) -> tuple[int | None, dict[str, float]]:
    """Returns the number of CPUs, and those in use by kind of time between the first and the last read."""
    value, at = pl.col("value"), pl.col("after_ns")
    growth = host.group_by("key").agg(
        value.last(), grown=value.last() - value.first(), wall=at.last() - at.first()
    )
    by_key = {key: row for key, *row in growth.select("key", "value", "grown", "wall").iter_rows()}
    cpus = by_key.get("cpus")
    by_kind = {kind: row[1] / row[2] for kind in _CPU if (row := by_key.get(f"cpu.{kind}_ns")) and row[2] > 0}
    return None if cpus is None else int(cpus[0]), by_kind


_WAITS = ("sleep", "client", "db_time")
_ALL_ALONG = 0.9
"""Share of a window from which on a session existed all along, as its first and last reads lie inside."""
GONE_NS = 1_500_000_000  # a session that is absent from samples for longer has ended


@dataclass(frozen=True)
class EventLine:
    """Seconds per second under one wait event; ``event`` None: without wait event."""

    wait_class: str | None
    event: str | None
    sleep: float | None
    runq: float | None
    run: float | None
    family: Family = Family.OTHER
    waits: float | None = None  # waits that began per second; only the trace has them

    @property
    def at_client(self) -> bool:
        return self.family in AT_CLIENT

    @property
    def name(self) -> str:
        return f"{self.wait_class}/{self.event}" if self.event else "no wait event"

    @property
    def mean_ns(self) -> float | None:
        """Mean duration of a wait, asleep."""
        return NS_PER_S * self.sleep / self.waits if self.sleep is not None and self.waits else None


@dataclass(frozen=True)
class SessionLine:
    """One session with shares of its time; None if unknown."""

    pid: int
    session: int
    state: str | None  # by the latest sample
    event: str | None
    query_id: int | None
    run: float | None
    runq: float | None
    sleep: float | None  # asleep, without waits for the client
    client: float | None
    active: float  # share of samples in states other than idle
    events: tuple[EventLine, ...] = ()
    spent: Spent | None = None

    @property
    def db_time(self) -> float | None:
        """Time on a CPU, in the run queue or asleep in the database."""
        parts = (self.run, self.runq, self.sleep)
        return None if None in parts else sum(p for p in parts if p is not None)

    @property
    def idle_busy(self) -> bool:
        """True if the session was idle in every sample and still used a CPU or waited for one."""
        return (
            self.active == 0 and self.state not in (None, HIDDEN) and (self.run or 0) + (self.runq or 0) > 0
        )


@dataclass(frozen=True)
class Glance:
    seconds: float
    tier: str  # "scheduler trace" | "wait event word" | "activity samples"
    samples: int
    sessions: tuple[SessionLine, ...] = ()
    events: tuple[EventLine, ...] = ()
    machine: Machine = field(default_factory=Machine)
    brief: Brief | None = None
    resting: int = 0
    """Number of further sessions that only waited for their client."""
    nobody: bool = False
    """Whether the server was sampled and had no session."""

    def total(self, part: str) -> float | None:
        """Returns the sum over the sessions of ``run``, ``runq``, ``sleep``, ``client`` or ``db_time``,
        over known values. None if much is missing: waits of sessions that are hidden from our role, or an
        unknown part of sessions too brief to be sampled."""
        if part in _WAITS and self.hidden:
            return None
        sessions = self.sessions
        if part == "sleep":  # of the sessions whose DB time is known, so that the parts add up to it
            sessions = tuple(s for s in sessions if s.db_time is not None) or sessions
        known = [v for s in sessions if (v := getattr(s, part)) is not None]
        if self.resting:
            known.append(float(self.resting) if part == "client" else 0.0)
        sum_ = sum(known) if known else 0.0 if self.nobody else None
        if self.brief is None:
            return sum_
        brief_part: float | None = getattr(self.brief, part)
        if brief_part is None:
            missing = self.brief.matters(sum(s.run or 0.0 for s in self.sessions))
            return None if missing else sum_
        return (sum_ or 0.0) + brief_part

    @property
    def server_cpu(self) -> float | None:
        """CPUs of the server's sessions and own processes."""
        known, brief_run = self.machine.server, 0.0 if self.brief is None else self.brief.run
        return None if known is None else known + brief_run

    @property
    def count(self) -> int:
        """Number of sessions, resting ones included."""
        return len(self.sessions) + self.resting

    @property
    def hidden(self) -> int:
        """Number of sessions that our role may not see, so that their waits are unknown."""
        return sum(s.state == HIDDEN and s.sleep is None for s in self.sessions)

    @property
    def idle_busy(self) -> tuple[SessionLine, ...]:
        return tuple(s for s in self.sessions if s.idle_busy)


def glance(
    recent: Tables,
    families: WaitFamilies,
    gone_ns: int = GONE_NS,
    *,
    everyone: bool = True,
    resting: bool = False,
    window_ns: int | None = None,
    helpers: Collection[int] = (),
) -> Glance:
    """Returns a glance at ``recent``, the tables of a watch with the rows of the latest seconds or of a whole
    window.

    A session that is absent from samples of the last ``gone_ns`` is left out. ``everyone``: sessions too
    brief to be sampled count, as no session was excluded by choice. ``resting``: idle sessions are counted
    together without lines of their own, as there may be thousands. ``window_ns``: shares are of a window
    of this length, also for sessions that existed for a part of it; None: of each session's own time.
    ``helpers``: processes that work for dbdyno beside this one.
    """
    recent = _by_session(recent)
    samples = recent["samples"].filter(pl.col("role") == "session")
    samples = samples.with_columns(pl.col("via").fill_null("sql"))
    taken = samples.select("sample", "via").n_unique() if samples.height else 0
    rest = at_rest(samples, recent["tasks"], families, gone_ns) if resting else NONE_AT_REST
    everything = recent
    recent = {name: _without(rest, frame) for name, frame in recent.items()}
    samples = _without(rest, samples)
    latest = _latest(samples, gone_ns)
    spent = spent_by_pid(recent, workers(recent["samples"], samples))
    tier, labels = labels_of(recent, samples, spent)
    if everyone and recent["traced"].height:  # sessions without figures count among the brief ones
        labels = {pid: labels_ for pid, labels_ in labels.items() if pid in spent}
    events = {pid: _events(labels_, families) for pid, labels_ in labels.items()}
    lines = tuple(_session(pid, row, spent.get(pid), events.get(pid, ())) for pid, row in latest.items())
    if window_ns is not None:
        lines = tuple(_within(line, window_ns) for line in lines)
    brief_sessions = brief(everything, {*spent, *rest["pid"]}, families) if everyone else None
    wall_ns = max((*(s.wall_ns for s in spent.values()), *rest["wall_ns"]), default=0)
    return Glance(
        seconds=wall_ns / 1e9 or _seconds(samples),
        tier=tier,
        samples=taken,
        sessions=lines,
        events=_summed(lines),
        machine=machine(recent, helpers),
        brief=brief_sessions,
        resting=rest.height,
        nobody=samples.is_empty() and not rest.height and _asked(everything),
    )


def _asked(recent: Tables) -> bool:
    sampler = recent["sampler"]
    return sampler.filter((pl.col("via").fill_null("sql") == "sql") & (pl.col("status") == "ok")).height > 0


def _by_session(recent: Tables) -> Tables:
    """Sets ``pid`` of a session of several tasks, or of a thread, to its first task id, by which it is
    identified."""
    task = pl.coalesce("tid", "pid")
    named = (recent[name].filter(pl.col("role") == "session") for name in ("samples", "tasks"))
    met = pl.concat([f.select("session", first=task, own="pid") for f in named]).drop_nulls("session")
    first = met.unique().group_by("session").agg(pl.col("first", "own").min(), tasks=pl.len())
    several = first.filter((pl.col("tasks") > 1) | (pl.col("first") != pl.col("own"))).select(
        "session", "first"
    )
    if several.is_empty():
        return recent
    return {
        name: frame.join(several, on="session", how="left", maintain_order="left")
        .with_columns(pid=pl.when(pl.col("role") == "session").then("first").fill_null(pl.col("pid")))
        .drop("first")
        if {"role", "session", "tid"} <= set(frame.columns)
        else frame
        for name, frame in recent.items()
    }


def _without(rest: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.join(rest, on="pid", how="anti") if rest.height and "pid" in frame.columns else frame


def _seconds(samples: pl.DataFrame) -> float:
    span = samples.select(pl.col("sql_after_ns").max() - pl.col("sql_after_ns").min()).item()
    return (span or 0) / 1e9


def _latest(samples: pl.DataFrame, gone_ns: int) -> dict[int, dict[str, Any]]:
    """Returns by pid the latest sampled state of each session that still exists, and its share of samples
    that are not idle."""
    asked = samples.filter(pl.col("via") == "sql").sort("sql_after_ns")
    event = pl.when(pl.col("wait_event").is_not_null()).then(
        pl.concat_str([pl.col("wait_class").fill_null("?"), pl.col("wait_event")], separator="/")
    )
    sessions = asked.group_by("pid", maintain_order=True).agg(
        pl.col("session").last(),
        pl.col("state").last(),
        event.last().alias("event"),
        pl.col("query_id").drop_nulls().last(),
        (~pl.col("state").fill_null(IDLE).is_in([IDLE, HIDDEN])).mean().alias("active"),
        pl.col("sql_after_ns").last().alias("seen_ns"),
    )
    gone = pl.col("seen_ns") < pl.col("seen_ns").max() - gone_ns
    return {int(row.pop("pid")): row for row in sessions.filter(~gone).to_dicts()}


def _events(labels: tuple[Label, ...], families: WaitFamilies) -> tuple[EventLine, ...]:
    """Returns wait events by falling weight."""
    lines = (
        EventLine(*label[:5], families.of(f"{label.wait_class or ''}/{label.event or ''}"), label.waits)
        for label in labels
    )
    return tuple(sorted(lines, key=weight, reverse=True))


def _session(
    pid: int, latest: Mapping[str, Any], spent: Spent | None, events: tuple[EventLine, ...]
) -> SessionLine:
    asleep = {
        client: sum(e.sleep or 0.0 for e in events if e.at_client is client) for client in (True, False)
    }
    off = 0.0 if spent is None else spent.off
    unseen = max(0.0, off - sum(asleep.values())) if events else off
    idle = latest["state"] == IDLE
    known = bool(events) or (spent is not None and latest["state"] != HIDDEN)
    return SessionLine(
        pid=pid,
        session=-1 if latest["session"] is None else int(latest["session"]),
        state=latest["state"],
        event=latest["event"],
        query_id=latest["query_id"],
        run=None if spent is None else spent.run,
        runq=None if spent is None else spent.runq,
        sleep=asleep[False] + (0.0 if idle else unseen) if known else None,
        client=asleep[True] + (unseen if idle else 0.0) if known else None,
        active=float(latest["active"]),
        events=events,
        spent=spent,
    )


def _within(line: SessionLine, window_ns: int) -> SessionLine:
    """Converts shares to shares of the window if the session existed for less than :data:`_ALL_ALONG` of
    it."""
    part = 1.0 if line.spent is None else line.spent.wall_ns / window_ns
    if part >= _ALL_ALONG:
        return line

    def of_window(share: float | None) -> float | None:
        return None if share is None else share * part

    events = tuple(
        replace(
            e,
            sleep=of_window(e.sleep),
            runq=of_window(e.runq),
            run=of_window(e.run),
            waits=of_window(e.waits),
        )
        for e in line.events
    )
    return replace(
        line,
        run=of_window(line.run),
        runq=of_window(line.runq),
        sleep=of_window(line.sleep),
        client=of_window(line.client),
        events=events,
    )


def weight(event: EventLine) -> float:
    """Returns the rank key of events: time asleep and in the run queue."""
    return (event.sleep or 0.0) + (event.runq or 0.0)


def _summed(lines: tuple[SessionLine, ...]) -> tuple[EventLine, ...]:
    """Sums events over sessions, by falling weight."""
    sums: dict[tuple[str | None, str | None, Family], list[float | None]] = {}
    waits: dict[tuple[str | None, str | None, Family], float | None] = {}
    for line in lines:
        for e in line.events:
            key = e.wait_class, e.event, e.family
            sums_of_event = sums.setdefault(key, [None] * 3)
            for i, value in enumerate((e.sleep, e.runq, e.run)):
                sums_of_event[i] = (
                    value if sums_of_event[i] is None else (sums_of_event[i] or 0.0) + (value or 0.0)
                )
            before = waits.get(key, 0.0)
            waits[key] = None if before is None or e.waits is None else before + e.waits
    summed = [
        EventLine(name, event, v[0], v[1], v[2], family, waits[name, event, family])
        for (name, event, family), v in sums.items()
    ]
    return tuple(sorted(summed, key=weight, reverse=True))
