"""Which tables of a workload are there, and the comment on the first of them: that they are ours and how they
were made, or that they are unfinished."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

from psycopg import sql as pgsql
from pydantic import TypeAdapter

from dbdyno.engines.postgres import loader, objects, ownership
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.table_making import TableWish

_AGAIN = "; loading again: "
_MOST_PARTITIONS = 99_999  # whose tables ownership_relations.sql knows by their names


def schema_of(connection: Connection, description: loader.Description) -> str:
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
    """Which of the tables exist."""
    names = [table.name for table in description.tables]
    found = connection.execute(
        "select c.relname from pg_catalog.pg_class c "
        "join pg_catalog.pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = %s and c.relname = any(%s) order by 1",
        [schema, names],
    ).fetchall()
    return [str(row[0]) for row in found]


def check_own(connection: Connection, schema: str, description: loader.Description) -> None:
    """Raises :class:`TargetError` where one of the tables, or our schema, is not dbdyno's own, whatever its
    comment says."""
    names = [table.name for table in description.tables]
    if description.own_schema:
        objects.check(connection, names)
    else:
        stamp = stamp_of(connection, schema, description)
        ownership.check_relations(connection, schema, names, partitions_of(stamp))


def stamp_of(connection: Connection, schema: str, description: loader.Description) -> str | None:
    """What the comment says; None: none of dbdyno's. It proves nothing: see :func:`check_own`."""
    row = connection.execute(
        "select pg_catalog.obj_description(c.oid, 'pg_class') from pg_catalog.pg_class c "
        "join pg_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s",
        [schema, description.tables[0].name],
    ).fetchone()
    return str(row[0]) if row and row[0] and str(row[0]).startswith(objects.PREPARED) else None


def size_of(stamp: str) -> tuple[str, Any]:
    """Workload and version, and the parameters, of a stamp."""
    return stamp.partition(": ")[0], wish_of(stamp).get("parameters")


def wish_of(stamp: str) -> dict[str, Any]:
    """How the tables were asked for: fields of ``TableWish``; empty: the stamp is none, or was edited."""
    text = stamp.partition(": ")[2]
    try:
        chosen = _wish().validate_json(text, strict=True)
    except ValueError:  # pydantic's, too
        return {}
    if not 0 <= chosen.partitions <= _MOST_PARTITIONS or chosen.scale < 1:
        return {}
    return asdict(chosen)


@cache
def _wish() -> TypeAdapter[TableWish]:
    return TypeAdapter(TableWish)


def partitions_of(stamp: str | None) -> int | None:
    """How many partitions the tables of this stamp were made with; None: not known."""
    chosen = {} if stamp is None else wish_of(complete(stamp))
    return int(chosen["partitions"]) if chosen else None


def unfinished(workload: str, stamp: str = "") -> str:
    """``stamp``: of tables that were complete, and are loaded again as it says."""
    return f"{objects.PREPARED} {workload}: unfinished{_AGAIN}{stamp}".removesuffix(_AGAIN)


def is_unfinished(workload: str, stamp: str | None) -> bool:
    return stamp is not None and stamp.startswith(unfinished(workload))


def complete(stamp: str) -> str:
    """What the comment said before the tables were loaded again."""
    return stamp.rpartition(_AGAIN)[2]


def mark(connection: Connection, schema: str, description: loader.Description, stamp: str) -> None:
    table = pgsql.Identifier(schema, description.tables[0].name)
    connection.execute(pgsql.SQL("comment on table {} is {}").format(table, stamp))


def drop(connection: Connection, schema: str, description: loader.Description) -> list[str]:
    """Removes those that exist, all at once, since they may refer to each other; what else refers to them
    keeps them there. They are looked at again under the lock: a partition that was being attached meanwhile
    would go with its table. Raises :class:`TargetError` where they are not dbdyno's own.
    """
    with connection.transaction():
        names = existing(connection, schema, description)
        if names:
            ownership.lock_tables(connection, schema, names)
            check_own(connection, schema, description)
            tables = pgsql.SQL(", ").join(pgsql.Identifier(schema, name) for name in names)
            connection.execute(pgsql.SQL("drop table {}").format(tables))
        return names
