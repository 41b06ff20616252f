"""Settings that dbdyno's own connections make for themselves: those that affect parsing, output and time
limits.

Role, database, ``postgresql.conf``, DSN and PGOPTIONS may set other values. They are set by a statement, not
by start-up options, which poolers refuse or ignore. ``default_transaction_read_only`` stays: no read depends
on it, and whoever sets it wants to prevent writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import psycopg

from dbdyno.engines.postgres import sql, versions
from dbdyno.model.errors import TargetError

SEARCH_PATH = "pg_catalog, pg_temp"
"""Temporary objects last: if pg_temp is not named, it comes first for tables and types."""
_OF_STATEMENTS = {
    "search_path": SEARCH_PATH,
    # output of values
    "bytea_output": "hex",
    "DateStyle": "ISO, MDY",
    "extra_float_digits": "1",  # below 1 floats lose digits
    "IntervalStyle": "postgres",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "quote_all_identifiers": "off",
    "TimeZone": "GMT",  # known without a database of time zones
    "xmlbinary": "base64",
    "xmloption": "content",
    # parsing of statements
    "array_nulls": "on",
    "backslash_quote": "safe_encoding",
    "escape_string_warning": "on",
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
}
_OF_TRANSACTIONS = {
    "client_min_messages": "notice",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",  # a standby refuses serializable
    "lc_messages": "C",  # if the role may set it
    "stats_fetch_consistency": "cache",
    # no timeouts: loading tables may wait for other sessions
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "lock_timeout": "0",
    "statement_timeout": "0",
    "transaction_timeout": "0",
}
_ALL = {**_OF_STATEMENTS, **_OF_TRANSACTIONS}
_COLUMNS, _DIGITS = 4, "extra_float_digits"
_MAY_SET = {
    versions.OLDEST: "pg_catalog.current_setting('is_superuser') operator(pg_catalog.=) 'on'",
    versions.PRIVILEGES_ON_PARAMETERS: "pg_catalog.has_parameter_privilege(s.name, 'SET')",
}


class Before(NamedTuple):
    """A setting as role, database and connection options gave it. ``source`` is that of pg_settings."""

    value: str
    source: str


def statement(version: int, pid: int | str | None) -> str:
    """Returns a message for ``server_version`` that makes these settings. Its columns: name, setting and
    source before, and the new value.

    ``pid`` is the process named at start-up. Behind a pooler another process answers, and its other clients
    would get these settings, so nothing is set there, and the new value is NULL. None sets them for any
    process.
    """
    may_set = _MAY_SET[max(since for since in _MAY_SET if since <= max(version // 10_000, versions.OLDEST))]
    answers = "true" if pid is None else f"pg_catalog.pg_backend_pid() operator(pg_catalog.=) {pid}"
    wanted = ", ".join(f"('{name}', '{value}')" for name, value in _ALL.items())
    return sql.fill("own_settings", answers=answers, wanted=wanted, may_set=may_set)


def fix(connection: psycopg.Connection[Any]) -> dict[str, Before]:
    """Makes these settings. Returns the values before, empty behind a pooler.

    The search_path is first: otherwise those who may create functions or operators in a schema of the path,
    or own the database and so its path, could choose code that runs with this role's rights. Raises
    :class:`TargetError` behind a pooler whose server prints numbers with too few digits.
    """
    text = statement(connection.info.server_version, connection.info.backend_pid)
    cursor = connection.execute(text.encode())
    while cursor.nextset():
        pass
    result = cursor.pgresult
    if result is None or result.nfields != _COLUMNS:
        return {}
    rows = [[result.get_value(row, c) for c in range(_COLUMNS)] for row in range(result.ntuples)]
    words = [["" if v is None else v.decode(errors="replace") for v in row] for row in rows]
    before = {name: Before(value, source) for name, value, source, _ in words}
    if all(row[-1] is not None for row in rows):
        return before
    digits = before.get(_DIGITS, Before("1", "")).value
    if digits.startswith("-"):
        raise TargetError(
            f"the server behind the pooler writes numbers with fewer digits ({_DIGITS} = {digits})",
            f"connect past the pooler, or take {_DIGITS} from the role, the database or the server's file",
        )
    return {}


def of_statements(before: Mapping[str, Before]) -> dict[str, str]:
    """Returns earlier values of those settings that affect the meaning of statements."""
    return {name: setting.value for name, setting in before.items() if name in _OF_STATEMENTS}


def of_client(before: Mapping[str, Before]) -> Iterator[tuple[str, str]]:
    """Returns earlier values that the connection itself requested (options, PGOPTIONS, PGTZ, ...)."""
    return ((name, setting.value) for name, setting in before.items() if setting.source == "client")


def own(names: Mapping[str, str]) -> dict[str, str]:
    """Returns dbdyno's values of these settings."""
    return {name: _ALL[name] for name in names}
