"""Tables of a workload: created, loaded in parallel, indexed, vacuumed, and removed.

They are in the first schema of search_path, as pgbench's own are, or in dbdyno's schema.
:mod:`dbdyno.engines.postgres.table_marks` knows which are dbdyno's.
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
from dbdyno.engines.postgres import loader, objects, own_settings, ownership, table_marks, versions
from dbdyno.engines.postgres.connect import Connection, driver_target
from dbdyno.engines.postgres.errors import core_error, doing
from dbdyno.engines.postgres.settings import Site
from dbdyno.model.errors import NotPrivileged, UsageError
from dbdyno.model.plan.table_making import PreparedTable, TableOptions

_FOLDER = resources.files("dbdyno.engines.postgres") / "workloads"
_MOST_WORKERS = 8
_BIGINT_SINCE = 20_000
"""From this scale on, account numbers need 8 bytes."""
_DEFAULTS = ("smallint", "integer", "bigint", "text")
"""Types whose constants have the same form in SQL and in the description."""
PARTITIONED = "pgbench_accounts"
_FEW = 2
"""With up to so many connections, each freezes whole tables and sorts the keys of an index alone."""
_SORT_BYTES_PER_ROW = 80
"""Bytes of an index entry and of its slot in the sort, with room for the array of slots to grow."""
_MOST_SORT_MB = 512
_OPTIONS = {
    "fillfactor": "fillfactor",
    "partitions": "storage",
    "unlogged": "unlogged",
    "foreign_keys": "storage",
    "tablespace": "tablespace",
    "index_tablespace": "index_tablespace",
}
"""Options, and the placeholders for them in the SQL files of workloads."""
_NOT_OF_CONTENT = ("workers", "vacuum", "replace", "on_demand")


class Tables:
    """Implements :class:`dbdyno.model.plan.table_making.Preparing`."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def preparable(self) -> Mapping[str, str]:
        return {name: ", ".join(t.name for t in loader.description(name).tables) for name in loader.names()}

    def begin(self, workload: str, options: TableOptions) -> Making:
        with doing(f"preparing {workload}"):
            return Making(self._site.connection(), workload, options)

    def drop(self, workload: str) -> Sequence[str]:
        connection, description = self._site.connection(), loader.description(workload)
        with doing(f"removing the tables of {workload}"), connection.patient():
            schema = table_marks.schema_of(connection, description)
            existing = table_marks.existing(connection, schema, description)
            if existing and table_marks.stamp_of(connection, schema, description) is None:
                raise UsageError(
                    f"{', '.join(existing)} in schema {schema}: not made by dbdyno workload prepare",
                    "remove them yourself if they are not needed",
                )
            table_marks.check_own(connection, schema, description)
            return table_marks.drop(connection, schema, description)


class Making:
    """Implements :class:`dbdyno.model.plan.table_making.Preparation`: creates and loads the tables of a
    workload."""

    def __init__(self, connection: Connection, workload: str, options: TableOptions) -> None:
        self._connection, self._workload, self._options = connection, workload, options
        self._description = loader.description(workload)
        parameters = self._sizes()
        self._counts, self._parameters = self._description.row_counts(parameters), parameters
        self._check_options()
        if self._description.own_schema:
            objects.own_schema(connection)
        self._schema = table_marks.schema_of(connection, self._description)
        self._placeholders = _placeholder_values(connection, self._schema, options)
        self.workers = options.workers or _workers()
        self.rows = 0
        self._loader: _core.Loader | None = None
        self._steps: list[str] = []
        self._defaults: dict[str, list[str]] = {}  # columns by table
        if not self._is_done():
            self._create()
            self._load()

    def _is_done(self) -> bool:
        """Returns whether the tables exist, created with the same options. Raises :class:`UsageError` if
        others exist."""
        existing = table_marks.existing(self._connection, self._schema, self._description)
        stamp = table_marks.stamp_of(self._connection, self._schema, self._description)
        if existing and (stamp is not None or self._options.replace):
            table_marks.check_own(self._connection, self._schema, self._description)
        if not existing or self._options.replace or table_marks.is_unfinished(self._workload, stamp):
            return False
        if stamp == self._stamp():
            return True
        if self._options.on_demand and stamp is not None:
            return table_marks.size_of(stamp) == table_marks.size_of(self._stamp())
        raise UsageError(
            f"{', '.join(existing)} already exist in schema {self._schema}"
            + (", made with other options" if stamp else ""),
            "--replace drops them and makes new ones; or choose another schema or database with --dsn "
            "(options=-csearch_path=SCHEMA)",
        )

    def _sizes(self) -> dict[str, int]:
        """Returns the parameters of the tables. Raises :class:`UsageError` for an unknown one."""
        known, given = self._description.parameters, self._options.parameters
        for name in given if not self._options.on_demand else ():
            if name not in (*known, "scale"):  # which every stamp has
                option = f"--{name}"
                raise UsageError(
                    f"{option}: the tables of {self._workload} have no such option", f"leave out {option}"
                )
        chosen = {name: int(value) for name, value in given.items() if name in known}
        return {**known, **chosen, "scale": self._options.scale}

    def _stamp(self) -> str:
        chosen = {k: v for k, v in asdict(self._options).items() if k not in _NOT_OF_CONTENT}
        chosen["parameters"] = self._parameters
        return (
            f"{objects.PREPARED} {self._workload}, version {self._description.version}: {json.dumps(chosen)}"
        )

    def _create(self) -> None:
        """Creates the tables and removes those they replace, in one transaction, so that an error changes
        nothing."""
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
        """Gives constant columns a default until loading is over: COPY fills in a default faster than it
        reads a value. At least one column is sent. Partitions inherit the defaults."""
        constants = [
            c
            for c in table.columns
            if isinstance(c, loader.Constant) and c.value is not None and c.type in _DEFAULTS
        ]
        if not self._counts[table.name] or len(constants) == len(table.columns):
            return
        rows = connection.execute(
            "select attname from pg_catalog.pg_attribute where attrelid = %s::regclass and attnum > 0 "
            "and not atthasdef and attidentity = ''",
            [self._sql_name(table.name)],
        ).fetchall()
        free = {str(row[0]) for row in rows}
        for column in constants:
            if column.name in free:
                self._defaults.setdefault(table.name, []).append(column.name)
                default = pgsql.SQL("alter table {} alter {} set default {}").format(
                    pgsql.SQL(self._only(table.name)),  # quoted already
                    pgsql.Identifier(column.name),
                    str(column.value) if column.type == "text" else column.value,
                )
                connection.execute(default)

    def _after(self, table: loader.Table) -> list[list[str]]:
        """Returns statements to execute when a table is loaded: the first list, then the others in
        parallel."""
        first = [
            f"alter table {self._only(table.name)} alter {_quoted(name)} drop default"
            for name in self._defaults.get(table.name, ())
        ]
        if self._options.vacuum:
            first.append(f"vacuum analyze {self._maintained(table.name)}")
        return [first, *([self._text(f)] for f in table.after)]

    def _check_options(self) -> None:
        """Raises :class:`UsageError` for an option that this workload's tables do not have."""
        options, defaults = self._options, TableOptions()
        files = {f for table in self._description.tables for f in (table.ddl, *table.after)}
        texts = "".join((_FOLDER / self._workload / f).read_text(encoding="utf-8") for f in files)
        for name, word in _OPTIONS.items():
            if getattr(options, name) != getattr(defaults, name) and f"${{{word}}}" not in texts:
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
        """Returns bounds, first and last row of each partition of the accounts. With hash partitions no
        rows."""
        count, rows = self._options.partitions, self._counts.get(PARTITIONED, 0)
        if self._options.partition_method == "hash":
            return [(f"for values with (modulus {count}, remainder {n})", 1, 0) for n in range(count)]
        size = -(-rows // count) if count else 0
        partitions = []
        for n in range(count):
            low = "minvalue" if n == 0 else str(n * size + 1)
            high = "maxvalue" if n == count - 1 else str((n + 1) * size + 1)
            bounds = f"for values from ({low}) to ({high})"
            partitions.append((bounds, n * size + 1, min(rows, (n + 1) * size)))
        return partitions

    def _load(self) -> None:
        """Starts loading. Each table is vacuumed and gets its keys as soon as it is loaded, while others
        are loading."""
        fills = self._fills()
        filled = {str(f["name"]) for f in fills}
        after = {t.name: self._after(t) for t in self._description.tables}
        empty = [list(chain(*parts)) for name, parts in after.items() if name not in filled]
        steps: list[dict[str, Any]] = [
            {"name": "loading", "tables": fills, "after": {n: after[n] for n in filled}},
            {"name": "creating primary keys", "statements": empty},
        ]
        if self._options.foreign_keys:
            keys = [s.strip() for s in self._text("foreign_keys.sql").split(";")]
            steps.append({"name": "creating foreign keys", "statements": [keys]})
        steps += self._last_steps()
        self._steps = [str(step["name"]) for step in steps]
        spec = {
            "target": driver_target(self._connection),
            "workers": self.workers,
            "seed": self._options.seed,
            "setup": self._session(),
            "steps": steps,
        }
        self._loader = _core.Loader("postgres", json.dumps(spec))
        self.rows = self._loader.total_rows()

    def _last_steps(self) -> list[dict[str, Any]]:
        return []

    def _session(self) -> list[str]:
        """Returns settings of the loading sessions. Keys are sorted in memory if they fit.

        Parallel workers would write keys to files first, which costs a third more CPU time; with few
        connections no CPU is free for that.
        """
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
        """Returns what to load, the largest part first. A range partition is loaded by one connection, and
        frozen.

        So is any table if there are few connections: one connection writes frozen rows as fast as two write
        rows that need a vacuum afterwards.
        """
        fills = []
        for described in self._description.tables:
            table = _with_bigints(described) if self._placeholders["aid"] == "bigint" else described
            spec = table.core(self._sql_name(table.name), (1, self._counts[table.name]), self._parameters)
            for column in spec["columns"]:
                column["sent"] = column["name"] not in self._defaults.get(table.name, ())
            parts = self._bounds() if table.name == PARTITIONED else []
            if parts and self._options.partition_method == "range":
                for number, (_, first, last) in enumerate(parts, 1):
                    part = {
                        "sql": self._sql_name(f"{table.name}_{number}"),
                        "rows": (first, last),
                        "freeze": True,
                    }
                    fills.append({**spec, **part})
            elif self._counts[table.name]:
                whole = not parts and not table.partitions  # COPY freezes no partitioned table
                fills.append({**spec, "freeze": whole and (table.freeze or self.workers <= _FEW)})
        return sorted(fills, key=lambda f: f["rows"][0] - f["rows"][1])

    def _text(self, file: str, **more: str) -> str:
        text = (_FOLDER / self._workload / file).read_text(encoding="utf-8").strip()
        for name, value in {**self._placeholders, **more}.items():
            text = text.replace(f"${{{name}}}", value)
        return text

    def _sql_name(self, table: str) -> str:
        return f"{self._placeholders['schema']}.{_quoted(table)}"

    def _partitions(self) -> dict[str, int]:
        """Returns the number of partitions by table."""
        return {t.name: t.partitions for t in self._description.tables if t.partitions} | (
            {PARTITIONED: self._options.partitions} if self._options.partitions else {}
        )

    def _partitioned(self, table: str) -> bool:
        return table in self._partitions()

    def _only(self, table: str) -> str:
        """Returns the table for statements that change it: without inheritance children, but with its
        partitions."""
        return self._sql_name(table) if self._partitioned(table) else f"only {self._sql_name(table)}"

    def _maintained(self, table: str) -> str:
        """Returns the table for VACUUM and ANALYZE, which from version 18 on recurse to children and take
        ONLY."""
        recurses = versions.major(self._connection) >= versions.MAINTAINS_CHILDREN
        return self._only(table) if recurses else self._sql_name(table)

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
        """Returns the size of a loaded table, summed over its partitions."""
        row = self._connection.execute(
            "select coalesce((select pg_catalog.sum(pg_catalog.pg_total_relation_size(relid)) "
            "from pg_catalog.pg_partition_tree(%s::regclass)), "
            "pg_catalog.pg_total_relation_size(%s::regclass))",
            [self._sql_name(name)] * 2,
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
    """Returns the number of CPUs of this machine, which are the server's if it is on this host."""
    return max(1, min(_MOST_WORKERS, len(os.sched_getaffinity(0))))


def _quoted(name: str) -> str:
    return pgsql.Identifier(name).as_string()


def _placeholder_values(connection: Connection, schema: str, options: TableOptions) -> dict[str, str]:
    """Returns values for the placeholders in SQL files."""

    fill = f"with (fillfactor = {options.fillfactor})"
    unlogged = "unlogged" if options.unlogged else ""
    parent_logged = options.partitions and versions.major(connection) >= versions.PARENTS_LOGGED
    return {
        "schema": _quoted(schema),
        "only_accounts": "" if options.partitions else "only",
        "aid": "bigint" if options.scale >= _BIGINT_SINCE else "int",
        "fillfactor": str(options.fillfactor),
        "unlogged": unlogged,
        "unlogged_parent": "" if parent_logged else unlogged,
        "storage": f"partition by {options.partition_method} (aid)" if options.partitions else fill,
        "tablespace": f"tablespace {_quoted(options.tablespace)}" if options.tablespace else "",
        "index_tablespace": (
            f"using index tablespace {_quoted(options.index_tablespace)}" if options.index_tablespace else ""
        ),
    }
