"""What a caught session is set to: as statements of a function, or of the role."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg import sql as pgsql

from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.engine.login_tracing import LoginTrace
from dbdyno.model.errors import UsageError, did_you_mean

LIBRARY = "auto_explain"


def settings(wish: LoginTrace) -> Mapping[str, str]:
    """Values of a caught session. Statements: with parameters and time; besides, lock waits longer than
    deadlock_timeout and temporary files. Plans: with rows, buffers and times, also within functions."""
    least = str(wish.slower_ms)
    made = {
        "statements": {
            "log_min_duration_statement": least,
            "log_parameter_max_length": "-1",
            "log_lock_waits": "on",
            "log_temp_files": "0",
        },
        "plans": {
            f"{LIBRARY}.log_min_duration": least,
            f"{LIBRARY}.log_analyze": "on",
            f"{LIBRARY}.log_buffers": "on",
            f"{LIBRARY}.log_nested_statements": "on",
            "log_lock_waits": "on",
        },
    }
    return made[wish.what] | dict(wish.settings)


def body(wish: LoginTrace) -> str:
    """Statements of PL/pgSQL that turn it on."""
    load = [f"load '{LIBRARY}';"] if wish.what == "plans" else []
    set_ = pgsql.SQL("perform set_config({}, {}, false);")
    lines = [set_.format(name, value).as_string() for name, value in settings(wish).items()]
    return "\n    ".join([*load, *lines])


def check(connection: Connection, wish: LoginTrace) -> None:
    """Tries all of it in a transaction that is rolled back. Raises :class:`UsageError`."""
    names = [str(r[0]) for r in connection.execute("select name from pg_catalog.pg_settings").fetchall()]
    for name in wish.settings:
        if "." not in name and name.lower() not in names:
            raise UsageError(f"unknown server setting {name!r}", did_you_mean(name, names))
    try:
        with connection.transaction(force_rollback=True):
            if wish.what == "plans":
                connection.execute(f"load '{LIBRARY}'".encode())
            for name, value in settings(wish).items():
                connection.execute("select pg_catalog.set_config(%s, %s, true)", (name, value))
    except psycopg.errors.UndefinedFile:
        raise UsageError(
            f"the server has no {LIBRARY}", "install PostgreSQL's contrib modules, or trace statements"
        ) from None
    except psycopg.Error as e:
        words = (e.diag.message_primary or str(e)).replace("\n", " ")
        raise UsageError(f"the server refuses a setting of the trace: {words}", e.diag.message_hint) from None
