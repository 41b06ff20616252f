"""Control connections and samplers read the same under any settings of role, database, server and
environment."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg import sql as pgsql
from psycopg.conninfo import make_conninfo

from dbdyno.engines.postgres import PostgresServer, own_settings
from dbdyno.engines.postgres.connect import connect, release
from dbdyno.model import errors
from dbdyno.model.plan.plan import PlannedScript
from tests.conftest import Servers
from tests.contract.hostile import hang_up_after, hostile, report
from tests.contract.plain_server import PlainServer, plain_server
from tests.contract.test_helper_roles import standby_of
from tests.db.conftest import Bench

pytestmark = pytest.mark.db
ODD = {
    "extra_float_digits": "-10",
    "DateStyle": "German, DMY",
    "IntervalStyle": "iso_8601",
    "bytea_output": "escape",
    "TimeZone": "Asia/Kathmandu",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "array_nulls": "off",
    "quote_all_identifiers": "on",
    "client_min_messages": "error",
    "xmloption": "document",
    "xmlbinary": "hex",
    "transform_null_equals": "on",
    "backslash_quote": "off",
    "statement_timeout": "50ms",
    "lock_timeout": "50ms",
    "idle_session_timeout": "60s",
    "idle_in_transaction_session_timeout": "60s",
    "search_path": "nowhere",
}


@pytest.fixture
def odd(any_dsn: str) -> Iterator[str]:
    """Yields the DSN of a role with all of these settings."""
    with psycopg.connect(any_dsn, autocommit=True) as admin:
        admin.execute("create role odd login superuser")
        for name, value in ODD.items():
            setting = pgsql.SQL("alter role odd set {} = {}")
            admin.execute(setting.format(pgsql.Identifier(name), pgsql.Literal(value)))
        yield make_conninfo(any_dsn, user="odd")
        admin.execute("drop role odd")


def test_a_control_connection_has_its_own_settings(odd: str) -> None:
    with closing(connect(odd)) as connection:
        names = "select name, setting from pg_catalog.pg_settings"
        now = dict(connection.execute(names).fetchall())
        assert ODD.keys() <= own_settings._ALL.keys()
        assert {n: now[n] for n in own_settings._ALL if n in now} == {
            n: v for n, v in own_settings._ALL.items() if n in now
        }
        with connection.users_settings():
            assert connection.execute("show DateStyle").fetchone() == ("German, DMY",)
            assert connection.execute("show search_path").fetchone() == ("nowhere",)
        assert connection.execute("show DateStyle").fetchone() == ("ISO, MDY",)


def test_figures_are_exact_and_scripts_mean_what_the_role_means(odd: str) -> None:
    with closing(PostgresServer(odd)) as server:
        snapshot = server.snapshots.snapshot(None, None, set())
        assert abs((snapshot.info.server_time - datetime.now(UTC)).total_seconds()) < 60
        assert snapshot.info.started is not None and snapshot.info.started < snapshot.info.server_time
        server.script([PlannedScript(name="a.sql", text="select '31.12.2024'::date;")])
        (statement,) = [s for s in server._watch_half("", ())["activity"].values() if s and "{pid}" in str(s)]
        for name, value in (("extra_float_digits", "1"), ("DateStyle", "ISO, MDY")):
            assert f"('{name}', '{value}')" in statement


def test_options_of_the_environment_are_no_different(
    dsn18: str, monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    options = " ".join(f"-c {n}={v}" for n, v in ODD.items() if " " not in v)
    monkeypatch.setenv("PGOPTIONS", options)
    monkeypatch.setenv("PGDATESTYLE", "German")
    with closing(PostgresServer(dsn18)) as server:
        before = dict(own_settings.of_client(server._connection.before))
        assert before["extra_float_digits"] == "-10" and before["statement_timeout"] == "50"
    done = bench.here("observe", "--for", "1s", "--dsn", dsn18, PGOPTIONS=options)
    assert done.returncode == 0, done.stderr


def test_a_standby_is_read_by_a_role_whose_transactions_are_serializable(
    servers: Servers, bench: Bench
) -> None:
    with plain_server(
        servers.bin_dir(18), {"wal_level": "replica"}, ["local replication boss trust", "local all all trust"]
    ) as primary:
        primary.ask("select pg_create_physical_replication_slot('standby')")
        primary.ask("create role mon login in role pg_monitor")
        primary.ask("alter role mon set default_transaction_isolation = 'serializable'")
        with ExitStack() as stack:
            standby = stack.enter_context(standby_of(primary, 17))
            dsn = make_conninfo(standby.dsn, user="mon")
            with closing(PostgresServer(dsn)) as server:
                assert server.snapshots.snapshot(None, None, set()).info.standby
            done = bench.here("observe", "--for", "1s", "--dsn", dsn)
            assert done.returncode == 0, done.stderr


# -- names that all databases share ------------------------------------------------------------------------
def test_names_of_databases_are_bytes(any_dsn: str) -> None:
    latin1 = "encoding 'LATIN1' template template0 lc_collate 'C' lc_ctype 'C'"
    with psycopg.connect(any_dsn, autocommit=True) as admin:
        admin.execute(f"create database lat1 {latin1}".encode())
        admin.execute('create database "dbé€"'.encode())
    lat1 = make_conninfo(any_dsn, dbname="lat1")
    with psycopg.connect(lat1, client_encoding="LATIN1", autocommit=True) as admin:
        admin.execute(f'create database "caf\xe9" {latin1}'.encode("latin1"))
    try:
        for dsn in (lat1, any_dsn, make_conninfo(any_dsn, dbname="dbé€")):
            with closing(PostgresServer(dsn)) as server:
                info = server.snapshots.snapshot(None, [], set()).info
                assert not [place for place in info.missing if place.startswith("database ")]
                assert {"lat1", "dbé€", "café"} <= set(info.databases)
                assert len(info.databases) == len(set(info.databases))
    finally:
        with psycopg.connect(lat1, client_encoding="LATIN1", autocommit=True) as admin:
            admin.execute('drop database "caf\xe9"'.encode("latin1"))
        with psycopg.connect(any_dsn, autocommit=True) as admin:
            admin.execute('drop database "dbé€"'.encode())
            admin.execute("drop database lat1 with (force)")


# -- what a server refuses with, in any language -----------------------------------------------------------
REFUSALS = {
    "28P01": (errors.AuthenticationFailed, "check the password"),
    "28000": (errors.AuthenticationFailed, "pg_hba.conf"),
    "3D000": (errors.NoSuchDatabase, "name an existing one"),
    "53300": (errors.TooFewConnections, "max_connections"),
    "57P03": (errors.Unreachable, "wait until the server has started"),
    "42501": (errors.NotPrivileged, "grant"),
    "22023": (errors.TargetError, "PGOPTIONS"),
    "XX000": (errors.TargetError, "its log"),
}


@pytest.mark.parametrize("state", REFUSALS)
def test_a_refusal_is_known_by_its_state(state: str) -> None:
    kind, cure = REFUSALS[state]
    words = 'C "28P01" Anmeldung\nB\t9\tErrorResponse\t abgelehnt'
    with hostile(hang_up_after(report(b"E", words, "FATAL", state))) as server, pytest.raises(kind) as caught:
        connect(f"{server.dsn} host=127.0.0.1,127.0.0.1 port={server.port},{server.port} connect_timeout=3")
    assert cure in str(caught.value.cure)


@pytest.fixture
def german(servers: Servers, open_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlainServer]:
    """A server whose messages are German."""
    try:
        locale = open_dir / "de_DE.UTF-8"
        subprocess.run(
            ["localedef", "-i", "de_DE", "-f", "UTF-8", str(locale)], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no German locale: apt install locales")
    monkeypatch.setenv("LOCPATH", str(open_dir))
    hba = ["local all lim scram-sha-256", "local all all trust"]
    settings = {"lc_messages": "de_DE.UTF-8", "max_connections": "10"}
    with plain_server(servers.bin_dir(15), settings, hba) as server:
        with psycopg.connect(server.dsn) as connection, pytest.raises(psycopg.Error) as caught:
            connection.execute("select nosuch")
        if "existiert nicht" not in str(caught.value):
            pytest.skip("the server's messages are not translated: apt install postgresql-15")
        yield server


def test_a_german_server_gets_the_cures_of_an_english_one(german: PlainServer) -> None:
    german.ask("create role lim login password 'x'")
    cases = (
        ({"user": "nosuch"}, errors.AuthenticationFailed),
        ({"dbname": "nosuch"}, errors.NoSuchDatabase),
        ({"user": "lim", "password": "wrong"}, errors.AuthenticationFailed),
    )
    for words, kind in cases:
        with pytest.raises(kind):
            connect(make_conninfo(german.dsn, **words))
    with closing(connect(german.dsn)) as connection, pytest.raises(psycopg.Error, match="does not exist"):
        connection.execute("select nosuch")
    with ExitStack() as stack:
        german.ask("create role mon login")
        for _ in range(7):
            stack.enter_context(psycopg.connect(german.dsn))
        with pytest.raises(errors.TooFewConnections):
            connect(make_conninfo(german.dsn, user="mon"))


def test_a_release_before_10_has_two_numbers() -> None:
    assert [release(n) for n in (90624, 90426, 100023, 130000)] == ["9.6", "9.4", "10", "13"]
