"""Who is connected: rows of the table ``backends``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg.rows import dict_row

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection


def read(connection: Connection, now_ns: Callable[[], int]) -> list[dict[str, Any]]:
    """All processes of the server, our own connections too. Raises :class:`psycopg.Error`."""
    at_ns = now_ns()
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(sql.text("backends").encode()).fetchall()
    return [{"at_ns": at_ns, **row} for row in found]
