"""Reads tables into the server's cache and thus into the page cache; the size of the server's cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import sql as pgsql

from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.settings import Site, values
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.resetting import CacheWarming

_SCHEMA = (
    "select quote_ident(n.nspname) from pg_catalog.pg_extension e "
    "join pg_catalog.pg_namespace n on n.oid = e.extnamespace where e.extname = 'pg_prewarm'"
)
_TO_BE_MADE = (
    "select name from pg_catalog.pg_available_extensions where name = 'pg_prewarm' "
    "and installed_version is null and pg_catalog.to_regnamespace('public') is not null"
)
_READ_WITHOUT = "tables are read without their indexes, and large ones not into the server's cache"
_MISSING = (
    f"the extension pg_prewarm is not in this database: {_READ_WITHOUT}; as superuser, or administrator of a "
    "managed service: CREATE EXTENSION pg_prewarm"
)
_NOT_SHIPPED = f"the server's programs do not include the extension pg_prewarm: {_READ_WITHOUT}"
_TABLES = "select name from pg_catalog.unnest(%s::text[]) name where pg_catalog.to_regclass(name) is not null"
_CACHE = "shared_buffers"


def statement(connection: Connection, table: str) -> str:
    """Returns a statement that reads a table: by pg_prewarm with its indexes if that is installed, else by a
    scan.

    ``table`` is a name in SQL. All arguments of the function are passed with their own types: otherwise
    whoever may create functions in its schema could add an overload that matches better.
    """
    row = connection.execute(_SCHEMA.encode()).fetchone()
    if row is None:
        return f"select pg_catalog.count(*) from {table}"
    name = pgsql.Literal(table).as_string()
    parts = f"select relid from pg_catalog.pg_partition_tree({name}) union select {name}::regclass"
    prewarm = (
        f"{row[0]}.pg_prewarm(c.oid::regclass, 'buffer'::text, 'main'::text, null::bigint, null::bigint)"
    )
    return (
        f"with parts (id) as ({parts}) select pg_catalog.sum({prewarm}) "
        "from pg_catalog.pg_class c left join pg_catalog.pg_index i on i.indexrelid = c.oid "
        "where c.relkind in ('r', 'i') and coalesce(i.indrelid, c.oid) in (select id from parts)"
    )


def warm(site: Site, objects: Sequence[str]) -> CacheWarming:
    """Reads those of the objects that are tables. In an embedded server creates the extension if its programs
    include it."""
    connection = site.connection()
    tables = [str(name) for (name,) in connection.execute(_TABLES.encode(), [list(objects)])]
    if site.instance is not None and connection.execute(_TO_BE_MADE.encode()).fetchone():
        connection.execute(
            "create extension pg_prewarm schema public"
        )  # "$user" would lead to dbdyno's schema
    short = ""
    if connection.execute(_SCHEMA.encode()).fetchone() is None:
        short = _MISSING if site.instance is None else _NOT_SHIPPED
    with connection.patient():
        for table in tables:
            connection.execute(statement(connection, table).encode())
    return CacheWarming(len(tables), short)


def cache_bytes(connection: Connection, settings: Mapping[str, str]) -> int | None:
    """Returns the size of the cache that the settings ask for, None if they do not. Raises
    :class:`UsageError` for an invalid size."""
    asked = next((v for name, v in settings.items() if name.lower() == _CACHE), None)
    if asked is None:
        return None
    pages = values.canonical(values.read(connection)[_CACHE], asked)
    row = connection.execute("select pg_catalog.current_setting('block_size')::bigint").fetchone()
    if isinstance(pages, str) or row is None:
        raise UsageError(f"setting {_CACHE} = {asked!r} is not a size", "for example 1GB")
    return int(pages) * int(row[0])
