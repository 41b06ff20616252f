"""A source registered here alone, in a run on a real server: its rates and its row among the sources."""

import json
from pathlib import Path

import pytest

from dbdyno.model.schema.data_sources import SOURCES
from tests.db.conftest import LIGHT, Bench
from tests.unit.account.test_data_sources import PAGING

pytestmark = pytest.mark.db


def test_a_registered_file_is_read_in_a_run(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "one.sql"
    script.write_text("select 1;\n")
    words = ("--sessions", "1", "--settle", "0s", "--measure", "2s", "--json", *LIGHT)
    SOURCES.append(PAGING)
    try:
        done = bench.here("run", "--script", str(script), "--dsn", bench.dsn, *words)
    finally:
        SOURCES.remove(PAGING)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (faults,) = [r for r in document["rates"] if r["name"] == "vmstat.pgfault_per_s"]
    assert faults["value"] > 0 and faults["source"] == "paging"
    (source,) = [s for s in document["sources"] if s["name"] == "paging"]
    assert source["status"] == "ok"
