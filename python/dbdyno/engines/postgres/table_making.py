"""Tables of a workload, made once: created, loaded in parallel, indexed, vacuumed; and removed again.

They stand where unqualified names lead to: in the first schema of search_path, as pgbench's own do,
or in our schema. :mod:`dbdyno.engines.postgres.table_marks` says which are ours.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from itertools import chain
from typing import Any

from psycopg import sql as pgsql

from dbdyno import _core
from dbdyno.engines.postgres import loader, objects, own_settings, ownership, table_marks
from dbdyno.engines.postgres.connect import Connection, driver_target
from dbdyno.engines.postgres.errors import core_error, doing
from dbdyno.engines.postgres.settings import Site
from dbdyno.model.errors import NotPrivileged, UsageError
from dbdyno.model.plan.table_making import PreparedTable, TableWish

_FOLDER = resources.files("dbdyno.engines.postgres") / "workloads"
_MOST_WORKERS = 8
_BIGINT_SINCE = 20_000
"""From this scale on numbers of accounts need 8 bytes."""
_PARENTS_LOGGED_SINCE = 180_000
_DEFAULTS = ("smallint", "integer", "bigint", "text")
"""Types whose constants stand in SQL as they stand in the description."""
PARTITIONED = "pgbench_accounts"
_MAINTAINS_CHILDREN_SINCE = 180_000
_FEW = 2
"""Connections up to which one of them freezes a whole table, and each sorts the keys of an index alone."""
_SORT_BYTES_PER_ROW = 80
"""An index entry, its place in the sort, and room for the array of places to grow."""
_MOST_SORT_MB = 512
_OPTIONS = {
    "fillfactor": "fillfactor",
    "partitions": "storage",
    "unlogged": "unlogged",
    "foreign_keys": "storage",
    "tablespace": "tablespace",
    "index_tablespace": "index_tablespace",
}
"""Options, and what stands in the SQL files of workloads that have them."""
_NOT_OF_CONTENT = ("workers", "vacuum", "replace", "on_demand")


class Tables:
    """:class:`dbdyno.model.plan.table_making.Preparing`."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def preparable(self) -> Mapping[str, str]:
        return {name: ", ".join(t.name for t in loader.description(name).tables) for name in loader.names()}

    def begin(self, workload: str, wish: TableWish) -> Making:
        with doing(f"preparing {workload}"):
            return Making(self._site.connection(), workload, wish)

    def drop(self, workload: str) -> Sequence[str]:
        connection, description = self._site.connection(), loader.description(workload)
        with doing(f"removing the tables of {workload}"), connection.patient():
            schema = table_marks.schema_of(connection, description)
            there = table_marks.existing(connection, schema, description)
            if there and table_marks.stamp_of(connection, schema, description) is None:
                raise UsageError(
                    f"{', '.join(there)} in schema {schema}: not made by dbdyno workload prepare",
                    "remove them yourself if they are not needed",
                )
            table_marks.check_own(connection, schema, description)
            return table_marks.drop(connection, schema, description)


class Making:
    """:class:`dbdyno.model.plan.table_making.Preparation`."""

    def __init__(self, connection: Connection, workload: str, wish: TableWish) -> None:
        self._connection, self._workload, self._wish = connection, workload, wish
        self._description = loader.description(workload)
        parameters = self._sizes()
        self._counts, self._parameters = self._description.row_counts(parameters), parameters
        self._check_options()
        if self._description.own_schema:
            objects.own_schema(connection)
        self._schema = table_marks.schema_of(connection, self._description)
        self._words = _words(connection, self._schema, wish)
        self.workers = wish.workers or _workers()
        self.rows = 0
        self._loader: _core.Loader | None = None
        self._steps: list[str] = []
        self._defaults: dict[str, list[str]] = {}  # columns by table
        if not self._already():
            self._create()
            self._load()

    def _already(self) -> bool:
        """Whether they are there, made with the same wish. Raises :class:`UsageError` for others."""
        there = table_marks.existing(self._connection, self._schema, self._description)
        stamp = table_marks.stamp_of(self._connection, self._schema, self._description)
        if there and (stamp is not None or self._wish.replace):
            table_marks.check_own(self._connection, self._schema, self._description)
        if not there or self._wish.replace or table_marks.is_unfinished(self._workload, stamp):
            return False
        if stamp == self._stamp():
            return True
        if self._wish.on_demand and stamp is not None:
            return table_marks.size_of(stamp) == table_marks.size_of(self._stamp())
        raise UsageError(
            f"{', '.join(there)} already exist in schema {self._schema}"
            + (", made with other options" if stamp else ""),
            "--replace drops them and makes new ones; or choose another schema or database with --dsn "
            "(options=-csearch_path=SCHEMA)",
        )

    def _sizes(self) -> dict[str, int]:
        """The parameters of the tables. Raises :class:`UsageError` for one that they have not."""
        known, given = self._description.parameters, self._wish.parameters
        for name in given if not self._wish.on_demand else ():
            if name not in known:
                option = f"--{name}"
                raise UsageError(
                    f"{option}: the tables of {self._workload} have no such option", f"leave out {option}"
                )
        chosen = {name: int(value) for name, value in given.items() if name in known}
        return {**known, **chosen, "scale": self._wish.scale}

    def _stamp(self) -> str:
        chosen = {k: v for k, v in asdict(self._wish).items() if k not in _NOT_OF_CONTENT}
        chosen["parameters"] = self._parameters
        return (
            f"{objects.PREPARED} {self._workload}, version {self._description.version}: {json.dumps(chosen)}"
        )

    def _create(self) -> None:
        """In one transaction with the removal of what is replaced: an error leaves all as it was."""
        connection, description = self._connection, self._description
        self._check_right()
        ownership.check_place(connection, self._schema)
        with connection.patient(), connection.transaction():
            table_marks.drop(connection, self._schema, description)
            for table in description.tables:
                connection.execute(self._text(table.ddl).encode())
                self._set_defaults(connection, table)
            for number, bounds in enumerate(self._bounds(), 1):
                text = self._text("partition.sql", number=str(number), bounds=bounds[0])
                connection.execute(text.encode())
            table_marks.mark(connection, self._schema, description, table_marks.unfinished(self._workload))

    def _set_defaults(self, connection: Connection, table: loader.Table) -> None:
        """Columns that are constant get a default until the load is over: COPY fills it in for less than it
        takes to read a value. One column is sent at least. Partitions have the defaults of their table."""
        constants = [
            c
            for c in table.columns
            if isinstance(c, loader.Constant) and c.value is not None and c.type in _DEFAULTS
        ]
        if not self._counts[table.name] or len(constants) == len(table.columns):
            return
        found = connection.execute(
            "select attname from pg_catalog.pg_attribute where attrelid = %s::regclass and attnum > 0 "
            "and not atthasdef and attidentity = ''",
            [self._named(table.name)],
        ).fetchall()
        free = {str(row[0]) for row in found}
        for column in constants:
            if column.name in free:
                self._defaults.setdefault(table.name, []).append(column.name)
                default = pgsql.SQL("alter table {} alter {} set default {}").format(
                    pgsql.SQL(self._alone(table.name)),  # quoted already
                    pgsql.Identifier(column.name),
                    str(column.value) if column.type == "text" else column.value,
                )
                connection.execute(default)

    def _after(self, table: loader.Table) -> list[list[str]]:
        """What follows when a table is filled: the first entry, then the others beside each other."""
        first = [
            f"alter table {self._alone(table.name)} alter {_quoted(name)} drop default"
            for name in self._defaults.get(table.name, ())
        ]
        if self._wish.vacuum:
            first.append(f"vacuum analyze {self._maintained(table.name)}")
        return [first, *([self._text(f)] for f in table.after)]

    def _check_options(self) -> None:
        """Raises :class:`UsageError` for one that this workload's tables have not."""
        wish, plain = self._wish, TableWish()
        files = {f for table in self._description.tables for f in (table.ddl, *table.after)}
        texts = "".join((_FOLDER / self._workload / f).read_text(encoding="utf-8") for f in files)
        for name, word in _OPTIONS.items():
            if getattr(wish, name) != getattr(plain, name) and f"${{{word}}}" not in texts:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(
                    f"{option}: the tables of {self._workload} have no such option", f"leave out {option}"
                )

    def _check_right(self) -> None:
        row = self._connection.execute(
            "select pg_catalog.has_schema_privilege(%s, 'create'), pg_catalog.quote_ident(%s), "
            "pg_catalog.quote_ident(current_user)",
            [self._schema, self._schema],
        ).fetchone()
        if row is not None and not row[0]:
            raise NotPrivileged(
                f"no right to create tables in schema {self._schema}",
                f"as its owner or superuser: GRANT CREATE ON SCHEMA {row[1]} TO {row[2]};",
            )

    def _bounds(self) -> list[tuple[str, int, int]]:
        """Each partition of the accounts: its bounds, first and last row; by hash: no rows."""
        count, rows = self._wish.partitions, self._counts.get(PARTITIONED, 0)
        if self._wish.partition_method == "hash":
            return [(f"for values with (modulus {count}, remainder {n})", 1, 0) for n in range(count)]
        size = -(-rows // count) if count else 0
        found = []
        for n in range(count):
            low = "minvalue" if n == 0 else str(n * size + 1)
            high = "maxvalue" if n == count - 1 else str((n + 1) * size + 1)
            bounds = f"for values from ({low}) to ({high})"
            found.append((bounds, n * size + 1, min(rows, (n + 1) * size)))
        return found

    def _load(self) -> None:
        """Each table is vacuumed and gets its keys as soon as it is filled, while others are being filled."""
        fills = self._fills()
        filled = {str(f["name"]) for f in fills}
        after = {t.name: self._after(t) for t in self._description.tables}
        empty = [list(chain(*parts)) for name, parts in after.items() if name not in filled]
        steps: list[dict[str, Any]] = [
            {"name": "loading", "tables": fills, "after": {n: after[n] for n in filled}},
            {"name": "creating primary keys", "statements": empty},
        ]
        if self._wish.foreign_keys:
            keys = [s.strip() for s in self._text("foreign_keys.sql").split(";")]
            steps.append({"name": "creating foreign keys", "statements": [keys]})
        steps += self._last_steps()
        self._steps = [str(step["name"]) for step in steps]
        spec = {
            "target": driver_target(self._connection),
            "workers": self.workers,
            "seed": self._wish.seed,
            "setup": self._session(),
            "steps": steps,
        }
        self._loader = _core.Loader("postgres", json.dumps(spec))
        self.rows = self._loader.total_rows()

    def _last_steps(self) -> list[dict[str, Any]]:
        return []

    def _session(self) -> list[str]:
        """Keys are sorted in memory where they fit. Parallel workers write theirs to files first, which costs
        a third more CPU time: with few connections no CPU is free for it."""
        row = self._connection.execute(
            "select setting::bigint / 1024 from pg_catalog.pg_settings where name = 'maintenance_work_mem'"
        ).fetchone()
        wanted_mb = max(self._counts.values()) * _SORT_BYTES_PER_ROW // 2**20
        sorts: list[str] = []
        if wanted_mb <= _MOST_SORT_MB and self.workers <= _FEW:
            sorts = ["set max_parallel_maintenance_workers = 0"]
            if row and row[0] < wanted_mb:
                sorts.append(f"set maintenance_work_mem = '{wanted_mb}MB'")
        own = own_settings.statement(self._connection.info.server_version, None)
        return [own, "set synchronous_commit = off", *sorts]

    def _fills(self) -> list[dict[str, Any]]:
        """Partitions by range are frozen, each by one connection. So is any table where connections are few:
        one writes frozen rows as fast as two write others that have to be vacuumed."""
        fills = []
        for described in self._description.tables:
            table = _with_bigints(described) if self._words["aid"] == "bigint" else described
            spec = table.core(self._named(table.name), (1, self._counts[table.name]), self._parameters)
            for column in spec["columns"]:
                column["sent"] = column["name"] not in self._defaults.get(table.name, ())
            parts = self._bounds() if table.name == PARTITIONED else []
            if parts and self._wish.partition_method == "range":
                for number, (_, first, last) in enumerate(parts, 1):
                    part = {
                        "sql": self._named(f"{table.name}_{number}"),
                        "rows": (first, last),
                        "freeze": True,
                    }
                    fills.append({**spec, **part})
            elif self._counts[table.name]:
                fills.append({**spec, "freeze": not parts and (table.freeze or self.workers <= _FEW)})
        return sorted(fills, key=lambda f: f["rows"][0] - f["rows"][1])

    def _text(self, file: str, **more: str) -> str:
        text = (_FOLDER / self._workload / file).read_text(encoding="utf-8").strip()
        for name, value in {**self._words, **more}.items():
            text = text.replace(f"${{{name}}}", value)
        return text

    def _named(self, table: str) -> str:
        return f"{self._words['schema']}.{_quoted(table)}"

    def _partitioned(self, table: str) -> bool:
        return bool(self._wish.partitions) and table == PARTITIONED

    def _alone(self, table: str) -> str:
        """The table in a statement that changes it: without children, but with its own partitions."""
        return self._named(table) if self._partitioned(table) else f"only {self._named(table)}"

    def _maintained(self, table: str) -> str:
        """The table for VACUUM and ANALYZE: from version 18 on they go down to children and have ONLY."""
        recurses = self._connection.info.server_version >= _MAINTAINS_CHILDREN_SINCE
        return self._alone(table) if recurses else self._named(table)

    # -- as it goes on --------------------------------------------------------------------------
    def wait(self, timeout_s: float) -> bool:
        if self._loader is None:
            return True
        try:
            return self._loader.wait(timeout_s)
        except _core.DriverError as e:
            raise core_error(e) from None

    def progress(self) -> tuple[str, int, int]:
        if self._loader is None:
            return "", 0, 0
        step, rows, sent = self._loader.progress()
        return self._steps[min(step, len(self._steps) - 1)], rows, sent

    def finish(self) -> Sequence[PreparedTable]:
        with doing("marking the tables as complete"):
            if self._loader is not None:
                table_marks.mark(self._connection, self._schema, self._description, self._stamp())
            sums: dict[str, tuple[int, int, int]] = (
                dict(self._loader.sums()) if self._loader is not None else {}
            )
            return [
                self._prepared(table.name, *sums.get(table.name, (self._counts[table.name], 0, 0)))
                for table in self._description.tables
            ]

    def _prepared(self, name: str, rows: int, sent: int, checksum: int) -> PreparedTable:
        """A partitioned table has no size of its own."""
        row = self._connection.execute(
            "select coalesce((select pg_catalog.sum(pg_catalog.pg_total_relation_size(relid)) "
            "from pg_catalog.pg_partition_tree(%s::regclass)), "
            "pg_catalog.pg_total_relation_size(%s::regclass))",
            [self._named(name)] * 2,
        ).fetchone()
        return PreparedTable(name, rows, sent, int(row[0]) if row else 0, checksum)

    def undo(self) -> Sequence[str]:
        if self._loader is None:
            return ()
        self._loader.abort()
        with doing("removing what was made"), self._connection.patient():
            return table_marks.drop(self._connection, self._schema, self._description)


def _with_bigints(table: loader.Table) -> loader.Table:
    columns = [c.model_copy(update={"type": "bigint"}) if c.name == "aid" else c for c in table.columns]
    return table.model_copy(update={"columns": tuple(columns)})


def _workers() -> int:
    """CPUs of this machine: those of the server, where it is here."""
    return max(1, min(_MOST_WORKERS, len(os.sched_getaffinity(0))))


def _quoted(name: str) -> str:
    return pgsql.Identifier(name).as_string()


def _words(connection: Connection, schema: str, wish: TableWish) -> dict[str, str]:
    """What stands in the SQL files by name."""

    fill = f"with (fillfactor = {wish.fillfactor})"
    unlogged = "unlogged" if wish.unlogged else ""
    parent_logged = wish.partitions and connection.info.server_version >= _PARENTS_LOGGED_SINCE
    return {
        "schema": _quoted(schema),
        "only_accounts": "" if wish.partitions else "only",
        "aid": "bigint" if wish.scale >= _BIGINT_SINCE else "int",
        "fillfactor": str(wish.fillfactor),
        "unlogged": unlogged,
        "unlogged_parent": "" if parent_logged else unlogged,
        "storage": f"partition by {wish.partition_method} (aid)" if wish.partitions else fill,
        "tablespace": f"tablespace {_quoted(wish.tablespace)}" if wish.tablespace else "",
        "index_tablespace": (
            f"using index tablespace {_quoted(wish.index_tablespace)}" if wish.index_tablespace else ""
        ),
    }
