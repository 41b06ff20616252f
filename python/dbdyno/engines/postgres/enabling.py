"""Data that the server provides on request, and the statements that request it.

None of the statements can do harm: a library is added to the existing list, and only if it is installed.
"""

from __future__ import annotations

from typing import NamedTuple

from psycopg import sql as pgsql

from dbdyno.engines.postgres import managed, sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.schema.data_source import Enabling, Step
from dbdyno.model.sources.source import Source

_LIBRARIES, STATEMENTS = "shared_preload_libraries", "pg_stat_statements"
OLDEST_STATEMENTS = (1, 9)
"""Oldest supported version of the extension, which came with PostgreSQL 14."""
_SUPERUSER = "superuser"
_RELOAD = "SELECT pg_reload_conf();"
_RESTART = Step("restart the server")


class Visibility(NamedTuple):
    """Columns of ``visibility.sql``: what this role can see, and what the server records."""

    role: str  # quoted as SQL needs it
    superuser: bool
    all_sessions: bool  # has pg_read_all_stats
    states: bool  # track_activities
    query_ids: bool  # whether this session has one (compute_query_id)
    io_timing: bool  # track_io_timing
    has_statements: bool  # pg_stat_statements is installed on the server's host
    statements_loaded: bool  # it is in shared_preload_libraries
    statements_version: str | None  # of its extension in this database
    statements_permitted: bool  # to call the extension's functions
    deadlock_timeout: str = ""  # with its unit
    service_role: str | None = None  # of a managed service's administrators

    @property
    def service(self) -> managed.Service | None:
        """The managed service that runs the server."""
        return managed.named(self.service_role)

    @property
    def administrator(self) -> str:
        """The role that has what else only a superuser has."""
        return self.service.role if self.service else _SUPERUSER


class Preloaded(NamedTuple):
    """The setting shared_preload_libraries; columns of ``preloaded.sql``."""

    setting: str
    source: str
    pending: bool  # a file has another value, which a restart puts in force


def preloaded_libraries(connection: Connection) -> Preloaded | None:
    """Returns the setting of preloaded libraries, None if hidden from this role. Returns the value of the
    files if these may be read, since it holds after a restart."""
    row = connection.execute(sql.text("preloaded").encode()).fetchone()
    if row is None:
        return None
    libraries = Preloaded(*row)
    may = connection.execute(
        "select pg_catalog.has_function_privilege('pg_catalog.pg_show_all_file_settings()', 'execute')"
    ).fetchone()
    in_file = (
        connection.execute(sql.text("preloaded_in_file").encode()).fetchone() if may and may[0] else None
    )
    return libraries._replace(setting=in_file[0]) if libraries.pending and in_file else libraries


def version_of(extension: str) -> tuple[int, ...]:
    """Returns the numbers of a version such as ``1.10``, so that it can be compared."""
    return tuple(int(n) for n in extension.split("."))


def switch_on(seen: Visibility, name: str, adds: str) -> Enabling:
    """Returns how to switch on a setting, which needs a reload."""
    if seen.service is not None:
        return Enabling(adds, f"access to {seen.service.settings}", (Step(seen.service.change(name, "on")),))
    how = "sql" if seen.superuser else "hand"
    alter = Step(f"ALTER SYSTEM SET {name} = on;", how)  # type: ignore[arg-type]
    right = f"{_SUPERUSER}, or since PostgreSQL 15 GRANT ALTER SYSTEM ON PARAMETER {name}"
    return Enabling(adds, right, (alter, Step(_RELOAD, how)))  # type: ignore[arg-type]


def grant_monitor(seen: Visibility, adds: str) -> Enabling:
    return Enabling(
        adds,
        f"pg_monitor, granted by {seen.administrator} or a role with ADMIN OPTION on it",
        () if seen.all_sessions else (Step(f"GRANT pg_monitor TO {seen.role};"),),
    )


def statements(seen: Visibility, database: str, libraries: Preloaded | None, *, embedded: bool) -> Source:
    """Returns the data source of pg_stat_statements: statements executed and blocks dirtied."""
    why, state, steps = _lacking(seen, database, libraries, embedded=embedded)
    return Source(
        name="statement counters",
        provenance=f"{STATEMENTS}, all databases",
        status="not permitted" if state == "not permitted" else "not supported" if why else "ok",
        detail=f"executions and blocks dirtied are unknown: {why}" if why else "",
        enabling=Enabling(
            "calls, time and blocks by statement (Top SQL); executions and blocks dirtied",
            f"{seen.administrator}, and a restart"
            if seen.has_statements and not seen.statements_loaded
            else seen.administrator,
            steps,
            state,
        ),
    )


def _lacking(
    seen: Visibility, database: str, libraries: Preloaded | None, *, embedded: bool
) -> tuple[str, str, tuple[Step, ...]]:
    """Returns why statements are not counted, the state, and the next steps. Empty if they are counted."""
    create = Step(f"CREATE EXTENSION {STATEMENTS};", "sql" if seen.superuser else "hand")
    if not seen.has_statements and seen.service is None:
        return f"{STATEMENTS} is not installed on the server's host", "not supported", _install(embedded)
    if not seen.statements_loaded:
        why = f"{STATEMENTS} is not in {_LIBRARIES}"
        if embedded:
            steps = (Step(f"run without --setting {_LIBRARIES}: the embedded server loads it by itself"),)
            return why, "not loaded", steps
        after_restart = () if seen.statements_version else (Step(create.command),)
        return why, "not loaded", (*_preload(seen, libraries), *after_restart)
    if not seen.statements_version:
        return f"there is no extension {STATEMENTS} in database {database}", "not loaded", (create,)
    if version_of(seen.statements_version) < OLDEST_STATEMENTS:
        why = f"the extension {STATEMENTS} in database {database} is version {seen.statements_version}"
        update = Step(f"ALTER EXTENSION {STATEMENTS} UPDATE;", create.how)
        return f"{why}, dbdyno needs 1.9", "not loaded", (update,)
    if not seen.statements_permitted:
        grant = Step(f"GRANT EXECUTE ON FUNCTION {STATEMENTS}, {STATEMENTS}_info TO {seen.role};")
        return f"{seen.role} may not call functions of {STATEMENTS}", "not permitted", (grant,)
    return "", "", ()


def _install(embedded: bool) -> tuple[Step, ...]:
    if embedded:
        return (Step("run without --pg-bin, or install the contrib modules of that PostgreSQL"),)
    packages = "Debian: apt install postgresql-contrib; Red Hat: dnf install postgresql-contrib"
    return (
        Step(f"install PostgreSQL's contrib modules on the server's host ({packages})"),
        Step("dbdyno doctor shows the next step"),
    )


def _preload(seen: Visibility, libraries: Preloaded | None) -> tuple[Step, ...]:
    """Returns the steps that add the library to the list. If the list is unknown, returns none that would
    replace it."""
    from dbdyno.engines.postgres.settings import values  # not at the top: a circle through facts

    if seen.service is not None:
        added = f"{libraries.setting if libraries else '...'},{STATEMENTS}".strip(",")
        return Step(seen.service.change(_LIBRARIES, added)), _RESTART

    if libraries is None:
        grant = Step(f"GRANT pg_monitor TO {seen.role};")
        return grant, Step(f"dbdyno doctor again: it then sees {_LIBRARIES}, and shows how to add to it")
    named = values.elements(_LIBRARIES, libraries.setting)
    if any(element.rsplit("/", 1)[-1].removesuffix(".so") == STATEMENTS for element in named):
        return (_RESTART,)
    if libraries.source == "command line":
        return Step(f"add {STATEMENTS} to {_LIBRARIES} on the server's command line"), _RESTART
    listed = pgsql.SQL(", ").join(pgsql.Literal(element) for element in (*named, STATEMENTS))
    alter = pgsql.SQL("ALTER SYSTEM SET {} = {};").format(pgsql.SQL(_LIBRARIES), listed)
    return Step(alter.as_string(None)), _RESTART
