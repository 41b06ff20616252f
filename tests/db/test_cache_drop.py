"""Caches are dropped before measurements: no page of the tables is left, and the next read goes to the
disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model.errors import UsageError
from tests.conftest import Servers
from tests.db.conftest import LIGHT, SHORT, Bench
from tests.db.test_workload_tables import prepare

pytestmark = pytest.mark.db
CACHED = """
select count(*) from pg_buffercache b join pg_class c on b.relfilenode = pg_relation_filenode(c.oid)
where c.relnamespace = 'cold'::regnamespace"""


def dsn_of_new_schema(dsn: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop schema if exists cold cascade")
        connection.execute("create schema cold")
    return make_conninfo(dsn, options="-csearch_path=cold,public")


@pytest.fixture(params=[17, 18], ids=["pg17", "pg18"])
def cold(servers: Servers, request: pytest.FixtureRequest) -> Iterator[str]:
    dsn = servers.dsn(request.param)
    own = dsn_of_new_schema(dsn)
    with psycopg.connect(own, autocommit=True) as connection:
        connection.execute("create extension if not exists pg_buffercache schema public")
        yield own
        connection.execute("drop schema cold cascade")
        connection.execute("drop extension if exists pg_buffercache")


def test_no_page_is_left_and_the_next_read_goes_to_the_disk(cold: str) -> None:
    assert prepare(cold, "--partitions=2").returncode == 0
    with psycopg.connect(cold, autocommit=True) as connection:
        connection.execute("select count(abalance) from pgbench_accounts where aid > 0")
        connection.execute("update pgbench_accounts set abalance = 1 where aid < 100")
        assert (connection.execute(CACHED).fetchone() or (0,))[0] > 1_000
        server = PostgresServer(cold)
        try:
            server.resetting.check_dropping()
            done = server.resetting.drop_cache("pgbench")
        finally:
            server.close()
        assert done.left_share < 0.01
        assert (connection.execute(CACHED).fetchone() or (0,))[0] <= 2
        assert done.refused == "" and done.page_left_share is not None and done.page_left_share <= 1
        plan = connection.execute(
            "explain (analyze, buffers, format json) select abalance from pgbench_accounts where aid = 77777"
        ).fetchone()
        assert plan is not None and plan[0][0]["Plan"]["Shared Read Blocks"] >= 2


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: run the tests as root")
def test_files_that_may_not_be_read_are_an_error_with_the_cure(cold: str) -> None:
    assert prepare(cold).returncode == 0
    server = PostgresServer(cold)
    os.seteuid(65534)
    try:
        done = server.resetting.drop_cache("pgbench")
    finally:
        os.seteuid(0)
        server.close()
    assert done.left_share < 0.01 and done.page_left_share is None
    assert "Permission denied" in done.refused and "run dbdyno as root" in done.refused


def test_each_measurement_begins_cold_and_the_record_says_so(
    bench: Bench, dsn18: str, tmp_path: Path
) -> None:
    own = dsn_of_new_schema(dsn18)
    recipe = tmp_path / "cold.toml"
    recipe.write_text('workload = "select-only"\nreset_cache = "dropped"\n')
    words = ("run", str(recipe), "--sessions", "1,2", "--no-memory", "--no-observe", "--dsn", own)
    words += (*SHORT, *LIGHT)
    assert prepare(own).returncode == 0
    with psycopg.connect(own, autocommit=True) as connection:
        connection.execute("drop extension if exists pg_buffercache")
        refused = bench.here(*words)
        assert refused.returncode == 2 and "CREATE EXTENSION pg_buffercache" in refused.stderr, refused.stderr
        connection.execute("create extension pg_buffercache schema public")
        done = bench.here(*words, "--json")
        connection.execute("drop extension pg_buffercache")
        connection.execute("drop schema cold cascade")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["resets"]
    assert [(r["how"], r["cache"]) for r in rows] == [("loaded", "dropped"), ("unchanged", "dropped")]
    assert all(r["cache_left_share"] < 0.01 for r in rows)
    shown = bench.here("show", "last", "--objects")
    assert "Caches were dropped" in shown.stdout


def test_dropping_is_refused_with_the_cure_where_the_server_cannot_or_the_role_may_not(
    servers: Servers, dsn18: str
) -> None:
    for dsn, says in ((servers.dsn(15), "PostgreSQL 17 or newer"), (dsn18, "as superuser")):
        server = PostgresServer(dsn)
        try:
            with pytest.raises(UsageError) as error:
                server.resetting.check_dropping()
        finally:
            server.close()
        assert says in str(error.value.cure) and "as-loaded" in str(error.value.cure)
