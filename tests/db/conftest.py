"""The program itself on an embedded server, as a user would type it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dbdyno.engines.postgres import embedded
from dbdyno.engines.postgres.embedded import postmaster
from tests import in_process
from tests.clusters import server_dir
from tests.conftest import Servers
from tests.db.forging import Stages
from tests.db.limiting import main_of
from tests.waiting import eventually as eventually

PROGRAM = str(Path(sys.executable).parent / "dbdyno")
SHORT = ("--measure", "1s", "--settle", "100ms")
QUICK = (*SHORT, "--no-memory", "--no-snapshots")
"""Where the test is about something else: they take 0.75 s of each measurement."""
LIGHT = ("--think", "3ms")
"""Where the test is not about CPU time: leaves the CPUs to the tests beside it."""
LIGHT_CALLS = ("--call-target", "1ms", "--think", "20ms")
"""The same for a calibrated workload: its calls would take up to 50 ms in a window of 1 s."""


@dataclass
class Bench:
    """One home directory, hence one embedded server and one store."""

    home: Path
    server_dir: Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        runtime = self.server_dir.with_name(f"{self.server_dir.name}-r")
        runtime.mkdir(mode=0o700, exist_ok=True)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "XDG_"))} | {
            "XDG_DATA_HOME": str(self.home / "data"),
            "XDG_RUNTIME_DIR": str(runtime),
            "DBDYNO_SERVER_DIR": str(self.server_dir),
            "HOME": str(self.home),
            "COLUMNS": "100",
        }

    def dbdyno(
        self, *words: str, timeout_s: float = 300, under: Sequence[str] = (), **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*under, PROGRAM, *words],
            env=self.env | env,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def here(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Runs the program in this process, since a process of its own costs a second of CPU to load."""
        return in_process.dbdyno(words, self.env | env, self.home)

    @contextlib.contextmanager
    def background(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [PROGRAM, *words],
            env=self.env,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
            if process.poll() is None:
                process.kill()
            process.communicate()

    def runs(self) -> list[dict[str, Any]]:
        return list(json.loads(self.here("runs", "--json").stdout))

    def last(self) -> dict[str, Any]:
        done = self.here("show", "last", "--json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.here("server", "status", "--json").stdout))

    @functools.cached_property
    def dsn(self) -> str:
        """Returns the DSN of the server that was started to stay."""
        return str(self.status()["dsn"])

    def with_words(self, **words: str) -> str:
        """Returns the server's DSN with some words changed."""
        return make_conninfo(self.dsn, **words)

    def ask(self, sql: str, dsn: str | None = None) -> list[tuple[Any, ...]]:
        with psycopg.connect(dsn or self.dsn, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="module", autouse=True)
def only_asked_pages(pages_unwritten: None) -> None: ...


@pytest.fixture(scope="session")
def staying(tmp_path_factory: pytest.TempPathFactory, server_home: Path) -> Iterator[Path]:
    """Yields the place of an embedded server that stays, with room for few sessions."""
    bench = Bench(tmp_path_factory.mktemp("staying"), server_dir(server_home / "staying"))
    started = bench.dbdyno("server", "start", "--max-connections", "30")
    assert started.returncode == 0, started.stderr
    yield bench.server_dir
    bench.here("server", "stop")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, staying: Path) -> Bench:
    """Returns a bench beside that server, with a store of its own."""
    return Bench(tmp_path_factory.mktemp("bench"), staying)


@pytest.fixture
def fresh_bench(tmp_path: Path, server_home: Path) -> Iterator[Bench]:
    """Yields a bench without a server."""
    bench = Bench(tmp_path, server_dir(server_home / tmp_path.name))
    yield bench
    bench.here("server", "stop")


class Waiting:
    """Sessions that each do something known until the end."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._open: list[psycopg.Connection[Any]] = []
        self.control = self.session()

    def session(self, application: str = "known") -> psycopg.Connection[Any]:
        connection = psycopg.connect(self.dsn, autocommit=True, application_name=application)
        self._open.append(connection)
        return connection

    def doing(self, sql: str, cpu: int | None = None, application: str = "known") -> int:
        """Starts ``sql`` in a session, on ``cpu`` if it is given, and returns the session's pid."""
        connection = self.session(application)
        pid = connection.info.backend_pid
        if cpu is not None:
            os.sched_setaffinity(pid, {cpu})
        connection.pgconn.send_query(sql.encode())
        return pid

    def label(self, pid: int) -> tuple[str | None, str | None]:
        """Returns class and event of a session's wait."""
        asked = "select wait_event_type, wait_event from pg_stat_activity where pid = %s"
        return self.control.execute(asked, [pid]).fetchone() or (None, None)

    def close(self) -> None:
        pids = [c.info.backend_pid for c in self._open[1:] if not c.closed]
        self.control.execute("select pg_terminate_backend(p) from unnest(%s::int[]) p", [pids])
        for connection in self._open:
            connection.close()


@contextlib.contextmanager
def own_schema(dsn: str, name: str) -> Iterator[str]:
    """Yields the DSN with a search_path of this new schema alone, which is dropped at the end."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"drop schema if exists {name} cascade".encode())
        connection.execute(f"create schema {name}".encode())
        yield make_conninfo(dsn, options=f"-csearch_path={name}")
        connection.execute(f"drop schema {name} cascade".encode())


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends the journals of changes to undo to a place of this test's own."""
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def main_pid(dsn18: str) -> int:
    return main_of(dsn18)


@pytest.fixture
def home(server_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yields a place for servers of this test alone."""
    place = server_dir(server_home / tmp_path.name)
    monkeypatch.setenv("DBDYNO_SERVER_DIR", str(place))
    yield place
    for instance in embedded._instances():
        process = instance.process()
        if process is not None:
            postmaster.end(process)


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Iterator[Stages]:  # noqa: ARG001
    """Yields databases of a plain role, on any server."""
    stages = Stages(tmp_path_factory.mktemp("stages"))
    yield stages
    stages.close()
