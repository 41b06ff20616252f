"""What the control connection learns about the server, and which of its witnesses can speak."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources

from dbdyno.engines.postgres import connect, sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.presence import Presence
from dbdyno.engines.postgres.sessions import OWN_PROBE_SINCE, Recipe
from dbdyno.engines.postgres.visibility import Sight, activity, dim, statements
from dbdyno.engines.postgres.wait_events import NEWEST, words
from dbdyno.model.environment import ServerFacts
from dbdyno.model.helpers import Helper
from dbdyno.model.source import Source


def facts(connection: Connection, presence: Presence, *, embedded: bool) -> ServerFacts:
    """No credentials; settings that may hold one are left out in ``settings.sql``."""
    settings: dict[str, str] = dict(connection.execute(sql.text("settings").encode()).fetchall())
    description = connection.execute("select pg_catalog.version()").fetchone() or ("",)
    return ServerFacts(
        engine="postgres",
        product="PostgreSQL",
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
        helpers=helpers(),
    )


@cache
def helpers() -> dict[str, Helper]:
    """What the server's own processes are for, by their names."""
    text = resources.files(__package__).joinpath("helpers.toml").read_text(encoding="utf-8")
    return {name: Helper(kind) for name, kind in tomllib.loads(text).items()}


def sources(
    version: int, scripts: Iterable[Recipe], seen: Sight, unprobed: str | None = None
) -> list[Source]:
    """The engine's witnesses. ``unprobed``: why the sessions were not asked."""
    return [
        _session_counters(version, any(True for _ in scripts), unprobed),
        _server_counters(version),
        activity(seen),
        _executions(),
        statements(seen),
        *dim(seen),
        *_words(version),
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
    if unprobed is not None:
        return Source(name=name, provenance=provenance, status="off", detail=unprobed)
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
    views = "pg_stat_database (all), pg_stat_wal, pg_stat_bgwriter"
    if version >= 160000:
        views += ", pg_stat_io" + (", pg_stat_checkpointer" if version >= 170000 else "")
    detail = "a session reports when a transaction ends, once a second at most: the figures lag by that"
    if version < 150000:
        detail += ", and by the 0.5 s that version 14 may keep them"
    return Source(name="engine counters, server-wide", provenance=views, status="ok", detail=detail)


def _words(version: int) -> list[Source]:
    """Only what is missing: how the words' reads went is the core's to say."""
    if words(version // 10000) is not None:
        return []
    return [
        Source(
            name="wait event word",
            provenance=f"names of the wait events of version {version // 10000}",
            status="not supported",
            detail=f"known are those of versions 14 to {NEWEST}: a later dbdyno may know more",
        )
    ]


def _executions() -> Source:
    return Source(
        name="engine executions",
        provenance="pg_stat_database.xact_commit",
        status="ok",
        detail="transactions of all clients of the database, the watchers' included: not exact per session",
    )
