"""Removes tables from the server's cache and, if their files can be opened here, from the page cache."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dbdyno import _core
from dbdyno.engines.postgres import presence, versions
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.settings import Site
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.resetting import CacheDrop

_ROUNDS = 3
"""A page that is in use at that moment stays in the cache; the next round removes it."""
_ELSE = 'reset_cache = "as-loaded"'
_EXTENSION = """
select quote_ident(n.nspname),
       pg_catalog.to_regproc(quote_ident(n.nspname) || '.pg_buffercache_evict') is not null
from pg_catalog.pg_extension e join pg_catalog.pg_namespace n on n.oid = e.extnamespace
where e.extname = 'pg_buffercache'"""
_RELATIONS = """
with named as (select t::regclass as id from unnest(%s::text[]) as t),
parts as (
    select id from named
    union select p.relid from named cross join pg_catalog.pg_partition_tree(id) as p
),
tables as (
    select id from parts
    union select c.reltoastrelid from pg_catalog.pg_class c join parts on c.oid = id
    where c.reltoastrelid <> 0
)
select pg_catalog.pg_relation_filenode(c.oid), pg_catalog.pg_relation_filepath(c.oid),
       pg_catalog.pg_relation_size(c.oid)
from pg_catalog.pg_class c left join pg_catalog.pg_index i on i.indexrelid = c.oid
where c.relkind in ('r', 't', 'i') and coalesce(i.indrelid, c.oid) in (select id from tables)"""
_BUFFERS = """
from {schema}.pg_buffercache b
where b.relfilenode = any(%s::oid[])
and b.reldatabase = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())"""


class _Relation(NamedTuple):
    """A relation's files. ``path`` is that of its first file, relative to the data directory."""

    filenode: int
    path: str
    size_bytes: int


def check(site: Site) -> None:
    """Raises :class:`UsageError` if tables cannot be removed from the cache. Creates the extension in an
    embedded server."""
    connection = site.connection()
    what = 'reset_cache = "dropped"'
    if versions.major(connection) < versions.EVICTS_PAGES:
        raise UsageError(
            f"{what}: PostgreSQL {versions.major(connection)} cannot drop single tables from its cache",
            f"PostgreSQL {versions.EVICTS_PAGES} or newer, or {_ELSE}",
        )
    row = connection.execute(
        "select rolsuper from pg_catalog.pg_roles where rolname = current_user"
    ).fetchone()
    if row is None or not row[0]:
        raise UsageError(
            f"{what}: only a superuser may drop tables from the server's cache",
            f"connect as superuser, or {_ELSE}",
        )
    if site.instance is not None:
        connection.execute("create extension if not exists pg_buffercache schema public")
    extension = connection.execute(_EXTENSION.encode()).fetchone()
    if extension is None or not extension[1]:
        verb = (
            "CREATE EXTENSION pg_buffercache"
            if extension is None
            else "ALTER EXTENSION pg_buffercache UPDATE"
        )
        raise UsageError(
            f"{what} needs the extension pg_buffercache of PostgreSQL 17 or newer in this database",
            f"as superuser: {verb};  or {_ELSE}",
        )


def drop(site: Site, tables: Sequence[str]) -> CacheDrop:
    """Removes these tables and their indexes from both caches. ``tables`` are names as in SQL."""
    connection = site.connection()
    with connection.patient():
        connection.execute("checkpoint")
        rows = connection.execute(_RELATIONS.encode(), [list(tables)]).fetchall()
        relations = [_Relation(*row) for row in rows]
        left_share = _evict(connection, relations)
    try:
        return CacheDrop(left_share, _drop_page_cache(site, relations), "")
    except _NotHere as e:
        return CacheDrop(left_share, None, str(e))
    except OSError as e:
        why = (
            f"the server's files cannot be opened ({e.strerror}): run dbdyno as root or as the server's user"
        )
        return CacheDrop(left_share, None, why)


def _evict(connection: Connection, relations: Sequence[_Relation]) -> float:
    """Removes the relations' pages from the server's cache. Returns the share of pages that stayed."""
    row = connection.execute(_EXTENSION.encode()).fetchone()
    schema, files = str(row[0]) if row else "public", [r.filenode for r in relations]
    buffers, left = _BUFFERS.format(schema=schema), 0
    for _ in range(_ROUNDS):
        evicting = f"select pg_catalog.count({schema}.pg_buffercache_evict(b.bufferid)) {buffers}"
        connection.execute(evicting.encode(), [files])
        (left,) = connection.execute(
            f"select pg_catalog.count(*) {buffers}".encode(), [files]
        ).fetchone() or (0,)
        if not left:
            break
    page = connection.execute("select pg_catalog.current_setting('block_size')::int").fetchone()
    return int(left) * int(page[0] if page else 0) / max(1, sum(r.size_bytes for r in relations))


class _NotHere(Exception):
    """The files are out of reach: why, and what would change it."""


def _drop_page_cache(site: Site, relations: Sequence[_Relation]) -> float | None:
    """Removes the files from the page cache. Returns the share of bytes that stayed, None if this user may
    not ask for it. Raises :class:`OSError` and :class:`_NotHere`."""
    seen = presence.presence(site.connection())  # of this host, whose page cache is meant
    if not seen.here:
        raise _NotHere(f"the server is not known to be on this host ({seen.detail})")
    directory = site.directory() or ""
    sizes, resident_bytes, known = 0, 0, True
    for relation in relations:
        files = list(_files(Path(directory), relation.path))
        if sum(f.stat().st_size for f in files if "_" not in f.name) < relation.size_bytes:
            raise _NotHere(f"{directory} on this host is not the server's: run dbdyno where it is")
        for file in files:
            size, resident = _drop_file(file)
            sizes, resident_bytes = sizes + size, resident_bytes + (resident or 0)
            known = known and resident is not None
    return resident_bytes / max(1, sizes) if known else None


def _files(directory: Path, path: str) -> Iterator[Path]:
    """Returns all files of a relation: segments of 1 GB, free space map and visibility map."""
    first = directory / path
    pattern = re.compile(rf"{first.name}(_[a-z]+)?(\.\d+)?")
    return (f for f in first.parent.iterdir() if pattern.fullmatch(f.name))


def _drop_file(file: Path) -> tuple[int, int | None]:
    """Removes a file from the page cache. Returns its size and its bytes still cached, None if unknown."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # POSIX_FADV_DONTNEED does not remove dirty pages
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    ((size, cached, _, _),) = _core.page_cache([(file, b"", 0)], os.sysconf("SC_PAGE_SIZE"), 0)
    return size or 0, cached
