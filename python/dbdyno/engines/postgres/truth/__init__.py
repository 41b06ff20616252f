"""Loads whose true figures are known in advance (``truth.toml``)."""

from __future__ import annotations

import time
import tomllib
from functools import cache
from importlib import resources

import psycopg

from dbdyno import _core
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.engine.truth import TruthCase

_TRIES, _PAUSE_S = 100, 0.015


@cache
def cases() -> tuple[TruthCase, ...]:
    """Returns the cases in the order of running. Raises :class:`pydantic.ValidationError`."""
    text = resources.files(__name__).joinpath("truth.toml").read_text(encoding="utf-8")
    return tuple(TruthCase.model_validate(c) for c in tomllib.loads(text)["case"])


def brief_session(dsn: str, case: TruthCase) -> int | None:
    """Returns the CPU time (ns) of a session that was connected for one call. None if it did not come to
    rest."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(case.sql.encode())
        pid = connection.info.backend_pid
        for _ in range(_TRIES):
            before = _core.read_task(pid, pid)
            time.sleep(_PAUSE_S)  # longer than a tick, so that a running task's figures change meanwhile
            after = _core.read_task(pid, pid)
            if after["state"] == "S" and after["slices"] == before["slices"]:
                used_ns: int | None = after["run_ns"]
                return used_ns
    return None


def may_set(connection: Connection, name: str, value: str, *, superuser: bool) -> bool:
    """Returns whether a session of this role may have this setting."""
    if not superuser and not _is_user_setting(connection, name):
        return False
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("select pg_catalog.set_config(%s, %s, true)", (name, value))
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


def _is_user_setting(connection: Connection, name: str) -> bool:
    """Checks the context of the setting, since trying would leave an error in the server's log."""
    query = "select context = 'user' from pg_catalog.pg_settings where name = %s"
    row = connection.execute(query, (name,)).fetchone()
    return row is not None and bool(row[0])
