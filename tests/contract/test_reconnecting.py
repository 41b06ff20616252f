"""A server that goes away and comes back, one that is another, and ports where no PostgreSQL answers."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import psycopg
import pytest
from tests.contract.plain_server import plain_server

from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.errors import Address, service_name, stranger
from dbdyno.model.errors import ServerBusy, ServerLost, TargetError, Unreachable
from dbdyno.model.plan.plan import Observation

pytestmark = pytest.mark.db

MYSQL = b"\x4a\x00\x00\x00\x0a8.0.36\x00" + b"x" * 60
MARIADB = b"\x5a\x00\x00\x00\x0a5.5.5-10.11.6-MariaDB-0+deb12u1\x00" + b"x" * 60
MYSQL_REFUSING = b"\x45\x00\x00\x00\xff\x6a\x04Host '10.0.0.5' is not allowed to connect to this MySQL server"


@pytest.mark.parametrize("major", range(14, 19))
def test_a_restarted_server_is_the_same(servers: Any, major: int) -> None:
    with plain_server(servers.bin_dir(major)) as plain, closing(PostgresServer(plain.dsn)) as server:
        server.claim("run-1")
        started = _start_s(server)
        plain.stop("fast")
        with pytest.raises(ServerLost):
            server.counters("t0")
        with pytest.raises(Unreachable):
            server.reconnect()
        with pytest.raises(ServerLost):  # and again, while it is away
            server.backends()
        plain.start()
        server.reconnect()
        assert _start_s(server) > started
        pid = server.observation_spec(Observation(), {})["tasks"][0]["pid"]
        assert pid in server.backends()["pid"].to_list()
        with closing(PostgresServer(plain.dsn)) as other, pytest.raises(ServerBusy, match="run-1"):
            other.claim("run-2")


def test_another_cluster_is_another_server(servers: Any) -> None:
    with plain_server(servers.bin_dir(18)) as plain, closing(PostgresServer(plain.dsn)) as server:
        plain.stop("fast")
        shutil.rmtree(plain.data)
        plain.make({}, [], copied=False)
        plain.start()
        with pytest.raises(TargetError, match="another server came back: system identifier"):
            server.reconnect()


def test_another_version_is_another_server(servers: Any) -> None:
    with plain_server(servers.bin_dir(18)) as plain, closing(PostgresServer(plain.dsn)) as server:
        plain.stop("fast")
        shutil.rmtree(plain.data)
        plain.bin_dir = servers.bin_dir(15)
        plain.make({}, [])
        plain.start()
        with pytest.raises(TargetError, match="PostgreSQL 15, where it was 18"):
            server.reconnect()


def _start_s(server: PostgresServer) -> float:
    values = {row["name"]: row["value"] for row in server.counters("t0").to_dicts()}
    return float(values["server_start_s"])


@contextmanager
def _speaker(greeting: bytes) -> Iterator[int]:
    """Yields a port that sends ``greeting`` to everybody, and nothing else."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                kept.append(connection)
                if greeting:
                    connection.sendall(greeting)

        Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
    for connection in kept:
        connection.close()


class _Web(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def _web() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Web) as web:
        Thread(target=web.serve_forever, daemon=True).start()
        yield int(web.server_address[1])
        web.shutdown()


@pytest.mark.parametrize(
    ("speaker", "message"),
    [
        (_speaker(MYSQL), "MySQL 8.0.36, not PostgreSQL"),
        (_speaker(MARIADB), "MariaDB 10.11.6, not PostgreSQL"),
        (_speaker(b"SSH-2.0-OpenSSH_9.2p1\r\n"), "an SSH server, not PostgreSQL"),
        (_speaker(b"220 mx ESMTP Postfix\r\n"), "a mail server"),
        (_speaker(b"hello\r\n"), r"something that sends 'hello\r\n', not PostgreSQL"),
        (_speaker(b""), "accepts connections and sends nothing"),
        (_web(), "a web server (HTTP), not PostgreSQL"),
    ],
    ids=["mysql", "mariadb", "ssh", "mail", "unknown", "silent", "web"],
)
def test_a_stranger_is_named(speaker: Any, message: str) -> None:
    with speaker as port, pytest.raises(Unreachable) as caught:
        PostgresServer(f"host=127.0.0.1 port={port} user=u password=secret1 connect_timeout=3")
    assert f"127.0.0.1:{port}" in caught.value.message
    assert message in caught.value.message
    assert "secret1" not in str(caught.value)


def test_a_postgres_is_no_stranger(dsn18: str) -> None:
    with psycopg.connect(dsn18) as connection:
        assert stranger(Address(connection.info.host, connection.info.port)) is None
    assert stranger(Address("127.0.0.1", 1)) is None  # nobody there


def test_a_refusing_mysql_is_known() -> None:
    assert service_name(MYSQL_REFUSING) == "MySQL or MariaDB, which refuses this host"
