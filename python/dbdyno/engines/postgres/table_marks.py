"""The comment on the first table of a workload: it marks the tables as dbdyno's, records how they were
created, or that they are unfinished."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

from psycopg import sql as pgsql
from pydantic import TypeAdapter

from dbdyno.engines.postgres import loader, objects, ownership
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.table_making import TableOptions

_AGAIN = "; loading again: "
_MOST_PARTITIONS = 99_999  # as many as ownership_relations.sql recognises by name


def schema_of(connection: Connection, description: loader.Description) -> str:
    """Returns the schema of the tables. Raises :class:`UsageError` if the search_path leads to none."""
    if description.own_schema:
        return objects.SCHEMA
    with connection.users_settings():
        row = connection.execute("select pg_catalog.current_schema()").fetchone()
    if row is None or row[0] is None:
        raise UsageError(
            "search_path names no schema that exists", "--dsn 'options=-csearch_path=public ...'"
        )
    return str(row[0])


def existing(connection: Connection, schema: str, description: loader.Description) -> list[str]:
    """Returns the names of those tables that exist."""
    names = [table.name for table in description.tables]
    rows = connection.execute(
        "select c.relname from pg_catalog.pg_class c "
        "join pg_catalog.pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = %s and c.relname = any(%s) order by 1",
        [schema, names],
    ).fetchall()
    return [str(row[0]) for row in rows]


def check_own(connection: Connection, schema: str, description: loader.Description) -> None:
    """Raises :class:`TargetError` if one of the tables, or our schema, is not dbdyno's own, whatever its
    comment is."""
    names = [table.name for table in description.tables]
    if description.own_schema:
        objects.check(connection, names)
    else:
        stamp = stamp_of(connection, schema, description)
        ownership.check_relations(connection, schema, names, partitions_of(stamp, description))


def stamp_of(connection: Connection, schema: str, description: loader.Description) -> str | None:
    """Returns the comment, None if it is not dbdyno's. It proves nothing: see :func:`check_own`."""
    row = connection.execute(
        "select pg_catalog.obj_description(c.oid, 'pg_class') from pg_catalog.pg_class c "
        "join pg_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s",
        [schema, description.tables[0].name],
    ).fetchone()
    return str(row[0]) if row and row[0] and str(row[0]).startswith(objects.PREPARED) else None


def size_of(stamp: str) -> tuple[str, Any]:
    """Returns workload and version, and the parameters, of a stamp."""
    return stamp.partition(": ")[0], options_of(stamp).get("parameters")


def options_of(stamp: str) -> dict[str, Any]:
    """Returns the options by which the tables were created, as fields of ``TableOptions``. Empty if the stamp
    has none, or was edited."""
    text = stamp.partition(": ")[2]
    try:
        chosen = _options_adapter().validate_json(text, strict=True)
    except ValueError:  # pydantic's, too
        return {}
    if not 0 <= chosen.partitions <= _MOST_PARTITIONS or chosen.scale < 1:
        return {}
    return asdict(chosen)


@cache
def _options_adapter() -> TypeAdapter[TableOptions]:
    return TypeAdapter(TableOptions)


def partitions_of(stamp: str | None, description: loader.Description) -> int | None:
    """Returns the number of partitions with which tables of this stamp were created, None if unknown."""
    chosen = {} if stamp is None else options_of(complete(stamp))
    described = max(t.partitions for t in description.tables)
    return max(int(chosen["partitions"]), described) if chosen else None


def unfinished(workload: str, stamp: str = "") -> str:
    """Returns the comment on unfinished tables. ``stamp`` is the former comment of tables that are loaded
    again."""
    return f"{objects.PREPARED} {workload}: unfinished{_AGAIN}{stamp}".removesuffix(_AGAIN)


def is_unfinished(workload: str, stamp: str | None) -> bool:
    return stamp is not None and stamp.startswith(unfinished(workload))


def complete(stamp: str) -> str:
    """Returns the comment that the tables had before they were loaded again."""
    return stamp.rpartition(_AGAIN)[2]


def mark(connection: Connection, schema: str, description: loader.Description, stamp: str) -> None:
    """Sets the comment."""
    table = pgsql.Identifier(schema, description.tables[0].name)
    connection.execute(pgsql.SQL("comment on table {} is {}").format(table, stamp))


def drop(connection: Connection, schema: str, description: loader.Description) -> list[str]:
    """Drops the existing tables, all at once, since they may refer to each other. They stay if other objects
    depend on them.

    They are checked again under a lock, since a partition attached meanwhile would be dropped with its table.
    Raises :class:`TargetError` if they are not dbdyno's own. Returns their names.
    """
    with connection.transaction():
        names = existing(connection, schema, description)
        if names:
            ownership.lock_tables(connection, schema, names)
            check_own(connection, schema, description)
            tables = pgsql.SQL(", ").join(pgsql.Identifier(schema, name) for name in names)
            connection.execute(pgsql.SQL("drop table {}").format(tables))
        return names
