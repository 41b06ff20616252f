"""What a room may ask of an engine. An engine is one folder; nothing outside it knows its names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import polars as pl

from dbdyno.model.engine.caching import Caching
from dbdyno.model.engine.checking import Checking
from dbdyno.model.engine.condition import Conditions
from dbdyno.model.engine.environment import ServerFacts
from dbdyno.model.engine.login_tracing import LoginTracing
from dbdyno.model.engine.machine import Machine
from dbdyno.model.engine.planning import Planning
from dbdyno.model.engine.snapshot import Snapshotting
from dbdyno.model.engine.truth import Knowing
from dbdyno.model.errors import UsageError
from dbdyno.model.journal import Journal as Journal
from dbdyno.model.journal import Kind as Kind
from dbdyno.model.journal import Undo as Undo
from dbdyno.model.plan.jobs import Commanding
from dbdyno.model.plan.plan import (
    Calibration,
    Cell,
    DriverSetup,
    Observation,
    PlannedScript,
    Variant,
    Workload,
)
from dbdyno.model.plan.resetting import Resetting
from dbdyno.model.plan.table_making import Preparing
from dbdyno.model.schema.tables import CoreColumn
from dbdyno.model.sources.source import Source
from dbdyno.model.sources.wait_families import WaitFamilies


class LoadMaker(Protocol):
    """Makes a load of an engine's driver; ``spec``: docs/core.md."""

    def __call__(self, engine: str, spec: Mapping[str, Any], /) -> Load: ...


@dataclass(frozen=True)
class Target:
    """Which server. ``dsn=None``: the engine's embedded one, with room for ``sessions`` sessions."""

    dsn: str | None = None
    bin_dir: Path | None = None  # --pg-bin: programs of an installed server for the embedded one
    sessions: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)  # server settings of the embedded one
    beside: bool = False  # this process observes it meanwhile: none of its sessions
    machine: Machine | None = None  # the server's host, where it is not this one
    make_load: LoadMaker | None = None  # drivers on other hosts; None: the core's, in this process


class Progress(NamedTuple):
    """Live figures of a load, from the barrier on."""

    calls: int  # ended well
    errors: int
    live: int  # sessions that have not ended
    in_call_ns: int  # sum of durations of ended calls
    waiting: int = 0  # paced: calls that are due and not begun
    oldest_ns: int = 0  # how long the first of them has been due


class Load(Protocol):
    """N sessions on one server: connected, parked, started together, stopped by themselves.

    Phases, each begun by a method that returns at once and ended when ``wait`` says so:
    ``connect`` -> parked; ``start`` -> all sessions ended; ``finish`` -> probed and closed. Then ``tables``.
    """

    def connect(self) -> None: ...
    def start(self, start_ns: int, t0_ns: int, t1_ns: int) -> None:
        """Barrier at ``start_ns``; calls started in [t0, t1) are measured; none starts at or after t1."""

    def finish(self) -> None: ...
    def wait(self, timeout_s: float) -> bool:
        """True when the phase is over. Raises what went wrong in it (DriverError of the core)."""

    def stop(self) -> None:
        """No further call starts; those in flight end by themselves."""

    def abort(self) -> None:
        """Breaks the connections at once."""

    def progress(self) -> Progress: ...
    def live_durations(self) -> Sequence[tuple[int, int]]:
        """(ns, count) of calls that ended well, from the first time of asking."""

    def backends(self) -> Sequence[tuple[int, int, int]]:
        """(session, pid, tid) of the tasks that serve the connected sessions."""

    def threads(self) -> Sequence[int]:
        """Task ids of the driver's threads."""

    def now_ns(self) -> int:
        """This load's clock (virtual where the server is a world of its own)."""

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        """``sessions``, ``histogram``, ``errors``, ``calls`` (may be absent), ``counters``."""


class Watch(Protocol):
    """The observers of one cell: OS tasks, cgroups, host, activity samples."""

    def start(self, t0_ns: int, t1_ns: int) -> None: ...

    def stop(self) -> None: ...

    def latest(self) -> Mapping[str, float]:
        """Live shares of the sessions' time in the latest samples: ``run``, ``idle`` and sleeps by class."""

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        """``samples``, ``tasks``, ``cgroup``, ``host``, ``sampler``."""

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        """The same tables, with the rows read since then only: for live views."""

    def trouble(self) -> str | None:
        """The first thing that went wrong with the samples, in words."""

    def source_status(self) -> Mapping[str, tuple[str, str]]:
        """(status, detail) of what may be refused: ``wait event word``, ``scheduler trace``."""


@dataclass(frozen=True)
class Capacity:
    """How many sessions the server has room for."""

    maximum: int
    reserved: int
    in_use: int
    detail: str  # "max_connections = 100, reserved for superusers 3, in use 4"

    @property
    def free(self) -> int:
        return max(0, self.maximum - self.reserved - self.in_use)


@dataclass(frozen=True)
class Configured:
    """What :meth:`Server.configure` did."""

    in_force: Mapping[str, str]  # of each setting asked for, as the server shows it
    restarted: bool


@dataclass(frozen=True)
class Pool:
    """A connection pooler in front of the server."""

    size: int  # server connections
    mode: str  # "transaction" | "session"
    clients: int  # sessions that will come
    protocol: str = "prepared"  # how they send statements: DriverSetup.protocol


class Clock(Protocol):
    """The time that a server's watches live in."""

    def now_ns(self) -> int: ...

    def sleep(self, seconds: float) -> None:
        """Lets so much time go by."""


class Counting(Protocol):
    """Counters of the whole server."""

    def counters(self, phase: str) -> pl.DataFrame:
        """Server-wide counters now: rows of the table ``counters``."""


class StatementCounting(Protocol):
    """Counters of single statements."""

    def statements(self, phase: str) -> pl.DataFrame:
        """Every statement's counters now: rows of the table ``statement_reads``; none where they are not
        counted or may not be read."""

    def executed(self, first: pl.DataFrame, last: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
        """Between two reads: ``statement_reads`` of the statements that were executed, without dbdyno's own,
        and ``statement_texts`` of those that were not told before."""


class Listing(Protocol):
    """Who is connected."""

    def backends(self) -> pl.DataFrame:
        """Who is connected now: rows of the table ``backends``."""

    def end_left(self, pids: Sequence[int]) -> int:
        """Ends the sessions of a driver that is lost, by the processes that serve them; how many. Sessions
        of others stay. Raises :class:`TargetError`."""


class Watching(Protocol):
    """Sessions that are not ours."""

    def observation_spec(
        self, chosen: Observation, known: Mapping[tuple[int, int], int]
    ) -> Mapping[str, Any]:
        """The engine's half of a watch over sessions that are not ours. ``known``: session number by pid and
        tid, from the window before. Raises :class:`UsageError` for a filter that cannot be."""

    def reconnect(self) -> None:
        """A new control connection in place of a lost one. Raises :class:`TargetError` while it cannot be."""


class Configuring(Protocol):
    """Settings of the server."""

    def check_settings(self, settings: Mapping[str, str]) -> Sequence[str]:
        """Names of those that need a restart; changes nothing. Raises :class:`UsageError` for an unknown one,
        one that the server refuses, one that needs a restart where the server is not ours to restart, and
        :class:`NotPrivileged` where they may not be set."""

    def configure(self, settings: Mapping[str, str], journal: Journal) -> Configured:
        """The server runs with these settings, and of those set before by this method with no others: by a
        reload, or a restart where one needs it (the control connection is then a new one). ``{}``: as it was
        found. Returns when every setting is in force."""

    def put_back(self, undo: Undo) -> str | None:
        """Puts back settings of a run that was killed; in words. None: it is not this server's."""

    def clock_facts(self) -> Mapping[str, str]:
        """What reading the clock costs the server, and which clock that is, in words: takes a second or two,
        and is asked for where timing itself is varied. Empty where it cannot be known."""


PLAIN = Variant(name="base")
"""The variant that changes nothing."""


class Scripting(Protocol):
    """Calls of the user's own."""

    def script(self, scripts: Sequence[PlannedScript], variant: Variant = PLAIN, name: str = "") -> Workload:
        """Scripts as a workload, whose calls in cells of the variant are of these scripts; with its variables
        and driver options. ``name``: in place of the scripts'. Raises ScriptError with line and column."""

    def needs_simple(self, scripts: Sequence[PlannedScript], variant: Variant) -> str | None:
        """What of these scripts can be sent as simple queries alone, and where; ``None``: nothing."""

    def scale(self, scripts: Sequence[PlannedScript]) -> tuple[int, str] | None:
        """The size of the tables that these scripts run on, and how it is known; ``None``: any may be given.
        Raises :class:`UsageError` where the tables are not there."""


class Calibrating(Protocol):
    """Calls of a chosen length."""

    def calibrate(
        self,
        workload: Workload,
        params: Mapping[str, Any],
        target_ns: int,
        reason: str,
        size: int | None = None,
    ) -> Calibration:
        """``size``: measure a call of this size, and look for none."""


class Pooling(Protocol):
    """A connection pooler in front."""

    def check_pool(self, pool: Pool) -> None:
        """Whether a pooler can be put in front. Raises :class:`UsageError` with the way to install it, or
        saying why this pool cannot serve so many sessions."""

    def use_pool(self, pool: Pool | None, journal: Journal) -> None:
        """Later loads go through a pooler of their own; None: to the server itself. ``close`` ends it."""


class World(Protocol):
    """A world of its own (virtual time): its own clock and observers."""

    def watch(self, spec: Mapping[str, Any]) -> Watch: ...

    def clock(self) -> Clock: ...


class Server(Protocol):
    """An open server: a control connection, later loads and watches."""

    @property
    def machine(self) -> Machine:
        """Its host, as far as that is read: this one, or what the target named."""

    @property
    def wait_families(self) -> WaitFamilies:
        """What its wait events are for."""

    def facts(self) -> ServerFacts: ...

    def sources(self) -> Sequence[Source]:
        """The engine's own data sources: session counters, server counters, activity."""

    def capacity(self) -> Capacity: ...

    def claim(self, run: str) -> None:
        """Takes this server for one run; raises ServerBusy saying who holds it."""

    def check_driver(self, driver: DriverSetup) -> None:
        """Whether calls can be sent so. Raises :class:`UsageError` for a validation that cannot be one."""

    def prepare(self, workload: Workload, params: Mapping[str, Any], sessions: int) -> None:
        """Makes the workload's objects in dbdyno's own schema. Idempotent."""

    def load(
        self,
        workload: Workload,
        cell: Cell,
        calibration: Calibration | None,
        log_calls: bool,
        max_calls: int | None,
    ) -> Load: ...

    def watch_spec(self, load: Load) -> Mapping[str, Any]:
        """The engine's half of a watch: how to sample activity, which tasks; see ``_core.Watch``."""

    def clean(self) -> Sequence[str]:
        """Removes what ``prepare`` made; what was removed, in words."""

    def close(self) -> None: ...

    # -- what it may have besides; None: it has not -------------------------------------------------
    @property
    def counting(self) -> Counting | None: ...

    @property
    def statement_counting(self) -> StatementCounting | None: ...

    @property
    def listing(self) -> Listing | None: ...

    @property
    def watching(self) -> Watching | None: ...

    @property
    def settings(self) -> Configuring | None: ...

    @property
    def scripts(self) -> Scripting | None: ...

    @property
    def calibrating(self) -> Calibrating | None: ...

    @property
    def pooling(self) -> Pooling | None: ...

    @property
    def snapshots(self) -> Snapshotting | None: ...

    @property
    def tables(self) -> Preparing | None: ...

    @property
    def resetting(self) -> Resetting | None: ...

    @property
    def planning(self) -> Planning | None: ...

    @property
    def checking(self) -> Checking | None: ...

    @property
    def caching(self) -> Caching | None: ...

    @property
    def conditions(self) -> Conditions | None: ...

    @property
    def login_tracing(self) -> LoginTracing | None: ...

    @property
    def commands(self) -> Commanding | None: ...

    @property
    def truths(self) -> Knowing | None: ...

    @property
    def world(self) -> World | None: ...


_C = TypeVar("_C")


def needed(capability: _C | None, what: str) -> _C:
    """A capability that is needed to do ``what`` (infinitive). Raises :class:`UsageError` without it."""
    if capability is None:
        raise UsageError(f"this engine cannot {what}", "leave that out, or choose another --engine")
    return capability
