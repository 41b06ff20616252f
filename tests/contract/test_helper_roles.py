"""Roles of the server's own processes, on a primary that archives and replicates, and on its standby."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import psycopg
import pytest
from tests.contract.plain_server import PlainServer, plain_server, unprivileged_user

from dbdyno.engines.postgres import PostgresServer
from dbdyno.model.plan.plan import Observation

pytestmark = pytest.mark.db

USUAL = {"checkpointer", "background writer"}
PRIMARY = {
    "wal_level": "logical",
    "archive_mode": "on",
    "archive_command": "/bin/true",
    "logging_collector": "on",
    "log_directory": "HOME/logs",
}


@pytest.mark.parametrize("major", range(14, 19))
def test_helpers_are_named_by_what_they_do(servers: Any, major: int) -> None:
    settings = PRIMARY | ({"summarize_wal": "on"} if major >= 17 else {})
    hba = ["local replication boss trust"]
    with plain_server(servers.bin_dir(major), settings, hba) as primary, ExitStack() as stack:
        _replicate_to_itself(primary)
        standby = stack.enter_context(standby_of(primary, major))
        apply = "logical replication apply worker" if major >= 17 else "logical replication worker"
        _expect(primary, USUAL | {"walwriter", "autovacuum launcher", "archiver", "logger"})
        _expect(primary, {"logical replication launcher", apply, "walsender"})
        _expect(primary, {"walsummarizer"} if major >= 17 else set())
        _expect(primary, {"io worker"} if major >= 18 else set())
        _expect(primary, {"stats collector"} if major == 14 else set())
        _expect(standby, USUAL | {"startup", "walreceiver", "logger"})
        _expect(standby, {"slotsync worker"} if major >= 17 else set())


def _expect(plain: PlainServer, wanted: set[str]) -> None:
    """Waits until all ``wanted`` roles are there, and checks that none is taken for a session."""
    deadline = time.monotonic() + 120
    with closing(PostgresServer(plain.dsn)) as server:
        roles: set[str] = set()
        while not wanted <= roles:
            assert time.monotonic() < deadline, f"{wanted - roles} not among {roles}: {plain.log()[-2000:]}"
            time.sleep(0.1)
            roles = _helpers(server, plain)


def _helpers(server: PostgresServer, plain: PlainServer) -> set[str]:
    spec = server.observation_spec(Observation(), {})
    with psycopg.connect(plain.dsn, row_factory=psycopg.rows.dict_row) as connection:
        rows = connection.execute(spec["activity"]["sql"].encode()).fetchall()
    assert not any(row["chosen"] for row in rows if row["helper"])
    unlisted = {t["role"].removeprefix("helper:") for t in spec["tasks"] if t["role"] != "dbdyno"}
    return {row["helper"] for row in rows if row["helper"]} | unlisted


def _replicate_to_itself(primary: PlainServer) -> None:
    """Replicates from the database postgres to the database copy, by a slot made beforehand."""
    primary.ask("create table t (a int)")
    primary.ask("create publication p for table t")
    primary.ask("select pg_create_physical_replication_slot('standby')")
    primary.ask("select pg_create_logical_replication_slot('s', 'pgoutput')")
    primary.ask("create database copy")
    with psycopg.connect(primary.dsn, dbname="copy", autocommit=True) as copy:
        copy.execute("create table t (a int)")
        subscription = f"create subscription s connection '{primary.dsn}' publication p"
        copy.execute(f"{subscription} with (create_slot = false)".encode())


@contextmanager
def standby_of(primary: PlainServer, major: int) -> Iterator[PlainServer]:
    """Yields a copy of the primary that follows it."""
    standby = PlainServer(primary.bin_dir, primary.home)
    standby.data = primary.home / "standby"
    primary.stop("fast")
    subprocess.run(["cp", "-a", primary.data, standby.data], check=True)
    primary.start()
    lines = [f"port = {standby.port}", f"primary_conninfo = '{primary.dsn}'", "primary_slot_name = 'standby'"]
    lines += ["hot_standby_feedback = on", *(["sync_replication_slots = on"] if major >= 17 else [])]
    with (standby.data / "postgresql.conf").open("a") as conf:
        conf.write("\n".join(["", *lines, ""]))
    subprocess.run(["touch", standby.data / "standby.signal"], check=True, **unprivileged_user())
    standby.start()
    try:
        yield standby
    finally:
        standby.stop()
