"""Selects sessions of other applications to observe, by a column of the activity query."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from psycopg.rows import dict_row

from dbdyno.engines.postgres import sql, texts, versions
from dbdyno.engines.postgres.activity_view import adapted
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.sessions import literal
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Observation

OBSERVER = f"dbdyno activity {os.getpid()}"
"""application_name of our sampling connections, which are never observed. Those of another dbdyno are."""
_TABLE = "pg_catalog.pg_shseclabel"
_LOOK = f"(select count(*) from {_TABLE}) as t"
_REPORT = f"  and (select pg_catalog.pg_stat_force_next_flush() from {_LOOK}) is not null"
"""Makes the server count the sample's transaction at once. A transaction alone is not reported, so it
reads a table: pg_shseclabel, which is empty unless shared objects have security labels."""
_CLIENT = (
    "(backend_type = 'client backend' or backend_type is null and datid is not null"
    " and coalesce(leader_pid, pid) = pid)"  # an ending parallel worker has no type
)
_MOST_NAMED = 8
_LARGEST_PID = 2**31 - 1


def activity_sql(connection: Connection, chosen: Observation | None = None) -> str:
    """Returns the activity query, with the boolean column ``chosen`` if sessions are selected.

    Raises :class:`UsageError` for a role, database or process that cannot match.
    """
    column = "" if chosen is None else f",\n       {_condition(connection, chosen)} as chosen"
    report = f"\n{_REPORT}" if _can_report(connection) else ""
    text = sql.fill("activity", chosen=column, control=connection.info.backend_pid, report=report)
    return adapted(text, connection.lacking)


def _can_report(connection: Connection) -> bool:
    """Returns whether a sample can be counted at once. Otherwise it is counted when the connection ends,
    in a later window."""
    if versions.major(connection) < versions.REPORTS_ON_REQUEST:
        return False
    text = f"select pg_catalog.has_table_privilege('{_TABLE}', 'select')"
    row = connection.execute(f"{text}{sql.OWN}".encode()).fetchone()
    return bool(row and row[0])


def counted_to_begin(connection: Connection) -> dict[str, int]:
    """Returns what the server counts of a sampling connection before its first sample, by counter.

    Transactions: start-up, settings, a trial of the query, and preparing that query and the one for lock
    waits. Executions: the isolation level (if utility statements are counted), settings and trial. A prepared
    query counts when executed.
    """
    text = f"select current_setting('pg_stat_statements.track_utility', true){sql.OWN}"
    row = connection.execute(text.encode()).fetchone()
    return {"transactions_committed": 5, "executions": 2 if row == ("off",) else 3}


def blocking_spec(connection: Connection) -> dict[str, Any]:
    """Returns how the core asks for lock waits, and in which wait event classes it does."""
    text = sql.fill("blocked", control=connection.info.backend_pid)
    return {"sql": adapted(text, connection.lacking), "classes": ["Lock"]}


def _condition(connection: Connection, chosen: Observation) -> str:
    """Returns the condition. It contains numbers and quoted literals only: names are looked up, so that no
    text of the user becomes SQL."""
    _check_text(chosen)
    parts = [_CLIENT, f"application_name is distinct from {literal(OBSERVER)}"]
    user, database = _oids(connection, chosen)
    if user is not None:
        parts.append(f"usesysid = {user}")
    if database is not None:
        parts.append(f"datid = {database}")
    if chosen.application is not None:
        parts.append(f"application_name = {literal(_shown(connection, chosen.application))}")
    if chosen.pids:
        _check_pids(connection, chosen.pids)
        parts.append(f"pid = any ('{{{','.join(str(int(pid)) for pid in chosen.pids)}}}'::int[])")
    return "coalesce(" + " and ".join(parts) + ", false)"


def _check_text(chosen: Observation) -> None:
    for what in ("user", "database", "application"):
        if "\0" in (getattr(chosen, what) or ""):
            raise UsageError(f"a NUL character in {what}", f"name the {what} as the server shows it")


def _oids(connection: Connection, chosen: Observation) -> tuple[int | None, int | None]:
    if chosen.user is None and chosen.database is None:
        return None, None
    row = _ask(connection, "names", [chosen.user, chosen.database])[0]
    for what, known, noun in (("user", "users", "role"), ("database", "databases", "database")):
        wanted = getattr(chosen, what)
        if wanted is not None and row[what] is None:
            raise UsageError(f'{noun} "{wanted}" does not exist on this server', _near(wanted, row[known]))
    return row["user"], row["database"]


def _near(wanted: str, known: Sequence[str]) -> str:
    """Returns a suggestion: similar names, or else the existing ones."""
    alike = get_close_matches(wanted, known, n=3, cutoff=0.6)
    if alike:
        return f"did you mean {' or '.join(alike)}?"
    own = sorted(name for name in known if not name.startswith("pg_"))
    more = ", ..." if len(own) > _MOST_NAMED else ""
    return f"there are {', '.join(own[:_MOST_NAMED])}{more}"


def _shown(connection: Connection, application: str) -> str:
    cursor = texts.RawCursor(connection)
    row = cursor.execute(sql.text("shown_application").encode(), [application]).fetchone()
    return str(row[0]) if row else application


def _check_pids(connection: Connection, pids: Sequence[int]) -> None:
    """Raises :class:`UsageError` for processes that can never be a session. A missing process may appear
    later."""
    for pid in pids:
        if not 0 < pid <= _LARGEST_PID:
            raise UsageError(f"{pid} is no process id", "pg_stat_activity.pid names the sessions' processes")
    if connection.info.backend_pid in pids:
        raise UsageError(
            f"process {connection.info.backend_pid} is dbdyno's own connection",
            "name another session's process",
        )
    others = _ask(connection, "no_clients", [list(pids)])
    if others:
        named = ", ".join(f"process {r['pid']} is the server's {r['kind']}" for r in others)
        raise UsageError(
            f"{named}: not a session", "the server's own processes are always observed, on lines of their own"
        )


def _ask(connection: Connection, name: str, params: list[Any]) -> list[dict[str, Any]]:
    with texts.RawCursor(connection, row_factory=dict_row) as cursor:
        rows: list[dict[str, Any]] = cursor.execute(sql.text(name).encode(), params).fetchall()
    return rows
