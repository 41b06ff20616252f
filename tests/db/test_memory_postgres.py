"""Where the pages of a real server are: buffers, page cache, both, processes; else the status says why it
is unknown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dbdyno.conduct.memory.memory import MemoryReader
from dbdyno.engines.postgres.presence import Presence
from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model.engine.protocols import Server
from tests.conftest import Servers
from tests.extensions import skip_without

pytestmark = pytest.mark.db
PAGES = 2_500
BLOCK = 8192
_TABLE = f"""
drop table if exists held;
create table held with (fillfactor = 10)
    as select g as id, repeat('x', 500) as filler from generate_series(1, {PAGES}) g;
create extension if not exists pg_buffercache;
vacuum held;
checkpoint
"""
AMPLE_NS = 10**10


@contextmanager
def open_server(dsn: str) -> Iterator[PostgresServer]:
    server = PostgresServer(dsn)
    try:
        yield server
    finally:
        server.close()


def held(server: Server, relation: str = "public.held") -> dict[str, object]:
    relations = MemoryReader(server).cache("now", AMPLE_NS)["memory_relations"]
    (row,) = relations.filter(pl.col("relation") == relation, pl.col("kind") == "table").iter_rows(named=True)
    return row


@pytest.fixture
def table(any_dsn: str) -> Iterator[tuple[str, Path, int]]:
    """Yields a DSN, the table's file, and its pages."""
    skip_without("pg_buffercache", any_dsn)
    with psycopg.connect(any_dsn, autocommit=True) as connection:
        for statement in _TABLE.split(";"):
            connection.execute(statement.encode())
        row = connection.execute(
            "select current_setting('data_directory') || '/' || pg_relation_filepath('held'), "
            "pg_relation_size('held') / 8192"
        ).fetchone()
        assert row is not None
        yield any_dsn, Path(row[0]), int(row[1])
        connection.execute("drop table held")
        connection.execute("drop extension pg_buffercache")


def test_a_table_that_was_read_once_is_held_twice(table: tuple[str, Path, int]) -> None:
    dsn, file, pages = table
    with psycopg.connect(dsn, autocommit=True) as connection, open_server(dsn) as server:
        connection.execute("select count(*) from held")
        file.read_bytes()
        row = held(server)
        assert row["status"] == "ok" and row["kind"] == "table"
        slack = 4 * BLOCK  # maps of free space and visibility
        assert row["cached_bytes"] == pytest.approx(pages * BLOCK, abs=slack)
        assert row["page_cache_bytes"] == pytest.approx(pages * BLOCK, abs=slack)
        assert row["both_bytes"] == pytest.approx(pages * BLOCK, abs=slack)
        counted = connection.execute(
            "select count(*) * 8192 from pg_buffercache where relfilenode = pg_relation_filenode('held') "
            "and reldatabase = (select oid from pg_database where datname = current_database())"
        ).fetchone()
        assert counted == (row["cached_bytes"],)
        with file.open("rb") as opened_file:
            os.fsync(opened_file.fileno())
            os.posix_fadvise(opened_file.fileno(), 0, pages // 2 * BLOCK, os.POSIX_FADV_DONTNEED)
        row = held(server)
        if row["page_cache_bytes"] != pytest.approx(pages * BLOCK, abs=slack):  # else it drops nothing
            assert row["cached_bytes"] == pytest.approx(pages * BLOCK, abs=slack)
            assert row["both_bytes"] == pytest.approx(pages / 2 * BLOCK, abs=64 * BLOCK)


def test_figures_are_the_servers_own_and_its_processes_are_listed(any_dsn: str) -> None:
    skip_without("pg_buffercache", any_dsn)
    with psycopg.connect(any_dsn, autocommit=True) as connection, open_server(any_dsn) as server:
        connection.execute("create extension if not exists pg_buffercache")
        connection.execute("select count(*) from pg_class")
        pid = connection.info.backend_pid
        reader = MemoryReader(server)
        cache, machine = reader.cache("now", AMPLE_NS), reader.machine("now", AMPLE_NS)
        connection.execute("drop extension pg_buffercache")
    of_server = cache["memory"].filter(pl.col("scope") == "server", pl.col("node").is_null())
    assert set(of_server["status"]) == {"ok"}
    figures = dict(of_server.select("key", "value").iter_rows())
    assert figures["cache_bytes"] == 128 << 20
    assert (
        0 < figures["used_bytes"] <= figures["cache_bytes"]
        and figures["dirty_bytes"] <= figures["used_bytes"]
    )
    assert figures["shared_memory_bytes"] > figures["cache_bytes"]
    assert figures["huge_pages_asked"] == 1 and figures["huge_pages_used"] in (0, 1)
    processes = machine["memory_processes"]
    of_session = processes.filter(pl.col("pid") == pid)
    assert of_session["role"].to_list() == ["session"] and (of_session["pss_bytes"] > 0).all()
    assert {"helper:main", "helper:checkpointer", "dbdyno"} <= set(processes["role"])
    assert (processes["page_tables_bytes"] > 0).all()
    group = machine["memory"].filter(pl.col("scope") == "group")
    assert group.is_empty() or (group.filter(pl.col("key") == "used_bytes")["value"].drop_nulls() > 0).all()


def test_a_missing_extension_or_right_is_reported_with_the_cure(dsn18: str) -> None:
    with open_server(dsn18) as server:
        row = held(server, "pg_catalog.pg_proc")
        assert row["cached_bytes"] is row["both_bytes"] is None and row["status"] == "not supported"
        assert row["page_cache_bytes"] is not None
        assert "CREATE EXTENSION pg_buffercache" in server.caching.state().detail
    with psycopg.connect(dsn18, autocommit=True) as connection:
        connection.execute("create extension pg_buffercache")
        connection.execute("create role fewer login")
        try:
            with open_server(make_conninfo(dsn18, user="fewer")) as server:
                row = held(server, "pg_catalog.pg_proc")
                assert row["cached_bytes"] is None and row["status"] == "not permitted"
                assert "GRANT pg_monitor TO fewer" in server.caching.state().detail
                connection.execute("grant pg_monitor to fewer")
                assert held(server, "pg_catalog.pg_proc")["cached_bytes"] is not None
        finally:
            connection.execute("drop role fewer")
            connection.execute("drop extension pg_buffercache")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: run the tests as root")
def test_another_user_has_no_figures_of_files_and_processes(dsn18: str) -> None:
    with open_server(dsn18) as server:
        os.seteuid(65534)
        try:
            reader = MemoryReader(server)
            cache, machine = reader.cache("now", AMPLE_NS), reader.machine("now", AMPLE_NS)
        finally:
            os.seteuid(0)
        state = server.caching.state()
    assert cache["memory_relations"].is_empty()
    assert state.status == "not supported" and "run dbdyno as the server's user or as root" in state.detail
    theirs = machine["memory_processes"].filter(pl.col("role") != "dbdyno")
    assert set(theirs["status"]) == {"not permitted"} and theirs["pss_bytes"].null_count() == theirs.height
    assert (theirs["page_tables_bytes"] > 0).all()  # any user may read them


def test_a_server_whose_processes_are_not_seen_tells_of_its_buffers_alone(
    dsn18: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Presence(False, "another pid namespace", None, None)
    with psycopg.connect(dsn18, autocommit=True) as connection, open_server(dsn18) as server:
        connection.execute("create extension pg_buffercache")
        monkeypatch.setattr(server, "_presence", away)
        row = held(server, "pg_catalog.pg_proc")
        machine = MemoryReader(server).machine("now", AMPLE_NS)
        connection.execute("drop extension pg_buffercache")
    assert row["cached_bytes"] > 0 and row["page_cache_bytes"] is row["both_bytes"] is None
    assert row["status"] == "not here" and "another pid namespace" in server.caching.state().detail
    assert machine["memory_processes"]["role"].to_list() == ["dbdyno"]
    assert "group" not in set(machine["memory"]["scope"])


def test_without_time_the_buffers_are_lost_and_the_summary_is_not(servers: Servers) -> None:
    with (
        psycopg.connect(servers.dsn(18), autocommit=True) as connection,
        open_server(servers.dsn(18)) as server,
    ):
        connection.execute("create extension pg_buffercache")
        tables = MemoryReader(server).cache("start", 1_000_000)
        connection.execute("drop extension pg_buffercache")
    used = tables["memory"].filter(pl.col("key") == "used_bytes")
    assert used["value"][0] > 0 and used["status"][0] == "ok"
    assert tables["memory_relations"]["cached_bytes"].null_count() == tables["memory_relations"].height
    assert "dbdyno memory takes it" in server.caching.state().detail
