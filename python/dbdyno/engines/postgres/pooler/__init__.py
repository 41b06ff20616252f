"""A connection pooler as a limit: PgBouncer in front of the server, one for each cell, of our own. Checks
before the start, one pooler a load, what it says."""

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
    """``pool``: what later loads go through; None: they go to the server itself. ``drive``: makes those."""

    def __init__(self, drive: LoadMaker = driving.local_load) -> None:
        self.pool: Pool | None = None
        self.drive = drive
        self._journal: Journal | None = None
        self._ended = ExitStack()
        self._pooler: Pooler | None = None
        self._console: Console | None = None
        self._processes: list[int] = []  # server connections of the latest load, as they were made
        self._broke: set[int] | None = None  # of those, once the load is over

    def use(self, pool: Pool | None, journal: Journal) -> None:
        """A pooler is started with each load, for its server connections are made for that."""
        self.close()
        self.pool, self._journal = pool, journal

    @property
    def shared(self) -> bool:
        """Sessions have no server connection of their own."""
        return self.pool is not None and self.pool.mode == "transaction"

    def close(self) -> None:
        """Ends the pooler of the latest load; what it was noted for has been put back."""
        self._ended.close()
        self._pooler = self._console = None

    # -- before the start -------------------------------------------------------------------------
    def check(self, pool: Pool, target: Mapping[str, Any], capacity: Capacity) -> None:
        """See the protocol: the program, the pool, room at the server, and one connection through it."""
        if self.drive is not driving.local_load:
            raise UsageError(
                "a pooler started by dbdyno serves drivers on this host alone",
                "leave out the pool, or the drivers on other hosts",
            )
        program = find_program()
        _check_pool(pool, program)
        _check_room(pool, capacity)
        tried = Pool(1, pool.mode, 1, pool.protocol)
        with _ending(Pooler(Front(program, tried, target, _application()), None)) as pooler:
            _fill(pooler, 1, ())

    # -- a load -----------------------------------------------------------------------------------
    def load(self, connection: Connection, spec: dict[str, Any], settings: Sequence[str], count: int) -> Load:
        """``spec`` of a load of ``count`` sessions, through a pooler of its own. ``settings``: statements
        that make a session; in a transaction pool they make a server connection."""
        pool = self.pool
        assert pool is not None
        self.close()
        shared = pool.mode == "transaction"
        front = Front(find_program(), pool, spec["target"], _application())
        pooler = self._started(front)
        _fill(pooler, min(pool.size, count), settings if shared else ())
        processes = self._processes = _processes(connection, front.application)
        self._broke = None
        entries = [{**e, "setup": []} for e in spec["sessions"]] if shared else spec["sessions"]
        own = {"target": _target(pooler, spec["target"]), "sessions": entries}
        probe = None if shared else spec["probe"]
        load = driving.local_load("postgres", {**spec, **own, "probe": probe})
        return cast(Load, PooledLoad(load, processes))

    def _started(self, front: Front) -> Pooler:
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
        """Ends the server connections, which report the last of what they did when they leave."""
        if self._console is None or self._pooler is None:
            return
        with suppress(psycopg.Error):
            self._broke = set(self._processes) - self._console.processes()
            self._console.end_connections()
            until_s = time.monotonic() + _LEAVE_S
            while _processes(connection, self._pooler.front.application) and time.monotonic() < until_s:
                time.sleep(_LEAVE_STEP_S)

    # -- what it tells ----------------------------------------------------------------------------
    def counters(self, phase: str, now_ns: Callable[[], int]) -> list[dict[str, Any]]:
        """Rows of the table ``counters``; none without a pooler."""
        if self._console is None or self._pooler is None:
            return []
        return self._console.read(phase, self._pooler.front.pool.size, now_ns)

    def watched(self, connection: Connection, half: dict[str, Any]) -> dict[str, Any]:
        """The engine's half of a watch, with the pooler's process; server connections that it makes anew are
        the pool's, too."""
        if self._pooler is None:
            return half
        chosen = Observation(application=self._pooler.front.application)
        activity = {**half["activity"], "sql": observation.activity_sql(connection, chosen)}
        task = {"pid": self._pooler.pid, "tid": self._pooler.pid, "role": ROLE}
        return {**half, "activity": activity, "adopt": True, "tasks": [*half["tasks"], task]}

    def unprobed(self) -> str | None:
        """Why sessions are not asked for their own counters; None: they are."""
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
    """The name of a pooler's server connections, by which the server tells them from all others."""
    return f"dbdyno pool {os.getpid()}-{next(_number)}"


def _target(pooler: Pooler, target: Mapping[str, Any]) -> dict[str, Any]:
    """Where the driver's sessions go instead."""
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
    """So many server connections are there when this returns, each with ``settings`` (statements).

    Each client in a transaction keeps one; what it sets stays when it leaves, for nothing is reset.
    """
    with ExitStack() as held:
        try:
            for _ in range(count):
                client = connect.open_connection(conninfo_to_dict(pooler.conninfo(ALIAS)))
                held.callback(_release, client)
                psycopg.ClientCursor(client).execute("; ".join(["BEGIN", *settings]).encode())
        except psycopg.Error as e:
            raise _refused(pooler, e) from None


def _release(client: psycopg.Connection[Any]) -> None:
    """A client that left in mid-transaction would take its server connection with it."""
    with suppress(psycopg.Error):
        psycopg.ClientCursor(client).execute("COMMIT")
    client.close()


def _refused(pooler: Pooler, error: psycopg.Error) -> DbdynoError:
    password = pooler.front.target["password"]
    made = connect_error(error, str(password) if password else None)
    log = pooler.log_tail()
    return type(made)(f"{pooler.front.program.name} cannot serve sessions: {made.message}; {log}", made.cure)


def _processes(connection: Connection, application: str) -> list[int]:
    """The server's own view of the pool's connections, the oldest first."""
    rows = connection.execute(sql.text("pool_processes").encode(), [application]).fetchall()
    return [pid for (pid,) in rows]


@contextmanager
def _ending(pooler: Pooler) -> Iterator[Pooler]:
    try:
        yield pooler
    finally:
        with suppress(ProcessLookupError):
            pooler.close()
