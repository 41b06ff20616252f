"""Checks scripts in pgbench's language: the core reads them, and the server parses each statement."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import pq
from psycopg import sql as pgsql

from dbdyno import _core
from dbdyno.engines.postgres import loader, ownership, texts
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.sql_tokens import tokens
from dbdyno.model.errors import ScriptError, UsageError
from dbdyno.model.plan.plan import DriverSetup, PlannedScript, Variant

_SHOWN = 100  # characters of a line in a message
_MISSING = ("42P01", "42703", "42883", "42704", "3F000")
"""SQLSTATEs of missing tables, columns, functions, types and schemas. An earlier statement may create
them."""
_TYPES = ("42601", "42725", "42P18", "42883", "42804", "22P02")
"""SQLSTATEs that a statement may get because a variable in it cannot be a parameter, or has no type."""
_MAKES = re.compile(r"\s*(create|alter|drop|do|call|set|grant)\b|.*\binto\b", re.IGNORECASE | re.DOTALL)
_PREPARE = "dbdyno workload prepare pgbench -s 10"
_OPENS, _CLOSES = ("begin", "start"), ("commit", "end", "rollback", "abort", "prepare")
_SYNTAX = "42601"
_NO_RIGHT = "42501"
_EXPLAINED = ("select", "insert", "update", "delete", "merge", "with", "values", "table")
_CHECKED = "dbdyno_checked"
"""Name of a prepared statement."""
_SIMPLE_CURE = "take -M simple, which is pgbench's default, or give the variable a type, as in :n::int"
_PIPELINE_CURE = (
    "give the variable a type, as in :n::int, write its value, or take the statement out of the pipeline "
    "(without \\startpipeline the script can be sent with -M simple)"
)
"""In a pipeline the simple query protocol cannot be used."""
_PIPELINE = re.compile(r"^\s*\\startpipeline\b", re.MULTILINE)
_COPY_CURE = "use INSERT ... SELECT, or COPY from or to a file or program of the server"
_AS_ASKED = DriverSetup(allow_shell=True)
_Command = Mapping[str, Any]


def check(
    connection: Connection,
    scripts: Sequence[PlannedScript],
    driver: DriverSetup,
    given: Mapping[str, Any] = {},
    path: str | None = None,
) -> None:
    """Raises :class:`ScriptError` with file, line and column of the first mistake.

    ``given`` are variables with their values. ``path`` is the sessions' search_path, None for the user's.
    """
    if driver.pipeline:
        raise UsageError(
            "pipeline: a script says itself which of its statements go in one",
            "put \\startpipeline before them and \\endpipeline after",
        )
    for value in given.values():
        texts.encoded(connection, str(value))
    with connection.users_settings(path):
        for script in scripts:
            _check_one(connection, script, driver, given)


def search_path_of(connection: Connection, scripts: Sequence[PlannedScript]) -> str | None:
    """Returns the search_path of sessions that run only pgbench's own scripts: the catalogue before the
    schema of the tables, so that operators are the server's. None for scripts of the user, which use the
    user's search_path."""
    if not scripts or not all(s.builtin for s in scripts):
        return None
    schema = _schema_of_tables(connection)
    return None if schema is None else f"pg_catalog, {pgsql.Identifier(schema).as_string()}, pg_temp"


def _schema_of_tables(connection: Connection) -> str | None:
    """Returns the schema in which the user's search_path finds pgbench's tables, None if it finds none."""
    with connection.users_settings():
        row = connection.execute(
            "select pg_catalog.to_regclass('pgbench_branches')::pg_catalog.oid"
        ).fetchone()
    schema = connection.execute(
        "select n.nspname::text from pg_class as c join pg_namespace as n on n.oid = c.relnamespace "
        "where c.oid = %s::oid",
        [None if row is None else row[0]],
    ).fetchone()
    return None if schema is None else str(schema[0])


def needs_simple(scripts: Sequence[PlannedScript], given: Sequence[str]) -> str | None:
    """Returns what in these scripts requires the simple query protocol, and where. None if nothing does."""
    for script in scripts:
        with contextlib.suppress(ScriptError):
            commands(script, _AS_ASKED.model_copy(update={"protocol": "simple"}), given)
            try:
                commands(script, _AS_ASKED, given)
            except ScriptError as e:
                return e.message.partition("\n")[0]
    return None


def commands(script: PlannedScript, driver: DriverSetup, given: Sequence[str] = ()) -> list[_Command]:
    """Returns the commands of a script in order. Raises :class:`ScriptError`."""
    text = _core.read_script(script.name, script.text, driver.allow_shell, driver.protocol, list(given))
    read = json.loads(text)
    if (wrong := read["error"]) is not None:
        shown = "".join(f"\n    {line}" for line in wrong["shown"].split("\n"))
        where = f"{script.name}:{wrong['line']}:{wrong['column']}"
        raise ScriptError(f"{where}: {wrong['message']}{shown}", _cure_for_script(script, wrong["cure"]))
    parsed: list[_Command] = read["commands"]
    return parsed


def _cure_for_script(script: PlannedScript, cure: str) -> str:
    """Returns the cure. Replaces one that suggests the simple protocol, if the script has a pipeline,
    which that lacks."""
    return _PIPELINE_CURE if "-M simple" in (cure or "") and _PIPELINE.search(script.text) else cure


def scale_of(connection: Connection, scripts: Sequence[PlannedScript]) -> tuple[int, str] | None:
    """Returns the number of pgbench's branches, if its own scripts run on them, and a sentence on how it is
    known.

    Raises :class:`UsageError` if the tables do not exist.
    """
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


def server_needs_simple(
    connection: Connection, scripts: Sequence[PlannedScript], variant: Variant
) -> str | None:
    """Returns what in these scripts the server accepts only as simple queries, and where. None if nothing,
    or if the scripts have another mistake, which :func:`check` raises."""
    simple = variant.driver.model_copy(update={"protocol": "simple"})
    path = search_path_of(connection, scripts)
    with contextlib.suppress(ScriptError):
        try:
            check(connection, scripts, variant.driver, variant.params, path)
        except _NoParameterError as e:
            for script in scripts:
                commands(script, simple, list(variant.params))
            return e.message.partition("\n")[0]
    return None


class _NoParameterError(ScriptError):
    """A variable stands where the server accepts no parameter. Only simple queries can have it there."""


def _check_one(
    connection: Connection, script: PlannedScript, driver: DriverSetup, given: Mapping[str, Any]
) -> None:
    may_create = False
    opened: _Command | None = None
    branches = False
    for command in commands(script, driver, list(given)):
        branches |= command["kind"] in ("if", "elif", "else")
        if (sql := command["sql"]) is None:
            continue
        words = sql.lower().split(maxsplit=2)[:2]
        if command["copies_with_client"]:
            message = (
                "COPY from or to the client cannot be a call: its data would come from dbdyno or go there"
            )
            raise _error(script, command, 0, message, _COPY_CURE)
        try:
            sql.encode(texts.encoding_of(connection))
        except UnicodeEncodeError as e:
            raise _error(script, command, e.start, texts.refusal(connection, e), texts.CURE) from None
        if command["statements"] == 1 and not (command["variables"] and driver.protocol == "simple"):
            _parse(connection, script, command, given, may_create=may_create)
        may_create = may_create or bool(_MAKES.match(sql))
        first = words[0].rstrip(";") if words else ""
        if first in _OPENS and command["statements"] == 1:
            opened = command
        elif first in _CLOSES and words[1:] not in (["to"], ["prepared"]):
            opened = None
    if opened is not None and not branches:
        cure = "end the script with COMMIT;"
        raise _error(script, opened, 0, "the transaction that begins here is not ended", cure)


def _parse(
    connection: Connection,
    script: PlannedScript,
    command: _Command,
    given: Mapping[str, Any],
    *,
    may_create: bool,
) -> None:
    """Raises :class:`ScriptError` if the server cannot parse the statement, or the role may not execute it.
    Executes nothing. ``may_create``: earlier statements may create missing objects, or grant rights."""
    result = _prepared(connection, command["sql"])
    if result.status == pq.ExecStatus.COMMAND_OK:
        extra = connection.pgconn.describe_prepared(b"").nparams - len(command["variables"])
        if extra > 0:
            message = f"the statement has {extra} parameter(s) such as $1"
            raise _error(script, command, 0, message, "write values, or variables of the script")
        if extra < 0:
            raise _no_parameter(script, command, command["sql"].find("$1"), "")
        if not may_create and (denied := _denied(connection, command)) is not None:
            cure = "grant that right to the role of the calls, or connect as another role"
            raise _error(script, command, 0, denied, cure)
        return
    field = pq.DiagnosticField
    state = _state(result)
    if may_create and state in _MISSING:
        return
    position = result.error_field(field.STATEMENT_POSITION)
    at = int(position) - 1 if position else 0
    message, hint = (
        (result.error_field(f) or b"").decode(connection.info.encoding, "replace")
        for f in (field.MESSAGE_PRIMARY, field.MESSAGE_HINT)
    )
    if command["variables"] and state in _TYPES and _takes_values(connection, command, given, state):
        raise _no_parameter(script, command, at, f": {message}")
    cure = _PREPARE if script.builtin and state in _MISSING else hint or _cure(state)
    if command["variables"] and state in _TYPES:
        cure = "give the variable a type, as in :n::int, or take -M simple, which is pgbench's default"
    raise _error(script, command, at, message or "refused", cure)


def _denied(connection: Connection, command: _Command) -> str | None:
    """Returns the server's message if the role lacks a right that the statement needs: the server checks
    rights before execution, also of a statement that is only explained."""
    words = command["sql"].split(maxsplit=1)
    if not words or words[0].lower() not in _EXPLAINED:
        return None
    sql = f"prepare {_CHECKED} as {command['sql']}".encode(texts.encoding_of(connection))
    if connection.pgconn.exec_(sql).status != pq.ExecStatus.COMMAND_OK:
        return None
    values = ", ".join(["null"] * len(command["variables"]))
    explain = f"explain execute {_CHECKED}{f'({values})' if values else ''}"
    result = connection.pgconn.exec_(explain.encode())
    connection.pgconn.exec_(f"deallocate {_CHECKED}".encode())
    if _state(result) != _NO_RIGHT:
        return None
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
    return message.decode(connection.info.encoding, "replace")


def _prepared(connection: Connection, sql: str) -> pq.abc.PGresult:
    return connection.pgconn.prepare(b"", sql.encode(texts.encoding_of(connection)))


def _state(result: pq.abc.PGresult) -> str:
    return (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()


def _no_parameter(script: PlannedScript, command: _Command, at: int, why: str) -> ScriptError:
    names = ", ".join(f":{name}" for name in dict.fromkeys(command["variables"]))
    message = f"the server takes no parameter for {names} here{why}"
    error = _error(script, command, max(0, at), message, _SIMPLE_CURE)
    return _NoParameterError(error.message, error.cure)


def _takes_values(connection: Connection, command: _Command, given: Mapping[str, Any], state: str) -> bool:
    """Returns whether the statement is correct with values in place of its variables, as simple queries
    send them: the given values, else a number, or a name where a name may be missing."""
    for default in ("1", "x"):
        values = [str(given.get(name, default)) for name in command["variables"]]
        state_now = _state(_prepared(connection, _with_values(command["sql"], values)))
        if not state_now or (default == "x" and state == _SYNTAX and state_now in _MISSING):
            return True
    return False


def _with_values(sql: str, values: Sequence[str]) -> str:
    pieces = []
    for token in tokens(sql):
        word = sql[token.start : token.end]
        number = word[1:] if token.kind == "number" and word[0] == "$" else ""
        pieces.append(values[int(number) - 1] if number and int(number) <= len(values) else word)
    return "".join(pieces)


def _cure(state: str) -> str:
    if state == _SYNTAX:
        return "fix the statement"
    return "statements are checked before the first one runs: what they name must exist by then"


def _error(script: PlannedScript, command: _Command, at: int, message: str, cure: str) -> ScriptError:
    """Returns the error. ``at`` counts characters of the statement as sent, with ``$1`` for the first
    variable."""
    offset = len(script.text.encode()[: command["start"]].decode(errors="ignore")) + _as_written(command, at)
    text = script.text
    start = text.rfind("\n", 0, offset) + 1
    line = text[start:].split("\n", 1)[0].rstrip()
    column = offset - start
    cut = max(0, column - _SHOWN // 2)
    indent = "".join("\t" if c == "\t" else " " for c in line[cut:column])
    where = f"{script.name}:{text.count(chr(10), 0, offset) + 1}:{column + 1}"
    return ScriptError(
        f"{where}: {message}\n    {line[cut : cut + _SHOWN]}\n    {indent}^", _cure_for_script(script, cure)
    )


def _as_written(command: _Command, at: int) -> int:
    """Returns the position in the script's own text, which has ``:name`` for a variable."""
    sent, moved = 0, 0
    for number, name in enumerate(command["variables"], 1):
        sent = command["sql"].find(f"${number}", sent)
        if not 0 <= sent < at:
            break
        moved += len(name) - len(str(number))
        sent += 1
    return at + moved
