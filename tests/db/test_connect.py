"""Any other server, by libpq's conventions: one PostgreSQL with TCP, TLS, SCRAM and md5 on loopback.

Each way in is tried by the control connection, and by the driver, which has its own client.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.embedded import Instance, StartOptions
from dbdyno.engines.postgres.embedded.account import server_account
from dbdyno.engines.postgres.embedded.places import find_places
from dbdyno.engines.postgres.embedded.programs import find_programs
from dbdyno.model.errors import (
    AuthenticationFailed,
    DbdynoError,
    NoSuchDatabase,
    NotPrivileged,
    TooFewConnections,
    Unreachable,
    UsageError,
)
from dbdyno.model.plan.plan import PlannedScript
from tests.conftest import Servers
from tests.contract import loads
from tests.openssl import openssl
from tests.ports import free_port

pytestmark = pytest.mark.db

SECRET = "p@ss:w/ord? 'é"
HBA = """
local all dbdyno trust
local all all scram-sha-256
hostssl all certified 127.0.0.1/32 cert
hostssl tlsonly all 127.0.0.1/32 scram-sha-256
hostnossl tlsonly all 127.0.0.1/32 reject
host all oldfashioned 127.0.0.1/32 md5
host all banned 127.0.0.1/32 reject
host all all 127.0.0.1/32 scram-sha-256
"""


@dataclass(frozen=True)
class Remote:
    port: int
    certificates: Path
    admin: str  # DSN over the socket
    socket_dir: Path

    def dsn(self, **given: str | int | None) -> str:
        usual: dict[str, str | int | None] = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": "u",
            "dbname": "postgres",
            "password": SECRET,
        }
        return make_conninfo("", **{k: v for k, v in (usual | given).items() if v is not None})


def _certificates(directory: Path) -> None:
    """Makes an authority, a server's certificate for localhost, and a client's for user certified."""
    new = (
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    )
    authority = ("-subj", "/CN=test authority", "-addext", "basicConstraints=critical,CA:TRUE")
    openssl(*new, "-keyout", "ca.key", "-out", "ca.crt", *authority, folder=directory)
    openssl(
        *new, "-keyout", "other.key", "-out", "other.crt", "-subj", "/CN=another authority", folder=directory
    )
    for name, subject, more in (
        ("server", "/CN=localhost", ("-addext", "subjectAltName=DNS:localhost")),
        ("client", "/CN=certified", ()),
    ):
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE")
        files = ("-keyout", f"{name}.key", "-out", f"{name}.crt")
        openssl(*new, *files, "-subj", subject, *more, *signed, folder=directory)
        (directory / f"{name}.key").chmod(0o600)


@pytest.fixture(scope="module")
def remote(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """Yields a server of Debian's 15, because the wheel's builds have no TLS."""
    programs = find_programs(servers.bin_dir(15))
    certificates = tmp_path_factory.mktemp("certificates")
    _certificates(certificates)
    account = server_account()
    places = find_places(account)
    server = Instance(places, account, places.data / "remote")
    port = free_port()
    server.open(programs, StartOptions(fresh=True))  # another module of this session may have had one here
    server.close()
    for name in ("server.crt", "server.key", "ca.crt"):
        copied = Path(shutil.copy(certificates / name, server.data))
        os.chown(copied, account.uid, account.gid)
    (server.data / "pg_hba.conf").write_text(HBA)
    settings = {"listen_addresses": "127.0.0.1", "port": str(port), "ssl": "on", "ssl_ca_file": "ca.crt"}
    server.open(programs, StartOptions(settings=settings, max_connections=20))
    admin = f"host={server.socket_dir} port={port} user=dbdyno dbname=postgres"
    try:
        _people(admin)
        yield Remote(port, certificates, admin, server.socket_dir)
    finally:
        server.close()


def _people(admin: str) -> None:
    quoted = "'" + SECRET.replace("'", "''") + "'"
    with psycopg.connect(admin, autocommit=True) as connection:
        for name in ("u", "certified", "banned"):
            connection.execute(f"create role {name} login password {quoted}".encode())
        connection.execute("create role idle login connection limit 0 password 'x'")
        connection.execute("set password_encryption = md5")
        connection.execute(f"create role oldfashioned login password {quoted}".encode())
        connection.execute("create database tlsonly")
        connection.execute("grant create on database postgres, tlsonly to u, certified, oldfashioned")


def connect_both_ways(dsn: str) -> PostgresServer:
    """Connects by libpq, lets the driver connect and call, and returns the (closed) server."""
    unit = loads.workload("cpu")
    with closing(PostgresServer(dsn)) as server:
        server.prepare(unit, {}, 2)
        result = loads.run(server, unit, {}, 2, size=10, calls=3)
        assert result["sessions"]["calls_total"].to_list() == [3, 3]
        server.clean()
        return server


@pytest.mark.parametrize(
    "given",
    [
        {"sslmode": "disable"},
        {"sslmode": "require"},
        {"user": "oldfashioned"},
        {"host": "localhost", "hostaddr": "127.0.0.1"},
        {"dbname": "tlsonly"},
        {"host": "localhost,127.0.0.1", "port": "1,{port}"},
    ],
    ids=lambda g: ",".join(g),
)
def test_each_way_to_give_a_password_lets_in(remote: Remote, given: dict[str, str]) -> None:
    connect_both_ways(remote.dsn(**{k: v.format(port=remote.port) for k, v in given.items()}))


def test_a_uri_may_have_a_password_of_odd_characters(remote: Remote) -> None:
    connect_both_ways(
        f"postgresql://u:p%40ss%3Aw%2Ford%3F%20'%C3%A9@127.0.0.1:{remote.port}/postgres?sslmode=prefer"
    )


def test_scram_lets_in_over_the_unix_socket(remote: Remote) -> None:
    server = connect_both_ways(remote.dsn(host=str(remote.socket_dir)))
    assert server._login["tls"] is None


def test_environment_variables_name_server_options_and_password(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "HOST": "127.0.0.1",
        "PORT": str(remote.port),
        "USER": "u",
        "DATABASE": "postgres",
        "PASSWORD": SECRET,
    }
    for name, value in given.items():
        monkeypatch.setenv(f"PG{name}", value)
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=3MB -c search_path=here,there")
    with closing(PostgresServer("")) as server:
        text = (
            "select 1 / (current_setting('work_mem') = '3MB'\n"
            "and current_setting('search_path') = 'here,there')::int"
        )
        unit = server.script([PlannedScript(name="options.sql", text=text)])
        result = loads.run(server, unit, {}, 1, calls=1)
        assert result["errors"].is_empty()  # the sessions have the options too


def test_password_file_and_service_file_are_read(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    escaped = SECRET.replace("\\", "\\\\").replace(":", "\\:")
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"127.0.0.1:{remote.port}:*:u:{escaped}\n")
    passwords.chmod(0o600)
    services = tmp_path / "services"
    services.write_text(f"[bench]\nhost=127.0.0.1\nport={remote.port}\nuser=u\ndbname=postgres\n")
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    connect_both_ways("service=bench")
    with pytest.raises(UsageError, match="service"):
        PostgresServer("service=nosuch")


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
def test_tls_with_a_checked_certificate_lets_in(remote: Remote, mode: str) -> None:
    root = str(remote.certificates / "ca.crt")
    given = {"host": "localhost", "hostaddr": "127.0.0.1", "sslmode": mode, "sslrootcert": root}
    with closing(PostgresServer(remote.dsn(**given))) as server:
        assert f"sslmode={mode}" in (server.facts().tls or "")
    connect_both_ways(remote.dsn(**given))


def test_tls_with_a_client_certificate_lets_in(remote: Remote) -> None:
    files = {
        "sslrootcert": remote.certificates / "ca.crt",
        "sslcert": remote.certificates / "client.crt",
        "sslkey": remote.certificates / "client.key",
    }
    connect_both_ways(
        remote.dsn(
            user="certified", password=None, sslmode="verify-ca", **{k: str(v) for k, v in files.items()}
        )
    )


@pytest.mark.parametrize(
    "given", [{"sslrootcert": "other.crt", "sslmode": "verify-ca"}, {"sslmode": "verify-full"}]
)
def test_a_certificate_that_does_not_fit_is_refused(remote: Remote, given: dict[str, str]) -> None:
    given = {"sslrootcert": "ca.crt"} | given  # verify-full: it is not made out to 127.0.0.1
    given["sslrootcert"] = str(remote.certificates / given["sslrootcert"])
    with pytest.raises(Unreachable, match="certificate") as caught:
        PostgresServer(remote.dsn(**given))
    assert "sslrootcert" in str(caught.value.cure)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"password": SECRET + "x"}, AuthenticationFailed),
        ({"password": None}, AuthenticationFailed),
        ({"user": "nobody_such"}, AuthenticationFailed),
        ({"user": "banned"}, AuthenticationFailed),
        ({"dbname": "tlsonly", "sslmode": "disable"}, AuthenticationFailed),
        ({"dbname": "nosuch"}, NoSuchDatabase),
        ({"user": "idle", "password": "x"}, TooFewConnections),
        ({"port": 1}, Unreachable),
        ({"host": "/nonexistent"}, Unreachable),
        ({"host": "no.such.host.invalid"}, Unreachable),
        ({"sslmode": "sometimes"}, UsageError),
        ({"port": "twelve"}, UsageError),
    ],
    ids=lambda v: (
        v.__name__ if isinstance(v, type) else ",".join(f"{k}={w}" for k, w in v.items() if w != SECRET)
    ),
)
def test_bad_ways_in_say_what_is_wrong_and_the_cure(
    remote: Remote, given: dict[str, str | int | None], kind: type[DbdynoError]
) -> None:
    with pytest.raises(kind) as caught:
        PostgresServer(remote.dsn(**given))
    assert type(caught.value) is kind
    assert caught.value.cure
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "dsn",
    [
        "host=h password=two hush",
        "postgresql://u:hu/sh@h/d",
        "postgresql://u:hush@h:12x/d",
        "hush",
        "postgresql://u:hush@[::1/d",
        "host=h nosuchoption=hush",
    ],
)
def test_a_dsn_that_cannot_be_read_is_not_repeated(dsn: str) -> None:
    with pytest.raises(UsageError) as caught:
        PostgresServer(dsn)
    for part in ("hush", '"hu"', "sh@"):
        assert part not in str(caught.value)


def test_no_connection_is_left_of_a_full_server(remote: Remote) -> None:
    with contextlib.ExitStack() as stack, pytest.raises(TooFewConnections) as caught:
        for _ in range(20):
            stack.enter_context(closing(PostgresServer(remote.dsn())))
    assert "max_connections" in str(caught.value.cure)


def test_a_database_without_the_right_to_connect_is_an_error_that_names_it(remote: Remote) -> None:
    with psycopg.connect(remote.admin, autocommit=True) as admin:
        admin.execute("create database locked")
        admin.execute("revoke connect on database locked from public")
    with pytest.raises(NotPrivileged, match="locked"):
        PostgresServer(remote.dsn(dbname="locked"))


def test_facts_hold_no_credentials(remote: Remote) -> None:
    with closing(PostgresServer(remote.dsn())) as server:
        facts = server.facts()
        assert SECRET not in facts.model_dump_json()
        assert facts.where == f"127.0.0.1:{remote.port}, database postgres, user u"
        assert facts.here
        assert "both ends are 127.0.0.1" in facts.here_detail
        assert SECRET not in repr(server)


def test_a_server_that_does_not_answer_times_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(Unreachable, match="timeout"):
            PostgresServer(f"host=127.0.0.1 port={silent.getsockname()[1]} connect_timeout=2 user=u dbname=d")
