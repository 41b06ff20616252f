"""The report between two snapshots of 10,000 tables, 20,000 indexes and 5,000 statements, all of whose
counters grow: from the store to each medium."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from dbdyno.cli.app import app
from dbdyno.model.engine.snapshot import Snapshot
from dbdyno.store import SnapshotStore

ROOT = Path(__file__).parent.parent
TABLES, INDEXES, STATEMENTS, DATABASES = 10_000, 20_000, 5_000, 4


def main(count: int, _seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = SnapshotStore(Path(directory))
        for n in (1, 2):
            store.add(_snapshot(n))
        for output in ("text", "html", "md", "xlsx", "json"):
            times = [_report(Path(directory), output) for _ in range(max(2, count))]
            wall, cpu = min(t[0] for t in times), min(t[1] for t in times)
            print(f"report as {output}: {wall:.2f} s, {cpu:.2f} s of CPU (wanted <= 3 s)", flush=True)


def _report(root: Path, output: str) -> tuple[float, float]:
    words = [] if output == "text" else ["-o", str(root / f"report.{output}")]
    wall, cpu = time.monotonic(), sum(os.times()[:2])
    done = CliRunner().invoke(app, ["report", "last~1", "last", "--store", str(root), *words])
    assert done.exit_code == 0, done.output
    return time.monotonic() - wall, sum(os.times()[:2]) - cpu


def _snapshot(n: int) -> Snapshot:
    sys.path.insert(0, str(ROOT))
    from tests.unit.snapshot_cases import snapshot  # made for the tests

    def of(i: int) -> Mapping[str, Any]:
        return {"database_id": i % DATABASES, "database": f"db{i % DATABASES}", "schema": "public"}

    relations = [
        {
            **of(i),
            "relation_id": i,
            "relation": f"t{i}",
            "kind": "table",
            "seq_scans": n * i,
            "seq_rows": n * i,
        }
        for i in range(TABLES)
    ]
    indexes = [
        {
            **of(i),
            "index_id": i,
            "relation_id": i % TABLES,
            "relation": f"t{i % TABLES}",
            "index": f"i{i}",
            "scans": n * i,
        }
        for i in range(INDEXES)
    ]
    statements = [
        {
            "user": "u",
            "database": f"db{i % DATABASES}",
            "query_id": i,
            "toplevel": True,
            "calls": n * i,
            "exec_ns": n * i * 1000,
        }
        for i in range(STATEMENTS)
    ]
    databases = [{"database_id": i, "database": f"db{i}", "commits": n * 1000} for i in range(DATABASES)]
    info = {"databases": tuple(f"db{i}" for i in range(DATABASES))}
    return snapshot(
        600 * n,
        {i: f"SELECT {i}" * 50 for i in range(STATEMENTS)},
        info,
        databases=databases,
        relations=relations,
        indexes=indexes,
        statements=statements,
    )
