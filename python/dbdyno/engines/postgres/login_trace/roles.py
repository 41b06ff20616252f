"""Traces logins before version 17: sets a role's settings in this database while the next login is to be
traced.

Sessions are counted ten times a second, so this is less exact than the trigger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import sql as pgsql

from dbdyno.engines.postgres import connect, sql, texts
from dbdyno.engines.postgres.login_trace import action
from dbdyno.engines.postgres.settings import Site, values
from dbdyno.model.engine.login_tracing import Caught, LoginTrace, TracePlan
from dbdyno.model.engine.protocols import Journal, Undo

_PRELOAD = "session_preload_libraries"


class ByRole:
    """Implements :class:`dbdyno.model.engine.login_tracing.LoginTracing` by settings of a role."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._trace: LoginTrace | None = None
        self._role_id = 0
        self._armed_s: float | None = None
        self._before: dict[str, str | None] = {}  # values of the role's settings before
        self._known: set[tuple[int, float]] = set()
        self._caught: list[Caught] = []

    def plan(self, trace: LoginTrace) -> TracePlan:
        wanted = self._settings(trace)
        statements = [self._alter(trace.role, name, value) for name, value in wanted.items()]
        before = self._entries(trace.role)
        back = [self._alter(trace.role, name, before.get(name)) for name in wanted]
        role = trace.role
        remarks = [
            f"These settings of role {role} stand from one session before each of {_listed(trace.counts)} "
            "until the next login, then they go back.",
            "This is less exact than the login trigger of PostgreSQL 17: sessions are counted ten times a "
            "second. A fast ramp passes unseen, and all logins of the role in that time are traced.",
            "Logins to other databases are counted, not traced.",
        ]
        phases = (("before the login that is wanted", statements), ("after it", back))
        texts = [f"-- {when}\n" + ";\n".join(s.as_string() for s in each) for when, each in phases]
        return TracePlan(texts, exact=False, remarks=remarks)

    def install(self, trace: LoginTrace, journal: Journal) -> None:
        self._trace, entries = trace, self._entries(trace.role)
        self._before = {name: entries.get(name) for name in self._settings(trace)}
        connection = self._site.connection()
        asking = "select oid::bigint from pg_catalog.pg_roles where rolname = %s"
        (self._role_id,) = connection.execute(asking, [trace.role]).fetchone() or (0,)
        journal.note(
            Undo(
                kind="login trace",
                key=self._key(),
                what=f"login trace: settings of role {trace.role} at {connect.where(connection)}",
                data={
                    "system": self._site.identity.system,
                    "database": connection.database,
                    "role": trace.role,
                    "role_id": self._role_id,
                    "entries": self._before,
                },
            )
        )
        self._known = {(pid, started) for pid, started, *_ in self._sessions()}
        self.caught()

    def caught(self) -> Sequence[Caught]:
        """Notes new sessions, and sets or resets the role's settings for the next login."""
        if self._trace is None:
            return []
        sessions = self._sessions()
        database_here = self._site.connection().database
        for n, (pid, started, client, database) in enumerate(sessions, 1):
            new = (pid, started) not in self._known
            if new and self._armed_s is not None and started >= self._armed_s and database == database_here:
                self._caught.append(Caught(started, pid, n, self._trace.role, client, connected=True))
        arrived = {s[:2] for s in sessions} - self._known
        self._known |= arrived
        wanted = len(sessions) + 1 in self._trace.counts and len(self._caught) < self._trace.most
        if self._armed_s is not None and (arrived or not wanted):
            self._reset()
        if wanted and self._armed_s is None:
            self._set()
        alive = {s[:2] for s in sessions}
        self._caught = [c._replace(connected=(c.pid, c.at_s) in alive) for c in self._caught]
        return list(self._caught)

    def remove(self, journal: Journal | None) -> Sequence[str]:
        if self._trace is None:
            return ()
        reset = self._reset()
        role, self._trace = self._trace.role, None
        if journal is not None:
            journal.forget(self._key())
        return (f"login trace: settings of role {role} are as they were" if reset else _gone(role),)

    def put_back(self, undo: Undo) -> str:
        role = str(undo.data["role"])
        if not self._change(undo.data["role_id"], undo.data["entries"]):
            return _gone(role)
        return f"settings of role {role} are as they were before the login trace"

    def _set(self) -> None:
        assert self._trace is not None
        self._change(self._role_id, self._settings(self._trace))
        now = (
            self._site.connection()
            .execute("select extract(epoch from pg_catalog.clock_timestamp())::float8")
            .fetchone()
        )
        self._armed_s = float(now[0]) if now else 0.0

    def _reset(self) -> bool:
        self._armed_s = None
        return self._change(self._role_id, self._before)

    def _change(self, role_id: int, entries: Mapping[str, str | None]) -> bool:
        """Changes the settings in one transaction, so that a login sees all of them or none. Returns False
        if the role was dropped, with its settings. Finds the role by oid, since it may have been renamed."""
        connection = self._site.connection()
        with connection.transaction():
            asking = "select rolname::text from pg_catalog.pg_roles where oid = %s"
            row = connection.execute(asking, [role_id]).fetchone()
            if row is None:
                return False
            for name, value in entries.items():
                connection.execute(self._alter(row[0], name, value))
        return True

    def _settings(self, trace: LoginTrace) -> Mapping[str, str]:
        """Returns the settings of a traced session, with auto_explain added to the libraries of the role."""
        settings = dict(action.settings(trace))
        if trace.what == "plans":
            row = self._site.connection().execute(f"show {_PRELOAD}".encode()).fetchone()
            libraries = self._entries(trace.role).get(_PRELOAD) or (row[0] if row else "")
            names = [n for n in values.elements(_PRELOAD, libraries) if n]
            settings[_PRELOAD] = ", ".join(dict.fromkeys([*names, action.LIBRARY]))
        return settings

    def _alter(self, role: str, name: str, value: str | None) -> pgsql.Composed:
        begin = pgsql.SQL("alter role {} in database {} ").format(
            pgsql.Identifier(role), pgsql.Identifier(texts.own_name(self._site.connection()))
        )
        full = pgsql.Identifier(*name.split("."))
        if value is None:
            return begin + pgsql.SQL("reset {}").format(full)
        pieces = values.elements(name, value) or [""]
        listed = pgsql.SQL(", ").join(pgsql.Literal(piece) for piece in pieces)
        return begin + pgsql.SQL("set {} = {}").format(full, listed)

    def _entries(self, role: str) -> dict[str, str]:
        text = sql.fill("login_trace_entries", role=pgsql.Literal(role).as_string())
        pairs = (str(r[0]).partition("=") for r in self._site.connection().execute(text.encode()).fetchall())
        return {name: value for name, _, value in pairs}

    def _sessions(self) -> list[tuple[int, float, str, str]]:
        assert self._trace is not None
        text = sql.fill("login_trace_sessions", role=pgsql.Literal(self._trace.role).as_string())
        return [(r[0], r[1], r[2], r[3]) for r in self._site.connection().execute(text.encode()).fetchall()]

    def _key(self) -> str:
        return f"logins {self._site.identity.system} {self._site.connection().database}"


def _gone(role: str) -> str:
    return f"role {role} was dropped, and its settings with it"


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))
