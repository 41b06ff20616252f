"""What each session does, as ``_core.Load`` takes it (docs/core.md); who is connected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import dict_row

from dbdyno.engines.postgres import objects, sql
from dbdyno.engines.postgres import workload_sql as halves
from dbdyno.engines.postgres.calls import as_sent, literal
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.workload_sql import Half
from dbdyno.model.plan import DriverSetup

GRACE_MS = 30_000
OWN_PROBE_SINCE = 180000  # pg_stat_get_backend_io: per backend, whatever it does
_NO_TIMEOUTS = (
    "statement_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
)
_PLAIN = DriverSetup()
COLUMNS = (
    {"name": "lio", "kind": "counter", "unit": "blocks"},
    {"name": "blocks_read", "kind": "counter", "unit": "blocks"},
)
WAL = {"name": "wal_bytes", "kind": "counter", "unit": "bytes"}


@dataclass(frozen=True)
class Recipe:
    """What a workload's sessions do, apart from their number and size."""

    name: str
    read_only: bool
    settings: Mapping[str, str]
    statements: tuple[str, ...] = ()  # of a script
    half: Half | None = None  # of a workload that comes with dbdyno
    params: tuple[tuple[str, Any], ...] = ()
    blocks: int = 0
    own: bool = False  # each session has its own objects
    varied: frozenset[str] = frozenset()  # settings of the server's that a session must not cover

    def call(self, session: int, size: int) -> list[dict[str, Any]]:
        """Statements of a call, with their parameters."""
        if self.half is None:
            return [{"sql": s, "params": []} for s in self.statements]
        params = dict(self.params)
        text = halves.sql(self.name, self.half.call, self.object_name(session), self.blocks, params)
        if self.half.size_parameter is not None:
            power = params.get(self.half.size_power, 1) if self.half.size_power else 1
            size = params[self.half.size_parameter] ** power
        return [{"sql": text, "params": [str(size)]}]

    def object_name(self, session: int) -> str:
        assert self.half is not None
        return self.half.objects.name_for(session, dict(self.params))


def in_one_transaction(recipe: Recipe, version: int) -> bool:
    """Before 18 a session's exact counts are to be had only inside a transaction: of what only reads."""
    return version < OWN_PROBE_SINCE and recipe.read_only and recipe.half is not None


def entries(
    connection: Connection, recipe: Recipe, sessions: int, size: int, driver: DriverSetup = _PLAIN
) -> list[dict[str, Any]]:
    """``sessions`` of the specification: one entry for all, or one for each that has its own objects."""
    standard = connection.info.parameter_status("standard_conforming_strings") != "off"
    inherited: dict[str, str] = dict(connection.execute(sql.text("session_settings")).fetchall())
    groups = [(n, 1) for n in range(sessions)] if recipe.own else [(0, sessions)]
    relations = _relations(connection, recipe, [n for n, _ in groups])
    return [
        {
            "count": count,
            "setup": setup(connection, recipe, inherited, relations.get(session)),
            "call": as_sent(recipe.call(session, size), driver, standard_strings=standard),
            "protocol": driver.protocol,
            "pipeline": driver.pipeline,
            "warm": [],
            "warm_calls": 1 if recipe.half is not None else 0,
        }
        for session, count in groups
    ]


def setup(
    connection: Connection, recipe: Recipe, inherited: Mapping[str, str], relations: str | None
) -> list[str]:
    """Simple queries that make a session: settings, and for 14 to 17 the one transaction."""
    settings = {**inherited, **recipe.settings}
    if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
        settings["client_encoding"] = "SQL_ASCII"  # else each row with a byte above 127 would be checked
    if recipe.half is not None:
        settings |= dict.fromkeys(_NO_TIMEOUTS, "0")
    settings = {name: value for name, value in settings.items() if name.lower() not in recipe.varied}
    if relations is not None:
        settings["dbdyno.relations"] = relations
    # Not SET: that takes the text of a list such as search_path for one name.
    quoted = [
        f"SELECT pg_catalog.set_config({literal(name)}, {literal(value)}, false)"
        for name, value in settings.items()
    ]
    if in_one_transaction(recipe, connection.info.server_version):
        quoted.append("BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED READ ONLY")
    return quoted


def shared(connection: Connection, recipe: Recipe) -> list[str]:
    """Of :func:`setup`, what makes a connection that serves all sessions in turn: no transaction."""
    inherited: dict[str, str] = dict(connection.execute(sql.text("session_settings")).fetchall())
    return [s for s in setup(connection, recipe, inherited, None) if not s.startswith("BEGIN")]


def probe(recipe: Recipe, version: int) -> dict[str, Any] | None:
    """How a session's own counters are read; None: they cannot be."""
    if version >= OWN_PROBE_SINCE:
        flush, read, columns = [sql.text("probe_flush_18")], sql.text("probe_18"), [*COLUMNS, WAL]
    elif in_one_transaction(recipe, version) and _has_tables(recipe):
        flush, read, columns = [], sql.text("probe_14"), [*COLUMNS]
    else:
        return None
    return {"flush": flush, "read": read, "columns": columns}


def _relations(connection: Connection, recipe: Recipe, sessions: Sequence[int]) -> dict[int, str]:
    version = connection.info.server_version
    if not (in_one_transaction(recipe, version) and _has_tables(recipe)):
        return {}
    names = {n: recipe.object_name(n) for n in sessions}
    oids = objects.relations(connection, list(names.values()))
    return {n: oids[name] for n, name in names.items()}


def _has_tables(recipe: Recipe) -> bool:
    return recipe.half is not None and recipe.half.objects.kind == "table"


def backends(connection: Connection, now_ns: Callable[[], int]) -> list[dict[str, Any]]:
    """All processes of the server, our own connections too. Raises :class:`psycopg.Error`."""
    at_ns = now_ns()
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(sql.text("backends").encode()).fetchall()
    return [{"at_ns": at_ns, **row} for row in found]
