"""Tables taken out of the server's cache and, where their files can be opened here, out of the page cache."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dbdyno import _core
from dbdyno.engines.postgres import presence
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.settings import Site
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.resetting import CacheDrop

_EVICTS_SINCE = 170_000
_ROUNDS = 3
"""A page that is in use at that moment stays in the cache; the next round drops it."""
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
    """``path``: of its first file, within the server's directory."""

    filenode: int
    path: str
    size_bytes: int


def check(site: Site) -> None:
    """Makes the extension in a server of our own. Raises :class:`UsageError` where it cannot be done."""
    connection = site.connection()
    version, what = connection.info.server_version, 'reset_cache = "dropped"'
    if version < _EVICTS_SINCE:
        raise UsageError(
            f"{what}: PostgreSQL {version // 10_000} cannot drop single tables from its cache",
            f"PostgreSQL {_EVICTS_SINCE // 10_000} or newer, or {_ELSE}",
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
    found = connection.execute(_EXTENSION.encode()).fetchone()
    if found is None or not found[1]:
        verb = "CREATE EXTENSION pg_buffercache" if found is None else "ALTER EXTENSION pg_buffercache UPDATE"
        raise UsageError(
            f"{what} needs the extension pg_buffercache of PostgreSQL 17 or newer in this database",
            f"as superuser: {verb};  or {_ELSE}",
        )


def drop(site: Site, tables: Sequence[str]) -> CacheDrop:
    """Drops these tables with their indexes. ``tables``: as they stand in SQL."""
    connection = site.connection()
    with connection.patient():
        connection.execute("checkpoint")
        found = connection.execute(_RELATIONS.encode(), [list(tables)]).fetchall()
        relations = [_Relation(*row) for row in found]
        left_share = _evicted(connection, relations)
    try:
        return CacheDrop(left_share, _forgotten(site, relations), "")
    except _NotHere as e:
        return CacheDrop(left_share, None, str(e))
    except OSError as e:
        why = (
            f"the server's files cannot be opened ({e.strerror}): run dbdyno as root or as the server's user"
        )
        return CacheDrop(left_share, None, why)


def _evicted(connection: Connection, relations: Sequence[_Relation]) -> float:
    """The share of their pages that stays in the server's cache."""
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
    """Why the files are out of reach, with what would change it."""


def _forgotten(site: Site, relations: Sequence[_Relation]) -> float | None:
    """The share of the files' bytes that stays in the page cache; None: this user may not look. Raises
    :class:`OSError` and :class:`_NotHere`."""
    seen = presence.presence(site.connection())  # what is dropped is on this very host
    if not seen.here:
        raise _NotHere(f"the server is not known to be on this host ({seen.detail})")
    directory = site.directory() or ""
    sizes, stays, known = 0, 0, True
    for relation in relations:
        files = list(_files(Path(directory), relation.path))
        if sum(f.stat().st_size for f in files if "_" not in f.name) < relation.size_bytes:
            raise _NotHere(f"{directory} on this host is not the server's: run dbdyno where it is")
        for file in files:
            size, resident = _dropped(file)
            sizes, stays = sizes + size, stays + (resident or 0)
            known = known and resident is not None
    return stays / max(1, sizes) if known else None


def _files(directory: Path, path: str) -> Iterator[Path]:
    """All of a relation: 1 GB each, and those of free space and visibility."""
    first = directory / path
    named = re.compile(rf"{first.name}(_[a-z]+)?(\.\d+)?")
    return (f for f in first.parent.iterdir() if named.fullmatch(f.name))


def _dropped(file: Path) -> tuple[int, int | None]:
    """Size of the file, and how many of its bytes are in the page cache after that, None: unknown."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # what is not written yet stays
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    ((size, cached, _, _),) = _core.page_cache([(file, b"", 0)], os.sysconf("SC_PAGE_SIZE"), 0)
    return size or 0, cached
