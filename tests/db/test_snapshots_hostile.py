"""Snapshots under obstacles: few rights, locks, strange names, secrets, a lost server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg import sql as pgsql
from psycopg.conninfo import make_conninfo

from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model.engine.snapshot import Snapshot
from dbdyno.model.errors import NoSuchDatabase, TargetError
from tests.conftest import KINDS, Servers
from tests.contract.plain_server import PlainServer, plain_server
from tests.contract.test_helper_roles import standby_of
from tests.contract.test_snapshots_contract import check

pytestmark = pytest.mark.db
SECRET = "geheim123"
SETTINGS = {
    "shared_preload_libraries": "pg_stat_statements",
    "autovacuum": "off",
    "archive_command": f"curl -u me:{SECRET} %p",
    "restore_command": f"fetch --password={SECRET} %f",
    "primary_conninfo": f"host=nowhere password={SECRET}",
    "ssl_passphrase_command": f"echo {SECRET}",
    "wal_level": "logical",
}
PARTS = (
    "create table parts (id int) partition by range (id)",
    "create table part partition of parts for values from (0) to (9)",
)
PARENTS = "pg_catalog.pg_inherits"
"""A catalogue in which a snapshot looks for the root of a partition."""
STRANGE = "or\"der\ns; drop table x -- '😀<b>&\\"


@pytest.fixture(params=KINDS, ids=lambda v: f"pg{v}", scope="module")
def plain(servers: Servers, request: pytest.FixtureRequest) -> Iterator[PlainServer]:
    with plain_server(servers.bin_dir(request.param), SETTINGS, ("local all all trust",)) as server:
        server.ask("create extension pg_stat_statements")
        server.ask("create role nobody_much login")
        server.ask("create role watcher login")
        server.ask("grant pg_monitor to watcher")
        server.ask("create role managed nologin")  # as rds_superuser: much, and neither superuser nor files
        server.ask("grant pg_monitor, pg_signal_backend to managed")
        server.ask("create role operator login createdb createrole")
        server.ask("grant managed to operator")
        server.ask("create table seen (id int primary key)")
        for statement in PARTS:
            server.ask(statement)
        server.ask("insert into seen select generate_series(1, 100)")
        server.ask(f"create role spoken login password '{SECRET}'")
        yield server


def snapshot(dsn: str, *databases: str, everything: bool = False) -> Snapshot:
    with closing(PostgresServer(dsn)) as server:
        taken = server.snapshots.snapshot(None, databases if databases or everything else None, ())
    check(taken)
    return taken


def errors(server: PlainServer) -> list[str]:
    return [line for line in server.log().splitlines() if "ERROR:" in line or "FATAL:" in line]


@pytest.mark.parametrize("role", ["watcher", "operator"])
def test_a_monitoring_role_sees_all(plain: PlainServer, role: str) -> None:
    before = errors(plain)
    seen = snapshot(make_conninfo(plain.dsn, user=role))
    whole = snapshot(plain.dsn)
    assert errors(plain) == before
    assert {t: f.height for t, f in seen.tables.items() if t != "statements"} == {
        t: f.height for t, f in whole.tables.items() if t != "statements"
    }
    assert seen.info.role == role
    hurried = {"relations.sized", "databases.size_bytes"}  # on a busy machine
    assert set(seen.info.missing) - hurried == set(whole.info.missing) - hurried
    assert seen.tables["relations"]["table_bytes"].null_count() == 0


def test_a_plain_role_gets_less_and_the_reason(plain: PlainServer) -> None:
    before = errors(plain)
    seen = snapshot(make_conninfo(plain.dsn, user="nobody_much"))
    assert errors(plain) == before
    assert {"statements.query_id", "standbys", "settings", "progress"} <= set(seen.info.missing)
    assert "GRANT pg_monitor TO nobody_much" in seen.info.missing["settings"]
    assert seen.tables["relations"].filter(relation="seen")["rows_inserted"].to_list() == [100]


def test_rights_that_were_revoked_are_asked_for_first(plain: PlainServer) -> None:
    revoked = (
        "function pg_relation_size(regclass, text)",
        "function pg_database_size(oid)",
        "table pg_stat_slru",
    )
    for what in revoked:
        plain.ask(f"revoke all on {what} from public")
    before = errors(plain)
    try:
        seen = snapshot(make_conninfo(plain.dsn, user="nobody_much"))
    finally:
        for what in revoked:
            plain.ask(f"grant {'select' if 'table' in what else 'execute'} on {what} to public")
    assert errors(plain) == before
    assert {"caches", "relations.table_bytes", "databases.size_bytes"} <= set(seen.info.missing)
    assert "pg_relation_size" in seen.info.missing["relations.table_bytes"]
    assert seen.tables["relations"].filter(relation="seen")["table_bytes"].to_list() == [None]
    assert seen.tables["caches"].is_empty()


def test_no_secret_is_in_a_snapshot(plain: PlainServer) -> None:
    taken = snapshot(plain.dsn)
    texts = taken.info.model_dump_json() + taken.texts.write_csv()
    texts += "".join(frame.write_csv() for frame in taken.tables.values())
    assert SECRET not in texts
    assert "create role spoken" in texts
    settings = dict(taken.tables["settings"].select("setting", "value").iter_rows())
    assert settings["autovacuum"] == "off"
    assert settings["statement_timeout"] in ("0", "0ms")  # as users get it, not as this session has it
    assert settings["shared_buffers"] == "32MB"


@contextmanager
def hold_lock(dsn: str, what: str) -> Iterator[None]:
    with psycopg.connect(dsn) as holder:
        holder.execute(f"lock table {what} in access exclusive mode".encode())
        yield
        with suppress(psycopg.OperationalError):  # the server may be gone
            holder.rollback()


def test_a_locked_table_has_the_size_of_the_catalogue(plain: PlainServer) -> None:
    plain.ask("vacuum seen")
    with hold_lock(plain.dsn, "seen"):
        taken = snapshot(plain.dsn)
    sized = dict(taken.tables["relations"].select("relation", "sized").iter_rows())
    assert sized["seen"] is False
    assert "seen" not in {name for name, whole in sized.items() if whole}
    seen = taken.tables["relations"].filter(relation="seen").row(0, named=True)
    assert seen["table_bytes"] == 8192
    assert seen["rows_inserted"] == 100
    assert "relations.sized" in taken.info.missing


def test_what_waits_too_long_is_left_out_and_named(plain: PlainServer) -> None:
    with closing(PostgresServer(plain.dsn)) as server:
        began = time.monotonic()
        with hold_lock(plain.dsn, PARENTS):
            taken = server.snapshots.snapshot(None, None, ())
    check(taken)
    assert time.monotonic() - began < 30
    assert "lock timeout" in taken.info.missing["relations"]
    assert taken.tables["relations"].is_empty()
    assert taken.tables["indexes"].filter(relation="seen").height == 1
    assert taken.tables["databases"].height >= 3
    assert taken.tables["settings"].height > 100


def test_names_come_through_unharmed(plain: PlainServer) -> None:
    name = pgsql.Identifier(STRANGE)
    with psycopg.connect(plain.dsn, autocommit=True) as c:
        c.execute(pgsql.SQL("create database {}").format(name))
    dsn = make_conninfo(plain.dsn, dbname=STRANGE)
    with psycopg.connect(dsn, autocommit=True) as c:
        c.execute(pgsql.SQL("create schema {0}; create table {0}.{0} (n int primary key)").format(name))
        c.execute(pgsql.SQL("comment on table {0}.{0} is 'x'").format(name))
    taken = snapshot(plain.dsn, everything=True)
    assert STRANGE in taken.info.databases
    relation = taken.tables["relations"].filter(relation=STRANGE).row(0, named=True)
    assert (relation["database"], relation["schema"]) == (STRANGE, STRANGE)
    assert taken.tables["indexes"].filter(relation=STRANGE)["schema"].to_list() == [STRANGE]
    assert snapshot(plain.dsn, STRANGE).info.databases == (STRANGE,)


def test_a_database_that_refuses_is_named_and_the_others_go_on(plain: PlainServer) -> None:
    for name in ("shut", "crowded", "open"):
        plain.ask(f"drop database if exists {name}")
        plain.ask(f"create database {name}")
    plain.ask("revoke connect on database shut from public")
    plain.ask("alter database crowded connection limit 0")
    watcher = make_conninfo(plain.dsn, user="watcher")
    taken = snapshot(watcher, everything=True)
    assert "open" in taken.info.databases
    assert {"database shut", "database crowded"} <= set(taken.info.missing)
    assert "GRANT CONNECT" in taken.info.missing["database shut"]
    assert {"shut", "crowded"} <= set(
        taken.tables["databases"]["database"]
    )  # the server counts them all the same
    shared = taken.tables["relations"].filter(relation="pg_database")
    assert shared["database_id"].to_list() == [0]
    with pytest.raises(NoSuchDatabase):
        snapshot(watcher, "nowhere")


def test_counting_that_is_off_is_unknown(plain: PlainServer) -> None:
    plain.ask("create database uncounted")
    plain.ask("alter database uncounted set track_counts = off")
    taken = snapshot(make_conninfo(plain.dsn, dbname="uncounted"))
    assert taken.tables["relations"]["seq_scans"].null_count() == taken.tables["relations"].height
    assert "track_counts = on" in taken.info.missing["relations.seq_scans"]
    assert "CREATE EXTENSION" in taken.info.missing["statements"]
    assert taken.tables["statements"].is_empty()


def test_a_server_that_is_lost_leaves_nothing_half(servers: Servers) -> None:
    with plain_server(servers.bin_dir(18)) as server, closing(PostgresServer(server.dsn)) as looked_at:
        for statement in PARTS:
            server.ask(statement)
        ending = threading.Timer(0.5, server.stop)
        with hold_lock(server.dsn, PARENTS), pytest.raises(TargetError):
            ending.start()
            looked_at.snapshots.snapshot(None, None, ())
        ending.join()


def test_a_standby_and_its_primary_are_told_apart_and_linked(servers: Servers) -> None:
    with (
        plain_server(servers.bin_dir(15), {}, ("local replication all trust",)) as primary,
        _start_standby(primary) as standby,
    ):
        until(lambda: primary.ask("select 1 from pg_stat_replication where state = 'streaming'"))
        of_primary, of_standby = snapshot(primary.dsn), snapshot(standby.dsn)
    assert (of_primary.info.standby, of_standby.info.standby) == (False, True)
    assert of_primary.info.server != of_standby.info.server
    assert of_primary.tables["standbys"]["state"].to_list() == ["streaming"]
    assert of_primary.tables["slots"]["kind"].to_list() == ["physical"]
    for one in (of_primary, of_standby):
        assert one.tables["server"].filter(figure="wal_position_bytes")["value"][0] > 0


@contextmanager
def _start_standby(primary: PlainServer) -> Iterator[PlainServer]:
    primary.ask("select pg_create_physical_replication_slot('standby')")
    with standby_of(primary, 15) as standby:
        yield standby


def until(what: Any, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)
