"""What the server gives when it is asked to, and the exact statements that make it do so.

None of them can hurt the server: a library is added to the list that is there, only where it is installed.
"""

from __future__ import annotations

from typing import NamedTuple

from psycopg import sql as pgsql

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.schema.data_source import Enabling, Step
from dbdyno.model.sources.source import Source

_LIBRARIES, STATEMENTS = "shared_preload_libraries", "pg_stat_statements"
OLDEST_STATEMENTS = (1, 9)  # of the extension, as it came with PostgreSQL 14
_SUPERUSER = "superuser"
_RELOAD = "SELECT pg_reload_conf();"
_RESTART = Step("restart the server")


class Sight(NamedTuple):
    """Columns of ``sight.sql``."""

    role: str  # quoted as SQL needs it
    superuser: bool
    all_sessions: bool  # has pg_read_all_stats
    states: bool  # track_activities
    query_ids: bool  # compute_query_id, as it came out
    io_timing: bool  # track_io_timing
    statements_there: bool  # pg_stat_statements is installed beside the server
    statements_loaded: bool  # it is in the server
    statements_version: str | None  # of its extension in this database
    statements_permitted: bool  # to call the extension's functions


class Preloaded(NamedTuple):
    """Columns of ``preloaded.sql``."""

    setting: str
    source: str
    pending: bool  # a file has another value, which a restart puts in force


def preloaded(connection: Connection) -> Preloaded | None:
    """None: this role may not see it. What a file says already counts, where it may be read."""
    found = connection.execute(sql.text("preloaded").encode()).fetchone()
    if found is None:
        return None
    known = Preloaded(*found)
    may = connection.execute(
        "select pg_catalog.has_function_privilege('pg_catalog.pg_show_all_file_settings()', 'execute')"
    ).fetchone()
    in_file = (
        connection.execute(sql.text("preloaded_in_file").encode()).fetchone() if may and may[0] else None
    )
    return known._replace(setting=in_file[0]) if known.pending and in_file else known


def version_of(extension: str) -> tuple[int, ...]:
    """``1.10`` in order."""
    return tuple(int(n) for n in extension.split("."))


def setting_on(seen: Sight, name: str, adds: str) -> Enabling:
    """A setting that a reload puts in force."""
    how = "sql" if seen.superuser else "hand"
    alter = Step(f"ALTER SYSTEM SET {name} = on;", how)  # type: ignore[arg-type]
    right = f"{_SUPERUSER}, or since PostgreSQL 15 GRANT ALTER SYSTEM ON PARAMETER {name}"
    return Enabling(adds, right, (alter, Step(_RELOAD, how)))  # type: ignore[arg-type]


def monitoring(seen: Sight, adds: str) -> Enabling:
    return Enabling(
        adds,
        "pg_monitor, granted by a superuser or a role with ADMIN OPTION on it",
        () if seen.all_sessions else (Step(f"GRANT pg_monitor TO {seen.role};"),),
    )


def statements(seen: Sight, database: str, libraries: Preloaded | None, *, embedded: bool) -> Source:
    """Statements executed and blocks dirtied, by the extension that counts them."""
    why, state, steps = _missing(seen, database, libraries, embedded=embedded)
    return Source(
        name="statement counters",
        provenance=f"{STATEMENTS}, all databases",
        status="not permitted" if state == "not permitted" else "not supported" if why else "ok",
        detail=f"executions and blocks dirtied are unknown: {why}" if why else "",
        enabling=Enabling(
            "calls, time and blocks by statement (Top SQL); executions and blocks dirtied",
            f"{_SUPERUSER}, and a restart" if state == "not loaded" else _SUPERUSER,
            steps,
            state,
        ),
    )


def _missing(
    seen: Sight, database: str, libraries: Preloaded | None, *, embedded: bool
) -> tuple[str, str, tuple[Step, ...]]:
    """Why there are no counters of statements, the state, and the next steps; empty: there are."""
    create = Step(f"CREATE EXTENSION {STATEMENTS};", "sql" if seen.superuser else "hand")
    if not seen.statements_there:
        return f"{STATEMENTS} is not installed on the server's host", "not supported", _install(embedded)
    if not seen.statements_loaded:
        why = f"{STATEMENTS} is not in {_LIBRARIES}"
        if embedded:
            again = (Step(f"run without --setting {_LIBRARIES}: the embedded server loads it by itself"),)
            return why, "not loaded", again
        later = () if seen.statements_version else (Step(create.command),)
        return why, "not loaded", (*_preload(seen, libraries), *later)
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


def _preload(seen: Sight, libraries: Preloaded | None) -> tuple[Step, ...]:
    """Adds the library to those of the list; where that is unknown, nothing that would replace it."""
    from dbdyno.engines.postgres.settings import values  # here: it needs facts, which need this

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
