"""The address for scrapers: who may read, and what clients that misbehave cost."""

from __future__ import annotations

import gzip
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.waiting import eventually

from dbdyno.conduct.metrics import serving
from dbdyno.conduct.metrics.exporter import Destination, Exporter, token_in
from dbdyno.conduct.metrics.sums import Sums
from dbdyno.model.errors import UsageError
from dbdyno.present.metrics.window import Sample, Window

TOKEN = "a-token-of-sixteen-characters-at-least"
GARBAGE = (
    b"\x00\xff\xfe\r\n\r\n",
    b"GET /metrics\r\n\r\n",
    b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    b"GET /metrics HTTP/99.9\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nContent-Length: 10\r\n\r\n0123456789",
    b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=x\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


@pytest.fixture
def exporter(token_file: Path) -> Iterator[Exporter]:
    with Exporter(Destination("127.0.0.1:0", token_file)) as opened:
        opened.add("db1:5432", [Window("1", (Sample("dbdyno_calls", (), 7),))], print)
        yield opened


def place(exporter: Exporter) -> tuple[str, int]:
    assert exporter.server is not None
    host, port = exporter.server.server_address[:2]
    return str(host), int(port)


def get(exporter: Exporter, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection(*place(exporter), timeout=60)
    connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    response = connection.getresponse()
    return response.status, response.read()


def is_served(exporter: Exporter) -> bool:
    try:
        status, body = get(exporter, Authorization=f"Bearer {TOKEN}")
    except OSError:  # it made room for others
        return False
    return status == 200 and b'dbdyno_calls_total{server="db1:5432"} 7.0' in body


def test_who_has_the_token_reads(exporter: Exporter) -> None:
    assert is_served(exporter)
    assert get(exporter, Authorization=f"bearer  {TOKEN} ")[0] == 200
    status, body = get(exporter, Authorization=f"Bearer {TOKEN}", Accept_Encoding="gzip")
    assert status == 200 and b"dbdyno_calls_total" in gzip.decompress(body)
    assert get(exporter, method="HEAD", Authorization=f"Bearer {TOKEN}") == (200, b"")


@pytest.mark.parametrize(
    "given", ["", "Bearer", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer \xff"]
)
@pytest.mark.parametrize("path", ["/metrics", "/", "/x"])
def test_others_read_nothing(exporter: Exporter, given: str, path: str) -> None:
    status, body = get(exporter, path, Authorization=given)
    assert status == 401
    assert b"dbdyno" not in body and TOKEN.encode() not in body


def test_an_open_address_asks_for_none() -> None:
    with Exporter(Destination("0", open=True)) as opened:
        status, body = get(opened)
        assert status == 200 and b"dbdyno_build_info" in body
        assert get(opened, "/other")[0] == 404
        assert opened.is_local and opened.token_file is None
        assert opened.url == f"http://127.0.0.1:{place(opened)[1]}/metrics"


def test_figures_are_rendered_once_a_window(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = []
    families = Sums.families

    def counted(self: Sums, *, created: bool) -> object:
        rendered.append(created)
        return families(self, created=created)

    monkeypatch.setattr(Sums, "families", counted)
    headers = ({}, {"Accept": "application/openmetrics-text"}, {"Accept": "text/html, */*; version=9"})
    for _ in range(4):
        for more in headers:
            assert get(exporter, Authorization=f"Bearer {TOKEN}", **more)[0] == 200
    assert sorted(rendered) == [False, True]  # one of each format
    exporter.add("db1:5432", [Window("2", ())], print)
    assert is_served(exporter)
    assert sorted(rendered) == [False, False, True]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PURGE"])
def test_another_method_is_not_allowed(exporter: Exporter, method: str) -> None:
    connection = HTTPConnection(*place(exporter), timeout=60)
    connection.request(method, "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    response = connection.getresponse()
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert response.headers["Content-Type"] == "text/plain"
    assert response.read() == b"405: Method Not Allowed\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"GET a b c HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_a_refusal_is_plain_text(exporter: Exporter, sent: bytes, status: int) -> None:
    with socket.create_connection(place(exporter), timeout=60) as client:
        client.sendall(sent)
        answer = client.makefile("rb").read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.0 {status} ".encode()) and b"Content-Type: text/plain" in head
    assert body.startswith(f"{status}: ".encode()) and b"<" not in body


@pytest.mark.parametrize("sent", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_refused_and_costs_nothing(
    exporter: Exporter, sent: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(place(exporter), timeout=60) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while more := client.recv(65536):
                answer += more
        except ConnectionResetError:
            pass  # what it did not read
    assert b"dbdyno_calls_total" not in answer
    assert is_served(exporter)
    assert capfd.readouterr() == ("", "")


def test_a_client_that_hangs_up_half_way_is_not_noticed(
    exporter: Exporter, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(5):
        client = socket.create_connection(place(exporter), timeout=60)
        client.sendall(f"GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        client.close()  # with a reset
    assert is_served(exporter)
    assert capfd.readouterr() == ("", "")


def test_many_clients_that_say_nothing_hold_few_threads(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_PAUSE_S", 0.0)
    before, most = threading.active_count(), 0
    with ExitStack() as opened:
        for number in range(120):
            client = opened.enter_context(socket.create_connection(place(exporter), timeout=60))
            if number % 2:
                client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            most = max(most, threading.active_count())
        assert eventually(lambda: is_served(exporter)), "while they are all open"
        most = max(most, threading.active_count())
    assert most - before <= serving._THREADS + 1
    assert eventually(lambda: threading.active_count() <= before)


def test_a_client_that_sends_byte_by_byte_has_a_deadline(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_DEADLINE_S", 0.0)
    with socket.create_connection(place(exporter), timeout=60) as client:
        client.sendall(b"GET /met")

        def is_over() -> bool:
            try:
                client.sendall(b"r")
                client.setblocking(False)
                return client.recv(1) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True
            finally:
                client.setblocking(True)

        assert eventually(is_over)


def test_an_address_in_use_is_an_error_with_a_cure(exporter: Exporter) -> None:
    with pytest.raises(UsageError, match="the port is in use") as e:
        Exporter(Destination(f"127.0.0.1:{place(exporter)[1]}", open=True))
    assert "127.0.0.1:0" in str(e.value.cure)


@pytest.mark.parametrize(
    "address",
    ["", ":9187", "localhost", "localhost:", "a:b:1", "127.0.0.1:65536", "http://localhost:1", "::1:80"],
)
def test_what_is_no_address_is_an_error(address: str) -> None:
    with pytest.raises(UsageError, match="no address") as e:
        Exporter(Destination(address, open=True))
    assert "127.0.0.1:9187" in str(e.value.cure)


@pytest.mark.parametrize("address", ["192.0.2.1:9187", "no-such-host.invalid:9187"])
def test_an_address_of_another_host_is_an_error(address: str) -> None:
    with pytest.raises(UsageError, match=f"--metrics {address}: "):
        Exporter(Destination(address, open=True))


def test_an_address_for_other_hosts_is_known_as_such() -> None:
    with Exporter(Destination("0.0.0.0:0", open=True)) as opened:
        assert not opened.is_local


def test_a_token_is_made_once_for_this_user_alone(tmp_path: Path) -> None:
    path, before = tmp_path / "new" / "metrics-token", os.umask(0)
    try:
        token = token_in(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(token) >= 40 and token_in(path) == token
    assert token_in(tmp_path / "other") != token


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o660, 0o666])
def test_a_token_that_others_know_is_none(token_file: Path, mode: int) -> None:
    token_file.chmod(mode)
    with pytest.raises(UsageError, match="others may read or change it") as e:
        token_in(token_file)
    assert e.value.cure == f"chmod 600 {token_file}"


def test_a_group_may_read_the_token(token_file: Path) -> None:
    token_file.chmod(0o640)  # that of Prometheus
    assert token_in(token_file) == TOKEN


@pytest.mark.parametrize(
    "text", ["", "short", "two lines of\nsixteen characters", "é" * 20, "x" * 2_000, "a" * 20 + " b"]
)
def test_what_is_no_token_is_an_error(token_file: Path, text: str) -> None:
    token_file.write_text(text)
    with pytest.raises(UsageError, match="not a token"):
        token_in(token_file)


def test_a_place_without_a_token_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "token"):
        with pytest.raises(UsageError, match=f"token file {path}"):
            token_in(path)


@pytest.mark.parametrize(
    ("name", "says"),
    [("x.txt", "reads \\*.prom only"), ("none/x.prom", "no directory"), ("d.prom", "no permission")],
)
def test_a_file_that_cannot_be_is_an_error(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "d.prom").mkdir()
    with pytest.raises(UsageError, match=says):
        Exporter(Destination(file=tmp_path / name))
