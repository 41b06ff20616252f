"""Made-up snapshots: rows as dicts; a missing column is 0 (counters, gauges) or NULL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from dbdyno.model.engine.snapshot import TABLES, TEXTS, Snapshot, SnapshotInfo

NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
START_S = NOON.timestamp()
TYPES: Mapping[str, Any] = {"i64": pl.Int64, "f64": pl.Float64, "str": pl.String, "bool": pl.Boolean}
TOLD_S = ("reset_s", "since_s", "vacuumed_s", "analyzed_s", "used_s")
_Rows = Sequence[Mapping[str, Any]]


def frame(name: str, rows: _Rows) -> pl.DataFrame:
    table = TABLES[name]
    zero: dict[str, float] = {c.name: 0 for c in (*table.counters, *table.gauges) if c.type == "i64"}
    zero |= {c.name: 0.0 for c in table.counters if c.type == "f64"}
    columns = {c.name: TYPES[c.type] for c in table.columns}
    records = [{**dict.fromkeys(columns), **zero, **row} for row in rows]
    return pl.DataFrame(records, schema=columns)


def texts(by_id: Mapping[int, str]) -> pl.DataFrame:
    return pl.DataFrame(list(by_id.items()), schema={c.name: TYPES[c.type] for c in TEXTS}, orient="row")


def snapshot(
    at_s: float = 0.0,
    texts_by_id: Mapping[int, str] | None = None,
    info: Mapping[str, Any] | None = None,
    **rows: _Rows,
) -> Snapshot:
    """Taken ``at_s`` seconds after noon."""
    taken = NOON + timedelta(seconds=at_s)
    details = {
        "id": f"{taken:%Y%m%d-%H%M%S}-{int(at_s) % 10000:04}",
        "taken": taken,
        "server_time": taken,
        "took_s": 0.1,
        "engine": "postgres",
        "server": "one",
        "address": "127.0.0.1:5432",
        "version": "17.2",
        "version_num": 170002,
        "started": NOON - timedelta(days=3),
        "standby": False,
        "role": "monitor",
        "databases": ("shop",),
        **(info or {}),
    }
    tables = {name: frame(name, rows.get(name, ())) for name in TABLES}
    return Snapshot(SnapshotInfo.model_validate(details), tables, texts(texts_by_id or {}))


# A story: a shop of four databases over ten minutes, with everything that a report has.

HOSTILE = '<script>alert("x")</script>\nline | `two` [1]'
DATABASES = ("igen", "tpce", HOSTILE, "postgres")
_MIB = 1 << 20


def story() -> tuple[Snapshot, Snapshot]:
    """Two snapshots: in between a statement was dropped, I/O reset, a setting changed; tables come and go."""
    statements = {
        1: "SELECT o.* FROM orders o WHERE o.customer = $1 ORDER BY o.created DESC LIMIT $2",
        2: "UPDATE product SET stock = stock - $1 WHERE id = $2",
        3: f"SELECT '{HOSTILE}'",
        4: "INSERT INTO orders VALUES ($1, $2, $3)",
    }
    info = {
        "databases": DATABASES,
        "own_transactions": dict.fromkeys(DATABASES, 1),
        "name": "before",
        "missing": {
            "databases.block_read_ns": "track_io_timing is off: set it to on",
            "databases.block_write_ns": "track_io_timing is off: set it to on",
            "statements.plan_ns": "pg_stat_statements.track_planning is off",
            "caches.truncates": "hidden",
        },
        "dbdyno": "0.1",
    }
    first = snapshot(0, statements, info, **_at(0))
    return first, snapshot(600, statements, info | {"name": "after the 'release'"}, **_at(1))


def _at(n: int) -> dict[str, _Rows]:
    unknown = {"block_read_ns": None, "block_write_ns": None, "checksum_failures": None}
    base = [
        {
            "database_id": 16400 + i,
            "database": name,
            "commits": 5_000 + n * (100_001 // (i * i * 9 + 1)),
            "rollbacks": n * i,
            "blocks_hit": n * 2_200_000 // (i + 1),
            "blocks_read": n * 126_690 // (3 * i + 1),
            "rows_returned": n * 14_125_830 // (9 * i + 1),
            "rows_fetched": n * 1_000_000 // (9 * i + 1),
            "rows_inserted": n * 30_522 // (9 * i + 1),
            "rows_updated": n * 28_044 // (9 * i + 1),
            "rows_deleted": n * 12,
            "temporary_files": n * 40 * (i == 1),
            "temporary_bytes": n * 900 * _MIB * (i == 1),
            "deadlocks": n * (i == 0),
            "sessions": n * 30,
            "active_ns": n * 430_000_000_000 // (i + 1),
            "session_ns": n * 6_000_000_000_000,
            "size_bytes": (800 + 12 * n) * _MIB // (i + 1),
            "transaction_age": 700_000_000 + n * 100_000 if i == 0 else 5_000,
            **unknown,
        }
        for i, name in enumerate(DATABASES)
    ]
    return {
        "databases": base,
        "relations": _relations(n),
        "indexes": _indexes(n),
        "statements": _statements(n),
        "io": [
            {
                "backend_type": t,
                "object": "relation",
                "context": c,
                "reads": n * r,
                "read_bytes": n * r * 8192,
                "writes": n * w,
                "write_bytes": n * w * 8192,
                "hits": n * 9 * r,
                "read_ns": None,
                "write_ns": None,
                "extend_ns": None,
                "fsync_ns": None,
                "reset_s": START_S + 300 * n,
            }
            for t, c, r, w in (
                ("client backend", "normal", 126_690, 40),
                ("client backend", "bulkread", 9_000, 0),
                ("checkpointer", "normal", 0, 41_000),
                ("autovacuum worker", "vacuum", 700, 80),
            )
        ],
        "server": [
            {"figure": f, "unit": u, "value": n * v}
            for f, u, v in (
                ("wal_bytes", "bytes", 912_680_550),
                ("wal_records", "count", 1_234_567),
                ("checkpoints_timed", "count", 1),
                ("checkpoints_requested", "count", 3),
                ("checkpoint_write_ns", "ns", 271_000_000_000),
                ("buffers_cleaned", "blocks", 5_100),
            )
        ],
        "caches": [{"cache": "subtransaction", "blocks_hit": n * 900, "blocks_read": n, "truncates": None}],
        "standbys": [
            {
                "standby": "replica (77)",
                "state": "streaming",
                "sync": "async",
                "replay_lag_bytes": 3 * _MIB,
                "replay_lag_ns": 12_000_000,
            }
        ],
        "slots": [
            {
                "slot": "forgotten",
                "kind": "physical",
                "wal_status": "extended",
                "active": False,
                "retained_bytes": (3 + n) << 30,
            }
        ],
        "progress": [
            {
                "pid": 9,
                "command": "vacuum",
                "database": "igen",
                "relation": "order_125",
                "phase": "scanning heap",
                "done": 10 + 40 * n,
                "total": 100,
            }
        ],
        "settings": [
            {"setting": "work_mem", "value": ("4MB", "64MB")[n], "source": ("default", "file")[n]},
            {"setting": "jit", "value": "on", "source": "default"},
        ],
        "resets": [{"what": "I/O", "reset_s": START_S + 300 * n}, {"what": "statements", "evictions": 4 * n}],
    }


def _relations(n: int) -> _Rows:
    def relation(number: int, name: str, database: int = 0, **figures: Any) -> dict[str, Any]:
        names = {"database_id": 16400 + database, "database": DATABASES[database], "schema": "public"}
        grown = {
            k: n * v for k, v in figures.items() if isinstance(v, int) and k not in ("root_id", "live_rows")
        }
        return {
            **names,
            "relation_id": number,
            "relation": name,
            "kind": "table",
            **figures,
            **grown,
            "table_bytes": (100 + 10 * n) * _MIB,
            "live_rows": 90_000,
        }

    kept = [
        relation(
            1,
            "order_125",
            seq_scans=120,
            seq_rows=5_800_000,
            index_scans=300_000,
            index_rows=557_000,
            table_blocks_read=67_566,
            table_blocks_hit=698_578,
            index_blocks_read=58_050,
            index_blocks_hit=202_950,
            rows_inserted=20_000,
            dead_rows=41_000,
        ),
        relation(
            2,
            "product_125",
            seq_scans=2,
            seq_rows=90,
            index_scans=5_900_000,
            index_rows=5_933_000,
            table_blocks_read=82,
            table_blocks_hit=120_060,
            index_blocks_read=30,
            index_blocks_hit=127_345,
            rows_updated=28_044,
            rows_hot_updated=27_000,
            autovacuums=2,
            autoanalyzes=1,
        ),
        relation(
            3,
            "industry_125",
            seq_scans=22_000,
            seq_rows=1_400_000,
            table_blocks_read=1,
            table_blocks_hit=22_409,
        ),
        relation(
            4,
            HOSTILE,
            2,
            index_scans=9,
            index_rows=140_000,
            table_blocks_read=34_978,
            table_blocks_hit=657_096,
        ),
        *(
            relation(
                50 + i,
                f"event_{i}",
                kind="partition",
                root_id=40,
                root="public.event",
                rows_inserted=500 * i,
                seq_scans=i,
                seq_rows=1_000 * i,
            )
            for i in range(3)
        ),
    ]
    return [
        *kept,
        relation(60 + n, ("old", "fresh")[n], rows_inserted=7),
        relation(70 + n, "remade", rows_inserted=3),
    ]


def _indexes(n: int) -> _Rows:
    flags = dict.fromkeys(("is_unique", "is_primary", "is_constraint"), False)
    return [
        {
            **flags,
            "database_id": 16400,
            "database": "igen",
            "schema": "public",
            "relation": "order_125",
            "relation_id": 1,
            "index_id": 100 + i,
            "index": name,
            "is_valid": True,
            "scans": n * scans,
            "entries_read": n * scans * 2,
            "blocks_hit": n * scans,
            "size_bytes": size * _MIB,
            "is_primary": name.endswith("pkey"),
        }
        for i, (name, scans, size) in enumerate(
            (("order_pkey", 300_000, 20), ("order_note", 0, 90), ("few", 5, 1))
        )
    ]


def _statements(n: int) -> _Rows:
    def statement(number: int, calls: int, mean_ns: int, **figures: Any) -> dict[str, Any]:
        grown = {k: n * v for k, v in figures.items()}
        return {
            "user": "app",
            "database": "igen",
            "query_id": number,
            "toplevel": True,
            "calls": n * calls,
            "exec_ns": n * calls * mean_ns,
            "plan_ns": None,
            "jit_ns": 0,
            "exec_square_s2": n * calls * 1.5 * (mean_ns / 1e9) ** 2,
            "rows": n * calls,
            **grown,
        }

    return [
        statement(1, 90_000, 3_000_000, shared_blks_hit=1_800_000, shared_blks_read=120_000),
        statement(2, 28_044, 900_000, shared_blks_hit=140_000, wal_bytes=90_000_000, wal_records=300_000),
        statement(
            3, 4, 20_000_000_000, temp_blks_written=115_200, temp_blks_read=115_200, shared_blks_read=10
        ),
        {**statement(4, 20_000, 100_000, wal_bytes=50_000_000), "calls": 1_000 if n else 9_000},
    ]
