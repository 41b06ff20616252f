"""The schema of a snapshot's tables.

A ``counter`` grows until it is reset. A ``gauge`` is a momentary value. An ``attribute`` is a name or
setting of an object. NULL means that this server does not count the figure or that it may not be read;
:attr:`dbdyno.model.engine.snapshot.SnapshotInfo.missing` gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dbdyno.model.schema.column import Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_sources.statements import FIGURES, KEY


class SnapshotTable(NamedTuple):
    """A table of a snapshot. ``key`` identifies an object during its life: an object that is dropped and
    created again gets another key."""

    key: tuple[Column, ...]
    attributes: tuple[Column, ...]
    counters: tuple[Column, ...]
    gauges: tuple[Column, ...]
    doc: str

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.key, *self.attributes, *self.counters, *self.gauges)


def _text(name: str, doc: str) -> Column:
    return _c(name, "str", doc, null=True)


def _count(*names_and_docs: tuple[str, str]) -> tuple[Column, ...]:
    return tuple(_c(name, "i64", doc, null=True) for name, doc in names_and_docs)


_DATABASE_ID = _c("database_id", "i64", "number of the database; 0: shared by all")
_RESET = _c("reset_s", "f64", "when these counters were last reset, seconds since 1970", null=True)
_BLOCKS = _count(
    ("blocks_read", "blocks not found in the cache"), ("blocks_hit", "blocks found in the cache")
)

TABLES: Mapping[str, SnapshotTable] = {
    "databases": SnapshotTable(
        (_DATABASE_ID,),
        (_text("database", "its name; NULL: objects shared by all databases"),),
        (
            *_count(("commits", "transactions committed"), ("rollbacks", "transactions rolled back")),
            *_BLOCKS,
            *_count(
                ("rows_returned", "rows read by scans"),
                ("rows_fetched", "rows fetched by index scans"),
                ("rows_inserted", "rows inserted"),
                ("rows_updated", "rows updated"),
                ("rows_deleted", "rows deleted"),
                ("conflicts", "queries cancelled for recovery"),
                ("temporary_files", "temporary files made"),
                ("temporary_bytes", "bytes written to temporary files"),
                ("deadlocks", "deadlocks"),
                ("checksum_failures", "blocks whose checksum was wrong; NULL: no checksums"),
                ("block_read_ns", "time of reading blocks; NULL: not timed"),
                ("block_write_ns", "time of writing blocks; NULL: not timed"),
                ("session_ns", "sessions were connected"),
                ("active_ns", "sessions were active: DB time by the server's clock"),
                ("idle_in_transaction_ns", "sessions were idle in a transaction"),
                ("sessions", "sessions established"),
                ("sessions_abandoned", "sessions whose client was lost"),
                ("sessions_fatal", "sessions ended by an error"),
                ("sessions_killed", "sessions ended by an operator"),
                ("workers_planned", "parallel workers that were to be started"),
                ("workers_launched", "parallel workers that were started"),
            ),
        ),
        (
            *_count(
                ("backends", "sessions connected now"),
                ("size_bytes", "size on disk"),
                ("transaction_age", "transactions since the oldest one that is not frozen"),
                ("multixact_age", "the same of multixacts"),
            ),
            _RESET,
        ),
        "Databases: transactions, rows, blocks, sessions, size.",
    ),
    "relations": SnapshotTable(
        (_DATABASE_ID, _c("relation_id", "i64", "number of the table in its database")),
        (
            _text("database", "name of the database"),
            _text("schema", "its schema"),
            _text("relation", "its name"),
            _text("kind", "table | partition | materialized view | temporary table | system"),
            _c("root_id", "i64", "of a partition, the topmost partitioned table", null=True),
            _text("root", "its name with its schema"),
        ),
        (
            *_count(
                ("seq_scans", "sequential scans"),
                ("seq_rows", "rows read by sequential scans"),
                ("index_scans", "index scans"),
                ("index_rows", "rows fetched by index scans"),
                ("rows_inserted", "rows inserted"),
                ("rows_updated", "rows updated"),
                ("rows_deleted", "rows deleted"),
                ("rows_hot_updated", "rows updated in place, without new index entries"),
                ("rows_newpage_updated", "rows updated whose new version went to another page"),
                ("table_blocks_read", "blocks of the table not found in the cache"),
                ("table_blocks_hit", "blocks of the table found in the cache"),
                ("index_blocks_read", "blocks of its indexes not found in the cache"),
                ("index_blocks_hit", "blocks of its indexes found in the cache"),
                ("toast_blocks_read", "blocks of its long values and their index not found in the cache"),
                ("toast_blocks_hit", "blocks of its long values and their index found in the cache"),
                ("vacuums", "vacuums by hand"),
                ("autovacuums", "vacuums by autovacuum"),
                ("analyzes", "analyzes by hand"),
                ("autoanalyzes", "analyzes by autovacuum"),
                ("vacuum_ns", "time of vacuums, by hand or not"),
                ("analyze_ns", "time of analyzes, by hand or not"),
            ),
        ),
        (
            *_count(
                ("live_rows", "rows, estimated"),
                ("dead_rows", "dead rows, estimated"),
                ("changed_rows", "rows changed since it was last analyzed, estimated"),
                ("table_bytes", "size of the table on disk"),
                ("index_bytes", "size of its indexes"),
                ("toast_bytes", "size of its long values and their index"),
                ("transaction_age", "transactions since the oldest one that is not frozen"),
            ),
            _c(
                "vacuumed_s",
                "f64",
                "when it was last vacuumed, by hand or not, seconds since 1970",
                null=True,
            ),
            _c(
                "analyzed_s",
                "f64",
                "when it was last analyzed, by hand or not, seconds since 1970",
                null=True,
            ),
            _c("sized", "bool", "false: sizes are from the catalogue, as of the last vacuum", null=True),
            _RESET,
        ),
        "Tables, materialized views and partitions: scans, rows, blocks, vacuums, size.",
    ),
    "indexes": SnapshotTable(
        (_DATABASE_ID, _c("index_id", "i64", "number of the index in its database")),
        (
            _c("relation_id", "i64", "number of its table", null=True),
            _text("database", "name of the database"),
            _text("schema", "its schema"),
            _text("relation", "name of its table"),
            _text("index", "its name"),
            _c("is_unique", "bool", "it forbids duplicates", null=True),
            _c("is_primary", "bool", "it is the primary key", null=True),
            _c("is_valid", "bool", "queries may use it", null=True),
            _c("is_constraint", "bool", "a constraint needs it", null=True),
        ),
        (
            *_count(
                ("scans", "scans of it"),
                ("entries_read", "entries returned by scans of it"),
                ("rows_fetched", "live rows fetched by plain scans of it"),
            ),
            *_BLOCKS,
        ),
        (
            *_count(
                ("size_bytes", "size on disk"),
            ),
            _c("used_s", "f64", "when it was last scanned, seconds since 1970", null=True),
            _RESET,
        ),
        "Indexes: scans, blocks, size.",
    ),
    "statements": SnapshotTable(
        KEY,
        (),
        (
            *FIGURES,
            *_count(
                ("plans", "times that it was planned; NULL: not counted"),
                ("generic_plans", "executions with a plan for any values; NULL: not counted"),
                ("custom_plans", "executions with a plan for their values; NULL: not counted"),
            ),
            _c(
                "exec_square_s2",
                "f64",
                "sum of the squares of the execution times, seconds squared",
                null=True,
            ),
        ),
        (_c("since_s", "f64", "when its counting began, seconds since 1970, if the server says", null=True),),
        "Statements by query id.",
    ),
    "io": SnapshotTable(
        (
            _c("backend_type", "str", "kind of process, as the server calls it"),
            _c("object", "str", "what was read or written: relation, temporary relation, WAL"),
            _c("context", "str", "normal | vacuum | bulkread | bulkwrite | init"),
        ),
        (),
        _count(
            ("reads", "read requests"),
            ("read_bytes", "bytes read"),
            ("read_ns", "time of reading; NULL: not timed"),
            ("writes", "write requests"),
            ("write_bytes", "bytes written"),
            ("write_ns", "time of writing; NULL: not timed"),
            ("writebacks", "blocks that the kernel was asked to write"),
            ("writeback_ns", "time of asking; NULL: not timed"),
            ("extends", "requests that made a file longer"),
            ("extend_bytes", "bytes by which files grew"),
            ("extend_ns", "time of that; NULL: not timed"),
            ("hits", "blocks found in the cache"),
            ("evictions", "blocks pushed out of the cache to make room"),
            ("reuses", "buffers of a ring used again"),
            ("fsyncs", "files flushed"),
            ("fsync_ns", "time of flushing; NULL: not timed"),
        ),
        (_RESET,),
        "I/O by kind of process, object and context.",
    ),
    "server": SnapshotTable(
        (_c("figure", "str", "name of the counter"),),
        (_text("unit", "count | blocks | bytes | ns"),),
        (_c("value", "i64", "its value", null=True),),
        (_RESET,),
        "Counters of the whole server, a row each: WAL, checkpoints, background writer, archiver.",
    ),
    "caches": SnapshotTable(
        (_c("cache", "str", "name of the cache of transaction status and the like"),),
        (),
        (
            *_BLOCKS,
            *_count(
                ("blocks_zeroed", "blocks made anew"),
                ("blocks_written", "blocks written"),
                ("blocks_exists", "blocks looked for"),
                ("flushes", "flushes"),
                ("truncates", "truncations"),
            ),
        ),
        (_RESET,),
        "Small caches of the server (SLRU).",
    ),
    "standbys": SnapshotTable(
        (_c("standby", "str", "application name and process id of the connection that sends"),),
        (_text("state", "state of sending"), _text("sync", "async | sync | potential | quorum")),
        (),
        (
            *_count(
                ("sent_lag_bytes", "WAL written here and not yet sent"),
                ("flush_lag_bytes", "WAL written here and not yet flushed there"),
                ("replay_lag_bytes", "WAL written here and not yet replayed there"),
                ("replay_lag_ns", "time until recent WAL was replayed"),
            ),
        ),
        "Connections that send WAL.",
    ),
    "slots": SnapshotTable(
        (_c("slot", "str", "name of the replication slot"),),
        (_text("kind", "physical | logical"), _text("wal_status", "reserved | extended | unreserved | lost")),
        _count(
            ("spill_bytes", "bytes of decoded changes written to disk"),
            ("stream_bytes", "bytes of decoded changes streamed"),
            ("total_bytes", "bytes of decoded changes sent"),
        ),
        (
            _c("active", "bool", "in use", null=True),
            *_count(("retained_bytes", "WAL that is kept for it")),
        ),
        "Replication slots.",
    ),
    "progress": SnapshotTable(
        (
            _c("pid", "i64", "process"),
            _c("command", "str", "vacuum, analyze, create index, cluster, copy, base backup"),
        ),
        (
            _text("database", "name of the database"),
            _text("relation", "name of the table, where it is in a database that was read"),
            _text("phase", "what it does"),
        ),
        (),
        _count(("done", "blocks, rows or bytes done"), ("total", "of how many")),
        "Long commands that were under way.",
    ),
    "settings": SnapshotTable(
        (_c("setting", "str", "name"),),
        (
            _text("value", "with its unit; what may hold a password is left out"),
            _text("source", "where it was set"),
        ),
        (),
        (),
        "Settings of the server.",
    ),
    "resets": SnapshotTable(
        (_c("what", "str", "whose counters: statements, I/O, WAL, checkpoints, a database's name ..."),),
        (),
        _count(("evictions", "times that the server dropped rare statements; NULL: it does not apply")),
        (_RESET,),
        "When counters were last reset.",
    ),
}
"""Schemas of a snapshot's tables. Counters of time are in ``*_ns``, instants in seconds since 1970. The
engine's documents name the source of each column."""

TEXTS = (
    _c("query_id", "i64", "of the statement"),
    _c("text", "str", "as the server keeps it, without passwords"),
)
"""Columns of statement texts, which a store keeps once."""
