"""What the control connection learns about the server, and which of its witnesses can speak."""

from __future__ import annotations

from collections.abc import Iterable

from dbdyno.engines.postgres import connect, sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.local import Presence
from dbdyno.engines.postgres.sessions import OWN_PROBE_SINCE, Recipe
from dbdyno.model.environment import ServerFacts
from dbdyno.model.source import Source


def facts(connection: Connection, presence: Presence, *, embedded: bool) -> ServerFacts:
    """No credentials; settings that may hold one are left out in ``settings.sql``."""
    settings: dict[str, str] = dict(connection.execute(sql.text("settings").encode()).fetchall())
    description = connection.execute("select pg_catalog.version()").fetchone() or ("",)
    return ServerFacts(
        engine="postgres",
        version=str(settings.pop("server_version")).split()[0],
        version_num=connection.info.server_version,
        description=str(description[0]),
        where=connect.where(connection),
        embedded=embedded,
        tls=connect.tls_in_words(connection),
        here=presence.here,
        here_detail=presence.detail,
        main_pid=presence.main_pid,
        settings={name: str(value) for name, value in settings.items()},
    )


def sources(version: int, scripts: Iterable[Recipe], unprobed: str | None = None) -> list[Source]:
    """The engine's witnesses. ``unprobed``: why the sessions were not asked."""
    return [
        _session_counters(version, any(True for _ in scripts), unprobed),
        _server_counters(version),
        _activity(),
        _executions(),
    ]


def _session_counters(version: int, script: bool, unprobed: str | None) -> Source:
    name = "engine counters, per session"
    if version >= OWN_PROBE_SINCE:
        return Source(
            name=name,
            provenance="pg_stat_get_backend_io(own pid) after pg_stat_force_next_flush()",
            status="ok" if unprobed is None else "off",
            detail=unprobed or "",
        )
    provenance = "pg_stat_get_xact_blocks_fetched(own tables and indexes), the session being one transaction"
    if not script:
        return Source(name=name, provenance=provenance, status="ok")
    return Source(
        name=name,
        provenance=provenance,
        status="not supported",
        detail="an own script cannot be put into one transaction: PostgreSQL 18 counts per session; "
        "counters of the whole database are read all the same",
    )


def _server_counters(version: int) -> Source:
    views = "pg_stat_database, pg_stat_wal, pg_stat_bgwriter"
    if version >= 160000:
        views += ", pg_stat_io" + (", pg_stat_checkpointer" if version >= 170000 else "")
    detail = "" if version >= 150000 else "version 14 tells it up to 0.5 s late"
    return Source(name="engine counters, server-wide", provenance=views, status="ok", detail=detail)


def _activity() -> Source:
    return Source(
        name="activity samples",
        provenance="pg_stat_get_activity(NULL), by a connection of its own",
        status="ok",
    )


def _executions() -> Source:
    return Source(
        name="engine executions",
        provenance="pg_stat_database.xact_commit",
        status="ok",
        detail="transactions of all clients of the database, the watchers' included: not exact per session",
    )
