"""Made snapshots: tables of a written schema, whose figures grow as a server's do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from dbdyno.model.engine.snapshot import TABLES, Snapshot, SnapshotInfo
from dbdyno.model.schema.tables import POLARS

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


def frame(table: str, rows: list[dict[str, Any]] | None = None) -> pl.DataFrame:
    """A frame of the rows; a column that a row does not name is NULL."""
    return pl.DataFrame(rows or [], schema={c.name: POLARS[c.type] for c in TABLES[table].columns})


def texts(by_id: Mapping[int, str]) -> pl.DataFrame:
    return pl.DataFrame(
        {"query_id": list(by_id), "text": list(by_id.values())},
        schema={"query_id": pl.Int64, "text": pl.String},
    )


def info(minute: float = 0, **fields: Any) -> SnapshotInfo:
    taken = BEGAN + timedelta(minutes=minute)
    known: dict[str, Any] = {
        "taken": taken,
        "server_time": taken,
        "took_s": 0.25,
        "engine": "fake",
        "server": "7001",
        "address": "db1:5432",
        "version": "18.4",
        "version_num": 180004,
        "started": BEGAN,
        "standby": False,
        "role": "monitor",
        "databases": ("app",),
    }
    return SnapshotInfo.model_validate(known | fields)


def snapshot(
    minute: float = 0,
    tables: Mapping[str, list[dict[str, Any]]] | None = None,
    known: Mapping[int, str] | None = None,
    **fields: Any,
) -> Snapshot:
    rows = tables or {}
    return Snapshot(info(minute, **fields), {t: frame(t, rows.get(t)) for t in TABLES}, texts(known or {}))
