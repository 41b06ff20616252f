"""Faults of a load: each is an error with its cure, and no unfinished table counts as whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.db.conftest import eventually
from tests.in_process import dbdyno

ROLE = "impatient"
TIMEOUTS = ("statement_timeout", "idle_session_timeout", "transaction_timeout")
THERE = "select to_regclass('faults.pgbench_accounts')"


@pytest.fixture
def server(dsn18: str) -> Iterator[psycopg.Connection]:
    """Yields a connection of a superuser to a server with a schema for the tables, and a role that owns
    nothing."""
    with psycopg.connect(dsn18, autocommit=True) as connection:
        connection.execute("drop schema if exists faults cascade")
        connection.execute(f"drop role if exists {ROLE}".encode())
        connection.execute("create schema faults")
        connection.execute(f"create role {ROLE} login password 'secret'".encode())
        connection.execute(f"grant usage on schema faults to {ROLE}".encode())
        yield connection
        connection.execute("drop schema faults cascade")
        connection.execute(f"drop role {ROLE}".encode())


def words(dsn: str, *more: str, options: str = "", **changed: str) -> tuple[str, ...]:
    target = make_conninfo(dsn, options=f"-csearch_path=faults {options}", **changed)
    return ("workload", "prepare", "pgbench", "--dsn", target, *more)


def prepare(dsn: str, *more: str, options: str = "", **changed: str) -> subprocess.CompletedProcess[str]:
    return dbdyno(words(dsn, *more, options=options, **changed), {}, Path("/"))


def _drop_tablespace(server: psycopg.Connection) -> bool:
    try:
        server.execute("drop tablespace small")
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return False
    return True


def test_a_full_disk_is_an_error_and_leaves_no_table(server: psycopg.Connection, dsn18: str) -> None:
    row = server.execute("show data_directory").fetchone()
    assert row is not None
    place = Path(str(row[0])).with_name("small")
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m,mode=0777", "tmpfs", str(place)]
    try:
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("no right to mount a small file system")
        try:
            owner = Path(row[0]).stat()
            os.chown(place, owner.st_uid, owner.st_gid)
            server.execute(f"create tablespace small location '{place}'".encode())
            full = prepare(dsn18, "-s", "2", "--tablespace", "small")
            assert full.returncode not in (0, 1) and "No space left" in full.stderr
            assert "free space" in full.stderr and "removed: pgbench_accounts" in full.stderr
            assert server.execute(THERE).fetchone() == (None,)
            eventually(lambda: _drop_tablespace(server))  # who wrote to it may be ending still
        finally:
            subprocess.run(["umount", str(place)], check=True)
    finally:
        place.rmdir()


@pytest.mark.usefixtures("server")
def test_a_read_only_server_is_an_error_with_the_cure(dsn18: str) -> None:
    refused = prepare(dsn18, options="-cdefault_transaction_read_only=on")
    assert refused.returncode not in (0, 1) and "read-only" in refused.stderr
    assert "that may write: not a standby" in refused.stderr


def test_a_role_without_rights_gets_the_grant_and_timeouts_cut_no_load(
    server: psycopg.Connection, dsn18: str
) -> None:
    as_role = {"user": ROLE, "password": "secret"}
    refused = prepare(dsn18, **as_role)
    assert refused.returncode not in (0, 1)
    assert f"GRANT CREATE ON SCHEMA faults TO {ROLE}" in refused.stderr
    server.execute(f"grant create on schema faults to {ROLE}".encode())
    known = server.execute("select name from pg_settings where name = any(%s)", [list(TIMEOUTS)])
    for (name,) in known.fetchall():
        server.execute(f"alter role {ROLE} set {name} = '30ms'".encode())
    done = prepare(dsn18, "-s", "2", "--foreign-keys", **as_role)
    assert done.returncode == 0, done.stderr


def test_a_program_that_was_killed_leaves_tables_marked_as_unfinished(
    server: psycopg.Connection, dsn18: str
) -> None:
    argv = [str(Path(sys.executable).parent / "dbdyno"), *words(dsn18, "-s", "300")]
    some = "select coalesce(sum(tuples_processed), 0) > 0 from pg_stat_progress_copy"
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        eventually(lambda: server.execute(some).fetchone() == (True,))
        process.send_signal(signal.SIGKILL)
    done = prepare(dsn18)
    assert done.returncode == 0 and "there already" not in done.stdout, done.stderr
    assert server.execute("select count(*) from faults.pgbench_accounts").fetchone() == (100_000,)
