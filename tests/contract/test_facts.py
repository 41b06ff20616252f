"""Facts, capacity, claim, counters, activity: on every version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import polars as pl
import psycopg
import pytest
from tests.waiting import eventually

from dbdyno.engines.postgres import PostgresServer, sql
from dbdyno.engines.postgres.counters import all_counters, server_wide
from dbdyno.model.engine.protocols import Load
from dbdyno.model.errors import ServerBusy
from dbdyno.model.results.raw import OWN, OWN_READS, WARM_CALLS
from dbdyno.model.sources.wait_families import READ_CALLS, STORAGE_BYTES

pytestmark = pytest.mark.db


@pytest.fixture
def server(any_dsn: str) -> Iterator[PostgresServer]:
    with closing(PostgresServer(any_dsn)) as server:
        yield server


def test_facts_name_the_server_and_its_main_process(server: PostgresServer, any_dsn: str) -> None:
    facts = server.facts()
    assert facts.version_num == server.version
    assert facts.version.startswith(str(server.version // 10000))
    assert facts.here
    assert "unix socket" in facts.here_detail
    assert facts.settings["shared_buffers"] == "128MB"
    with psycopg.connect(any_dsn) as connection:
        row = connection.execute("select setting from pg_settings where name = 'data_directory'").fetchone()
    assert row is not None
    assert facts.main_pid == int(Path(row[0], "postmaster.pid").read_text().split()[0])


def test_capacity_counts_connections(server: PostgresServer, any_dsn: str) -> None:
    eventually(lambda: server.capacity().in_use == 1)  # those of the tests before have gone
    before = server.capacity()
    with psycopg.connect(any_dsn), psycopg.connect(any_dsn):
        assert server.capacity().in_use == before.in_use + 2
    assert before.maximum == 110
    assert "max_connections = 110" in before.detail


def test_capacity_knows_what_is_kept_from_others(any_dsn: str) -> None:
    with psycopg.connect(any_dsn, autocommit=True) as admin:
        admin.execute("drop role if exists few")
        admin.execute("create role few login connection limit 5")
        dsn = psycopg.conninfo.make_conninfo(any_dsn, user="few")
        with closing(PostgresServer(dsn)) as server:
            limited = server.capacity()
            admin.execute("alter role few connection limit -1")
            free = server.capacity()
        admin.execute("drop role few")
    assert (limited.maximum, limited.in_use, limited.free) == (5, 1, 4)
    assert "connection limit of the role" in limited.detail
    assert free.reserved == 3  # superuser_reserved_connections; the default of reserved_connections is 0


def test_a_second_claim_says_who_holds_the_server(any_dsn: str) -> None:
    with psycopg.connect(any_dsn, autocommit=True) as admin:
        admin.execute("create database other")
        other = psycopg.conninfo.make_conninfo(any_dsn, dbname="other")
        try:
            with closing(PostgresServer(any_dsn)) as first:
                first.claim("run-1")
                for dsn in (any_dsn, other):  # advisory locks are per database: the claim is not
                    with closing(PostgresServer(dsn)) as second, pytest.raises(ServerBusy) as caught:
                        second.claim("run-2")
                    assert "dbdyno run run-1" in caught.value.message
                    assert "connected since" in caught.value.message
            with closing(PostgresServer(other)) as third:
                third.claim("run-3")
        finally:
            admin.execute("drop database other")


def test_all_counters_of_the_version_are_read_and_only_grow(server: PostgresServer, any_dsn: str) -> None:
    first = server.counters("t0")
    with psycopg.connect(any_dsn, autocommit=True) as connection:
        connection.execute("create temp table t as select generate_series(1, 1000)")
        installed = {name for (name,) in connection.execute("select extname from pg_extension")}
    second = server.counters("t1")
    present = server_wide(server.version // 10000)
    alone = [c for c in present if c.sql == "counters_replication"]  # no standby is there
    read = [c for c in present if (c.extension is None or c.extension in installed) and c not in alone]
    expected = {(c.scope, c.name, "ok" if c in read else "not supported") for c in present}
    dbdynos = [*OWN.values(), *OWN_READS.values(), WARM_CALLS]
    apart = [*dbdynos, READ_CALLS, STORAGE_BYTES]  # not the server's own
    first, second = (read_at.filter(~pl.col("name").is_in(apart)) for read_at in (first, second))
    for frame in (first, second):
        assert sorted(frame.select("scope", "name", "status").iter_rows()) == sorted(expected)
        assert frame.filter(pl.col("before_ns") >= pl.col("after_ns")).is_empty()
    growth = (second["value"] - first["value"]).drop_nulls()
    assert len(growth) == len(read)
    assert (growth >= 0).all()


def test_a_counter_has_one_entry_for_each_version() -> None:
    for major in range(14, 19):
        present = [(c.scope, c.name, c.series) for c in all_counters() if c.has(major)]
        assert len(present) == len(set(present))
    assert all(sql.text(c.sql) for c in all_counters())


def test_activity_names_clients_and_helpers(server: PostgresServer, any_dsn: str) -> None:
    activity = server.watch_spec(cast(Load, _NoLoad()))["activity"]["sql"]
    with psycopg.connect(any_dsn) as asked, psycopg.connect(any_dsn) as seen:
        seen.execute("select 1")

        def asleep() -> list[Any]:
            rows = asked.execute(activity).fetchall()
            return [row for row in rows if row[0] == seen.info.backend_pid and row[4] is not None] and rows

        answer: list[Any] = eventually(asleep)  # its answer is here before it has gone to sleep
        pids = {row[0]: row for row in answer}
        assert asked.info.backend_pid not in pids
        assert pids[seen.info.backend_pid][1:5] == (None, "idle in transaction", "Client", "ClientRead")
    helpers = {row[1] for row in answer if row[1] is not None}
    assert {"checkpointer", "walwriter", "background writer"} <= helpers
    assert ("io worker" in helpers) == (server.version >= 180000)


class _NoLoad:
    """A load without sessions, as far as watch_spec asks for one."""

    def backends(self) -> list[tuple[int, int, int]]:
        return []
