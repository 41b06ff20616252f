"""Traces sessions from their login on: by a login event trigger, or before version 17 by settings of the
role.

PostgreSQL 17, "Event Triggers": login. An error in such a trigger refuses the login, so dbdyno's function
catches every error. ``event_triggers = off`` switches off all event triggers, ``dbdyno.trace_logins = off``
only this one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import psycopg
from psycopg import sql as pgsql

from dbdyno.engines.postgres import connect, ownership, sql, versions
from dbdyno.engines.postgres.errors import doing
from dbdyno.engines.postgres.login_trace import action, log_lines, roles
from dbdyno.engines.postgres.settings import Site
from dbdyno.model.engine.login_tracing import Caught, LoginTrace, TraceLog, TracePlan
from dbdyno.model.engine.protocols import Journal, Undo
from dbdyno.model.errors import NotPrivileged, ServerBusy, TargetError, UsageError

KIND = "login trace"
MARK = "Made by dbdyno trace-logins; `dbdyno trace-logins --remove` or `dbdyno clean` removes it."
_LOCK = 1_684_170_860
"""Keys of advisory locks: this one is held, shared, by sessions in the trigger; the next number by the
process that watches over the trace."""
_NUMBERS = 1_684_170_861
"""First key of advisory locks with two keys: the second is the number of a session, in the order of
logins."""
SCHEMA, _TABLE = "dbdyno_logins", "caught"
_STEPS = ("schema", "comment", "table", "action", "function", "revoke")
_BODIES = ("action", "function")
_ENDS_S = 2.0
_POLL_S = 0.02
_LOCK_WAIT_S = 5


class LoginTraces:
    """Implements :class:`dbdyno.model.engine.login_tracing.LoginTracing`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._roles = roles.ByRole(site)
        self._watching = False

    @property
    def _has_trigger(self) -> bool:
        return versions.major(self._site.connection()) >= versions.LOGIN_TRIGGERS

    # -- what will be done ----------------------------------------------------------------------
    def plan(self, trace: LoginTrace) -> TracePlan:
        with doing("looking at what can be traced"):
            self._check(trace)
            if (installed := self._installed()) is not None:
                raise ServerBusy(
                    f"there is a login trace already: {installed}", "dbdyno trace-logins --remove"
                )
            if not self._has_trigger:
                return self._roles.plan(trace)
            remarks = [
                "The server's log then holds the statements of traced sessions, with their parameters.",
                "Event triggers belong to one database: logins to other databases are counted, not traced.",
                "Switch it off: ALTER SYSTEM SET dbdyno.trace_logins = off; SELECT pg_reload_conf();",
            ]
            statements = [*(text for _, text in self._statements(trace))]
            return TracePlan(statements, exact=True, remarks=remarks)

    def _check(self, trace: LoginTrace) -> None:
        connection = self._site.connection()
        own_role = connection.execute(
            "select rolsuper, pg_catalog.pg_is_in_recovery(), current_user::text, "
            "(select rolcanlogin from pg_catalog.pg_roles where rolname = %s) "
            "from pg_catalog.pg_roles where rolname = current_user",
            [trace.role],
        ).fetchone() or (False, False, "", None)
        superuser, standby, user, may_log_in = own_role
        if not superuser:
            raise NotPrivileged(
                f"tracing logins needs a superuser; {user} is none",
                "connect as one: dbdyno trace-logins --dsn 'user=postgres ...'",
            )
        if standby:
            raise UsageError(
                "this server is a standby, where nothing can be installed",
                "install it on the primary: standbys get it by replication, and note catches in their logs",
            )
        if may_log_in is None:
            raise UsageError(f"there is no role {trace.role!r}", "psql -c '\\du' lists roles")
        if not may_log_in:
            raise UsageError(
                f"role {trace.role!r} may not log in, so it has no sessions",
                "name the role that sessions log in as: psql -c '\\du' lists roles",
            )
        self._check_switches()
        action.check(connection, trace)

    def _check_switches(self) -> None:
        """Raises :class:`UsageError` if a setting keeps the trigger from firing or from tracing."""
        for name in ("event_triggers", "dbdyno.trace_logins") if self._has_trigger else ():
            asking = "select lower(pg_catalog.current_setting(%s, true)) in ('off', 'false', 'no', '0')"
            if self._site.connection().execute(asking, [name]).fetchone() == (True,):
                cure = f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"
                raise UsageError(f"{name} is off: nothing would be traced", cure)

    def _statements(self, trace: LoginTrace) -> Sequence[tuple[str, str]]:
        """Returns (step, statement) in order of execution; the trigger is the last."""
        asking = "select oid from pg_catalog.pg_roles where rolname = %s"
        (role_id,) = self._site.connection().execute(asking, [trace.role]).fetchone() or (0,)
        values = {
            "comment": _literal(f"{MARK}\n{json.dumps(asdict(trace))}"),
            "lock": _LOCK,
            "numbers": _NUMBERS,
            "counts": ", ".join(map(str, trace.counts)),
            "most": trace.most,
            "action": action.body(trace),
            "role": _literal(trace.role),
            "role_id": role_id,
            "marker": log_lines.MARKER,
        }
        texts = []
        for step in (*_STEPS, "trigger"):
            if step in _BODIES:
                values["body"] = sql.dollar_quoted(sql.fill(f"login_trace_{step}_body", **values))
            texts.append((step, sql.fill(f"login_trace_{step}", **values)))
        return texts

    # -- doing it -------------------------------------------------------------------------------
    def install(self, trace: LoginTrace, journal: Journal) -> None:
        with doing("installing the login trace"):
            if not self._has_trigger:
                self._roles.install(trace, journal)
                return
            connection = self._site.connection()
            journal.note(self._undo(trace))
            connection.execute(f"set lock_timeout = '{_LOCK_WAIT_S}s'".encode())
            try:
                statements = self._statements(trace)
                with connection.transaction():
                    for _, text in statements[:-1]:
                        connection.execute(text.encode())
                connection.execute(statements[-1][1].encode())
            except BaseException:
                self._drop()
                journal.forget(self._key())
                raise
            connection.execute(f"select pg_catalog.pg_try_advisory_lock({_LOCK + 1})".encode())
            self._watching = True

    def caught(self) -> Sequence[Caught]:
        with doing("looking at caught sessions"):
            if not self._has_trigger:
                return self._roles.caught()
            connection = self._site.connection()
            if self._watching:
                connection.execute(sql.fill("login_trace_stuck", lock=_LOCK).encode())
            if self._schema_state() is None:
                if self._watching:
                    raise TargetError("the login trace was removed by another session", "install it again")
                return []
            if connection.execute("select pg_catalog.pg_is_in_recovery()").fetchone() == (True,):
                find = log_lines.read(self._site, (), marked=True).find
                raise UsageError("a standby keeps no list: caught sessions are in its log", find)
            return [
                Caught(*r) for r in connection.execute(sql.text("login_trace_caught").encode()).fetchall()
            ]

    def log(self, caught: Sequence[Caught]) -> TraceLog:
        with doing("reading the server's log"):
            return log_lines.read(self._site, [c.pid for c in caught], marked=self._has_trigger)

    def installed(self) -> str | None:
        with doing("looking for a login trace"):
            return self._installed()

    def _installed(self) -> str | None:
        if (state := self._schema_state()) is None:
            return None
        trace = _parse_comment(state[0])
        counts = ", ".join(map(str, trace.get("counts", ())))
        sessions = "session" if counts == "1" else "sessions"
        broken = "" if state[1] else "; its trigger is gone"
        database = self._site.connection().database
        return f"role {trace.get('role')} at {counts} {sessions}, in database {database}{broken}"

    def _schema_state(self) -> tuple[str, bool] | None:
        """Returns the comment of our schema and whether our trigger exists, None without the schema.
        Raises :class:`TargetError` if the schema is not dbdyno's."""
        connection = self._site.connection()
        schema = ownership.check_schema(connection, SCHEMA, MARK)
        trigger = self._trigger_exists()
        if schema is None:
            return None
        ownership.check_relations(connection, SCHEMA, [_TABLE])
        return schema.comment, trigger

    def _trigger_exists(self) -> bool:
        """Returns whether our trigger exists. Raises :class:`TargetError` if one of its name is not ours."""
        row = self._site.connection().execute(sql.text("login_trace_there").encode()).fetchone()
        if row is not None and row != (True, True):
            raise TargetError(
                "the event trigger dbdyno_trace_logins is not dbdyno's: "
                + (
                    "it calls another function"
                    if not row[0]
                    else "it or its function belongs to no superuser"
                ),
                "rename or drop it: it is not touched",
            )
        return row is not None

    # -- and undoing it -------------------------------------------------------------------------
    def remove(self, journal: Journal | None = None, *, watched: bool = True) -> Sequence[str]:
        with doing("removing the login trace"):
            removed = list(self._roles.remove(journal))
            if (
                self._has_trigger
                and (watched or self._may_tidy_up())
                and (installed := self._installed()) is not None
            ):
                self._drop()
                removed.append(f"login trace: {installed}")
            if journal is not None:
                journal.forget(self._key())
            return removed

    def put_back(self, undo: Undo) -> str | None:
        data, connection = undo.data, self._site.connection()
        if data.get("system") != self._site.identity.system or data.get("database") != connection.database:
            return None
        if "entries" in data:
            return self._roles.put_back(undo)
        return "; ".join(["removed the login trace"] if self.remove() else ["the login trace was gone"])

    def _may_tidy_up(self) -> bool:
        """Returns whether no other process watches over the trace, and this role may remove it."""
        connection = self._site.connection()
        asking = (
            "select pg_catalog.pg_try_advisory_lock(%(lock)s) and pg_catalog.pg_advisory_unlock(%(lock)s) "
            "and rolsuper and pg_catalog.to_regnamespace(%(schema)s) is not null "
            "from pg_catalog.pg_roles where rolname = current_user"
        )
        row = connection.execute(asking, {"lock": _LOCK + 1, "schema": SCHEMA}).fetchone()
        return bool(row and row[0])

    def _drop(self) -> None:
        """Drops the trigger first, so that logins that have begun with it still find its function.

        Raises :class:`TargetError`, and drops nothing, if objects of these names are not ours or others added
        to them.
        """
        if self._schema_state() is None:
            return
        connection = self._site.connection()
        connection.execute(f"set lock_timeout = '{_LOCK_WAIT_S}s'".encode())
        try:
            connection.execute(sql.text("login_trace_drop").encode())
        except psycopg.errors.InsufficientPrivilege:
            raise NotPrivileged(
                "only a superuser can remove a login trace",
                "dbdyno trace-logins --remove --dsn 'user=postgres ...'",
            ) from None
        now = connection.execute("select pg_catalog.clock_timestamp()::text").fetchone() or ("now",)
        asking = sql.fill("login_trace_logging_in", since=f"{_literal(now[0])}::timestamptz")
        until = time.monotonic() + _ENDS_S
        while time.monotonic() < until and connection.execute(asking.encode()).fetchone() == (True,):
            time.sleep(_POLL_S)
        try:
            connection.execute(sql.text("login_trace_drop_schema").encode())
        except psycopg.errors.DependentObjectsStillExist as e:
            raise TargetError(
                f"schema {SCHEMA} stays, for something else depends on it: {e.diag.message_detail}",
                "move or drop that yourself, then dbdyno trace-logins --remove again",
            ) from None

    def _key(self) -> str:
        return f"logins {self._site.identity.system} {self._site.connection().database}"

    def _undo(self, trace: LoginTrace) -> Undo:
        connection = self._site.connection()
        return Undo(
            kind=KIND,
            key=self._key(),
            what=f"login trace of role {trace.role} at {connect.where(connection)}",
            data={"system": self._site.identity.system, "database": connection.database},
        )


def _parse_comment(comment: str) -> dict[str, Any]:
    """Returns the options of the trace in the comment of its schema, empty if the comment was edited."""
    try:
        options = json.loads(comment.removeprefix(MARK) or "{}")
    except ValueError:
        return {}
    return options if isinstance(options, dict) else {}


def _literal(value: Any) -> str:
    return pgsql.Literal(value).as_string()
