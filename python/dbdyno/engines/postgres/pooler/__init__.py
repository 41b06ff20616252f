"""A connection pooler as a limit: a PgBouncer of dbdyno's own in front of the server, one per cell."""

from __future__ import annotations

import itertools
import json
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict

from dbdyno.engines import driving
from dbdyno.engines.postgres import connect, observation, sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.errors import connect_error
from dbdyno.engines.postgres.pooler import process
from dbdyno.engines.postgres.pooler.config import (
    ALIAS,
    PORT,
    PREPARED_SINCE,
    Console,
    Front,
    PooledLoad,
    Program,
    find_program,
)
from dbdyno.engines.postgres.pooler.process import Pooler
from dbdyno.model.engine.protocols import Capacity, Journal, Load, LoadMaker, Pool
from dbdyno.model.errors import DbdynoError, TooFewConnections, UsageError
from dbdyno.model.plan.plan import Observation
from dbdyno.model.sources.source import Source
from dbdyno.model.units import counted

ROLE = "pooler"
_FILES = 64  # descriptors besides those of clients and server connections
_EXTRA_CONNECTIONS = 2  # dbdyno's own for activity and calibration
_LEAVE_S, _LEAVE_STEP_S = 2.0, 0.02
_number = itertools.count(1)

put_back = process.put_back


class Fronting:
    """Starts a pooler for each load while ``pool`` is set. ``drive`` creates loads that go to the server
    itself."""

    def __init__(self, drive: LoadMaker = driving.local_load) -> None:
        self.pool: Pool | None = None
        self.drive = drive
        self._journal: Journal | None = None
        self._ended = ExitStack()
        self._pooler: Pooler | None = None
        self._console: Console | None = None
        self._processes: list[int] = []  # backends of the pool when the latest load began
        self._broke: set[int] | None = None  # those that were gone when the load was over

    def use(self, pool: Pool | None, journal: Journal) -> None:
        """Sets the pool of later loads. Each load starts a pooler, as its server connections depend on the
        load."""
        self.close()
        self.pool, self._journal = pool, journal

    @property
    def shared(self) -> bool:
        """Whether sessions share server connections instead of each having its own."""
        return self.pool is not None and self.pool.mode == "transaction"

    def close(self) -> None:
        """Ends the pooler of the latest load and removes it from the journal."""
        self._ended.close()
        self._pooler = self._console = None

    # -- before the start -------------------------------------------------------------------------
    def check(self, pool: Pool, target: Mapping[str, Any], capacity: Capacity) -> None:
        """Checks the program, the pool, room at the server, and one connection through a pooler."""
        if self.drive is not driving.local_load:
            raise UsageError(
                "a pooler started by dbdyno serves drivers on this host alone",
                "leave out the pool, or the drivers on other hosts",
            )
        program = find_program()
        _check_pool(pool, program)
        _check_room(pool, capacity)
        trial_pool = Pool(1, pool.mode, 1, pool.protocol)
        with _ending(Pooler(Front(program, trial_pool, target, _application()), None)) as pooler:
            _fill(pooler, 1, ())

    # -- a load -----------------------------------------------------------------------------------
    def load(self, connection: Connection, spec: dict[str, Any], settings: Sequence[str], count: int) -> Load:
        """Returns the load of ``spec``, with ``count`` sessions, through a pooler of its own.

        ``settings`` are statements that set up a session; with a transaction pool they set up server
        connections.
        """
        pool = self.pool
        assert pool is not None
        self.close()
        shared = pool.mode == "transaction"
        front = Front(find_program(), pool, spec["target"], _application())
        pooler = self._start(front)
        _fill(pooler, min(pool.size, count), settings if shared else ())
        processes = self._processes = _pool_processes(connection, front.application)
        self._broke = None
        entries = [{**e, "setup": []} for e in spec["sessions"]] if shared else spec["sessions"]
        own = {"target": _target(pooler, spec["target"]), "sessions": entries}
        probe = None if shared else spec["probe"]
        load = driving.local_load("postgres", {**spec, **own, "probe": probe})
        return cast(Load, PooledLoad(load, processes))

    def _start(self, front: Front) -> Pooler:
        journal = self._journal
        pooler = Pooler(front, journal)
        key = process.undo(pooler.directory).key
        if journal is not None:
            self._ended.callback(journal.forget, key)
        self._ended.callback(pooler.close)
        self._pooler = pooler
        try:
            self._console = Console(pooler.conninfo("pgbouncer"))
        except BaseException:
            self.close()
            raise
        self._ended.callback(self._console.close)
        return pooler

    def leave(self, connection: Connection) -> None:
        """Ends the server connections, which thereby report the last of their statistics."""
        if self._console is None or self._pooler is None:
            return
        with suppress(psycopg.Error):
            self._broke = set(self._processes) - self._console.processes()
            self._console.end_connections()
            until_s = time.monotonic() + _LEAVE_S
            while _pool_processes(connection, self._pooler.front.application) and time.monotonic() < until_s:
                time.sleep(_LEAVE_STEP_S)

    # -- what it tells ----------------------------------------------------------------------------
    def counters(self, phase: str, now_ns: Callable[[], int]) -> list[dict[str, Any]]:
        """Returns rows of the table ``counters``, none without a pooler."""
        if self._console is None or self._pooler is None:
            return []
        return self._console.read(phase, self._pooler.front.pool.size, now_ns)

    def watched(self, connection: Connection, half: dict[str, Any]) -> dict[str, Any]:
        """Returns the engine's part of a watch, with the pooler's process. Server connections that the
        pooler opens later belong to the pool, too."""
        if self._pooler is None:
            return half
        chosen = Observation(application=self._pooler.front.application)
        activity = {**half["activity"], "sql": observation.activity_sql(connection, chosen)}
        task = {"pid": self._pooler.pid, "tid": self._pooler.pid, "role": ROLE}
        return {**half, "activity": activity, "adopt": True, "tasks": [*half["tasks"], task]}

    def unprobed(self) -> str | None:
        """Returns why sessions are not asked for their own counters, None if they are."""
        if not self.shared:
            return None
        return (
            "through a transaction pool a session has no server connection of its own: work per call is that "
            "of the calibration, and the server's own counters stand beside it"
        )

    def sources(self) -> Iterator[Source]:
        if self._pooler is None or self._console is None:
            return
        front = self._pooler.front
        provenance = (
            f"{front.program.name}, {front.pool.mode} mode, {front.pool.size} server connections: SHOW "
            "STATS and SHOW CLIENTS at the ends of the window"
        )
        try:
            served = self._console.processes()
            lost = set(self._processes) - served if self._broke is None else self._broke
        except psycopg.Error:
            detail = self._pooler.log_tail()
            yield Source(name=ROLE, provenance=provenance, status="lost", detail=detail)
            return
        detail = f"{len(lost)} server connections broke: those made anew lack the sessions' settings"
        yield Source(
            name=ROLE,
            provenance=provenance,
            status="lost" if lost else "ok",
            detail=detail if lost else "",
        )


def _check_pool(pool: Pool, program: Program) -> None:
    if pool.mode not in ("transaction", "session"):
        raise UsageError(f"there is no pool mode {pool.mode}", "write transaction or session")
    if pool.size < 1:
        raise UsageError(f"a pool needs at least one server connection, not {pool.size}", "pool = 1 or more")
    if pool.mode == "session" and pool.clients > pool.size:
        raise UsageError(
            f"pool_mode = session with {counted(pool.size, 'server connection')} and "
            f"{counted(pool.clients, 'session')}: a session keeps its server "
            "connection as long as it is connected, and all sessions are connected before "
            f"the clock starts, so {pool.clients - pool.size} would never get one",
            "pool_mode = transaction, or use at most as many sessions as the pool has connections",
        )
    if pool.mode == "transaction" and pool.protocol == "prepared" and not program.keeps_prepared:
        since = ".".join(map(str, PREPARED_SINCE))
        raise UsageError(
            f"{program.name} keeps no prepared statements in transaction mode (that came with {since})",
            'driver.protocol = "extended" sends each statement whole and unnamed ("simple" does too), '
            f"for all variants that are compared; or install PgBouncer {since} or later",
        )
    _check_files(pool)


def _check_files(pool: Pool) -> None:
    needed = pool.clients + pool.size + _FILES
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit not in (-1, resource.RLIM_INFINITY) and needed > limit:
        raise UsageError(
            f"a pooler for {counted(pool.clients, 'session')} needs {needed} open files, {limit} are allowed",
            f"ulimit -n {needed}",
        )


def _check_room(pool: Pool, capacity: Capacity) -> None:
    needed = pool.size + _EXTRA_CONNECTIONS
    if capacity.free < needed:
        raise TooFewConnections(
            f"a pool of {pool.size} needs {needed} connections (with {_EXTRA_CONNECTIONS} of dbdyno's own), "
            f"{capacity.free} are free: {capacity.detail}",
            f"pool = {max(1, capacity.free - _EXTRA_CONNECTIONS)} at most, or raise the limit",
        )


def _application() -> str:
    """Returns the application_name of a new pooler's server connections; no other connection has it."""
    return f"dbdyno pool {os.getpid()}-{next(_number)}"


def _target(pooler: Pooler, target: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the target of the driver's sessions: the pooler instead of the server."""
    return {
        **target,
        "host": str(pooler.directory),
        "port": PORT,
        "user": ALIAS,
        "password": None,
        "database": ALIAS,
        "tls": None,
        "application_name": pooler.front.application,
        "auth": {"methods": ["none"], "channel_binding": "disable"},
        "peer_uid": None,
    }


def _fill(pooler: Pooler, count: int, settings: Sequence[str]) -> None:
    """Opens ``count`` server connections of the pool and executes ``settings`` (statements) on each.

    A client in a transaction occupies one server connection. Its settings stay when it leaves, as nothing is
    reset.
    """
    with ExitStack() as clients:
        try:
            for _ in range(count):
                client = connect.open_connection(conninfo_to_dict(pooler.conninfo(ALIAS)))
                clients.callback(_release, client)
                psycopg.ClientCursor(client).execute("; ".join(["BEGIN", *settings]).encode())
        except psycopg.Error as e:
            raise _pool_error(pooler, e) from None


def _release(client: psycopg.Connection[Any]) -> None:
    """Ends the transaction and the client. Without COMMIT PgBouncer would close its server connection."""
    with suppress(psycopg.Error):
        psycopg.ClientCursor(client).execute("COMMIT")
    client.close()


def _pool_error(pooler: Pooler, error: psycopg.Error) -> DbdynoError:
    password = pooler.front.target["password"]
    cause = connect_error(error, str(password) if password else None)
    what = f"{pooler.front.program.name} cannot serve sessions: {cause.message}; {pooler.log_tail()}"
    return type(cause)(what, cause.cure)


def _pool_processes(connection: Connection, application: str) -> list[int]:
    """Returns the pids of the pool's backends, the oldest first."""
    rows = connection.execute(sql.text("pool_processes").encode(), [application]).fetchall()
    return [pid for (pid,) in rows]


@contextmanager
def _ending(pooler: Pooler) -> Iterator[Pooler]:
    try:
        yield pooler
    finally:
        with suppress(ProcessLookupError):
            pooler.close()
