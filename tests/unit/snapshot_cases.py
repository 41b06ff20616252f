"""Made snapshots: rows as dicts, what is left out is 0 (counters, gauges) or NULL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from dbdyno.model.snapshot import TABLES, TEXTS, Snapshot, SnapshotInfo

NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
START_S = NOON.timestamp()
TYPES: Mapping[str, Any] = {"i64": pl.Int64, "f64": pl.Float64, "str": pl.String, "bool": pl.Boolean}
TOLD_S = ("reset_s", "since_s", "vacuumed_s", "analyzed_s", "used_s")
_Rows = Sequence[Mapping[str, Any]]


def frame(name: str, rows: _Rows) -> pl.DataFrame:
    table = TABLES[name]
    zero = {c.name: 0 for c in (*table.counters, *table.gauges) if c.type == "i64"}
    zero |= {c.name: 0.0 for c in table.counters if c.type == "f64"}
    columns = {c.name: TYPES[c.type] for c in table.columns}
    made = [{**dict.fromkeys(columns), **zero, **row} for row in rows]
    return pl.DataFrame(made, schema=columns)


def texts(found: Mapping[int, str]) -> pl.DataFrame:
    return pl.DataFrame(list(found.items()), schema={c.name: TYPES[c.type] for c in TEXTS}, orient="row")


def snapshot(
    at_s: float = 0.0,
    told: Mapping[int, str] | None = None,
    info: Mapping[str, Any] | None = None,
    **rows: _Rows,
) -> Snapshot:
    """Taken ``at_s`` seconds after noon."""
    taken = NOON + timedelta(seconds=at_s)
    of = {
        "id": f"{taken:%Y%m%d-%H%M%S}-{int(at_s) % 10000:04}", "taken": taken, "server_time": taken,
        "took_s": 0.1, "engine": "postgres", "server": "one", "address": "127.0.0.1:5432",
        "version": "17.2", "version_num": 170002, "started": NOON - timedelta(days=3), "standby": False,
        "role": "monitor", "databases": ("shop",), **(info or {}),
    }  # fmt: skip
    tables = {name: frame(name, rows.get(name, ())) for name in TABLES}
    return Snapshot(SnapshotInfo.model_validate(of), tables, texts(told or {}))
