"""Reads snapshots from pg_profile's ``export_data()``, written by ``\\copy`` as CSV or text.

The first row names the extension, the second the tables; each other row is a row of a table, as JSON. Tables
of samples have the counts since the previous sample, only of the largest objects; snapshots have sums since
the first sample. See pg_profile's doc/pg_profile.md, "Exporting and importing data".
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import polars as pl
from polars.exceptions import PolarsError

from dbdyno import __version__
from dbdyno.engines.postgres.sql import is_own
from dbdyno.engines.postgres.statements import without_passwords
from dbdyno.model.engine.snapshot import TABLES, TEXTS, Snapshot, SnapshotInfo
from dbdyno.model.errors import UsageError
from dbdyno.model.schema.tables import POLARS
from dbdyno.model.text.visible import shortened

NOT_READ = {"pgstatspack": "pgstatspack has no export, and no format of its dumped tables is documented"}
"""Programs whose exports cannot be read, and why."""
_EXPORT = r"in psql: \copy (select * from export_data()) to 'export.csv' csv"
_MS_NS = 1_000_000
_Row = Mapping[str, Any]
_SETTINGS = ("sample_settings", "v_sample_settings")


class _Origin(NamedTuple):
    """Source of a table: the table of samples, its key, counters and gauges (our column -> theirs; ms
    become ns)."""

    table: str
    key: Mapping[str, str]
    counters: Mapping[str, Sequence[str]]
    gauges: Mapping[str, str]


def _same(*names: str) -> dict[str, Sequence[str]]:
    return {n: (n,) for n in names}


_ORIGINS = {
    "databases": _Origin(
        "sample_stat_database",
        {"database_id": "datid"},
        {
            "commits": ("xact_commit",), "rollbacks": ("xact_rollback",), "blocks_read": ("blks_read",),
            "blocks_hit": ("blks_hit",), "rows_returned": ("tup_returned",), "rows_fetched": ("tup_fetched",),
            "rows_inserted": ("tup_inserted",), "rows_updated": ("tup_updated",),
            "rows_deleted": ("tup_deleted",), "conflicts": ("conflicts",), "temporary_files": ("temp_files",),
            "temporary_bytes": ("temp_bytes",), "deadlocks": ("deadlocks",),
            "checksum_failures": ("checksum_failures",), "block_read_ns": ("blk_read_time",),
            "block_write_ns": ("blk_write_time",), "session_ns": ("session_time",),
            "active_ns": ("active_time",), "idle_in_transaction_ns": ("idle_in_transaction_time",),
            "sessions": ("sessions",), "sessions_abandoned": ("sessions_abandoned",),
            "sessions_fatal": ("sessions_fatal",), "sessions_killed": ("sessions_killed",),
        },
        {"size_bytes": "datsize"},
    ),
    "relations": _Origin(
        "sample_stat_tables",
        {"database_id": "datid", "relation_id": "relid"},
        {
            "seq_scans": ("seq_scan",), "seq_rows": ("seq_tup_read",), "index_scans": ("idx_scan",),
            "index_rows": ("idx_tup_fetch",), "rows_inserted": ("n_tup_ins",), "rows_updated": ("n_tup_upd",),
            "rows_deleted": ("n_tup_del",), "rows_hot_updated": ("n_tup_hot_upd",),
            "rows_newpage_updated": ("n_tup_newpage_upd",), "table_blocks_read": ("heap_blks_read",),
            "table_blocks_hit": ("heap_blks_hit",), "index_blocks_read": ("idx_blks_read",),
            "index_blocks_hit": ("idx_blks_hit",), "toast_blocks_read": ("toast_blks_read", "tidx_blks_read"),
            "toast_blocks_hit": ("toast_blks_hit", "tidx_blks_hit"), "vacuums": ("vacuum_count",),
            "autovacuums": ("autovacuum_count",), "analyzes": ("analyze_count",),
            "autoanalyzes": ("autoanalyze_count",),
        },
        {"live_rows": "n_live_tup", "dead_rows": "n_dead_tup", "changed_rows": "n_mod_since_analyze",
         "table_bytes": "relsize"},
    ),
    "indexes": _Origin(
        "sample_stat_indexes",
        {"database_id": "datid", "index_id": "indexrelid"},
        {"scans": ("idx_scan",), "entries_read": ("idx_tup_read",), "rows_fetched": ("idx_tup_fetch",),
         "blocks_read": ("idx_blks_read",), "blocks_hit": ("idx_blks_hit",)},
        {"size_bytes": "relsize"},
    ),
    "statements": _Origin(
        "sample_statements",
        {"user": "userid", "database": "datid", "query_id": "queryid", "toplevel": "toplevel"},
        {
            "exec_ns": ("total_exec_time",), "plan_ns": ("total_plan_time",),
            "blk_read_ns": ("blk_read_time", "shared_blk_read_time", "local_blk_read_time"),
            "blk_write_ns": ("blk_write_time", "shared_blk_write_time", "local_blk_write_time"),
            "jit_ns": ("jit_generation_time", "jit_inlining_time", "jit_optimization_time",
                       "jit_emission_time", "jit_deform_time"),
            **_same("calls", "rows", "plans", "wal_records", "wal_bytes", "temp_blks_read",
                    "temp_blks_written", *(f"{kind}_blks_{what}" for kind in ("shared", "local")
                                           for what in ("hit", "read", "dirtied", "written"))),
        },
        {},
    ),
}  # fmt: skip


def pg_profile(content: str) -> Sequence[Snapshot]:
    """Returns a snapshot per server and sample, oldest first. Raises :class:`UsageError` if it is no such
    export."""
    tables = _tables(content)
    try:
        servers = {row["server_id"]: row for row in tables.get("servers", ())}
        snapshots = [s for number, row in servers.items() for s in _Server(tables, number, row).snapshots()]
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, PolarsError) as e:
        raise UsageError(
            f"this export of pg_profile is damaged: {type(e).__name__}: {shortened(str(e), 200)}", _EXPORT
        ) from e
    if not snapshots:
        raise UsageError("this export has no samples", "export_data() of a server that has samples")
    return sorted(snapshots, key=lambda s: s.info.taken)


def _tables(content: str) -> Mapping[str, Sequence[_Row]]:
    try:
        rows = [(int(n), json.loads(text)) for n, text in _lines(content)]
        names = next(data for n, data in rows if n == 1)
        if next(data for n, data in rows if n == 0)["extension"] != "pg_profile":
            raise ValueError("another extension")
        sections = {t["section_id"]: t["relname"] for t in names}
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError, csv.Error) as e:
        raise UsageError(
            f"this is no export of pg_profile: {shortened(str(e), 200) or 'its first lines are missing'}",
            _EXPORT,
        ) from e
    rows_by_table: dict[str, list[_Row]] = defaultdict(list)
    for n, data in rows:
        if n in sections:
            rows_by_table[sections[n]].append(data)
    return rows_by_table


def _lines(content: str) -> Iterator[tuple[str, str]]:
    """Yields (section, JSON) from CSV with or without a header, or from the text format of COPY."""
    lines = io.StringIO(content, newline="\n")  # queries may hold other separators of lines
    if "\t" in content.partition("\n")[0].split("{")[0]:
        for line in lines:
            number, _, text = line.rstrip("\r\n").partition("\t")
            if number.isdigit():
                yield (
                    number,
                    re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t", "r": "\r"}.get(m[1], m[1]), text),
                )
        return
    csv.field_size_limit(1 << 30)
    for row in csv.reader(lines):
        if len(row) == 2 and row[0].isdigit():
            yield row[0], row[1]


class _Server:
    """A server in an export."""

    def __init__(self, tables: Mapping[str, Sequence[_Row]], number: int, server: _Row) -> None:
        self._tables, self._number, self._server = tables, number, server
        self._databases = {r["datid"]: r["datname"] for r in self._rows("sample_stat_database")}
        self._users = {r["userid"]: r["username"] for r in self._rows("roles_list")}
        self._relations = {(r["datid"], r["relid"]): r for r in self._rows("tables_list")}
        self._indexes = {(r["datid"], r["indexrelid"]): r for r in self._rows("indexes_list")}
        self._own = self._own_statements()
        settings = (r for n in _SETTINGS for r in self._rows(n))
        self._settings = {r["name"]: r.get("reset_val") or r.get("setting") for r in settings}

    def _rows(self, table: str) -> Sequence[_Row]:
        return [r for r in self._tables.get(table, ()) if r["server_id"] == self._number]

    def snapshots(self) -> Iterator[Snapshot]:
        sums: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {name: {} for name in _ORIGINS}
        by_sample = {name: self._by_sample(origin.table) for name, origin in _ORIGINS.items()}
        texts = self._texts()
        for sample in sorted(self._rows("samples"), key=lambda r: r["sample_id"]):
            for name, origin in _ORIGINS.items():
                for row in by_sample[name].get(sample["sample_id"], ()):
                    self._add(sums[name], name, origin, row)
            frames = {name: _frame(name, list(rows.values())) for name, rows in sums.items()}
            yield Snapshot(self._info(sample), {n: frames.get(n, _frame(n, [])) for n in TABLES}, texts)

    def _by_sample(self, table: str) -> Mapping[int, Sequence[_Row]]:
        rows_by_sample: dict[int, list[_Row]] = defaultdict(list)
        for row in self._rows(table):
            rows_by_sample[row["sample_id"]].append(row)
        return rows_by_sample

    def _add(
        self, sums: dict[tuple[Any, ...], dict[str, Any]], name: str, origin: _Origin, row: _Row
    ) -> None:
        """Adds the counts of a sample to the sums."""
        key = {ours: row.get(theirs) for ours, theirs in origin.key.items()}
        attributes = self._attributes(name, key, row)
        if attributes is None:
            return
        sum_row = sums.setdefault(tuple(key.values()), {**key, **attributes})
        for ours, theirs in origin.counters.items():
            values = [row[n] for n in theirs if row.get(n) is not None]
            if values:
                more = (
                    round(sum(map(float, values)) * _MS_NS) if ours.endswith("_ns") else sum(map(int, values))
                )
                sum_row[ours] = (sum_row.get(ours) or 0) + more
        sum_row |= {ours: row[n] for ours, n in origin.gauges.items() if row.get(n) is not None}

    def _attributes(self, name: str, key: _Row, row: _Row) -> dict[str, Any] | None:
        """Returns further columns of the row, None if snapshots leave it out."""
        if name == "statements":
            if key["query_id"] in self._own:
                return None
            return {
                "user": self._users.get(key["user"]),
                "database": self._databases.get(key["database"]),
                "toplevel": key["toplevel"] is not False,
            }
        if name == "databases":
            return {"database": row["datname"]}
        database = {"database": self._databases.get(row["datid"])}
        if name == "relations":
            relation = self._relations.get((row["datid"], row["relid"]))
            if relation is None or relation["relkind"] == "t":
                return None
            kind = "materialized view" if relation["relkind"] == "m" else "table"
            return {
                **database,
                "schema": relation["schemaname"],
                "relation": relation["relname"],
                "kind": kind,
                "sized": True,
            }
        index = self._indexes.get((row["datid"], row["indexrelid"]))
        if index is None:
            return None
        table = self._relations.get((row["datid"], index["relid"]), {})
        return {
            **database,
            "schema": index["schemaname"],
            "index": index["indexrelname"],
            "relation_id": index["relid"],
            "relation": table.get("relname"),
            "is_unique": row.get("indisunique"),
        }

    def _own_statements(self) -> set[int]:
        """Returns the ids of dbdyno's own statements, which snapshots leave out."""
        return {i for i, text in self._text_by_id().items() if is_own(text)}

    def _text_by_id(self) -> Mapping[int, str]:
        by_md5 = {r["queryid_md5"]: r["query"] for r in self._rows("stmt_list")}
        texts = {r["queryid"]: by_md5.get(r["queryid_md5"]) for r in self._rows("sample_statements")}
        return {i: text for i, text in texts.items() if i is not None and text}

    def _texts(self) -> pl.DataFrame:
        rows = [(i, without_passwords(text)) for i, text in self._text_by_id().items() if i not in self._own]
        return pl.DataFrame(rows, schema={c.name: POLARS[c.type] for c in TEXTS}, orient="row")

    def _info(self, sample: _Row) -> SnapshotInfo:
        taken = datetime.fromisoformat(sample["sample_time"]).astimezone(UTC)
        version = str(self._settings.get("server_version") or "")
        number = str(self._settings.get("server_version_num") or "0")
        why = "the export has it not"
        largest = "only of objects that were among the largest of a sample: lower bounds"
        return SnapshotInfo(
            name=f"{self._server['server_name']} sample {sample['sample_id']}",
            taken=taken,
            server_time=taken,
            took_s=0.0,
            engine="postgres",
            server=str(self._settings.get("system_identifier") or self._server["server_name"]),
            address=f"pg_profile server {self._server['server_name']}",
            version=version.split(" ")[0],
            version_num=int(number) if number.isdigit() else 0,
            started=None,
            standby=False,
            role="pg_profile",
            databases=tuple(sorted(set(self._databases.values()))),
            missing={
                **{name: why for name in TABLES if name not in _ORIGINS},
                **dict.fromkeys(("relations", "indexes", "statements"), largest),
            },
            dbdyno=__version__,
        )


def _frame(name: str, rows: Sequence[_Row]) -> pl.DataFrame:
    columns = {c.name: POLARS[c.type] for c in TABLES[name].columns}
    return pl.DataFrame([{n: row.get(n) for n in columns} for row in rows], schema=columns)


READERS = {"pg_profile": pg_profile}
"""Readers by the name of the program."""
