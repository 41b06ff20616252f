"""Restores a workload's data: truncates its tables and loads them again.

The tables are not created anew, so that changes of the user (privileges, indexes, settings, views) stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql as pgsql

from dbdyno.engines.postgres import (
    cache_drop,
    connect,
    loader,
    objects,
    ownership,
    script_halves,
    table_marks,
    versions,
    warming,
)
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.errors import doing
from dbdyno.engines.postgres.settings import Site
from dbdyno.engines.postgres.table_making import Making
from dbdyno.model.errors import TargetError, UsageError
from dbdyno.model.plan.resetting import Cache, CacheDrop, CacheWarming, DataSet, changes_rows
from dbdyno.model.plan.table_making import TableOptions

_LOCK_WAIT_S = 10
_HOLDERS = """
select a.pid, coalesce(nullif(a.application_name, ''), a.backend_type), a.usename, coalesce(a.state, ''),
       c.relname
from pg_catalog.pg_locks l
join pg_catalog.pg_stat_activity a using (pid)
join pg_catalog.pg_class c on c.oid = l.relation
where l.granted and l.pid <> pg_catalog.pg_backend_pid() and l.relation = any(%s::regclass[])
order by a.pid limit 1"""
_INDEXES = """
select i.indexrelid::regclass::text, t.relname::text, quote_ident(k.conname)
from pg_catalog.pg_index i
join pg_catalog.pg_class c on c.oid = i.indexrelid
join pg_catalog.pg_class t on t.oid = i.indrelid
left join pg_catalog.pg_constraint k on k.conindid = i.indexrelid and k.contype in ('p', 'u')
where i.indrelid = any(%s::regclass[]) and c.relname = any(%s)"""
_FOREIGN_KEYS = """
select t.relname::text, quote_ident(conname) from pg_catalog.pg_constraint
join pg_catalog.pg_class t on t.oid = conrelid
where contype = 'f' and conparentid = 0
and conrelid = any(%s::regclass[]) and confrelid = any(%s::regclass[])"""


class Resets:
    """Implements :class:`dbdyno.model.plan.resetting.Resetting`."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def data_sets(
        self, workload: str, params: Mapping[str, object], texts: Sequence[str]
    ) -> Sequence[DataSet]:
        loadable = loader.names()
        if workload in loadable:
            scripts = script_halves.scripts_of(workload, params)
            texts, names = [s.text for s in scripts], [workload]
        else:
            names = [name for name in loadable if uses_tables(name, texts)]
        written = any(map(changes_rows, texts))
        with doing("looking at the tables"):
            sets = (self._data_set(name, params, on_demand=name == workload) for name in names)
            return [s._replace(written=written) for s in sets if s is not None]

    def _data_set(self, name: str, params: Mapping[str, object], *, on_demand: bool) -> DataSet | None:
        connection, description = self._site.connection(), loader.description(name)
        schema = table_marks.schema_of(connection, description)
        names = [t.name for t in description.tables]
        existing = table_marks.existing(connection, schema, description)
        if not existing and not on_demand:
            return None
        stamp = table_marks.stamp_of(connection, schema, description)
        parameters = {k: v for k, v in params.items() if isinstance(v, int) and k in description.parameters}
        tables = tuple(f"{schema}.{n}" for n in names)
        if not existing or (stamp is not None and stamp == table_marks.unfinished(name)):
            rows = sum(description.row_counts({**description.parameters, **parameters}).values())
            return DataSet(name, tables, rows, written=False)
        unfinished = table_marks.is_unfinished(name, stamp)
        refused = _refusal(connection, name, description, schema, existing, stamp)
        stored_parameters = {} if stamp is None else table_marks.size_of(table_marks.complete(stamp))[1] or {}
        rows = sum(description.row_counts({**description.parameters, **stored_parameters}).values())
        return DataSet(name, tables, rows, written=False, unfinished=unfinished, refused=refused)

    def begin(self, name: str, cache: Cache) -> Reloading:
        with doing(f"bringing back the data of {name}"):
            return Reloading(self._site, name, cache)

    def check_dropping(self) -> None:
        with doing("looking at what the cache can do"):
            cache_drop.check(self._site)

    def warm(
        self, workload: str, params: Mapping[str, Any], sessions: int, texts: Sequence[str]
    ) -> CacheWarming:
        with doing(f"reading the tables of {workload} into the caches"):
            if workload in objects.names():
                object_names = objects.half_of(workload).with_params(params).objects.names(sessions, params)
                tables = [_quoted(objects.SCHEMA, name) for name in object_names]
            else:
                described = [loader.description(s.name) for s in self.data_sets(workload, params, texts)]
                connection = self._site.connection()
                tables = [t for d in described for t in _qualified(table_marks.schema_of(connection, d), d)]
            return warming.warm(self._site, tables)

    def cache_bytes(self, settings: Mapping[str, str]) -> int | None:
        with doing("asking for the size of the cache"):
            return warming.cache_bytes(self._site.connection(), settings)

    def drop_cache(self, name: str) -> CacheDrop:
        described = loader.description(name)
        with doing(f"dropping the tables of {name} from the caches"):
            schema = table_marks.schema_of(self._site.connection(), described)
            return cache_drop.drop(self._site, _qualified(schema, described))


def uses_tables(name: str, texts: Sequence[str]) -> bool:
    """Returns whether scripts use a table of this workload."""
    described = loader.description(name)
    qualified = f"{objects.SCHEMA}." if described.own_schema else ""
    tables = "|".join(re.escape(qualified + t.name) for t in described.tables)
    return any(re.search(rf"\b({tables})\b", text, re.IGNORECASE) for text in texts)


def _refusal(
    connection: Connection,
    name: str,
    description: loader.Description,
    schema: str,
    existing: Sequence[str],
    stamp: str | None,
) -> str:
    """Returns why the rows of these tables may not be replaced, empty if they may."""
    if stamp is None:
        return f"{', '.join(existing)}: not made by dbdyno workload prepare"
    if not table_marks.complete(stamp).startswith(
        f"{objects.PREPARED} {name}, version {description.version}:"
    ):
        return f"the tables of {name} were made by another version of dbdyno: make them with --replace"
    if missing := {t.name for t in description.tables} - set(existing):
        return f"{', '.join(sorted(missing))}: no longer there"
    if description.own_schema:
        try:
            objects.check(connection, ())
        except TargetError as e:
            return e.message
    names = [t.name for t in description.tables]
    if differ := ownership.differences(
        connection, schema, names, table_marks.partitions_of(stamp, description)
    ):
        return ownership.in_words(schema, differ)
    row = connection.execute(
        "select pg_catalog.pg_get_userbyid(c.relowner) from pg_catalog.pg_class c "
        "where c.oid = any(%s::regclass[]) and not pg_catalog.pg_has_role(c.relowner, 'usage') limit 1",
        [_qualified(schema, description)],
    ).fetchone()
    return "" if row is None else f"the tables of {name} belong to {row[0]}: run as that role"


def _qualified(schema: str, description: loader.Description) -> list[str]:
    """Returns the name of each table in SQL."""
    return [_quoted(schema, t.name) for t in description.tables]


def _quoted(schema: str, table: str) -> str:
    return pgsql.Identifier(schema, table).as_string()


class Reloading(Making):
    """Implements :class:`dbdyno.model.plan.table_making.Preparation` for tables that exist."""

    def __init__(self, site: Site, workload: str, cache: Cache) -> None:
        self._site, self._cache = site, cache
        connection, described = site.connection(), loader.description(workload)
        schema = table_marks.schema_of(connection, described)
        stamp = table_marks.complete(table_marks.stamp_of(connection, schema, described) or "")
        if not (chosen := table_marks.options_of(stamp)):
            raise UsageError(
                f"the tables of {workload} were not made by dbdyno workload prepare", "--reset never"
            )
        super().__init__(connection, workload, TableOptions(**chosen))

    def _is_done(self) -> bool:
        return False

    def _create(self) -> None:
        """Truncates the tables in one transaction, on a connection that then ends: so the server counts the
        truncation before it counts the rows loaded next.

        Lists the tables, locks them, and checks them again under the lock, after which nobody can attach a
        child or a trigger. TRUNCATE takes no ONLY for a partitioned table, so its partitions are truncated
        instead.
        """
        listed = [t.name for t in self._description.tables]
        partitions = [f"{t}_{n}" for t, count in self._partitions().items() for n in range(1, count + 1)]
        filled = [n for n in (*listed, *partitions) if not self._partitioned(n)]
        with (
            connect.connect(self._site.dsn) as connection,
            connection.patient(),
            self._explain_lock([self._sql_name(n) for n in listed]),
            connection.transaction(),
        ):
            connection.execute(f"set local lock_timeout = '{_LOCK_WAIT_S}s'".encode())
            locked = ", ".join(f"only {self._sql_name(n)}" for n in (*listed, *partitions))
            connection.execute(f"lock table {locked} in access exclusive mode".encode())
            self._check_still_own(connection)
            text = table_marks.unfinished(self._workload, self._stamp())
            table_marks.mark(connection, self._schema, self._description, text)
            self._drop_indexes(connection)
            for table in self._description.tables:
                self._set_defaults(connection, table)
            emptied = ", ".join(f"only {self._sql_name(n)}" for n in filled)
            connection.execute(f"truncate {emptied} restart identity restrict".encode())

    def _check_still_own(self, connection: Connection) -> None:
        """Raises :class:`TargetError` if the tables, now locked, have changed since the first check."""
        stamp = table_marks.stamp_of(connection, self._schema, self._description)
        existing = table_marks.existing(connection, self._schema, self._description)
        why = _refusal(connection, self._workload, self._description, self._schema, existing, stamp)
        if why:
            raise TargetError(why, "--reset never")

    def _drop_indexes(self, connection: Connection) -> None:
        """Drops the indexes and keys that are created after loading, and no others."""
        tables = [self._sql_name(t.name) for t in self._description.tables]
        alone = {t.name: self._only(t.name) for t in self._description.tables}
        for table, name in connection.execute(_FOREIGN_KEYS.encode(), [tables, tables]).fetchall():
            if self._options.foreign_keys:
                connection.execute(f"alter table {alone[table]} drop constraint {name}".encode())
        names = [f"{t.name}_pkey" for t in self._description.tables]
        names += [file.removesuffix(".sql") for t in self._description.tables for file in t.after]
        for index, table, name in connection.execute(_INDEXES.encode(), [tables, names]).fetchall():
            what = (
                f"drop index {index}"
                if name is None
                else f"alter table {alone[table]} drop constraint {name}"
            )
            connection.execute(what.encode())

    @contextmanager
    def _explain_lock(self, tables: list[str]) -> Iterator[None]:
        """Raises :class:`TargetError` naming the session that holds a lock, if locking the tables timed
        out."""
        try:
            yield
        except psycopg.errors.LockNotAvailable:
            row = self._connection.execute(_HOLDERS.encode(), [tables]).fetchone()
            holder = "another session holds a lock on them"
            if row is not None:
                pid, what, user, state, table = row
                holder = (
                    f"process {pid} ({what}, user {user}, {state or 'no session'}) holds a lock on {table}"
                )
            raise TargetError(
                f"the tables of {self._workload} could not be emptied within {_LOCK_WAIT_S} s: {holder}",
                "end its transaction, or --reset never",
            ) from None

    def _last_steps(self) -> list[dict[str, Any]]:
        """Returns steps after which every measurement begins with nothing left to write, and with the same
        state of the caches."""
        names = [t.name for t in self._description.tables]
        steps = [{"name": "analyzing", "statements": [[f"analyze {self._maintained(n)}"] for n in names]}]
        if self._may_checkpoint():
            steps.append({"name": "checkpoint", "statements": [["checkpoint"]]})
        if self._cache == "warm":
            steps.append(
                {
                    "name": "warming the cache",
                    "statements": [[warming.statement(self._connection, self._sql_name(n))] for n in names],
                }
            )
        return steps

    def _may_checkpoint(self) -> bool:
        role = (
            "pg_catalog.pg_has_role('pg_checkpoint', 'usage')"
            if versions.major(self._connection) >= versions.CHECKPOINT_ROLE
            else "false"
        )
        query = f"select rolsuper or {role} from pg_catalog.pg_roles where rolname = current_user"
        row = self._connection.execute(query.encode()).fetchone()
        return row is not None and bool(row[0])

    def undo(self) -> Sequence[str]:
        if self._loader is not None:
            self._loader.abort()
        return ()
