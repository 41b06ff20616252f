"""Settings that a connection of dbdyno's own gives itself: those by which it is read, and which end it.

Role, database, ``postgresql.conf``, DSN and PGOPTIONS may hold others. They are set by a statement, not by
options of the start-up: a pooler refuses those, or swallows them. ``default_transaction_read_only`` stays:
no reading depends on it, and whoever switches it on means to keep everybody from writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import psycopg

from dbdyno.engines.postgres import sql
from dbdyno.model.errors import TargetError

SEARCH_PATH = "pg_catalog, pg_temp"
"""Temporary objects last: where pg_temp is not named, it comes first for tables and types."""
_OF_STATEMENTS = {
    "search_path": SEARCH_PATH,
    # how values are written
    "bytea_output": "hex",
    "DateStyle": "ISO, MDY",
    "extra_float_digits": "1",  # below 1 digits are left out
    "IntervalStyle": "postgres",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "quote_all_identifiers": "off",
    "TimeZone": "GMT",  # known without a database of time zones
    "xmlbinary": "base64",
    "xmloption": "content",
    # how statements are read
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
    "lc_messages": "C",  # where the role may
    "stats_fetch_consistency": "cache",
    # one that loads tables may wait for others
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "lock_timeout": "0",
    "statement_timeout": "0",
    "transaction_timeout": "0",
}
_ALL = {**_OF_STATEMENTS, **_OF_TRANSACTIONS}
_COLUMNS, _DIGITS = 4, "extra_float_digits"
_MAY_SET = {
    140000: "pg_catalog.current_setting('is_superuser') operator(pg_catalog.=) 'on'",
    150000: "pg_catalog.has_parameter_privilege(s.name, 'SET')",
}


class Before(NamedTuple):
    """A setting as role, database and connection options gave it. ``source``: of pg_settings."""

    value: str
    source: str


def statement(version: int, pid: int | str | None) -> str:
    """One message, for ``server_version``: columns name, setting and source before, and now.

    ``pid``: the process that the start-up named. Behind a pooler another one answers, whose other clients
    would get these settings: there nothing is set, and "now" is NULL. None: whatever answers.
    """
    may_set = _MAY_SET[max(since for since in _MAY_SET if since <= max(version, 140000))]
    answers = "true" if pid is None else f"pg_catalog.pg_backend_pid() operator(pg_catalog.=) {pid}"
    wanted = ", ".join(f"('{name}', '{value}')" for name, value in _ALL.items())
    return sql.fill("own_settings", answers=answers, wanted=wanted, may_set=may_set)


def fix(connection: psycopg.Connection[Any]) -> dict[str, Before]:
    """Gives the connection these settings, first of all the search_path: whoever may create functions or
    operators in a schema of the path, or owns the database and with it the path, would else choose what runs
    with this role's rights. Returns what was in force before; behind a pooler nothing.

    Raises :class:`TargetError` behind a pooler whose server writes numbers so that figures would be wrong.
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
    """The values before of those that decide what a statement means."""
    return {name: found.value for name, found in before.items() if name in _OF_STATEMENTS}


def of_client(before: Mapping[str, Before]) -> Iterator[tuple[str, str]]:
    """The values before that the connection itself asked for (options, PGOPTIONS, PGTZ, ...)."""
    return ((name, found.value) for name, found in before.items() if found.source == "client")


def own(names: Mapping[str, str]) -> dict[str, str]:
    """dbdyno's values of settings with these names."""
    return {name: _ALL[name] for name in names}
