"""The protocols of an engine. An engine is one folder; nothing outside it knows its names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import polars as pl

from dbdyno.model.engine.caching import Caching
from dbdyno.model.engine.checking import Checking
from dbdyno.model.engine.choosing import Choosing
from dbdyno.model.engine.condition import Conditions
from dbdyno.model.engine.environment import ServerFacts
from dbdyno.model.engine.live import LiveViewing
from dbdyno.model.engine.login_tracing import LoginTracing
from dbdyno.model.engine.machine import Machine
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
    """Creates a load of an engine's driver from a ``spec`` as in docs/core.md."""

    def __call__(self, engine: str, spec: Mapping[str, Any], /) -> Load: ...


@dataclass(frozen=True)
class Target:
    """The server to use. With ``dsn=None`` it is the engine's embedded one, with room for ``sessions``
    sessions."""

    dsn: str | None = None
    bin_dir: Path | None = None  # --pg-bin: programs of an installed server for the embedded one
    sessions: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)  # server settings of the embedded one
    beside: bool = False  # this process also observes the server: the connection is not one of its sessions
    machine: Machine | None = None  # the server's host; None if it is this one
    make_load: LoadMaker | None = None  # for drivers on other hosts; None for the core's in this process
    # by variant: a version, a directory or a DSN; None stands for the engine's own programs
    servers: Mapping[str, str | None] = field(default_factory=dict)


class Progress(NamedTuple):
    """Live figures of a load, from the barrier on."""

    calls: int  # ended well
    errors: int
    live: int  # sessions that have not ended
    in_call_ns: int  # sum of durations of ended calls
    waiting: int = 0  # of a paced load: calls that are due and have not begun
    oldest_ns: int = 0  # time since the first of them became due


class Load(Protocol):
    """N sessions on one server, which connect, wait at a barrier, start together and end by themselves.

    Each phase begins with a method that returns at once, and is over when ``wait`` returns True: ``connect``
    until all sessions wait at the barrier, ``start`` until all have ended, ``finish`` until they are probed
    and closed. Then ``tables`` has the results.
    """

    def connect(self) -> None: ...
    def start(self, start_ns: int, t0_ns: int, t1_ns: int) -> None:
        """Opens the barrier at ``start_ns``. Calls that start in [t0, t1) are measured; none starts later."""

    def finish(self) -> None: ...
    def wait(self, timeout_s: float) -> bool:
        """Returns whether the phase is over. Raises the core's DriverError if it failed."""

    def stop(self) -> None:
        """Starts no further call; calls in flight end by themselves."""

    def abort(self) -> None:
        """Breaks the connections at once."""

    def progress(self) -> Progress: ...
    def live_durations(self) -> Sequence[tuple[int, int]]:
        """Returns (duration in ns, count) of calls that ended well since the first use of this method."""

    def backends(self) -> Sequence[tuple[int, int, int]]:
        """Returns (session, pid, tid) of the tasks that serve the connected sessions."""

    def threads(self) -> Sequence[int]:
        """Returns the task ids of the driver's threads."""

    def now_ns(self) -> int:
        """Returns the time of this load's clock, which is virtual for a simulated server."""

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        """Returns ``sessions``, ``histogram``, ``errors``, ``counters`` and, if calls are logged,
        ``calls``."""


class Watch(Protocol):
    """The observers of one cell: OS tasks, cgroups, host, activity samples."""

    def start(self, t0_ns: int, t1_ns: int) -> None: ...

    def stop(self) -> None: ...

    def latest(self) -> Mapping[str, float]:
        """Returns shares of the sessions' time in the latest samples: ``run``, ``idle``, and sleep by wait
        class."""

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        """Returns ``samples``, ``tasks``, ``cgroup``, ``host`` and ``sampler``."""

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        """Returns the same tables with rows read since that time only, for live views."""

    def trouble(self) -> str | None:
        """Returns the first error of sampling in words; None without one."""

    def source_status(self) -> Mapping[str, tuple[str, str]]:
        """Returns (status, detail) of the sources that may be refused: ``wait event word``, ``scheduler
        trace``."""


@dataclass(frozen=True)
class Capacity:
    """The number of sessions that the server has room for."""

    maximum: int
    reserved: int
    in_use: int
    detail: str  # "max_connections = 100, reserved for superusers 3, in use 4"

    @property
    def free(self) -> int:
        return max(0, self.maximum - self.reserved - self.in_use)


@dataclass(frozen=True)
class Configured:
    """The result of :meth:`Configuring.configure`."""

    in_force: Mapping[str, str]  # value of each requested setting, as the server shows it
    restarted: bool


@dataclass(frozen=True)
class Pool:
    """A connection pooler in front of the server."""

    size: int  # server connections
    mode: str  # "transaction" | "session"
    clients: int  # sessions that will connect
    protocol: str = "prepared"  # how they send statements: DriverSetup.protocol


class Clock(Protocol):
    """The clock of a server's watches."""

    def now_ns(self) -> int: ...

    def sleep(self, seconds: float) -> None:
        """Waits for this time."""


class Counting(Protocol):
    """Counters of the whole server."""

    def counters(self, phase: str) -> pl.DataFrame:
        """Reads server-wide counters and returns rows of the table ``counters``."""


class SecondCounting(Protocol):
    """Counters of the whole server that change within a window in ways that a session's response time may
    follow: one cheap statement, about once a second."""

    def second_counters(self) -> Sequence[Mapping[str, Any]]:
        """Returns rows of the table ``counter_series``. Raises :class:`TargetError` if the server does not
        answer soon. Names with a meaning: :mod:`dbdyno.model.sources.second_counters`."""


class StatementCounting(Protocol):
    """Counters of single statements."""

    def statements(self, phase: str) -> pl.DataFrame:
        """Reads the counters of all statements and returns rows of the table ``statement_reads``; no rows if
        statements are not counted or may not be read."""

    def executed(
        self, first: pl.DataFrame, last: pl.DataFrame, seen: Collection[int] = ()
    ) -> Mapping[str, pl.DataFrame]:
        """Returns ``statement_reads`` of the statements executed between two reads, and ``statement_texts``
        of these and of the ids ``seen`` without those returned before. Statements of dbdyno itself are left
        out."""


class Listing(Protocol):
    """The list of connected processes."""

    def backends(self) -> pl.DataFrame:
        """Returns the connected processes as rows of the table ``backends``."""

    def end_left(self, pids: Sequence[int]) -> int:
        """Ends the sessions of a lost driver, given the processes that serve them, and returns their number.
        Sessions of others stay. Raises :class:`TargetError`."""


class Watching(Protocol):
    """Observes sessions that dbdyno did not open."""

    def observation_spec(
        self, chosen: Observation, known: Mapping[tuple[int, int], int]
    ) -> Mapping[str, Any]:
        """Returns the engine's part of the specification of a watch over sessions that dbdyno did not open.
        ``known`` has session numbers by (pid, tid) from the previous window. Raises :class:`UsageError` for a
        filter that the engine cannot apply."""

    def reconnect(self) -> None:
        """Replaces a lost control connection. Raises :class:`TargetError` while the server cannot be
        reached."""


class Configuring(Protocol):
    """Changes settings of the server."""

    def check_settings(self, settings: Mapping[str, str]) -> Sequence[str]:
        """Returns the names of settings that need a restart, and changes nothing. Raises :class:`UsageError`
        for a setting that is unknown, that the server refuses, or that needs a restart of a server that
        dbdyno may not restart, and :class:`NotPrivileged` if the user may not set it."""

    def configure(self, settings: Mapping[str, str], journal: Journal) -> Configured:
        """Applies these settings, and takes back all others that this method applied before; ``{}`` restores
        the server as it was. Reloads, or restarts if a setting needs it, which replaces the control
        connection. Returns when every setting is in force."""

    def restart(self) -> None:
        """Restarts the server with its settings unchanged, and replaces the control connection. Raises
        :class:`NotAvailable` if dbdyno did not start it, or if others are connected."""

    def put_back(self, undo: Undo) -> str | None:
        """Restores the settings that a killed run changed and describes that in words; None if the entry is
        of another server."""

    def clock_facts(self) -> Mapping[str, str]:
        """Returns in words which clock the server reads and what a read costs; empty if unknown. Takes a
        second or two, so it is called only if variants differ in timing."""


PLAIN = Variant(name="base")
"""The variant that changes nothing."""


class Scripting(Protocol):
    """Runs scripts of the user as calls."""

    def script(self, scripts: Sequence[PlannedScript], variant: Variant = PLAIN, name: str = "") -> Workload:
        """Returns a workload whose calls, in cells of the variant, run these scripts with the variant's
        variables and driver options. ``name`` replaces the name of the scripts. Raises ScriptError with line
        and column."""

    def needs_simple(self, scripts: Sequence[PlannedScript], variant: Variant) -> str | None:
        """Returns the statement that only the simple query protocol can send, and its place; None if all can
        be prepared."""

    def scale(self, scripts: Sequence[PlannedScript]) -> tuple[int, str] | None:
        """Returns the scale of the tables that these scripts use, and how it is known; None if the user may
        choose any. Raises :class:`UsageError` if the tables are missing."""


class Calibrating(Protocol):
    """Chooses the size of a call for a wanted duration."""

    def calibrate(
        self,
        workload: Workload,
        params: Mapping[str, Any],
        target_ns: int,
        reason: str,
        size: int | None = None,
    ) -> Calibration:
        """Finds the size with which a call takes ``target_ns`` with one session. With ``size`` it measures a
        call of that size instead."""


class Pooling(Protocol):
    """Puts a connection pooler in front of the server."""

    def check_pool(self, pool: Pool) -> None:
        """Raises :class:`UsageError` if no pooler is installed, with the way to install it, or if this pool
        cannot serve so many sessions, with the reason."""

    def use_pool(self, pool: Pool | None, journal: Journal) -> None:
        """Sends later loads through a pooler of their own; with None, to the server itself. ``close`` ends
        the pooler."""


class World(Protocol):
    """A simulated server's own clock, in virtual time, and observers."""

    def watch(self, spec: Mapping[str, Any]) -> Watch: ...

    def clock(self) -> Clock: ...


class Planning(Protocol):
    """Reads the shapes of execution plans."""

    def shapes(
        self, workload: str, params: Mapping[str, object], scripts: Sequence[PlannedScript]
    ) -> pl.DataFrame:
        """Returns the table ``script_plans`` with a plan of each statement of ``scripts``, or of the
        workload's own statements if there are no scripts. No statement is executed. Raises
        :class:`TargetError` if the connection is lost."""


class Server(Protocol):
    """An open server: its control connection, from which loads and watches are made."""

    @property
    def machine(self) -> Machine:
        """The server's host: this one, or the one that the target names."""

    @property
    def wait_families(self) -> WaitFamilies:
        """The family of each of the server's wait events."""

    def facts(self) -> ServerFacts: ...

    def sources(self) -> Sequence[Source]:
        """The engine's own data sources: session counters, server counters, activity."""

    def capacity(self) -> Capacity: ...

    def claim(self, run: str) -> None:
        """Reserves this server for one run. Raises ServerBusy with the run that has it."""

    def check_driver(self, driver: DriverSetup) -> None:
        """Checks that calls can be sent with these options. Raises :class:`UsageError`, for example for a
        validation query that is none."""

    def prepare(self, workload: Workload, params: Mapping[str, Any], sessions: int) -> None:
        """Creates the workload's objects in dbdyno's own schema. Idempotent."""

    def load(
        self,
        workload: Workload,
        cell: Cell,
        calibration: Calibration | None,
        log_calls: bool,
        max_calls: int | None,
    ) -> Load: ...

    def watch_spec(self, load: Load) -> Mapping[str, Any]:
        """Returns the engine's part of the specification of a watch: how to sample activity, and which tasks
        to read; see ``_core.Watch``."""

    def clean(self) -> Sequence[str]:
        """Removes all that ``prepare`` created, and describes it in words."""

    def close(self) -> None: ...

    # -- capabilities; None if the engine lacks one -------------------------------------------------
    @property
    def counting(self) -> Counting | None: ...

    @property
    def second_counting(self) -> SecondCounting | None: ...

    @property
    def statement_counting(self) -> StatementCounting | None: ...

    @property
    def listing(self) -> Listing | None: ...

    @property
    def watching(self) -> Watching | None: ...

    @property
    def live(self) -> LiveViewing | None: ...

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
    def choosing(self) -> Choosing | None: ...

    @property
    def world(self) -> World | None: ...


_C = TypeVar("_C")


def needed(capability: _C | None, what: str) -> _C:
    """Returns the capability. Raises :class:`UsageError` if it is None: the engine cannot do ``what``, an
    infinitive."""
    if capability is None:
        raise UsageError(f"this engine cannot {what}", "leave that out, or choose another --engine")
    return capability
