"""Scripts in pgbench's language before they run: read by the core, each statement parsed by the server."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import pq
from psycopg import sql as pgsql

from dbdyno import _core
from dbdyno.engines.postgres import loader, ownership
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.errors import ScriptError, UsageError
from dbdyno.model.plan import DriverSetup, PlannedScript

_SHOWN = 100  # characters of a line in a message
_MISSING = ("42P01", "42703", "42883", "42704", "3F000")
"""Tables, columns, functions, types and schemas that are not there: an earlier statement may make them."""
_TYPES = ("42601", "42725", "42P18", "42883", "42804", "22P02")
"""Errors of statements whose variables are parameters, which have no place or no type there."""
_MAKES = re.compile(r"\s*(create|alter|drop|do|call|set)\b|.*\binto\b", re.IGNORECASE | re.DOTALL)
_PREPARE = "dbdyno workload prepare pgbench -s 10"
_OPENS, _CLOSES = ("begin", "start"), ("commit", "end", "rollback", "abort", "prepare")
_AS_ASKED = DriverSetup(allow_shell=True)
_Command = Mapping[str, Any]


def check(
    connection: Connection,
    scripts: Sequence[PlannedScript],
    driver: DriverSetup,
    given: Sequence[str] = (),
    path: str | None = None,
) -> None:
    """Raises :class:`ScriptError` with file, line and column of the first mistake. ``given``: names of
    variables. ``path``: the search_path of the sessions; None: the user's."""
    if driver.pipeline:
        raise UsageError(
            "pipeline: a script says itself which of its statements go in one",
            "put \\startpipeline before them and \\endpipeline after",
        )
    with connection.users_search_path(path):
        for script in scripts:
            _check_one(connection, script, driver, given)


def search_path_of(connection: Connection, scripts: Sequence[PlannedScript]) -> str | None:
    """Returns the search_path of sessions that run pgbench's own scripts and no others: the catalogue before
    the schema of the tables, so that operators are the server's. None: the user's, for the user's scripts."""
    if not scripts or not all(s.builtin for s in scripts):
        return None
    schema = _schema_of_tables(connection)
    return None if schema is None else f"pg_catalog, {pgsql.Identifier(schema).as_string()}, pg_temp"


def _schema_of_tables(connection: Connection) -> str | None:
    """Returns the schema in which the user's search_path finds pgbench's tables; None: in no schema."""
    with connection.users_search_path():
        row = connection.execute(
            "select pg_catalog.to_regclass('pgbench_branches')::pg_catalog.oid"
        ).fetchone()
    found = connection.execute(
        "select n.nspname::text from pg_class as c join pg_namespace as n on n.oid = c.relnamespace "
        "where c.oid = %s::oid",
        [None if row is None else row[0]],
    ).fetchone()
    return None if found is None else str(found[0])


def needs_simple(scripts: Sequence[PlannedScript], given: Sequence[str]) -> str | None:
    """What only the simple protocol can do of these scripts, and where; ``None``: nothing."""
    for script in scripts:
        with contextlib.suppress(ScriptError):
            commands(script, _AS_ASKED.model_copy(update={"protocol": "simple"}), given)
            try:
                commands(script, _AS_ASKED, given)
            except ScriptError as e:
                return e.message.partition("\n")[0]
    return None


def commands(script: PlannedScript, driver: DriverSetup, given: Sequence[str] = ()) -> list[_Command]:
    """Those of a script, in its order. Raises :class:`ScriptError`."""
    text = _core.read_script(script.name, script.text, driver.allow_shell, driver.protocol, list(given))
    read = json.loads(text)
    if (wrong := read["error"]) is not None:
        shown = "".join(f"\n    {line}" for line in wrong["shown"].split("\n"))
        where = f"{script.name}:{wrong['line']}:{wrong['column']}"
        raise ScriptError(f"{where}: {wrong['message']}{shown}", wrong["cure"])
    found: list[_Command] = read["commands"]
    return found


def scale_of(connection: Connection, scripts: Sequence[PlannedScript]) -> tuple[int, str] | None:
    """The number of pgbench's branches, where its own scripts run on them; and in words how it is known.

    Raises :class:`UsageError` where they are not there."""
    if not any(s.builtin for s in scripts):
        return None
    schema = _schema_of_tables(connection)
    if schema is None:
        raise UsageError("pgbench's tables are not in this database", _PREPARE)
    tables = [t.name for t in loader.description("pgbench").tables]
    ownership.check_code(connection, schema, tables)
    branches = pgsql.Identifier(schema, "pgbench_branches").as_string()
    (counted,) = connection.execute(f"select count(*) from {branches}".encode()).fetchone() or (0,)
    return int(counted), f"pgbench_branches has {counted} row{'' if counted == 1 else 's'}"


def _check_one(
    connection: Connection, script: PlannedScript, driver: DriverSetup, given: Sequence[str]
) -> None:
    made = False
    opened: _Command | None = None
    branches = False
    for command in commands(script, driver, given):
        branches |= command["kind"] in ("if", "elif", "else")
        if (sql := command["sql"]) is None:
            continue
        words = sql.lower().split(maxsplit=2)[:2]
        if words[:1] == ["copy"]:
            cure = "use INSERT ... SELECT"
            raise _error(script, command, 0, "COPY cannot be a call: its data would come from dbdyno", cure)
        if command["statements"] == 1 and not (command["variables"] and driver.protocol == "simple"):
            _parse(connection, script, command, made=made)
        made = made or bool(_MAKES.match(sql))
        first = words[0].rstrip(";") if words else ""
        if first in _OPENS and command["statements"] == 1:
            opened = command
        elif first in _CLOSES and words[1:] not in (["to"], ["prepared"]):
            opened = None
    if opened is not None and not branches:
        cure = "end the script with COMMIT;"
        raise _error(script, opened, 0, "the transaction that begins here is not ended", cure)


def _parse(connection: Connection, script: PlannedScript, command: _Command, *, made: bool) -> None:
    """Nothing is executed. ``made``: earlier statements may make what is missing."""
    pgconn, encoding = connection.pgconn, connection.info.encoding
    result = pgconn.prepare(b"", command["sql"].encode(encoding))
    if result.status == pq.ExecStatus.COMMAND_OK:
        extra = pgconn.describe_prepared(b"").nparams - len(command["variables"])
        if extra > 0:
            message = f"the statement has {extra} parameter(s) such as $1"
            raise _error(script, command, 0, message, "write values, or variables of the script")
        return
    field = pq.DiagnosticField
    state = (result.error_field(field.SQLSTATE) or b"").decode()
    if made and state in _MISSING:
        return
    position = result.error_field(field.STATEMENT_POSITION)
    message = (result.error_field(field.MESSAGE_PRIMARY) or b"refused").decode(encoding, "replace")
    hint = (result.error_field(field.MESSAGE_HINT) or b"").decode(encoding, "replace")
    cure = _PREPARE if script.builtin and state in _MISSING else hint or _cure(state)
    if command["variables"] and state in _TYPES:
        cure = "give the variable a type, as in :n::int, or take -M simple, which is pgbench's default"
    raise _error(script, command, int(position) - 1 if position else 0, message, cure)


def _cure(state: str) -> str:
    if state == "42601":
        return "fix the statement"
    return "statements are checked before the first one runs: what they name must exist by then"


def _error(script: PlannedScript, command: _Command, at: int, message: str, cure: str) -> ScriptError:
    """``at``: characters into the statement as it was sent, with ``$1`` for the first variable."""
    offset = len(script.text.encode()[: command["start"]].decode(errors="ignore")) + _as_written(command, at)
    text = script.text
    start = text.rfind("\n", 0, offset) + 1
    line = text[start:].split("\n", 1)[0].rstrip()
    column = offset - start
    cut = max(0, column - _SHOWN // 2)
    indent = "".join("\t" if c == "\t" else " " for c in line[cut:column])
    where = f"{script.name}:{text.count(chr(10), 0, offset) + 1}:{column + 1}"
    return ScriptError(f"{where}: {message}\n    {line[cut : cut + _SHOWN]}\n    {indent}^", cure)


def _as_written(command: _Command, at: int) -> int:
    """The place in the script's own text, where a variable is ``:name``."""
    sent, moved = 0, 0
    for number, name in enumerate(command["variables"], 1):
        sent = command["sql"].find(f"${number}", sent)
        if not 0 <= sent < at:
            break
        moved += len(name) - len(str(number))
        sent += 1
    return at + moved
