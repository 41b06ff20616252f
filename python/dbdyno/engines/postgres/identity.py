"""Whether a server that came back is the one that went away."""

from __future__ import annotations

from typing import NamedTuple

import psycopg

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.errors import TargetError


class Identity(NamedTuple):
    major: int
    system: int | None  # the cluster's number, given by initdb; None: not permitted


def identity(connection: Connection) -> Identity:
    """Raises :class:`psycopg.Error` where the connection is lost."""
    system = None
    try:
        row = connection.execute(sql.text("identity").encode()).fetchone()
        system = int(row[0]) if row else None
    except psycopg.errors.InsufficientPrivilege:
        pass
    return Identity(connection.info.server_version // 10000, system)


def check_same(before: Identity, now: Identity) -> None:
    """Raises :class:`TargetError` where another server answers, whose figures go on from no earlier ones."""
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
