"""Versions that no test can start: a real 18 behind a relay that reports 19 or 20, as it is or changed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from dbdyno.engines.postgres import PostgresServer, counters, versions
from dbdyno.engines.postgres.connect import connect
from tests.conftest import Servers
from tests.contract.claiming import WARNING, claiming
from tests.contract.driving import run, statement
from tests.contract.plain_server import PlainServer, plain_server
from tests.db.conftest import LIGHT_CALLS, QUICK, Bench
from tests.extensions import skip_without

pytestmark = pytest.mark.db
ALL = ["host all all 127.0.0.1/32 trust"]
UNKNOWN = "PostgreSQL 20 is newer than this version of dbdyno knows"
COUNTING = {"shared_preload_libraries": "pg_stat_statements", "compute_query_id": "on"}


@pytest.fixture(scope="module")
def real(servers: Servers) -> Iterator[PlainServer]:
    with plain_server(servers.bin_dir(18), COUNTING, ALL) as server:
        skip_without("pg_stat_statements", server.dsn)
        server.ask("create extension pg_stat_statements")
        yield server


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("coming"), tmp_path_factory.mktemp("none"))


@pytest.fixture
def unknown(real: PlainServer) -> Iterator[str]:
    with claimed(real, "20devel") as dsn:
        yield dsn


@contextmanager
def claimed(real: PlainServer, version: str) -> Iterator[str]:
    """Yields the DSN of the server when it reports ``version``, and warns at each login."""
    with claiming(real.port, version, WARNING) as line:
        yield f"host=127.0.0.1 port={line.port} user=boss dbname=postgres"


@contextmanager
def changed(real: PlainServer, change: str, undo: str) -> Iterator[None]:
    """Changes the server's catalogue, as a later version may."""
    real.ask(f"set allow_system_table_mods = on; {change}")
    try:
        yield
    finally:
        real.ask(f"set allow_system_table_mods = on; {undo}")


def renamed(function: str, column: str) -> tuple[str, str]:
    """Returns statements that rename a column of a function, and that undo it."""
    rename = "update pg_proc set proargnames = array_replace(proargnames, '{}', '{}') where proname = '{}'"
    other = f"later_{column}"
    return rename.format(column, other, function), rename.format(other, column, function)


def done(bench: Bench, *words: str) -> str:
    """Returns both outputs of a command that succeeds and prints no warning of the server's."""
    ended = bench.here(*words)
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0, output
    assert "MD5" not in output
    return output


def sources_of_last(bench: Bench) -> dict[str, dict[str, Any]]:
    return {s["name"]: s for s in bench.last()["sources"]}


def test_a_run_is_complete_and_names_the_version_once(bench: Bench, unknown: str) -> None:
    output = done(bench, "run", "lio", "--dsn", unknown, "--sessions", "1", *QUICK, *LIGHT_CALLS)
    assert output.count(UNKNOWN) == 1
    run = bench.last()
    assert run["environment"]["server"]["version"] == "20devel"
    assert run["rungs"][0]["work_per_s"] > 0
    sources = sources_of_last(bench)
    assert sources["wait event word"]["status"] == "not supported"
    assert sources["wait event word"]["detail"].startswith(UNKNOWN)
    assert "without wait events" in sources["scheduler trace"]["detail"] or (
        sources["scheduler trace"]["status"] != "ok"
    )
    for name in ("activity samples", "engine counters, server-wide", "statement counters", "lock waits"):
        assert sources[name]["status"] == "ok", sources[name]
    assert [c for c in run["environment"]["conditions"] if c["id"] == "known-version"]


def test_waits_have_the_names_that_the_server_gives(bench: Bench, real: PlainServer, unknown: str) -> None:
    """A sleeping session is found by SQL, under the server's own name, in each window."""
    with psycopg.connect(real.dsn, autocommit=True) as sleeper:
        asleep = threading.Thread(target=lambda: sleeper.execute("select pg_sleep(4)"))
        asleep.start()
        output = done(bench, "observe", "--dsn", unknown, "--for", "2s", "--window", "1s")
        asleep.join()
    assert output.count(UNKNOWN) == 1
    events = {(e["wait_class"], e["wait_event"]) for e in bench.last()["events"]}
    assert ("Timeout", "PgSleep") in events


def test_a_snapshot_and_the_doctor_name_what_is_not_known(bench: Bench, unknown: str) -> None:
    assert "what PostgreSQL 20 counts beyond 18" in done(bench, "snapshot", "--dsn", unknown)
    checks = json.loads(bench.here("doctor", "--json", "--dsn", unknown).stdout)
    (check,) = (c for c in checks["checks"] if c["id"] == "known-version")
    assert (check["state"], check["value"][: len(UNKNOWN)]) == ("worth a look", UNKNOWN)
    assert done(bench, "memory", "--dsn", unknown)


def test_19_is_not_verified_and_18_has_nothing_to_say(real: PlainServer) -> None:
    with claimed(real, "19beta2") as dsn, closing(PostgresServer(dsn)) as server:
        assert server.facts().doubt.startswith("not verified for PostgreSQL 19")
        assert server.facts().version == "19beta2"
    with claimed(real, "18.6 (Debian 18.6-1)") as dsn, closing(PostgresServer(dsn)) as server:
        assert (server.facts().doubt, server.facts().version) == ("", "18.6")
        assert "wait event word" not in [s.name for s in server.sources()]


@pytest.mark.parametrize("versions_word", ["18.6", "20devel"])
def test_a_column_that_is_gone_is_missing_with_the_reason(
    bench: Bench, real: PlainServer, versions_word: str
) -> None:
    view = "alter view pg_catalog.pg_stat_wal rename column {} to {}"
    change = view.format("wal_bytes", "later"), view.format("later", "wal_bytes")
    with claimed(real, versions_word) as dsn, changed(real, *change):
        output = done(bench, "snapshot", "--dsn", dsn)
        done(bench, "run", "cpu", "--dsn", dsn, "--sessions", "1", *QUICK, *LIGHT_CALLS)
    counted = sources_of_last(bench)["engine counters, server-wide"]
    assert counted["status"] == "limited"
    assert "did not answer for wal_buffers_full, wal_bytes" in counted["detail"]
    if versions_word == "20devel":  # the other figures of the table are read
        assert "server.wal_bytes: PostgreSQL 20 has no pg_stat_wal.wal_bytes" in output
        shown = json.loads(bench.here("snapshot", "show", "last", "--json").stdout)
        assert shown["rows"]["server"] > 0


@pytest.mark.parametrize("column", ["query_id", "leader_pid", "wait_event", "backend_type"])
def test_a_column_that_the_activity_view_lacks_is_unknown_with_the_reason(
    bench: Bench, real: PlainServer, unknown: str, column: str
) -> None:
    with changed(real, *renamed("pg_stat_get_activity", column)):
        diagnosis = json.loads(bench.here("doctor", "--json", "--dsn", unknown).stdout)
        done(bench, "observe", "--dsn", unknown, "--for", "2s")
    lacks = f"PostgreSQL 20 has no {column} in pg_stat_get_activity: unknown here"
    (listed,) = (s for s in diagnosis["sources"] if s["name"] == "activity columns")
    assert (listed["state"], listed["why"]) == ("not supported", lacks)
    observed = sources_of_last(bench)
    assert observed["activity columns"]["detail"] == lacks
    assert observed["activity samples"]["status"] == "ok"
    assert "statement ids" not in observed


def test_sessions_are_counted_as_before_18_if_they_cannot_be_as_in_18(
    bench: Bench, real: PlainServer, unknown: str
) -> None:
    with changed(real, *renamed("pg_stat_get_backend_io", "hits")):
        done(bench, "run", "lio", "--dsn", unknown, "--sessions", "1", *QUICK, *LIGHT_CALLS)
    assert bench.last()["rungs"][0]["work_per_s"] > 0
    counted = sources_of_last(bench)["engine counters, per session"]
    assert counted["detail"] == "PostgreSQL 20 does not answer for a session as 18 does"


def test_statements_that_cannot_be_read_are_lost_with_the_reason(
    bench: Bench, real: PlainServer, unknown: str
) -> None:
    with changed(real, *renamed("pg_stat_statements", "calls")):
        done(bench, "run", "cpu", "--dsn", unknown, "--sessions", "1", *QUICK, *LIGHT_CALLS)
    counted = sources_of_last(bench)["statement counters"]
    assert (counted["status"], "column s.calls does not exist" in counted["detail"]) == ("lost", True)


def test_a_standby_of_19_knows_for_how_long_it_replays(real: PlainServer) -> None:
    since = "now() - '2 s'::interval as current_chunk_start_time"
    view = f"create view pg_catalog.pg_stat_recovery as select {since}"
    undo = "drop view pg_catalog.pg_stat_recovery"
    with claimed(real, "19.0") as dsn, changed(real, view, undo), connect(dsn) as connection:
        read = {r["name"]: r for r in counters.read(connection, counters.END, time.monotonic_ns)}
    assert read["replay_chunk_ns"]["status"] == "ok"
    assert 2e9 <= read["replay_chunk_ns"]["value"] < 60e9


LOCKS_OF_19 = """create view pg_catalog.pg_stat_lock as select 'relation'::text as locktype, 1::int8 as waits,
    120 * extract(epoch from clock_timestamp() - pg_postmaster_start_time()) as wait_time;
    grant select on pg_catalog.pg_stat_lock to public"""
"""The view with a count that grows by 0.12 s in a second."""


def test_the_lock_waits_that_19_counts_are_compared_with_those_measured(
    bench: Bench, real: PlainServer
) -> None:
    real.ask("create table contended ()")
    with (
        claimed(real, "19.0") as dsn,
        changed(real, LOCKS_OF_19, "drop view pg_catalog.pg_stat_lock"),
        psycopg.connect(real.dsn) as holder,
        psycopg.connect(real.dsn) as waiter,
    ):
        holder.execute("lock table contended")
        waiting = threading.Thread(target=lambda: waiter.execute("lock table contended"))
        waiting.start()
        done(bench, "observe", "--dsn", dsn, "--for", "3s")
        holder.rollback()
        waiting.join()
    (claim,) = (c for c in bench.last()["findings"] if c["id"] == "lock-waits-counted")
    assert claim["value"] == pytest.approx(0.12, rel=0.3)
    assert "pg_stat_lock has 1" in claim["claim"]
    assert "it counts waits longer than 1 s (deadlock_timeout)" in claim["claim"]


@pytest.mark.parametrize("major", [17, 18])
def test_warnings_of_a_login_trigger_disturb_nobody(servers: Servers, capfd: Any, major: int) -> None:
    with plain_server(servers.bin_dir(major), {}, ALL) as server:
        server.ask(
            "create function warn() returns event_trigger language plpgsql as "
            "$$begin for i in 1..50 loop raise warning 'an old password %', repeat('x', 500); end loop; end$$"
        )
        server.ask("create event trigger warned on login execute function warn()")
        server.ask("alter event trigger warned enable always")
        with connect(server.dsn) as connection:
            assert versions.major(connection) == major
        sessions = run(server.target(), [statement("select 1")], 2, seconds=0.2)["sessions"]
    assert sessions["calls_total"].min() > 0
    assert "old password" not in "".join(capfd.readouterr())
