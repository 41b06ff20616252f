"""Locates the query id in a backend's memory, and verifies it against the activity view.

PostgreSQL, src/include/utils/backend_status.h: ``MyBEEntry`` points at the backend's own ``PgBackendStatus``
in shared memory, whose ``st_query_id`` the view shows. The layout is the same in all 64-bit Linux builds
(x86_64 and aarch64 have the same sizes and alignments).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from dbdyno.engines.postgres import sql, versions
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.presence import Presence
from dbdyno.engines.postgres.wait_events import PROGRAM, word_spec, words
from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.machine import Machine

SYMBOL = "MyBEEntry"
MACHINES = ("x86_64", "aarch64")
_IDLE = ("Client", "ClientRead")
"""The wait event of a backend that waits for the next statement."""


def statement_spec(
    connection: Connection,
    pid: int | None,
    major: int,
    offsets: Mapping[int, int] = versions.QUERY_ID_OFFSETS,
    machine: Machine = HERE,
) -> dict[str, Any]:
    """Returns ``word.statement`` of ``_core.Watch`` (docs/core.md): where the id is, or why it is not read.

    ``pid`` is the process of ``connection``, which is asked for its own query id; its memory keeps that id
    until the next statement.
    """
    wait_words, offset = words(major), offsets.get(major)
    if wait_words is None or offset is None or machine.architecture not in MACHINES:
        return _refused(
            "not supported", f"where version {major} keeps it on {machine.architecture} is not known"
        )
    if pid is None:
        return _refused("not here", "the server's processes are not seen from here (see os tasks)")
    try:
        cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
        row = cursor.execute(sql.text("query_id").encode()).fetchone()
    except psycopg.Error as e:
        return _refused("lost", f"the server was not asked: {e}")
    shown = row[0] if row else None
    if shown is None:
        return _refused("off", "the server computes no query ids: set compute_query_id = on")
    read, status, detail = machine.read_behind(pid, PROGRAM, SYMBOL, offset)
    if status != "ok":
        return _refused(status, detail)
    if read != shown:
        why = f"the activity view has query id {shown} for process {pid}, its memory {read}"
        return _refused(
            "not supported", f"{why}: this build has another layout; samples have the ids of statements"
        )
    idle = next(word for word, names in wait_words.events.items() if names == _IDLE)
    return {"symbol": SYMBOL, "offset": offset, "idle": idle}


def backend_word(connection: Connection, seen: Presence) -> dict[str, Any] | None:
    """Returns ``word`` of ``_core.Watch`` for a server whose processes are visible."""
    major = versions.major(connection)
    return word_spec(major, statement_spec(connection, seen.pid, major, machine=seen.machine))


def _refused(status: str, detail: str) -> dict[str, Any]:
    return {"refused": [status, detail]}
