"""How many sessions the server has room for, and the lock that gives it to one run."""

from __future__ import annotations

import time

from psycopg.rows import dict_row

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.errors import ServerBusy
from dbdyno.model.protocols import Capacity

CLAIM_KEY = 0x646264796E6F  # "dbdyno" in ASCII
_PATIENCE_S = 0.5  # a run that has just ended may still be closing


def capacity(connection: Connection) -> Capacity:
    """The tightest of three limits: the server's, the role's, the database's."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(sql.text("capacity").encode()).fetchone() or {}
    kept = 0 if row["superuser"] else row["superuser_reserved"]
    if not (row["superuser"] or row["may_use_reserved"]):
        kept += row["reserved"]
    words = f"max_connections = {row['maximum']}, reserved for others {kept}, in use {row['in_use']}"
    found = [Capacity(row["maximum"], kept, row["in_use"], words)]
    if not row["superuser"]:
        for what in ("role", "database"):
            limit, in_use = row[f"{what}_limit"], row[f"{what}_in_use"]
            if limit >= 0:
                detail = f"connection limit of the {what} = {limit}, in use {in_use} ({words})"
                found.append(Capacity(limit, 0, in_use, detail))
    return min(found, key=lambda c: c.free)


def claim(connection: Connection, run: str) -> None:
    """Takes the lock, for as long as the connection lives. Raises :class:`ServerBusy` saying who holds it."""
    connection.execute("select pg_catalog.set_config('application_name', %s, false)", [f"dbdyno run {run}"])
    deadline = time.monotonic() + _PATIENCE_S
    while not (_lock(connection) and not _holders(connection)):
        holders = _holders(connection)
        connection.execute("select pg_catalog.pg_advisory_unlock_all()")
        if holders and time.monotonic() > deadline:
            raise ServerBusy(
                f"another run holds this server: {'; '.join(holders)}",
                "wait until it has ended, or end that connection",
            )
        time.sleep(0.05)


def _lock(connection: Connection) -> bool:
    row = connection.execute(sql.fill("claim", key=CLAIM_KEY).encode()).fetchone()
    return bool(row and row[0])


def _holders(connection: Connection) -> list[str]:
    rows = connection.execute(sql.fill("holders", key=CLAIM_KEY).encode()).fetchall()
    return [
        f"{application or 'a connection'} (process {pid}, database {database}"
        + (f", from {address}" if address else "")
        + f"), connected since {since}"
        for pid, application, database, address, since in rows
    ]
