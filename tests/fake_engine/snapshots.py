"""Snapshots of the fake server: every call that ended well did the same to one table, by :data:`PER_CALL`.

Database ``shop`` has a table ``orders`` with its index, which calls use, and a table ``archive``, which none
does. There is one statement, whose time is the DB time.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl

from dbdyno.model.engine.snapshot import TABLES, TEXTS, Snapshot, SnapshotInfo
from dbdyno.model.units import NS_PER_S
from tests.fake_engine import counters
from tests.fake_engine.world import World

DATABASE, DATABASE_ID = "shop", 5
ORDERS, ARCHIVE, INDEX = 100, 101, 200
QUERY_ID, TEXT = 4711, "UPDATE orders SET n = n + $1 WHERE id = $2"
PER_CALL = {
    "rows_inserted": 3,
    "rows_updated": 2,
    "rows_hot_updated": 1,
    "rows_deleted": 1,
    "index_scans": 2,
    "index_rows": 2,
    "seq_scans": 1,
    "seq_rows": 10,
}
ROW_BYTES = 100
_TYPES: Mapping[str, Any] = {"i64": pl.Int64, "f64": pl.Float64, "str": pl.String, "bool": pl.Boolean}


def snapshot(world: World, work_per_call: int, name: str | None, known: Container[int]) -> Snapshot:
    """Returns the server's books as of now."""
    rows = counters.rows(world, "now", work_per_call)
    values = {r["name"]: int(r["value"]) for r in rows}
    reset_s = next(float(r["value"]) for r in rows if r["name"] == "statistics_reset_s")
    at = datetime.fromtimestamp(counters.WALL_EPOCH_S + world.machine.now_ns / NS_PER_S, UTC)
    info = SnapshotInfo(
        name=name,
        taken=at,
        server_time=at,
        took_s=0.0,
        engine="fake",
        server="fake",
        address="in memory",
        version="1.0",
        version_num=10000,
        started=datetime.fromtimestamp(counters.WALL_EPOCH_S, UTC),
        standby=False,
        role="app",
        databases=(DATABASE,),
        missing={"io": "the fake server has no I/O by kind of process", "caches": "the fake server has none"},
    )
    filled = {table: frame(table, records) for table, records in _tables(values, reset_s).items()}
    tables = {table: filled.get(table, frame(table, [])) for table in TABLES}
    texts = [] if QUERY_ID in known else [(QUERY_ID, TEXT)]
    return Snapshot(info, tables, pl.DataFrame(texts, {c.name: _TYPES[c.type] for c in TEXTS}, orient="row"))


def frame(table: str, records: list[dict[str, Any]]) -> pl.DataFrame:
    """Returns a frame of exactly the table's columns. Columns that records lack are NULL."""
    columns = TABLES[table].columns
    return pl.DataFrame(
        {c.name: [r.get(c.name) for r in records] for c in columns}, {c.name: _TYPES[c.type] for c in columns}
    )


def _tables(values: Mapping[str, int], reset_s: float) -> dict[str, list[dict[str, Any]]]:
    calls, reads = values["transactions_committed"], values["physical_reads"]
    hits, place = values["logical_reads"] - reads, {"database_id": DATABASE_ID, "database": DATABASE}
    done = {name: per * calls for name, per in PER_CALL.items()}
    blocks = {"blocks_read": reads, "blocks_hit": hits}
    rows = done["rows_inserted"] - done["rows_deleted"]
    databases = place | blocks | {n: done[n] for n in ("rows_inserted", "rows_updated", "rows_deleted")}
    databases |= {
        "commits": calls,
        "rollbacks": values["transactions_rolled_back"],
        "rows_returned": done["seq_rows"] + done["index_rows"],
        "rows_fetched": done["index_rows"],
        "session_ns": values["session_time_ns"],
        "active_ns": values["db_time_ns"],
        "idle_in_transaction_ns": values["idle_in_transaction_ns"],
        "sessions": values["logons"],
        "temporary_bytes": 0,
        "deadlocks": 0,
        "size_bytes": ROW_BYTES * rows,
        "reset_s": reset_s,
    }
    table = place | {"schema": "public", "kind": "table", "sized": True}
    orders = table | done | {"relation_id": ORDERS, "relation": "orders", "live_rows": rows}
    orders |= {"table_blocks_read": reads, "table_blocks_hit": hits, "table_bytes": ROW_BYTES * rows}
    archive = (
        table | dict.fromkeys(done, 0) | {"relation_id": ARCHIVE, "relation": "archive", "table_bytes": 0}
    )
    index = place | {"index_id": INDEX, "relation_id": ORDERS, "schema": "public", "relation": "orders"}
    index |= {"index": "orders_pkey", "is_unique": True, "is_primary": True, "is_valid": True}
    index |= {"scans": done["index_scans"], "rows_fetched": done["index_rows"], "size_bytes": 8192}
    statement = {"user": "app", "database": DATABASE, "query_id": QUERY_ID, "toplevel": True, "calls": calls}
    statement |= {
        "exec_ns": values["db_time_ns"],
        "rows": done["rows_updated"],
        "wal_bytes": values["wal_bytes"],
    }
    statement |= {"shared_blks_hit": hits, "shared_blks_read": reads}
    units = {"wal_bytes": "bytes", "checkpoints_timed": "count", "checkpoints_requested": "count"}
    return {
        "databases": [databases],
        "relations": [orders, archive],
        "indexes": [index],
        "statements": [statement] if calls else [],
        "server": [
            {"figure": n, "unit": unit, "value": values[n], "reset_s": reset_s} for n, unit in units.items()
        ],
        "settings": [{"setting": "law", "value": "known", "source": "the DSN"}],
        "resets": [
            {"what": "statements", "reset_s": reset_s, "evictions": 0},
            {"what": f"database {DATABASE}", "reset_s": reset_s},
        ],
    }
