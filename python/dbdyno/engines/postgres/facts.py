"""Facts about the server, what this role can see of it, and whether sessions may be probed."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from importlib import resources
from typing import NamedTuple

import psycopg
from psycopg.rows import class_row

from dbdyno.engines.postgres import connect, managed, sql, versions
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.counters import Counter
from dbdyno.engines.postgres.embedded.defaults import memory_limit_bytes
from dbdyno.engines.postgres.enabling import Visibility, grant_monitor, switch_on
from dbdyno.engines.postgres.presence import Presence
from dbdyno.engines.postgres.sessions import Recipe
from dbdyno.model.engine.environment import ServerFacts
from dbdyno.model.errors import TargetError
from dbdyno.model.schema.data_source import Enabling, Step
from dbdyno.model.schema.data_sources.blocking import LOCK_WAITS
from dbdyno.model.sources.source import Source
from dbdyno.model.sources.wait_families import COUNTED_LOCK_WAITS, LOCK_WAIT_NS, Helper
from dbdyno.model.units import counted

# What the control connection's role can see of other sessions, and what the server records.


def visibility(connection: Connection) -> Visibility:
    with connection.cursor(row_factory=class_row(Visibility)) as cursor:
        row = cursor.execute(sql.text("visibility").encode(), {"services": managed.ROLES}).fetchone()
    assert row is not None
    return row


def activity(seen: Visibility) -> Source:
    """Returns the data source of the activity view. It is ok even if columns of other users' sessions are
    NULL."""
    return Source(
        name="activity samples",
        provenance="pg_stat_get_activity(NULL), by a connection of its own",
        status="ok" if seen.all_sessions else "not permitted",
        detail=_hidden(seen),
        enabling=grant_monitor(seen, "state, wait event and statement of each session, sampled by SQL"),
    )


def blocking(seen: Visibility) -> Source:
    """Returns the data source of lock waits. Every role sees locks, but not what their holders do."""
    return Source(
        name=LOCK_WAITS,
        provenance="pg_lock_status(), after a sample that met a session in a wait of the type Lock",
        status="ok" if seen.all_sessions else "not permitted",
        detail=_hidden(seen),
        enabling=grant_monitor(seen, "who makes whom wait: chains of lock waits, and what their roots do"),
    )


def _lacking(major: int, lacking: Collection[str]) -> str:
    names = ", ".join(lacking)
    return f"PostgreSQL {major} has no {names} in pg_stat_get_activity: unknown here" if lacking else ""


def hidden_sources(seen: Visibility, lacking: Collection[str] = (), lacks: str = "") -> Iterator[Source]:
    """Yields a data source for each thing that is hidden, with its cure. ``lacking``: columns that the
    server's version shows to nobody, ``lacks`` says so."""
    if not seen.all_sessions:
        yield Source(
            name="sessions of other users",
            provenance="pg_stat_get_activity(NULL)",
            status="not permitted",
            detail=_hidden(seen),
            enabling=grant_monitor(seen, "states and wait events of sessions of other users"),
        )
    if not seen.states:
        yield Source(
            name="session states",
            provenance="track_activities",
            status="off",
            detail="states and statements of sessions are unknown: set track_activities = on for the "
            "server or the role",
            enabling=switch_on(seen, "track_activities", "states and statements of sessions"),
        )
    if lacks:
        yield Source(
            name="activity columns", provenance="pg_stat_get_activity", status="not supported", detail=lacks
        )
    if not seen.query_ids and "query_id" not in lacking:
        yield Source(
            name="statement ids",
            provenance="compute_query_id",
            status="off",
            detail="samples do not say which statement ran: compute_query_id = on makes them known",
            enabling=switch_on(seen, "compute_query_id", "which statement each sample met"),
        )
    if not seen.io_timing:
        yield Source(
            name="I/O timing",
            provenance="track_io_timing",
            status="off",
            detail="the server's own read and write times stay 0: track_io_timing = on",
            enabling=switch_on(seen, "track_io_timing", "the server's own times of reads and writes"),
        )


def _hidden(seen: Visibility) -> str:
    if seen.all_sessions:
        return ""
    return (
        "without pg_monitor or pg_read_all_stats, wait events, states and statements of other users are "
        f"hidden: GRANT pg_monitor TO {seen.role}"
    )


def facts(connection: Connection, presence: Presence, seen: Visibility, *, embedded: bool) -> ServerFacts:
    """Returns facts without credentials: ``settings.sql`` leaves out settings that may hold one."""
    settings: dict[str, str] = dict(connection.execute(sql.text("settings").encode()).fetchall())
    description = connection.execute("select pg_catalog.version()").fetchone() or ("",)
    return ServerFacts(
        engine="postgres",
        product="PostgreSQL",
        version=reported(connection),
        version_num=connection.info.server_version,
        doubt=versions.doubt(versions.major(connection)) or "",
        description=str(description[0]),
        where=connect.where(connection),
        embedded=embedded,
        service=seen.service.name if seen.service else "",
        standby=_standby(connection),
        tls=connect.tls_in_words(connection),
        here=presence.here,
        here_detail=presence.detail,
        main_pid=presence.main_pid,
        reached=presence.machine.reached,
        settings={name: str(value) for name, value in settings.items()},
        helpers=helpers(),
    )


def reported(connection: Connection) -> str:
    """Returns the version that the server reports at login, without its builder's addition: ``18.6``."""
    return (connection.info.parameter_status("server_version") or "").split(" ")[0]


def _standby(connection: Connection) -> bool:
    row = connection.execute("select pg_catalog.pg_is_in_recovery()").fetchone()
    return bool(row and row[0])


@cache
def helpers() -> dict[str, Helper]:
    """Returns the kinds of the server's own processes, by name."""
    text = resources.files(__package__).joinpath("helpers.toml").read_text(encoding="utf-8")
    return {name: Helper(kind) for name, kind in tomllib.loads(text).items()}


def sources(
    major: int,
    scripts: Iterable[Recipe],
    seen: Visibility,
    statements: Source,
    *,
    counts_own_work: bool,
    unprobed: str | None = None,
    unread: Collection[Counter] = (),
    lacking: Collection[str] = (),
) -> list[Source]:
    """Returns the engine's data sources. ``unprobed`` is why sessions were not asked for their counters,
    ``unread`` are the counters that could not be read, ``lacking`` the columns that the activity view
    lacks."""
    return [
        _session_counters(major, any(True for _ in scripts), unprobed, counts_own_work=counts_own_work),
        _server_counters(major, unread),
        activity(seen),
        _executions(),
        statements,
        blocking(seen),
        *hidden_sources(seen, lacking, _lacking(major, lacking)),
        *_word_sources(major),
        *_lock_counters(major, seen, unread),
    ]


def _session_counters(major: int, script: bool, unprobed: str | None, *, counts_own_work: bool) -> Source:
    name = "engine counters, per session"
    enabling = Enabling("logical reads and other work of each session, counted exactly")
    if counts_own_work:
        return Source(
            name=name,
            provenance="pg_stat_get_backend_io(own pid) after pg_stat_force_next_flush()",
            status="ok" if unprobed is None else "off",
            detail=unprobed or "",
            enabling=enabling,
        )
    changed = major >= versions.COUNTS_BY_CONNECTION
    provenance = "pg_stat_get_xact_blocks_fetched(own tables and indexes), the session being one transaction"
    if unprobed is not None:
        return Source(name=name, provenance=provenance, status="off", detail=unprobed, enabling=enabling)
    if not script:
        enabling = enabling._replace(only="built-in workloads; own scripts from PostgreSQL 18 on")
        detail = f"PostgreSQL {major} does not answer for a session as 18 does" if changed else ""
        return Source(name=name, provenance=provenance, status="ok", detail=detail, enabling=enabling)
    return Source(
        name=name,
        provenance=provenance,
        status="not supported",
        detail="an own script cannot be put into one transaction: PostgreSQL 18 counts per session; "
        "counters of the whole database are read all the same",
        enabling=enabling,
    )


def _server_counters(major: int, unread: Collection[Counter]) -> Source:
    views = "pg_stat_database (all), pg_stat_wal, pg_stat_bgwriter"
    if major >= versions.IO_VIEW:
        views += ", pg_stat_io" + (", pg_stat_checkpointer" if major >= versions.CHECKPOINTER_VIEW else "")
    detail = "a session reports when a transaction ends, once a second at most: the figures lag by that"
    if major < versions.REPORTS_ON_REQUEST:
        detail += ", and by the 0.5 s that version 14 may keep them"
    missed = sorted(c.name for c in unread if c.since <= versions.NEWEST)
    if missed:
        detail += f"; PostgreSQL {major} did not answer for {', '.join(missed)}"
    return Source(
        name="engine counters, server-wide",
        provenance=views,
        status="limited" if missed else "ok",
        detail=detail,
        enabling=Enabling("transactions, blocks, WAL, I/O of the whole server: the load profile"),
    )


def _word_sources(major: int) -> list[Source]:
    """Returns a source only if the wait events are unknown; the core reports how their reads went."""
    doubt = versions.doubt(major)
    if doubt is None:
        return []
    return [
        Source(
            name="wait event word",
            provenance=f"names of the wait events of PostgreSQL {major}",
            status="not supported",
            detail=doubt,
            enabling=Enabling(
                "wait events read from the server's memory, at the same instant as the state of the process",
                steps=(Step(f"install a version of dbdyno that knows PostgreSQL {major}"),),
            ),
        )
    ]


def _lock_counters(major: int, seen: Visibility, unread: Collection[Counter]) -> Iterator[Source]:
    if major >= versions.LOCK_VIEW and LOCK_WAIT_NS not in {c.name for c in unread}:
        waits = f"waits longer than {seen.deadlock_timeout} (deadlock_timeout) that got their lock"
        yield Source(name=COUNTED_LOCK_WAITS, provenance="pg_stat_lock", status="ok", detail=waits)


def _executions() -> Source:
    return Source(
        name="engine executions",
        provenance="pg_stat_database.xact_commit",
        status="ok",
        detail="transactions of all clients of the database, the watchers' included: not exact per session",
        enabling=Enabling("transactions of the database"),
    )


# Whether the server after a reconnection is the one before it.


class Identity(NamedTuple):
    """Identifies a server across reconnections."""

    major: int
    system: int | None  # the system identifier, given by initdb; None if not permitted


def identity(connection: Connection) -> Identity:
    """Returns the server's identity. Raises :class:`psycopg.Error` if the connection is lost."""
    system = None
    try:
        row = connection.execute(sql.text("identity").encode()).fetchone()
        system = int(row[0]) if row else None
    except psycopg.errors.InsufficientPrivilege:
        pass
    return Identity(versions.major(connection), system)


def check_same(before: Identity, now: Identity) -> None:
    """Raises :class:`TargetError` if another server answers, whose counters do not continue the earlier
    ones."""
    if now.major != before.major:
        raise TargetError(
            f"another server came back: PostgreSQL {now.major}, where it was {before.major}",
            "what was measured before is kept; start a new run on this server",
        )
    if now.system is not None and before.system is not None and now.system != before.system:
        raise TargetError(
            f"another server came back: system identifier {now.system}, where it was {before.system}",
            "what was measured before is kept; start a new run on this server",
        )


# The memory that probes of sessions need, and whether the machine has it for all sessions.
#
# ``pg_stat_get_backend_io`` copies the status of every backend slot into the asking backend
# (``pgstat_read_current_status`` in backend_status.c), and its allocator keeps that memory. With many slots
# and many sessions the sum grows with their product: 5,000 sessions and 5,000 slots would need 36 GB.

SHARE = 0.25  # of the machine's memory, if the server is on this host
ELSEWHERE_BYTES = 4 << 30  # if the server is on another host
_SLOT_BYTES = 512  # of a slot besides its query text; measured on 18: 1.4 kB with texts of 1 kB


def probe_refusal(connection: Connection, sessions: int, *, here: bool) -> str | None:
    """Returns why the sessions are not probed, None if they can be."""
    row = connection.execute(sql.text("probe_slots")).fetchone()
    slots, text_bytes = (int(v) for v in row or (0, 0))
    needed = sessions * slots * (text_bytes + _SLOT_BYTES)
    limit = int(SHARE * memory_limit_bytes()) if here else ELSEWHERE_BYTES
    if needed <= limit:
        return None
    return (
        f"asking each of {counted(sessions, 'session')} on a server of {counted(slots, 'slot')} would take "
        f"{needed / 2**30:.1f} GB of its memory (limit {limit / 2**30:.1f} GB): fewer sessions or a lower "
        "max_connections; counters of the whole database are read all the same"
    )
