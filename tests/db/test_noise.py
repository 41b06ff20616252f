"""Restarts between measurements of noise: only of a server that dbdyno started, and only without others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from dbdyno.engines.postgres import PostgresServer, open_server
from dbdyno.model.engine.protocols import Target
from dbdyno.model.errors import NotAvailable
from tests.fakery import Notes

pytestmark = pytest.mark.db


@pytest.fixture
def server(home: Path) -> Iterator[PostgresServer]:  # noqa: ARG001
    with closing(open_server(Target(settings={"shared_buffers": "64MB"}, sessions=8))) as server:
        yield server


def _started(server: PostgresServer) -> tuple[str, str]:
    with psycopg.connect(server._dsn) as fresh:
        row = fresh.execute("select pg_postmaster_start_time()::text, current_setting('work_mem')").fetchone()
    assert row is not None
    return str(row[0]), str(row[1])


def test_the_embedded_server_starts_again_with_all_its_settings(server: PostgresServer) -> None:
    server.configure({"work_mem": "9MB"}, Notes())
    first, pid = _started(server), server.facts().main_pid
    server.restart()
    second = _started(server)
    assert second[0] > first[0]
    assert (first[1], second[1]) == ("9MB", "9MB")
    assert server.facts().main_pid != pid
    assert server.facts().settings["shared_buffers"] == "64MB"


def test_it_is_not_restarted_under_somebody_elses_session(server: PostgresServer) -> None:
    pid = server.facts().main_pid
    with (
        psycopg.connect(server._dsn, application_name="a user"),
        pytest.raises(NotAvailable, match="a user"),
    ):
        server.restart()
    assert server.facts().main_pid == pid


def test_another_server_is_not_restarted(dsn18: str, own_state: None) -> None:  # noqa: ARG001
    with closing(open_server(Target(dsn=dsn18))) as server:
        before = _started(server)
        with pytest.raises(NotAvailable, match="only servers that it started itself"):
            server.restart()
        assert _started(server) == before
