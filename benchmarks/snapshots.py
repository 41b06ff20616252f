"""The store of snapshots: size on disk, and seconds to add, list and read them, for 30 days at intervals of
10 minutes with 1,000 tables, 2,000 indexes and 5,000 statements, of which an eighth or all change between two
snapshots.

``python -m benchmarks.snapshots [SNAPSHOTS]`` uses fewer snapshots.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from dbdyno.model.engine.snapshot import TABLES, Snapshot, SnapshotInfo
from dbdyno.model.schema.tables import POLARS
from dbdyno.store import SnapshotStore

SNAPSHOTS = 30 * 144
ROWS = {"databases": 4, "relations": 1000, "indexes": 2000, "statements": 5000, "io": 60, "server": 30}
ROWS |= {"caches": 7, "slots": 2, "standbys": 2, "settings": 360, "resets": 8}
ACTIVE = {"an eighth of the statements active": 0.125, "all statements active": 1.0}
_RARE = {"deadlocks", "conflicts", "temporary_files", "temporary_bytes", "checksum_failures"}
_RARE |= {"local_blks_dirtied", "local_blks_written", "jit_ns", "plans"}
BEGAN = datetime(2026, 10, 1, tzinfo=UTC)


def main(snapshots: int = SNAPSHOTS) -> None:
    for words, share in ACTIVE.items():
        with tempfile.TemporaryDirectory() as directory:
            _measure(f"{snapshots:,} snapshots, {words}", Path(directory), snapshots, share)


def _measure(words: str, directory: Path, snapshots: int, share: float) -> None:
    server, store, used = GrowingServer(share), SnapshotStore(directory), 0.0
    for number in range(snapshots):
        snapshot = server.next(number)
        before = _cpu_s()
        store.add(snapshot)
        used += _cpu_s() - before
    size = sum(f.stat().st_blocks * 512 for f in directory.rglob("*") if f.is_file())
    before = _cpu_s()
    infos = list(SnapshotStore(directory).list())
    listed, fresh = _cpu_s() - before, SnapshotStore(directory)
    started, before = time.monotonic(), _cpu_s()
    for info in (infos[len(infos) // 3], infos[-2]):
        fresh.read(info)
    print(
        f"{words}: {size / 1e6:,.0f} MB, {1e3 * used / snapshots:.0f} ms of CPU to store one, "
        f"{listed:.2f} s of CPU to list them, two read in {time.monotonic() - started:.2f} s "
        f"({_cpu_s() - before:.2f} s of CPU)",
        flush=True,
    )


class GrowingServer:
    """A server whose counters grow: between two snapshots those of ``share`` of its statements, and of a
    third of its tables and indexes."""

    def __init__(self, share: float) -> None:
        self._draw, self._share = np.random.default_rng(7), share
        self._tables = {t: self._first(t) for t in TABLES}
        self._scale = {t: self._draw.lognormal(3, 2, ROWS.get(t, 0)) for t in TABLES}

    def next(self, number: int) -> Snapshot:
        taken = BEGAN + timedelta(minutes=10 * number, seconds=float(self._draw.normal(0, 0.2)))
        for table in TABLES:
            self._tables[table] = self._grown(table)
        known = pl.DataFrame(schema={"query_id": pl.Int64, "text": pl.String}) if number else _texts()
        info = SnapshotInfo(
            taken=taken,
            server_time=taken,
            took_s=0.4,
            engine="postgres",
            server="7301234567890123456",
            address="db1:5432",
            version="18.4",
            version_num=180004,
            started=BEGAN,
            standby=False,
            role="monitor",
            databases=("app", "billing", "stock", "web"),
            missing={"statements.plans": "planning is not counted: pg_stat_statements.track_planning = on"},
        )
        return Snapshot(info, dict(self._tables), known)

    def _first(self, table: str) -> pl.DataFrame:
        rows, form = ROWS.get(table, 0), TABLES[table]
        columns = {}
        for c in form.columns:
            values = pl.Series(np.zeros(rows))
            if c.type == "str":
                values = pl.Series(f"{c.name}_{i if c in form.key or i % 3 else 0}" for i in range(rows))
            elif c in form.key or c.name.endswith("_id"):
                values = pl.Series(np.arange(rows) + 16384)
            elif c.type == "i64":
                values = pl.Series(self._draw.lognormal(12, 4, rows))
            columns[c.name] = values.cast(POLARS[c.type], strict=False)
        if table == "statements":
            columns["user"] = pl.Series(["app", "batch", "web", "admin"] * (rows // 4))
            columns["database"] = pl.Series(["app", "billing", "stock", "web"] * (rows // 4))
            columns["query_id"] = pl.Series(_ids())
        return pl.DataFrame(columns)

    def _grown(self, table: str) -> pl.DataFrame:
        frame, form = self._tables[table], TABLES[table]
        rows = frame.height
        share = {"statements": self._share, "settings": 0, "resets": 0}.get(table, 1 / 3)
        active = self._draw.random(rows) < share
        calls = np.where(active, self._draw.poisson(self._scale[table]), 0) if rows else np.zeros(0)
        grown = []
        for number, c in enumerate((*form.counters, *form.gauges)):
            rare = "vacuum" in c.name or "analyze" in c.name or c.name in _RARE or number % 7 == 6
            busy = np.where(self._draw.random(rows) < 0.01, calls, 0) if rare else calls
            more = busy * self._draw.lognormal(13 if c.name.endswith("_ns") else 1, 1, rows)
            if c.name in ("reset_s", "since_s"):
                more = np.zeros(rows)
            elif c.name.endswith("_age"):
                more = np.full(rows, self._draw.integers(20_000, 90_000))
            grown.append((pl.col(c.name) + pl.Series(more)).cast(POLARS[c.type]).alias(c.name))
        return frame.with_columns(grown)


def _ids() -> list[int]:
    return [int(i) for i in np.random.default_rng(5).integers(-(2**62), 2**62, ROWS["statements"])]


def _texts() -> pl.DataFrame:
    draw = np.random.default_rng(6)
    words = ["select", "from", "where", "orders", "customer_id", "join", "$1", "and", "order by", "lines"]
    texts = [" ".join(draw.choice(words, int(draw.integers(20, 200)))) for _ in range(ROWS["statements"])]
    return pl.DataFrame({"query_id": _ids(), "text": texts})


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    os.nice(5)
    main(snapshots=int(sys.argv[1]) if len(sys.argv) > 1 else SNAPSHOTS)
