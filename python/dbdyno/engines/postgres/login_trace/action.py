"""The settings that trace a session, as a function's statements or as settings of a role."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg import sql as pgsql

from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.engine.login_tracing import LoginTrace
from dbdyno.model.errors import UsageError, did_you_mean

LIBRARY = "auto_explain"


def settings(trace: LoginTrace) -> Mapping[str, str]:
    """Returns the settings of a traced session.

    "statements" logs statements with parameters and time, and lock waits longer than deadlock_timeout and
    temporary files. "plans" logs plans with rows, buffers and times, also of statements within functions.
    """
    least_ms = str(trace.slower_ms)
    by_kind = {
        "statements": {
            "log_min_duration_statement": least_ms,
            "log_parameter_max_length": "-1",
            "log_lock_waits": "on",
            "log_temp_files": "0",
        },
        "plans": {
            f"{LIBRARY}.log_min_duration": least_ms,
            f"{LIBRARY}.log_analyze": "on",
            f"{LIBRARY}.log_buffers": "on",
            f"{LIBRARY}.log_nested_statements": "on",
            "log_lock_waits": "on",
        },
    }
    return by_kind[trace.what] | dict(trace.settings)


def body(trace: LoginTrace) -> str:
    """Returns PL/pgSQL statements that make these settings."""
    load = [f"load '{LIBRARY}';"] if trace.what == "plans" else []
    set_ = pgsql.SQL("perform set_config({}, {}, false);")
    lines = [set_.format(name, value).as_string() for name, value in settings(trace).items()]
    return "\n    ".join([*load, *lines])


def check(connection: Connection, trace: LoginTrace) -> None:
    """Tries all settings in a transaction that is rolled back. Raises :class:`UsageError`."""
    names = [str(r[0]) for r in connection.execute("select name from pg_catalog.pg_settings").fetchall()]
    for name in trace.settings:
        if "." not in name and name.lower() not in names:
            raise UsageError(f"unknown server setting {name!r}", did_you_mean(name, names))
    try:
        with connection.transaction(force_rollback=True):
            if trace.what == "plans":
                connection.execute(f"load '{LIBRARY}'".encode())
            for name, value in settings(trace).items():
                connection.execute("select pg_catalog.set_config(%s, %s, true)", (name, value))
    except psycopg.errors.UndefinedFile:
        raise UsageError(
            f"the server has no {LIBRARY}", "install PostgreSQL's contrib modules, or trace statements"
        ) from None
    except psycopg.Error as e:
        words = (e.diag.message_primary or str(e)).replace("\n", " ")
        raise UsageError(f"the server refuses a setting of the trace: {words}", e.diag.message_hint) from None
