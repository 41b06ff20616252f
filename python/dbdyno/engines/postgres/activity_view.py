"""The activity view of a version that lacks one of its columns: statements read NULL in its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import psycopg

from dbdyno.engines.postgres import sql, versions

FUNCTION = "pg_stat_get_activity"
_TIME = "timestamptz"
_COLUMNS: Mapping[str, str] = {
    "query_id": "int8",
    "leader_pid": "int4",
    "state": "text",
    "query": "text",
    "wait_event_type": "text",
    "wait_event": "text",
    "backend_type": "text",
    "backend_xid": "xid",
    "backend_xmin": "xid",
    "xact_start": _TIME,
    "query_start": _TIME,
    "state_change": _TIME,
    "client_addr": "inet",
    "client_port": "int4",
}
"""Columns that can be done without, with their types. Nothing works without the others."""
_CALL = re.compile(
    rf"pg_catalog\.{FUNCTION}\((?P<of>(?:[^()]|\(\))*)\)(?:\s+as\s+(?P<name>\w+)|\s+(?P<short>\w)\b)?"
)


def lacking(connection: psycopg.Connection[Any]) -> Mapping[str, str]:
    """Returns the columns that the server's view lacks, with their types; none of a version that tests have
    run on. Raises :class:`psycopg.Error`."""
    if versions.major(connection) <= versions.NEWEST:
        return {}
    row = connection.execute(sql.fill("activity_columns", function=FUNCTION).encode()).fetchone()
    known = row[0] if row is not None else ()
    return {name: kind for name, kind in _COLUMNS.items() if name not in known}


def adapted(text: str, lacks: Mapping[str, str]) -> str:
    """Returns a statement that reads the columns of ``lacks`` as NULL.

    >>> adapted("select query_id from pg_catalog.pg_stat_get_activity(null)", {"query_id": "int8"})[21:]
    '(select v.*, null::int8 as query_id from pg_catalog.pg_stat_get_activity(null) as v) as a'
    """
    if not lacks:
        return text
    columns = "".join(f", null::{kind} as {name}" for name, kind in lacks.items())

    def view(call: re.Match[str]) -> str:
        name = call["name"] or call["short"] or "a"
        return f"(select v.*{columns} from pg_catalog.{FUNCTION}({call['of']}) as v) as {name}"

    return _CALL.sub(view, text)
