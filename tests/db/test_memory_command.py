"""``dbdyno memory`` on a real server: its figures agree with the server's and among themselves."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from tests.in_process import dbdyno

pytestmark = pytest.mark.db


def test_figures_agree_with_the_server_and_add_up(dsn18: str, tmp_path: Path) -> None:
    with psycopg.connect(dsn18, autocommit=True) as connection:
        connection.execute("create extension if not exists pg_buffercache")
        connection.execute("create table kept as select g from generate_series(1, 20000) g")
        row = connection.execute("select pg_table_size('kept')").fetchone()
        done = dbdyno(("memory", "--dsn", dsn18, "--json"), {}, tmp_path)
        connection.execute("drop table kept")
        connection.execute("drop extension pg_buffercache")
    assert done.returncode == 0 and row is not None
    document = json.loads(done.stdout)
    (kept,) = [r for r in document["memory_relations"] if r["relation"] == "public.kept"]
    assert kept["size_bytes"] == row[0] and 0 < kept["cached_bytes"] <= kept["size_bytes"]
    figures = {r["key"]: r["value"] for r in document["memory_figures"]}
    assert figures["data_cached_bytes"] == sum(r["cached_bytes"] for r in document["memory_relations"])
    assert kept["cached_bytes"] <= figures["cache_used_bytes"] <= figures["cache_bytes"]
    parts = {r["part"]: r["bytes"] for r in document["memory_parts"]}
    total = parts.pop("total")
    assert sum(v for v in parts.values() if v is not None) == total
    assert document["findings"][0]["id"] == "memory-now"
