"""A relay that passes the first connections on and attacks the next: it never gets the password."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dbdyno import _core
from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.connect import connect
from dbdyno.model.engine.protocols import Pool
from dbdyno.model.errors import AuthenticationFailed, DbdynoError, UsageError
from tests.contract import loads
from tests.contract.driving import failure, run, statement
from tests.contract.plain_server import PlainServer, plain_server
from tests.contract.relay import (
    CLEARTEXT,
    GSS,
    LET_IN,
    MD5,
    ODD,
    SASL,
    SASL_OTHER,
    SASL_PLUS,
    Attack,
    asks,
    attack_between,
    relay,
)
from tests.contract.test_driver_connections import _certificate

if TYPE_CHECKING:
    from tests.conftest import Servers

pytestmark = pytest.mark.db

SECRET = "hush%pencil"
ONE = [statement("select 1")]
ROLES = ("scram", "md5", "password", "trust")
REQUESTS = {
    "cleartext": CLEARTEXT,
    "md5": MD5,
    "gss": GSS,
    "sasl": SASL,
    "plus": SASL_PLUS,
    "other": SASL_OTHER,
    "odd": ODD,
    "trust": LET_IN,
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    _certificate(folder, "ca", "/CN=our authority")
    _certificate(folder, "server", "/CN=localhost", signer="ca", san="DNS:localhost,IP:127.0.0.1")
    _certificate(folder, "relay", "/CN=localhost", san="DNS:localhost,IP:127.0.0.1")
    return folder


def _server(servers: Servers, major: int, certificates: Path) -> Any:
    hba = [f"host all {m} 127.0.0.1/32 {'scram-sha-256' if m == 'scram' else m}" for m in ROLES]
    if major != 15:  # the wheel's has no TLS
        return plain_server(servers.bin_dir(major), {"md5_password_warnings": "off"}, hba)
    files = {name: (certificates / name).read_bytes() for name in ("server.crt", "server.key")}
    settings = {"ssl": "on", "ssl_cert_file": "HOME/server.crt", "ssl_key_file": "HOME/server.key"}
    return plain_server(servers.bin_dir(15), settings, hba, files)


def _people(server: PlainServer) -> PlainServer:
    for role in ROLES:
        stored = "md5" if role == "md5" else "scram-sha-256"
        server.ask(f"set password_encryption = '{stored}'; create role {role} login password '{SECRET}'")
        server.ask(f"grant create on database postgres to {role}")
    return server


@pytest.fixture(scope="module")
def guarded(servers: Servers, certificates: Path) -> Iterator[PlainServer]:
    """Yields a server of version 15 with TLS."""
    with _server(servers, 15, certificates) as server:
        yield _people(server)


@pytest.fixture(scope="module", params=[15, 18], ids=["pg15", "pg18"])
def either(servers: Servers, certificates: Path, request: pytest.FixtureRequest) -> Iterator[PlainServer]:
    with _server(servers, request.param, certificates) as server:
        yield _people(server)


def dsn(port: int, user: str, **more: str) -> str:
    words = {"host": "127.0.0.1", "port": str(port), "user": user, "dbname": "postgres", "password": SECRET}
    return " ".join(f"{k}={v}" for k, v in (words | {"connect_timeout": "5"} | more).items())


def attack_each(
    port: int, attacks: Mapping[str, Attack], user: str, **more: str
) -> dict[str, tuple[str, str]]:
    """Returns kind and words of the driver's failures behind one control connection that was not attacked."""
    failures = {}
    with relay(port, 1, asks(b"")) as line, closing(PostgresServer(dsn(line.port, user, **more))) as server:
        for name, attack in attacks.items():
            before, line.attack = line.attacked, attack
            kind, words, _, _ = failure(server._target | {"connect_timeout_ms": 3000}, ONE)
            assert line.attacked == before + 1
            assert line.taken == b"", f"{name}: the relay got {line.taken!r}"
            assert SECRET not in words
            failures[name] = kind, words
    return failures


def attacks_asking(*but: str, certificate: Path | None = None) -> dict[str, Attack]:
    return {name: asks(what, certificate) for name, what in REQUESTS.items() if name not in but}


# -- without TLS ------------------------------------------------------------------------------------
REAL = {"scram": "sasl", "md5": "md5", "password": "cleartext", "trust": "trust"}


@pytest.mark.parametrize("user", ROLES)
def test_sessions_are_held_to_what_the_first_connection_met(either: PlainServer, user: str) -> None:
    failures = attack_each(either.port, attacks_asking(REAL[user]), user, sslmode="disable")
    for asked, (kind, words) in failures.items():
        assert kind == "authentication", asked
        if asked in ("cleartext", "md5", "trust"):
            assert "what the first connection met" in words


@pytest.mark.parametrize(
    ("rule", "asked"),
    [
        ("scram-sha-256", "cleartext"),
        ("scram-sha-256", "md5"),
        ("scram-sha-256", "trust"),
        ("!password", "cleartext"),
        ("!password,!md5", "md5"),
        ("!none", "trust"),
        ("md5,scram-sha-256", "cleartext"),
    ],
)
@pytest.mark.parametrize("way", ["dsn", "environment", "service"])
def test_require_auth_refuses_other_methods_however_it_is_given(
    guarded: PlainServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rule: str, asked: str, way: str
) -> None:
    more = {"require_auth": rule} if way == "dsn" else {}
    if way == "environment":
        monkeypatch.setenv("PGREQUIREAUTH", rule)
    if way == "service":
        (tmp_path / "services").write_text(f"[here]\nrequire_auth={rule}\n")
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        more = {"service": "here"}
    failures = attack_each(guarded.port, {asked: asks(REQUESTS[asked])}, "scram", sslmode="disable", **more)
    assert failures[asked][0] == "authentication"


@pytest.mark.parametrize("user", ROLES)
def test_the_method_of_the_first_connection_is_known(either: PlainServer, user: str) -> None:
    with closing(PostgresServer(dsn(either.port, user, sslmode="disable"))) as server:
        method = {"scram": "scram-sha-256", "trust": "none"}.get(user, user)
        assert server._target["auth"] == {"methods": [method], "channel_binding": "prefer"}
        assert run(server._target, ONE, 2, max_calls=2)["sessions"]["calls"].to_list() == [2, 2]


@pytest.mark.parametrize("leave", [1, 2])
def test_a_load_behind_a_relay_that_asks_for_clear_text_fails_without_a_password(
    guarded: PlainServer, leave: int
) -> None:
    unit = loads.workload("cpu")
    with (
        relay(guarded.port, leave, asks(CLEARTEXT)) as line,
        closing(PostgresServer(dsn(line.port, "scram", sslmode="disable"))) as server,
    ):
        server.prepare(unit, {}, 2)
        with pytest.raises(_core.DriverError, match="clear text"):
            loads.run(server, unit, {}, 2, size=10, calls=3)
    assert line.attacked > 0 and line.taken == b""


@pytest.mark.parametrize("asked", ["cleartext", "md5", "trust"])
def test_later_connections_of_libpq_are_held(guarded: PlainServer, asked: str) -> None:
    with relay(guarded.port, 1, asks(REQUESTS[asked])) as line:
        here = dsn(line.port, "scram", sslmode="disable")
        connect(here).close()
        with pytest.raises(AuthenticationFailed) as caught:
            connect(here)
        assert b"p" not in line.taken[:1] and "what answers there" in caught.value.cure


# -- under TLS --------------------------------------------------------------------------------------

MODES = ("require", "verify-ca", "verify-full")


def _tls(certificates: Path, mode: str) -> dict[str, str]:
    root = {} if mode == "require" else {"sslrootcert": str(certificates / "ca.crt")}
    return {"sslmode": mode, **root}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("binding", ["disable", "prefer", "require"])
def test_every_way_works_where_nobody_is_between(
    guarded: PlainServer, certificates: Path, mode: str, binding: str
) -> None:
    more = _tls(certificates, mode) | {"channel_binding": binding}
    with closing(PostgresServer(dsn(guarded.port, "scram", **more))) as server:
        expected = "disable" if binding == "disable" else "require"  # libpq used SCRAM-SHA-256-PLUS
        assert server._target["auth"]["channel_binding"] == expected
        assert run(server._target, ONE, 2, max_calls=2)["sessions"]["calls"].to_list() == [2, 2]


@pytest.mark.parametrize("mode", MODES)
def test_a_relay_with_a_certificate_of_its_own_is_refused(
    guarded: PlainServer, certificates: Path, mode: str
) -> None:
    # Without verification the answer to SCRAM-SHA-256-PLUS is bound to that certificate: see the next test.
    but = ["plus"] if mode == "require" else []
    attacks = attacks_asking(*but, certificate=certificates / "relay")
    failures = attack_each(guarded.port, attacks, "scram", **_tls(certificates, mode))
    for asked, (kind, _) in failures.items():
        assert kind == ("authentication" if mode == "require" else "tls"), asked
    if mode == "require":
        assert "channel binding" in failures["sasl"][1] and "channel binding" in failures["trust"][1]


@pytest.mark.parametrize("asked", ["cleartext", "sasl", "trust"])
def test_channel_binding_is_required_of_the_first_connection(
    guarded: PlainServer, certificates: Path, asked: str
) -> None:
    attack = asks(REQUESTS[asked], certificates / "relay")
    with relay(guarded.port, 0, attack) as line, pytest.raises(AuthenticationFailed):
        PostgresServer(dsn(line.port, "scram", sslmode="require", channel_binding="require"))
    assert SECRET.encode() not in line.taken


def _without_plus(answer: bytes) -> bytes:
    assert b"SCRAM-SHA-256-PLUS" in answer
    return SASL


@pytest.mark.parametrize("filtered", [bytes, _without_plus], ids=["as it is", "without PLUS"])
@pytest.mark.parametrize("binding", ["prefer", "require"])
def test_channel_binding_refuses_a_relay_between_two_tls_connections(
    guarded: PlainServer, certificates: Path, binding: str, filtered: Any
) -> None:
    """The server checks it, or dbdyno does where the relay hides that the server could."""
    attack = attack_between(certificates / "relay", filtered)
    with relay(guarded.port, 1, attack) as line:
        more = {"sslmode": "require", "channel_binding": binding}
        with closing(PostgresServer(dsn(line.port, "scram", **more))) as server:
            kind, words, _, _ = failure(server._target, ONE)
    assert kind == "authentication" and "channel binding" in words


def test_later_connections_of_libpq_are_encrypted_as_the_first(guarded: PlainServer) -> None:
    """The server wants the password in clear text, so TLS alone hides it."""
    with relay(guarded.port, 1, asks(CLEARTEXT)) as line:
        here = dsn(line.port, "password", sslmode="prefer")
        with closing(connect(here)) as first:
            assert first.pgconn.ssl_in_use
        with pytest.raises(DbdynoError) as caught:
            connect(here)
    assert line.attacked > 0 and line.taken == b""
    assert "disable" not in f"{caught.value.message} {caught.value.cure}"


@pytest.mark.parametrize("mode", MODES)
def test_stripped_tls_is_no_advice_to_do_without(guarded: PlainServer, certificates: Path, mode: str) -> None:
    attacks = {"cleartext": asks(CLEARTEXT)}
    kind, words = attack_each(guarded.port, attacks, "scram", **_tls(certificates, mode))["cleartext"]
    assert kind == "tls" and "between" in words and "disable" not in words


# -- a pooler ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"require_auth": "scram-sha-256"},
        {"require_auth": "!password"},
        {"sslmode": "require", "channel_binding": "require"},
    ],
    ids=lambda m: ",".join(m),
)
def test_a_pool_is_refused_where_the_pooler_cannot_hold_the_connections_demands(
    guarded: PlainServer, more: dict[str, str]
) -> None:
    with closing(PostgresServer(dsn(guarded.port, "scram", **more))) as server:
        with pytest.raises(UsageError) as caught:
            server.check_pool(Pool(2, "transaction", 3, "extended"))
        assert next(reversed(more)) in str(caught.value)
        server.reconnect()
        with pytest.raises(UsageError):
            server.check_pool(Pool(2, "transaction", 3, "extended"))


def test_a_pooler_to_a_server_elsewhere_needs_its_certificate(guarded: PlainServer) -> None:
    with closing(PostgresServer(dsn(guarded.port, "scram", sslmode="require"))) as server:
        server._login = server._login | {"host": "192.0.2.1"}
        with pytest.raises(UsageError, match="PgBouncer") as caught:
            server.check_pool(Pool(2, "transaction", 3, "extended"))
        assert "verify-full" in caught.value.cure


# -- other options ----------------------------------------------------------------------------------


def test_requirepeer_refuses_a_socket_of_another_user(guarded: PlainServer) -> None:
    by_socket = f"host={guarded.home} port={guarded.port} user=boss dbname=postgres"
    with closing(PostgresServer(f"{by_socket} requirepeer=nobody")) as server:
        assert server._target["peer_uid"] == (guarded.home.stat().st_uid)
        assert run(server._target, ONE, max_calls=1)["sessions"]["calls"].item() == 1
        kind, words, _, _ = failure(server._target | {"peer_uid": 4711}, ONE)
    assert kind == "authentication" and "requirepeer" in words
    with pytest.raises(DbdynoError, match="requirepeer"):
        PostgresServer(f"{by_socket} requirepeer=daemon")


if os.getuid() != 0:
    test_requirepeer_refuses_a_socket_of_another_user = pytest.mark.skip(
        reason="the server runs as us, not as nobody"
    )(test_requirepeer_refuses_a_socket_of_another_user)
