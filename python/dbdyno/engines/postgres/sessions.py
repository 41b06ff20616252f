"""The sessions of a load in the form that ``_core.Load`` takes (docs/core.md); connected sessions; the
server's capacity; and the lock by which one run holds the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import dict_row

from dbdyno.engines import paced
from dbdyno.engines.postgres import loader, objects, own_settings, script_check, script_halves, sql, versions
from dbdyno.engines.postgres.connect import APPLICATION, Connection
from dbdyno.engines.postgres.counters import COLLECTOR_S
from dbdyno.engines.postgres.objects import Half
from dbdyno.engines.postgres.own_settings import SEARCH_PATH
from dbdyno.engines.postgres.sql_tokens import tokens
from dbdyno.model.engine.protocols import Capacity
from dbdyno.model.errors import ServerBusy, UsageError
from dbdyno.model.plan.data_size import SIZE
from dbdyno.model.plan.parameter import Parameter, Rows
from dbdyno.model.plan.plan import Cell, DriverSetup, PlannedScript, Variant, Workload

LONGEST_PIPELINE_BYTES = 64 * 1024  # docs/core.md: a longer one may not fit into the sockets' buffers
_FRAME_BYTES = 64  # of a statement's messages besides text and values

_CHANGES_BRANCHES = "tpcb-like"
"""Script whose calls each update the row of a branch."""
Statement = Mapping[str, Any]  # of docs/core.md: {"sql": ..., "params": [...]}


def as_sent(call: Sequence[Statement], driver: DriverSetup, *, standard_strings: bool) -> list[Statement]:
    """Returns the statements of a call in the form that the driver sends."""
    statements = list(call)
    if driver.validation:
        validation: Statement = {"sql": driver.validation, "params": []}
        statements = [s for statement in statements for s in (validation, statement)]
    if driver.protocol == "simple":
        statements = [
            {"sql": _with_values(s, standard_strings=standard_strings), "params": []} for s in statements
        ]
    if driver.pipeline and len(statements) > 1:
        _check_length(statements, prepared=driver.protocol == "prepared")
    return statements


def check_driver(connection: Connection, driver: DriverSetup) -> None:
    """Has the server parse the validation query. Raises :class:`UsageError` if it is wrong."""
    if not driver.validation:
        return
    script = PlannedScript(name="validation", text=driver.validation)
    script_check.check(connection, [script], DriverSetup())
    count = sum(max(1, c["statements"]) for c in script_check.commands(script, DriverSetup()))
    if count != 1:
        raise UsageError(
            f"validation: {driver.validation!r} is {count} statements",
            "one goes before each statement of a call, such as SELECT 1",
        )


def _check_length(call: Sequence[Statement], *, prepared: bool) -> None:
    texts = [t for s in call for t in (*s["params"], *([] if prepared else [s["sql"]]))]
    size = sum(len(t.encode()) for t in texts if t is not None) + _FRAME_BYTES * len(call)
    if size > LONGEST_PIPELINE_BYTES:
        raise UsageError(
            f"a call of {len(call)} statements is {size:,} bytes; at most {LONGEST_PIPELINE_BYTES:,} can be "
            "sent in one go",
            "pipeline = false, or fewer or shorter statements",
        )


def _with_values(statement: Statement, *, standard_strings: bool) -> str:
    """Returns its text with a literal for each ``$n`` outside of strings, names and comments. A literal
    has no type of its own, like the parameter: the server infers both from the context."""
    text, params = statement["sql"], statement["params"]
    if not params:
        return str(text)
    pieces = []
    for token in tokens(text, standard_strings=standard_strings):
        word = text[token.start : token.end]
        if token.kind == "number" and word[0] == "$":
            value = params[int(word[1:]) - 1]
            word = "NULL" if value is None else literal(value)
        pieces.append(word)
    return "".join(pieces)


def literal(value: str) -> str:
    """Returns an SQL string literal that is safe with standard_conforming_strings on or off."""
    if "\\" in value:
        return " E'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    return "'" + value.replace("'", "''") + "'"


GRACE_MS = 30_000
_NO_TIMEOUTS = (
    "statement_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
)
_PLAIN = DriverSetup()
_OWN_NAMES = {"search_path": SEARCH_PATH}
"""Settings of sessions whose statements qualify dbdyno's schema: no other schema may provide code for
them."""
COLUMNS = (
    {"name": "lio", "kind": "counter", "unit": "blocks"},
    {"name": "blocks_read", "kind": "counter", "unit": "blocks"},
)
OF_BACKENDS = (
    {"name": "read_requests", "kind": "counter", "unit": "count"},
    {"name": "wal_bytes", "kind": "counter", "unit": "bytes"},
    *({"name": name, "kind": "counter", "unit": "bytes"} for name in ("read_bytes", "written_bytes")),
    *(
        {"name": name, "kind": "counter", "unit": "count"}
        for name in ("writes", "wal_writes", "wal_syncs", "wal_records", "wal_full_page_images")
    ),
)


@dataclass(frozen=True)
class Recipe:
    """The statements of a workload's sessions, whatever their number and the size of a call."""

    name: str
    read_only: bool
    settings: Mapping[str, str]
    scripts: tuple[PlannedScript, ...] = ()
    half: Half | None = None  # of a built-in workload
    params: tuple[tuple[str, Any], ...] = ()
    blocks: int = 0
    own: bool = False  # each session has its own objects
    varied: frozenset[str] = frozenset()  # server settings of a variant, which a session must not override

    def call(self, session: int, size: int) -> list[dict[str, Any]]:
        """Returns the statements of a call, with their parameters."""
        assert self.half is not None
        params = dict(self.params)
        text = objects.statement_of(self.name, self.half.call, self.object_name(session), self.blocks, params)
        if self.half.size_parameter is not None:
            power = params.get(self.half.size_power, 1) if self.half.size_power else 1
            size = params[self.half.size_parameter] ** power
        return [{"sql": text, "params": [str(size)]}]

    def object_name(self, session: int) -> str:
        assert self.half is not None
        return self.half.objects.name_for(session, dict(self.params))


def in_one_transaction(recipe: Recipe, connection: Connection) -> bool:
    """Returns whether a session is one transaction. Where the server does not count by session, only the
    counts within a transaction are exact, so this is done for sessions that only read."""
    return not connection.counts_own_work and recipe.read_only and recipe.half is not None


MOST_PAUSED = 40
"""Most sessions that pause before they report. At least four pause at a time, for half a second."""


def reporting(recipe: Recipe, connection: Connection, count: int) -> dict[str, Any] | None:
    """Returns the keys of the specification by which sessions report their activity before the barrier to the
    server's counters: transactions, blocks, calls. Otherwise it is reported with the first calls of the
    window.

    Version 14 cannot be asked to report; it does so with a statement half a second after the last report.
    None if each session is one transaction, which is reported at its end, or too many sessions would have to
    pause.
    """
    if in_one_transaction(recipe, connection):
        return None
    if versions.major(connection) >= versions.REPORTS_ON_REQUEST:
        return {"warm": [sql.text("snapshot_flush")], "pause_ms": 0}
    if count > MOST_PAUSED:
        return None
    return {"warm": [sql.text("report_14")], "pause_ms": int(COLLECTOR_S * 1000)}


def entries(
    connection: Connection,
    recipe: Recipe,
    sessions: int,
    size: int,
    driver: DriverSetup = _PLAIN,
    report: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Returns ``sessions`` of the specification: one entry for all, or one per session if each has its own
    objects. ``report`` is that of :func:`reporting`."""
    warm_up = report or {"warm": [], "pause_ms": 0}
    standard = connection.user_value("standard_conforming_strings") != "off"
    inherited = _inherited(connection)
    if recipe.scripts:
        options: dict[str, Any] = {"protocol": driver.protocol, "validation": driver.validation, **warm_up}
        return [{"count": sessions, "setup": setup(connection, recipe, inherited, None), **options}]
    groups = [(n, 1) for n in range(sessions)] if recipe.own else [(0, sessions)]
    relations = _relations(connection, recipe, [n for n, _ in groups])
    return [
        {
            "count": count,
            "setup": setup(connection, recipe, inherited, relations.get(session)),
            "call": as_sent(recipe.call(session, size), driver, standard_strings=standard),
            "protocol": driver.protocol,
            "pipeline": driver.pipeline,
            **warm_up,
            "warm_calls": WARM_CALLS if recipe.half is not None else 0,
        }
        for session, count in groups
    ]


def _inherited(connection: Connection) -> dict[str, str]:
    """Returns the settings that the control connection itself requested (options, PGOPTIONS, PGTZ, ...),
    so that the sessions get them too."""
    rows = connection.execute(sql.text("session_settings").encode()).fetchall()
    return {**dict(rows), **dict(own_settings.of_client(connection.before))}


def own_recipe(
    connection: Connection,
    name: str,
    mix: Sequence[PlannedScript],
    variant: Variant,
    settings: Mapping[str, str],
) -> Recipe:
    """Returns the recipe of a user's scripts, after checking them. Raises
    :class:`dbdyno.model.errors.ScriptError`."""
    scale = script_check.scale_of(connection, mix)
    path = script_check.search_path_of(connection, mix)
    script_check.check(connection, mix, variant.driver, variant.params, path)
    params = {**variant.params, **({} if scale is None else {"scale": scale[0]})}
    settings = dict(settings) if path is None else {**settings, "search_path": path}
    return Recipe(name, False, settings, tuple(mix), params=tuple(params.items()))


def sized(workload: Workload, recipe: Recipe) -> Workload:
    """Returns the workload with the scale of pgbench's tables, if pgbench's own scripts run on them."""
    scale = dict(recipe.params).get(SIZE)
    if not isinstance(scale, int) or not any(s.builtin for s in recipe.scripts):
        return workload
    doc = "number of branches; 100,000 accounts for each"
    wait = any(s.name == _CHANGES_BRANCHES for s in recipe.scripts)
    rows = (
        Rows(one="branch", many="branches", cure="dbdyno workload prepare pgbench -s {n} --replace")
        if wait
        else None
    )
    branches = Parameter(doc=doc, type="int", default=scale, counts=(100_000, "accounts"), rows=rows)
    return workload.model_copy(update={"parameters": {SIZE: branches}})


def recipe_of(connection: Connection, name: str, params: Mapping[str, Any], sessions: int) -> Recipe:
    """Returns the recipe of a built-in workload, after creating its objects. In a workload of scripts the
    parameters are variables of the scripts, and the tables exist already."""
    given = tuple(sorted(params.items()))
    if script_halves.script_half(name) is not None:
        mix = script_halves.scripts_of(name, params)
        if name in loader.names():
            objects.check(connection, [t.name for t in loader.description(name).tables])
        script_check.check(connection, mix, DriverSetup(), path=SEARCH_PATH)
        settings = {**script_halves.session_of(name, params), **_OWN_NAMES}
        return Recipe(name, False, settings, mix, params=given)
    half = objects.half_of(name).with_params(params)
    return Recipe(
        name=name,
        read_only=half.read_only,
        settings={**half.session, **_OWN_NAMES},
        half=half,
        params=given,
        blocks=objects.prepare(connection, name, params, sessions),
        own=half.objects.own_name is not None and params.get("tables") == "own",
    )


def load_spec(recipe: Recipe, cell: Cell) -> dict[str, Any]:
    """Returns the keys of the specification that depend on the cell, and those of its scripts."""
    spec = {"threads": cell.driver.threads, "grace_ms": GRACE_MS, **paced.spec(cell)}
    if not recipe.scripts:
        return spec
    files = [s.model_dump(include={"name", "text", "weight"}) for s in recipe.scripts]
    variables = {name: str(value) for name, value in recipe.params}
    driver = cell.driver.model_dump(include={"max_tries", "reconnect", "allow_shell"})
    return spec | {"scripts": {"files": files, "variables": variables, "seed": cell.seed, **driver}}


def setup(
    connection: Connection, recipe: Recipe, inherited: Mapping[str, str], relations: str | None
) -> list[str]:
    """Returns simple queries that set up a session: settings, and for 14 to 17 the one transaction."""
    settings = {**inherited, **recipe.settings}
    if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
        settings["client_encoding"] = "SQL_ASCII"  # else the server verifies each row with a byte above 127
    if recipe.half is not None:
        settings |= dict.fromkeys(_NO_TIMEOUTS, "0")
    settings = {name: value for name, value in settings.items() if name.lower() not in recipe.varied}
    if relations is not None:
        settings["dbdyno.relations"] = relations
    # Not SET, which reads the text of a list such as search_path as one name.
    quoted = [
        f"SELECT pg_catalog.set_config({literal(name)}, {literal(value)}, false)"
        for name, value in settings.items()
    ]
    if in_one_transaction(recipe, connection):
        quoted.append("BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED READ ONLY")
    return quoted


def shared(connection: Connection, recipe: Recipe) -> list[str]:
    """Returns the part of :func:`setup` for a connection that serves all sessions in turn: it begins no
    transaction."""
    inherited = _inherited(connection)
    return [s for s in setup(connection, recipe, inherited, None) if not s.startswith("BEGIN")]


WARM_CALLS = 1
"""Calls of a session of a built-in workload before the barrier."""


def counted_of_probes(probe: Mapping[str, Any] | None) -> dict[str, int]:
    """Returns what the server counts of one session's probes after the barrier, by counter.

    After the last call the session is read twice, each time flushed before if that is possible. The
    transactions of reads before the barrier, except the first, count too, because they are reported late.
    """
    if probe is None:
        return {}
    return {"transactions_committed": 7, "executions": 4} if probe["flush"] else {"executions": 2}


def probe(recipe: Recipe, connection: Connection) -> dict[str, Any] | None:
    """Returns how a session's own counters are read, None if they cannot be."""
    if connection.counts_own_work:
        flush, read, columns = [sql.text("probe_flush_18")], sql.text("probe_18"), [*COLUMNS, *OF_BACKENDS]
    elif in_one_transaction(recipe, connection) and _has_tables(recipe):
        flush, read, columns = [], sql.text("probe_14"), [*COLUMNS]
    else:
        return None
    return {"flush": flush, "read": read, "columns": columns}


def _relations(connection: Connection, recipe: Recipe, sessions: Sequence[int]) -> dict[int, str]:
    if not (in_one_transaction(recipe, connection) and _has_tables(recipe)):
        return {}
    names = {n: recipe.object_name(n) for n in sessions}
    oids = objects.relations(connection, list(names.values()))
    return {n: oids[name] for n, name in names.items()}


def _has_tables(recipe: Recipe) -> bool:
    return recipe.half is not None and recipe.half.objects.kind == "table"


def backends(connection: Connection, now_ns: Callable[[], int]) -> list[dict[str, Any]]:
    """Returns all processes of the server, including our own connections. Raises :class:`psycopg.Error`."""
    at_ns = now_ns()
    with connection.cursor(row_factory=dict_row) as cursor:
        processes = cursor.execute(sql.text("backends").encode()).fetchall()
    return [{"at_ns": at_ns, **row} for row in processes]


def end_left(connection: Connection, pids: Sequence[int]) -> int:
    """Ends the sessions of a lost driver, given by their pids. Returns their number."""
    text = sql.text("end_left").encode()
    ((ended,),) = connection.execute(text, [list(pids), APPLICATION]).fetchall()
    return int(ended)


CLAIM_KEY = 0x646264796E6F  # "dbdyno" in ASCII
_PATIENCE_S = 2.0  # a run that has just ended may still be closing, on a busy machine


def capacity(connection: Connection) -> Capacity:
    """Returns the tightest of three limits: the server's, the role's, the database's."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(sql.text("capacity").encode()).fetchone() or {}
    reserved = 0 if row["superuser"] else row["superuser_reserved"]
    if not (row["superuser"] or row["may_use_reserved"]):
        reserved += row["reserved"]
    words = f"max_connections = {row['maximum']}, reserved for others {reserved}, in use {row['in_use']}"
    limits = [Capacity(row["maximum"], reserved, row["in_use"], words)]
    if not row["superuser"]:
        for what in ("role", "database"):
            limit, in_use = row[f"{what}_limit"], row[f"{what}_in_use"]
            if limit >= 0:
                detail = f"connection limit of the {what} = {limit}, in use {in_use} ({words})"
                limits.append(Capacity(limit, 0, in_use, detail))
    return min(limits, key=lambda c: c.free)


def claim(connection: Connection, run: str) -> None:
    """Takes the lock, as long as the connection lives. Raises :class:`ServerBusy` naming its holders."""
    connection.execute("select pg_catalog.set_config('application_name', %s, false)", [f"dbdyno run {run}"])
    deadline = time.monotonic() + _PATIENCE_S
    while not (_lock(connection) and not _holders(connection)):
        holders = _holders(connection)
        connection.execute("select pg_catalog.pg_advisory_unlock_all()")
        if holders and time.monotonic() > deadline:
            raise ServerBusy(
                f"another run holds this server: {'; '.join(holders)}",
                "wait until it has ended (--wait does), or end that connection",
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
