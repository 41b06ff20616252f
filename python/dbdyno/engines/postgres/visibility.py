"""What the control connection's role sees of other sessions, and what the server records at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from psycopg.rows import class_row

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.source import Source


class Sight(NamedTuple):
    """Columns of ``sight.sql``."""

    role: str  # quoted as SQL needs it
    all_sessions: bool  # has pg_read_all_stats
    states: bool  # track_activities
    query_ids: bool  # compute_query_id, as it came out
    io_timing: bool  # track_io_timing
    statements_there: bool  # pg_stat_statements is installed beside the server
    statements_loaded: bool  # it is in the server
    statements_made: bool  # and its extension in this database


def sight(connection: Connection) -> Sight:
    with connection.cursor(row_factory=class_row(Sight)) as cursor:
        row = cursor.execute(sql.text("sight").encode()).fetchone()
    assert row is not None
    return row


def activity(seen: Sight) -> Source:
    """The activity view as a witness. Its reads are ok even where others' columns are NULL."""
    return Source(
        name="activity samples",
        provenance="pg_stat_get_activity(NULL), by a connection of its own",
        status="ok" if seen.all_sessions else "not permitted",
        detail=_hidden(seen),
    )


def dim(seen: Sight) -> Iterator[Source]:
    """What is not seen, a line each with its cure."""
    if not seen.all_sessions:
        yield Source(
            name="sessions of other users",
            provenance="pg_stat_get_activity(NULL)",
            status="not permitted",
            detail=_hidden(seen),
        )
    if not seen.states:
        yield Source(
            name="session states",
            provenance="track_activities",
            status="off",
            detail="states and statements of sessions are unknown: set track_activities = on for the "
            "server or the role",
        )
    if not seen.query_ids:
        yield Source(
            name="statement ids",
            provenance="compute_query_id",
            status="off",
            detail="samples do not say which statement ran: compute_query_id = on makes them known",
        )
    if not seen.io_timing:
        yield Source(
            name="I/O timing",
            provenance="track_io_timing",
            status="off",
            detail="the server's own read and write times stay 0: track_io_timing = on",
        )


def statements(seen: Sight) -> Source:
    """Statements executed and blocks dirtied, by the extension that counts them."""
    missing = []
    if not seen.statements_there:
        missing.append("PostgreSQL's contrib modules installed on the server's host")
    if not seen.statements_loaded:
        missing.append("shared_preload_libraries = 'pg_stat_statements' and a restart")
    if not seen.statements_made:
        missing.append("CREATE EXTENSION pg_stat_statements in the database that dbdyno connects to")
    return Source(
        name="statement counters",
        provenance="pg_stat_statements, all databases",
        status="not supported" if missing else "ok",
        detail=f"executions and blocks dirtied are unknown: needs {', and '.join(missing)}"
        if missing
        else "",
    )


def _hidden(seen: Sight) -> str:
    if seen.all_sessions:
        return ""
    return (
        "without pg_monitor or pg_read_all_stats, wait events and states of other users' sessions are "
        f"hidden: GRANT pg_monitor TO {seen.role}"
    )
