"""Programs that hang are ended with the processes that they began: at their version, initdb, and a start."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from dbdyno.engines.postgres.embedded import (
    Instance,
    StartOptions,
    cluster,
    instance,
    instance_of,
    instance_of_programs,
    programs,
)
from dbdyno.engines.postgres.embedded.programs import Programs
from dbdyno.engines.postgres.embedded.worker import Worker
from dbdyno.model.errors import DbdynoError, TargetError

pytestmark = pytest.mark.db
PATIENCE_S = 30
HANGS = """#!/bin/sh
sleep {seconds} > /dev/null 2>&1 &
if [ "$1" = --version ] && [ {answers} = 1 ]; then kill $!; echo 'postgres (PostgreSQL) 18.4'; exit; fi
wait
"""


@pytest.fixture
def place(home: Path) -> Path:
    """Returns a directory for programs that the server's user can execute."""
    place = home.parent / f"{home.name}-programs"
    place.mkdir(mode=0o755)
    return place


def hanging(place: Path, *, answers: bool) -> str:
    """Writes programs that begin a child and wait for it. Returns the child's argument, which is its own."""
    seconds = f"{10**6 + time.monotonic_ns() % 10**9}"
    for name in ("postgres", "initdb"):
        (place / name).write_text(HANGS.format(seconds=seconds, answers=int(answers)))
        (place / name).chmod(0o755)
    return seconds


def sleeping(seconds: str) -> bool:
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return f"sleep {seconds}" in lines.splitlines()


def await_end(seconds: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while sleeping(seconds):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_that_does_not_answer(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_VERSION_PATIENCE_S", 1)
    seconds = hanging(place, answers=False)
    with pytest.raises(DbdynoError, match="does not answer within 1 s"):
        programs.find_programs(place)
    await_end(seconds)


def test_an_initdb_that_does_not_end(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_PATIENCE_S", 2.0)
    seconds = hanging(place, answers=True)
    server, hanging_programs = instance_of_programs(programs.find_programs(place))
    with pytest.raises(TargetError, match="initdb does not end within 2 s"):
        server.open(hanging_programs, StartOptions())
    server.close()
    await_end(seconds)
    assert not server.data.exists()


@pytest.fixture
def hanging_server(place: Path) -> tuple[Instance, Programs, str]:
    """Returns a data directory, and programs that hang when they are started on it."""
    seconds = hanging(place, answers=True)
    server, hanging_programs = instance_of_programs(programs.find_programs(place))
    with server.deciding():
        cluster.make_data(
            server.data, instance_of(None)[1], Worker(server.account), server.places.cache, list
        )
    return server, hanging_programs, seconds


def test_a_server_that_does_not_get_ready(
    hanging_server: tuple[Instance, Programs, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "_START_PATIENCE_S", 1.0)
    server, hanging_programs, seconds = hanging_server
    with pytest.raises(TargetError, match="not ready after 1 s"):
        server.open(hanging_programs, StartOptions())
    server.close()
    assert not sleeping(seconds)


def test_a_server_that_hangs_and_is_stopped_by_another_process(
    hanging_server: tuple[Instance, Programs, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, hanging_programs, seconds = hanging_server
    monkeypatch.setattr(server, "_await_ready", lambda _child: None)
    server.open(hanging_programs, StartOptions(stay=True))
    assert server.process() is not None
    assert Instance(server.places, server.account, server.directory).stop() is not None
    assert not sleeping(seconds)
