"""The driver's connections against hostile servers: every attempt ends with an error in words."""

from __future__ import annotations

import base64
import os
import resource
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.driving import connect_load, failure, load, run, start, statement, tables
from tests.contract.plain_server import PlainServer, plain_server
from tests.contract.relay import LET_IN, Relay, message, relay, request, sends, welcome
from tests.contract.test_driver_connections import _certificate, _tls
from tests.openssl import openssl

from dbdyno import _core

if TYPE_CHECKING:
    from tests.conftest import Servers

ONE = [statement("select 1")]
NOTICE = message(b"N", b"SNOTICE\0VNOTICE\0C00000\0Mpatience\0\0")
GIGABYTE = (0x3FFFFFFF).to_bytes(4, "big")
MB = 1024 * 1024


def _local_target(line: Relay, **more: Any) -> dict[str, Any]:
    here = {"host": "127.0.0.1", "port": line.port, "user": "u", "password": "hush", "database": "d"}
    return here | {"connect_timeout_ms": 1500} | more


def _failure(attack: Any, **more: Any) -> tuple[str, str]:
    with relay(0, 0, attack) as line:
        kind, words, _, _ = failure(_local_target(line, **more), ONE)
    assert "hush" not in words and len(words) < 20_000
    return kind, words


FATAL = message(b"E", b"SFATAL\0VFATAL\0C53300\0Mtoo many clients\0\0")


@pytest.mark.parametrize(
    ("first", "kind", "words"),
    [
        (b"", "lost", "closed the connection"),
        (FATAL, "full", "too many clients"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "protocol", "not a PostgreSQL server"),
        (b"\x15\x03\x01\0\x02\x02\x28", "protocol", "not a PostgreSQL server"),
        (b"\0" * 100, "protocol", "not a PostgreSQL server"),
        (b"E\xff\xff\xff\xff", "protocol", "not a PostgreSQL server"),
        (b"N\x7f\xff\xff\xff", "protocol", "not a PostgreSQL server"),
        (b"R\0\0\0\x04", "protocol", "while connecting"),
        (b"R\0\0\0\x08\0\0", "lost", "closed the connection"),
        (message(b"E", b""), "server", "XX000"),
        (message(b"E", b"M" + b"long" * 2_000_000 + b"\0\0"), "server", "long"),
        (message(b"E", b"M\xff\xfe\xc3\x28\0C\xff\xff\xff\xff\xff\0\0"), "server", "\ufffd"),
        (message(b"D", b"\0\0"), "protocol", "while connecting"),
        (message(b"S", b"x" * 70_000), "protocol", "longer than"),
        (message(b"K", b"x" * 70_000), "protocol", "longer than"),
        (request(5, b"sa"), "protocol", "salt"),
        (request(10), "authentication", "SCRAM-SHA-256 is not among them"),
        (request(10, b"x" * 60_000), "authentication", "not among them"),
        (request(11, b"r=,s=,i=1"), "authentication", "method 11"),
        (request(0xFFFFFFFF), "authentication", "not supported"),
    ],
)
def test_an_unexpected_first_message_is_an_error_in_words(first: bytes, kind: str, words: str) -> None:
    failure = _failure(sends(first))
    assert failure[0] == kind and words in failure[1], failure


@pytest.mark.parametrize("what", [NOTICE, b"N" + GIGABYTE, b"N"], ids=["notices", "a gigabyte", "one letter"])
def test_connect_timeout_is_overall(what: bytes) -> None:
    """Each read succeeds well before its own limit."""
    with relay(0, 0, sends(what, 0.2)) as line:
        began = time.monotonic()
        kind, words, _, _ = failure(_local_target(line, connect_timeout_ms=1000), ONE)
        took_s = time.monotonic() - began
    assert (kind, "in time" in words) in (("lost", True), ("protocol", False)), words
    assert took_s < 30  # it was for ever; no measurement: the machine may be busy


@pytest.mark.parametrize("direct", [False, True])
def test_connect_timeout_is_overall_under_tls(direct: bool) -> None:
    tls = {
        "verify": "none",
        "root_cert": None,
        "cert": None,
        "key": None,
        "server_name": "x",
        "direct": direct,
    }

    def trickle(_: Relay, near: socket.socket) -> None:
        near.recv(8)
        near.sendall(b"" if direct else b"S")
        for byte in b"\x16\x03\x03\x40\x00\x02" + bytes(16_000):  # a handshake record that never ends
            time.sleep(0.1)
            near.sendall(bytes([byte]))

    assert _failure(trickle, tls=tls, connect_timeout_ms=1000)[0] == "lost"


def _resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("tag", [b"N", b"E"])
def test_a_message_declared_as_a_gigabyte_is_not_held(tag: bytes) -> None:
    """400 MB of it arrive during start-up, or after it as the answer to the first statement."""

    def flood(near: socket.socket) -> None:
        near.sendall(tag + GIGABYTE + b"Mlong")
        for _ in range(400):
            near.sendall(b"x" * MB)

    def early(_: Relay, near: socket.socket) -> None:
        near.recv(4096)
        flood(near)

    def late(_: Relay, near: socket.socket) -> None:
        near.recv(4096)
        near.sendall(LET_IN)
        near.recv(4096)
        flood(near)

    before = _resident_bytes()
    for attack in (early, late):
        with relay(0, 0, attack) as line:
            kind, _, _, _ = failure(_local_target(line, connect_timeout_ms=10_000), ONE)
            assert kind in ("server", "lost")
    assert _resident_bytes() - before < 100 * MB


def test_a_huge_message_in_a_call_is_not_held() -> None:
    def attack(_: Relay, near: socket.socket) -> None:
        near.recv(4096)
        near.sendall(LET_IN)
        near.recv(4096)
        near.sendall(message(b"1", b"") + message(b"t", b"\0\0") + message(b"n", b"") + message(b"Z", b"I"))
        near.recv(4096)
        near.sendall(b"N" + (300 * MB + 4).to_bytes(4, "big"))
        for _ in range(300):
            near.sendall(b"x" * MB)
        near.sendall(b"E" + (200 * MB + 4).to_bytes(4, "big") + b"SERROR\0C40001\0M".ljust(MB, b"x"))
        for _ in range(199):
            near.sendall(b"x" * MB)
        near.sendall(message(b"Z", b"I"))
        near.recv(4096)

    before = _resident_bytes()
    with relay(0, 0, attack) as line:
        running = connect_load(_local_target(line), ONE, max_calls=1)
        start(running)
        result = tables(running)
    assert result["errors"]["sqlstate"].to_list() == ["40001"]
    assert len(result["errors"]["message"][0]) < 20_000
    assert _resident_bytes() - before < 100 * MB


# -- SCRAM ------------------------------------------------------------------------------------------


def _scram(first: str, final: bytes = b"v=AAAA") -> Any:
    """Returns a script that plays SCRAM with the given messages; ``NONCE`` stands for the client's."""

    def attack(_: Relay, near: socket.socket) -> None:
        near.recv(4096)
        near.sendall(request(10, b"SCRAM-SHA-256\0\0"))
        nonce = near.recv(4096).split(b"r=")[1]
        near.sendall(request(11, first.replace("NONCE", nonce.decode()).encode()))
        near.recv(4096)
        near.sendall(request(12, final))
        near.recv(4096)

    return attack


SALT = base64.b64encode(b"salt" * 4).decode()


@pytest.mark.parametrize(
    "first",
    [
        f"r=NONCEx,s={SALT},i=2147483648",
        f"r=NONCEx,s={SALT},i=4294967295",
        f"r=NONCEx,s={SALT},i=99999999999999999999",
        f"r=NONCEx,s={SALT},i=0",
        f"r=NONCEx,s={SALT},i=-1",
        f"r=NONCEx,s={SALT},i=4096",  # and a signature that is wrong
        f"r=somebody,s={SALT},i=4096",
        "r=NONCEx,s=%%%,i=4096",
        "r=NONCEx",
        "",
        "\u00fc" * 1000,
    ],
)
def test_a_server_that_does_not_know_the_password_is_refused(first: str) -> None:
    """A huge number of iterations would compute for an hour and react to no signal."""
    kind, words = _failure(_scram(first), connect_timeout_ms=20_000)
    assert kind == "authentication" and "SCRAM" in words


def test_an_abort_ends_connecting_to_a_server_that_holds_it_up() -> None:
    with relay(0, 0, sends(NOTICE, 0.05)) as line:
        running = load(_local_target(line, connect_timeout_ms=60_000), ONE)
        running.connect()
        threading.Timer(0.3, running.abort).start()
        with pytest.raises(_core.DriverError) as caught:
            running.wait(30)
    assert caught.value.args[0] == "aborted"


# -- certificates -----------------------------------------------------------------------------------


def _ca(folder: Path, *words: str) -> None:
    openssl("ca", "-config", str(folder / "ca.conf"), *words)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, certificates that it signed, and its revocation lists."""
    folder = tmp_path_factory.mktemp("authority")
    _certificate(folder, "ca", "/CN=our authority")
    _certificate(folder, "server", "/CN=ignored", signer="ca", san="DNS:localhost")
    _certificate(folder, "other", "/CN=another authority")
    for name in ("index.txt", "index.txt.attr"):
        (folder / name).touch()
    (folder / "crlnumber").write_text("01\n")
    (folder / "ca.conf").write_text(
        f"[ca]\ndefault_ca=d\n[d]\ndatabase={folder}/index.txt\ncrlnumber={folder}/crlnumber\n"
        f"default_md=sha256\ndefault_crl_days=2\ncertificate={folder}/ca.crt\nprivate_key={folder}/ca.key\n"
    )
    _ca(folder, "-gencrl", "-out", str(folder / "empty.crl"))
    _ca(folder, "-gencrl", "-crlsec", "1", "-out", str(folder / "stale.crl"))
    _ca(folder, "-revoke", str(folder / "server.crt"))
    _ca(folder, "-gencrl", "-out", str(folder / "revoked.crl"))
    other = ["-cert", str(folder / "other.crt"), "-keyfile", str(folder / "other.key")]
    _ca(folder, "-gencrl", *other, "-out", str(folder / "other.crl"))
    return folder


@pytest.fixture(scope="module")
def signed(servers: Servers, authority: Path) -> Iterator[PlainServer]:
    files = {name: (authority / name).read_bytes() for name in ("server.crt", "server.key")}
    settings = {"ssl": "on", "ssl_cert_file": "HOME/server.crt", "ssl_key_file": "HOME/server.key"}
    with plain_server(servers.bin_dir(15), settings, ["host all boss 127.0.0.1/32 trust"], files) as server:
        yield server


@pytest.mark.db
def test_revoked_certificates_are_refused(signed: PlainServer, authority: Path) -> None:
    root = {"root_cert": str(authority / "ca.crt")}
    good = _tls(signed, "ca", "x", crls=[str(authority / "empty.crl")], **root)
    assert run(good, ONE, max_calls=1)["sessions"]["calls"].item() == 1
    time.sleep(1.1)  # the stale list's second
    for name, words in (
        ("revoked", "is revoked"),
        ("other", "does not cover"),
        ("stale", ""),
    ):
        bad = _tls(signed, "ca", "x", crls=[str(authority / f"{name}.crl")], **root)
        kind, text, *_ = failure(bad, ONE)
        assert kind == "tls" and words in text, (name, text)
    with pytest.raises(_core.DriverError):
        load(_tls(signed, "ca", "x", crls=[str(authority / "ca.crt")], **root), ONE)


@pytest.mark.db
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_each_version_of_tls_can_be_required(signed: PlainServer, version: str) -> None:
    target = _tls(signed, "none", "x", versions=[version], sni=False)
    call = [
        statement(f"select 1 / (version = '{version}')::int from pg_stat_ssl where pid = pg_backend_pid()")
    ]
    assert run(target, call, max_calls=2)["errors"].is_empty()


@pytest.mark.parametrize(
    ("dates", "kind", "words"),
    [
        (("20200101000000Z", "20210101000000Z"), "tls", "has expired"),
        (("20990101000000Z", "21000101000000Z"), "tls", "not valid yet"),
        (("20200101000000Z", "20990101000000Z"), "lost", "closed the connection"),
    ],
)
def test_the_dates_of_a_root_that_is_the_servers_own_certificate_are_checked(
    tmp_path: Path, dates: tuple[str, str], kind: str, words: str
) -> None:
    """webpki refuses such a root, so the driver checks its dates itself."""
    key, request, cert = (str(tmp_path / f"own.{end}") for end in ("key", "csr", "crt"))
    (tmp_path / "index.txt").touch()
    (tmp_path / "serial").write_text("01\n")
    (tmp_path / "ca.conf").write_text(
        f"[ca]\ndefault_ca=d\n[d]\ndatabase={tmp_path}/index.txt\nserial={tmp_path}/serial\n"
        f"new_certs_dir={tmp_path}\ndefault_md=sha256\npolicy=p\nx509_extensions=v\n"
        "[p]\ncommonName=supplied\n[v]\nsubjectKeyIdentifier=hash\n"
    )
    openssl(
        "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-subj", "/CN=own", "-out", request
    )
    own = ("-batch", "-selfsign", "-keyfile", key, "-in", request, "-out", cert, "-notext")
    _ca(tmp_path, *own, "-startdate", dates[0], "-enddate", dates[1])
    tls = {"verify": "full", "root_cert": cert, "cert": None, "key": None, "server_name": "own"}

    def polite(_: Relay, near: socket.socket) -> None:
        welcome(near, Path(cert)).close()

    failure = _failure(polite, tls=tls, connect_timeout_ms=20_000)
    assert failure[0] == kind and words in failure[1]


# -- what stays possible ----------------------------------------------------------------------------


@pytest.mark.db
def test_fields_of_60_mb_are_walked_over(signed: PlainServer) -> None:
    """Such fields come in set-up, in warming, and in calls."""
    big = "select repeat('x', 60000000)"
    before = _resident_bytes()
    group = {"setup": [big], "warm": [big], "warm_calls": 1}
    result = run(signed.target(), [statement(big)], 2, group=group, max_calls=2)
    assert result["sessions"]["calls"].to_list() == [2, 2] and result["errors"].is_empty()
    assert _resident_bytes() - before < 50 * MB


@pytest.mark.db
def test_the_sockets_of_tcp_are_as_libpqs_options_say(signed: PlainServer) -> None:
    tcp = {"user_timeout_ms": 4321, "keepalives": True, "idle_s": 77, "interval_s": 7, "count": 3}
    running = connect_load(signed.target(host="127.0.0.1", tcp=tcp), ONE)
    port = signed.port.to_bytes(2, "big")
    names = [int(p.name) for p in Path("/proc/self/fd").iterdir()]
    values = []
    for number in names:
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=socket.dup(number)) as copy:
                if copy.family == socket.AF_INET and copy.getpeername()[1].to_bytes(2, "big") == port:
                    options = (
                        socket.TCP_USER_TIMEOUT,
                        socket.TCP_KEEPIDLE,
                        socket.TCP_KEEPINTVL,
                        socket.TCP_KEEPCNT,
                    )
                    values.append([copy.getsockopt(socket.IPPROTO_TCP, o) for o in options])
        except OSError:
            continue
    running.abort()
    assert [4321, 77, 7, 3] in values
