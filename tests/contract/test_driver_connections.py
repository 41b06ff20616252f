"""The driver's ways to a server: passwords, TLS, TCP, broken and silent networks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.driving import connect_load, failure, load, run, start, statement, tables, until_done
from tests.contract.plain_server import PlainServer, plain_server
from tests.contract.proxy import proxy
from tests.openssl import openssl

from dbdyno import _core

if TYPE_CHECKING:
    from tests.conftest import Servers

pytestmark = pytest.mark.db

ONE = [statement("select 1")]
SECRET = "pencil \u00fc%"

# -- passwords --------------------------------------------------------------------------------------

METHODS = ("scram", "md5", "password", "trust")


@pytest.fixture(scope="module", params=[15, 18], ids=["pg15", "pg18"])
def guarded(servers: Servers, request: pytest.FixtureRequest) -> Iterator[PlainServer]:
    """A server with a role for each method of authentication, which asks for passwords by TCP."""
    hba = [f"host all {m} 127.0.0.1/32 {'scram-sha-256' if m == 'scram' else m}" for m in METHODS]
    with plain_server(
        servers.bin_dir(request.param), {"md5_password_warnings": "off"} if request.param == 18 else {}, hba
    ) as server:
        for method in METHODS:
            stored = "md5" if method == "md5" else "scram-sha-256"
            server.ask(
                f"set password_encryption = '{stored}'; create role {method} login password '{SECRET}'"
            )
        yield server


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_authentication_lets_sessions_in(guarded: PlainServer, method: str) -> None:
    target = guarded.target(host="127.0.0.1", user=method, password=SECRET)
    assert run(target, ONE, 3, max_calls=5)["sessions"]["calls"].to_list() == [5, 5, 5]


@pytest.mark.parametrize("method", ["scram", "md5", "password"])
def test_a_wrong_password_is_refused_and_not_repeated(guarded: PlainServer, method: str) -> None:
    target = guarded.target(host="127.0.0.1", user=method, password="wrong-secret")
    kind, message, sqlstate, session = failure(target, ONE, 2)
    assert (kind, sqlstate) == ("authentication", "28P01") and session in (0, 1)
    assert "wrong-secret" not in message and method in message


def test_a_missing_password_is_an_authentication_error(guarded: PlainServer) -> None:
    kind, message, sqlstate, _ = failure(guarded.target(host="127.0.0.1", user="scram"), ONE)
    assert (kind, sqlstate) == ("authentication", None) and "none was given" in message


def test_a_missing_entry_in_pg_hba_conf_is_an_authentication_error(guarded: PlainServer) -> None:
    kind, message, sqlstate, _ = failure(guarded.target(user="scram"), ONE)
    assert (kind, sqlstate) == ("authentication", "28000") and "pg_hba.conf" in message


# -- TLS --------------------------------------------------------------------------------------------


def _certificate(
    folder: Path, name: str, subject: str, *, signer: str | None = None, san: str | None = None
) -> None:
    """Makes ``name``.crt and ``name``.key, signed by itself or by ``signer``."""
    key, request, cert = (str(folder / f"{name}.{end}") for end in ("key", "csr", "crt"))
    new = ["-newkey", "rsa:2048", "-nodes", "-keyout", key, "-subj", subject]
    extension = ["-addext", f"subjectAltName={san}"] if san else []
    if signer is None:
        openssl("req", "-x509", *new, "-days", "2", "-out", cert, *extension)
        return
    openssl("req", "-new", *new, "-out", request)
    extras = folder / f"{name}.ext"
    extras.write_text("basicConstraints=CA:FALSE\n" + (f"subjectAltName={san}\n" if san else ""))
    authority = [
        "-CA",
        str(folder / f"{signer}.crt"),
        "-CAkey",
        str(folder / f"{signer}.key"),
        "-CAcreateserial",
    ]
    openssl("x509", "-req", "-in", request, *authority, "-days", "2", "-out", cert, "-extfile", str(extras))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    _certificate(folder, "self", "/CN=localhost")
    _certificate(folder, "ca", "/CN=our authority")
    _certificate(folder, "server", "/CN=ignored", signer="ca", san="DNS:db.example,IP:127.0.0.1")
    _certificate(folder, "client", "/CN=card", signer="ca")
    _certificate(folder, "stranger", "/CN=our authority")
    return folder


def _tls_server(servers: Servers, certificates: Path, name: str) -> Any:
    hba = ["hostssl all card 127.0.0.1/32 cert", "host all boss 127.0.0.1/32 trust"]
    names = {"server.crt": f"{name}.crt", "server.key": f"{name}.key", "root.crt": "ca.crt"}
    files = {file: (certificates / certificate).read_bytes() for file, certificate in names.items()}
    settings = {
        "ssl": "on",
        "ssl_cert_file": "HOME/server.crt",
        "ssl_key_file": "HOME/server.key",
        "ssl_ca_file": "HOME/root.crt",
    }
    return plain_server(servers.bin_dir(15), settings, hba, files)


@pytest.fixture(scope="module")
def self_signed(servers: Servers, certificates: Path) -> Iterator[PlainServer]:
    with _tls_server(servers, certificates, "self") as server:
        yield server


@pytest.fixture(scope="module")
def signed(servers: Servers, certificates: Path) -> Iterator[PlainServer]:
    with _tls_server(servers, certificates, "server") as server:
        server.ask("create role card login")
        yield server


def _tls(server: PlainServer, verify: str, name: str, **more: Any) -> dict[str, Any]:
    tls = {"verify": verify, "root_cert": None, "cert": None, "key": None, "server_name": name} | more
    return server.target(host="127.0.0.1", tls=tls)


def test_without_verification_connections_are_still_encrypted(self_signed: PlainServer) -> None:
    target = _tls(self_signed, "none", "whoever")
    call = [statement("select 1 / ssl::int from pg_stat_ssl where pid = pg_backend_pid()")]
    for sessions in (1, 5):
        result = run(target, call, sessions, threads=1, max_calls=20)
        assert result["sessions"]["calls"].to_list() == [20] * sessions and result["errors"].is_empty()


@pytest.mark.parametrize("sessions", [1, 3])
def test_huge_results_and_parameters_pass_through_tls(self_signed: PlainServer, sessions: int) -> None:
    call = [
        statement("select repeat('x', 1000) from generate_series(1, 5000)"),
        statement("select 1 / (length($1::text) = 3000000)::int", "x" * 3_000_000),
    ]
    result = run(_tls(self_signed, "none", "x"), call, sessions, threads=1, max_calls=3)
    assert result["sessions"]["calls"].to_list() == [3] * sessions and result["errors"].is_empty()


def test_a_self_signed_certificate_is_its_own_authority(self_signed: PlainServer, certificates: Path) -> None:
    """As in PostgreSQL's documentation, 19.9.5: without alternative names the common name counts."""
    root = str(certificates / "self.crt")
    for verify, name in (("ca", "whoever"), ("full", "localhost")):
        assert (
            run(_tls(self_signed, verify, name, root_cert=root), ONE, max_calls=2)["sessions"]["calls"].item()
            == 2
        )
    kind, message, *_ = failure(_tls(self_signed, "full", "elsewhere", root_cert=root), ONE)
    assert kind == "tls" and "does not carry the name elsewhere" in message


def test_a_chain_is_verified(signed: PlainServer, certificates: Path) -> None:
    root = str(certificates / "ca.crt")
    for verify, name in (("ca", "whoever"), ("full", "db.example"), ("full", "127.0.0.1")):
        assert (
            run(_tls(signed, verify, name, root_cert=root), ONE, max_calls=2)["sessions"]["calls"].item() == 2
        )
    assert failure(_tls(signed, "full", "ignored", root_cert=root), ONE)[0] == "tls"
    for verify in ("ca", "full"):
        stranger = str(certificates / "stranger.crt")
        assert failure(_tls(signed, verify, "db.example", root_cert=stranger), ONE)[0] == "tls"
        assert failure(_tls(signed, verify, "db.example", root_cert="system"), ONE)[0] == "tls"


def test_a_client_certificate_lets_its_role_in(signed: PlainServer, certificates: Path) -> None:
    files = {"cert": str(certificates / "client.crt"), "key": str(certificates / "client.key")}
    target = _tls(signed, "ca", "x", root_cert=str(certificates / "ca.crt"), **files) | {"user": "card"}
    assert run(target, ONE, 2, max_calls=2)["sessions"]["calls"].to_list() == [2, 2]
    without = _tls(signed, "none", "x") | {"user": "card"}
    assert failure(without, ONE)[0] == "authentication"


def test_a_terminated_backend_ends_its_session_alone_under_tls(self_signed: PlainServer) -> None:
    running = connect_load(_tls(self_signed, "none", "x"), ONE, 2, threads=1)
    victim = running.backends()[0][1]
    start(running, seconds=1.5)
    self_signed.ask(f"select pg_terminate_backend({victim})")
    rows = tables(running)["sessions"]
    assert rows["end_reason"].to_list() == ["lost", "deadline"] and "57P01" in rows["end_detail"][0]


def test_a_server_without_tls_and_unusable_root_certificates_are_tls_errors(
    guarded: PlainServer, certificates: Path
) -> None:
    kind, message, *_ = failure(_tls(guarded, "none", "x") | {"user": "trust"}, ONE)
    assert kind == "tls" and "does not support TLS" in message
    for wrong in ({"root_cert": "/nowhere"}, {}, {"root_cert": str(certificates / "ca.key")}):
        with pytest.raises(_core.DriverError) as caught:
            load(_tls(guarded, "full", "x", **wrong), ONE)
        assert caught.value.args[0] == "tls"


# -- networks ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(servers: Servers) -> Iterator[PlainServer]:
    with plain_server(servers.bin_dir(18), hba=["host all boss 127.0.0.1/32 trust"]) as server:
        yield server


@pytest.mark.parametrize("piece", [1, 3, 7])
def test_messages_that_come_in_pieces_are_put_together(server: PlainServer, piece: int) -> None:
    call = [
        statement("select n, repeat('y', 20) from generate_series(1, 5) n"),
        statement("select $1::int", "4"),
    ]
    with proxy(server.port, piece) as line:
        target = server.target(host="127.0.0.1", port=line.port)
        for sessions in (1, 3):
            result = run(target, call, sessions, threads=1, max_calls=10)
            assert result["sessions"]["calls"].to_list() == [10] * sessions and result["errors"].is_empty()


@pytest.mark.parametrize("sessions", [1, 3])
def test_a_cut_network_loses_the_sessions(server: PlainServer, sessions: int) -> None:
    with proxy(server.port) as line:
        running = connect_load(server.target(host="127.0.0.1", port=line.port), ONE, sessions)
        start(running)
        line.cut()
        until_done(running)
        result = tables(running)
    assert set(result["sessions"]["end_reason"]) == {"lost"}
    assert result["errors"]["sqlstate"].to_list() == ["08006"] * sessions


def test_a_silent_network_loses_the_sessions_when_the_grace_is_over(server: PlainServer) -> None:
    with proxy(server.port) as line:
        running = connect_load(
            server.target(host="127.0.0.1", port=line.port), ONE, 2, threads=1, grace_ms=200
        )
        start(running, seconds=1)
        line.silence()
        until_done(running)
        result = tables(running)
    assert set(result["sessions"]["end_reason"]) == {"lost"}
    assert all("no answer" in detail for detail in result["sessions"]["end_detail"])


def test_a_server_that_says_nothing_is_given_up_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        here = {"host": "127.0.0.1", "port": deaf.getsockname()[1], "user": "u", "database": "d"}
        kind, message, *_ = failure(here | {"connect_timeout_ms": 200}, ONE)
        assert kind == "lost" and "did not answer in time" in message
        running = load(here, ONE)
        running.connect()
        assert not running.wait(0.1)
        running.abort()
        with pytest.raises(_core.DriverError) as caught:
            running.wait(60)
        assert caught.value.args[0] == "aborted"


def test_another_protocol_is_reported_as_no_postgresql_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = {"host": "127.0.0.1", "port": listener.getsockname()[1], "user": "u", "database": "d"}
        running = load(here, ONE)
        running.connect()
        line, _ = listener.accept()
        with line:
            line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with pytest.raises(_core.DriverError) as caught:
                running.wait(60)
    assert caught.value.args[0] == "protocol" and "not a PostgreSQL server" in caught.value.args[1]
