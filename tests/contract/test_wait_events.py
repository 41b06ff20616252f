"""Names of wait events by code, against the servers' own function, view and backends."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import psycopg
import pytest
from tests.contract.watching import watch_sessions
from tests.waiting import eventually

from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.wait_events import words

pytestmark = pytest.mark.db

NO_NAME = ("", "unknown wait event", "extension", "???")
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def printer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that makes a server program print its names."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: apt-get install gcc libc6-dev")
    library = str(tmp_path_factory.mktemp("names") / "wait_names.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, HERE / "wait_names.c", "-ldl"], check=True)
    return library


@pytest.mark.parametrize("major", range(14, 19))
def test_names_are_those_of_the_servers_own_function(servers: Any, printer: str, major: int) -> None:
    program = servers.bin_dir(major) / "postgres"
    lines = subprocess.run(
        [program], env=os.environ | {"LD_PRELOAD": printer}, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    theirs = {}
    for word, wait_class, event in (line.split("\t") for line in lines):
        whole_class = wait_class == "BufferPin" and int(word) & 0xFFFF  # until 16 any id has that one name
        if event not in NO_NAME and not event.startswith("<") and not whole_class:
            theirs[int(word)] = (wait_class, event)
    ours = {w: names for w, names in _words(major).items() if names[0] != "Extension"}
    assert len(theirs) > 200
    assert theirs.items() <= ours.items()
    assert _last_of_their_class(ours.keys() - theirs.keys(), theirs)  # of later minor versions


@pytest.mark.parametrize("major", [17, 18])
def test_names_are_those_of_the_view(servers: Any, major: int) -> None:
    with psycopg.connect(servers.dsn(major)) as connection:
        theirs = set(connection.execute("select type, name from pg_wait_events").fetchall())
    by_name = {names: word for word, names in _words(major).items()}
    assert theirs <= by_name.keys()
    later = {by_name[names] for names in by_name.keys() - theirs}
    assert _last_of_their_class(later, {by_name[names] for names in theirs})


def _words(major: int) -> dict[int, tuple[str, str]]:
    known = words(major)
    assert known is not None
    return known.events


def _last_of_their_class(some: set[int], others: Any) -> bool:
    """Returns whether additions of minor versions come last, so that no code changes its meaning."""
    return all(word > other for word in some for other in others if word >> 24 == other >> 24)


def test_a_version_that_is_not_known_has_no_words() -> None:
    assert words(13) is None
    assert words(99) is None


def test_held_waits_have_the_servers_names_by_sql_and_from_memory(any_dsn: str) -> None:
    with closing(PostgresServer(any_dsn)) as server, _held(any_dsn) as held:
        samples, sources = watch_sessions(server)
    if sources["wait event word"][0] == "not permitted":
        pytest.skip(sources["wait event word"][1])
    assert sources["wait event word"][0] == "ok", sources
    seen = {via: _by_pid(samples.filter(pl.col("via") == via)) for via in ("sql", "memory")}
    for pid, names in held.items():
        assert seen["sql"][pid] == {names}
        assert seen["memory"][pid] == {names}
    helpers = [pid for pid, names in seen["sql"].items() if any(n[0] == "Activity" for n in names)]
    assert len(helpers) >= 4
    for pid in helpers:
        assert seen["memory"][pid] & seen["sql"][pid]


def _by_pid(samples: pl.DataFrame) -> dict[int, set[tuple[str, str]]]:
    waits: dict[int, set[tuple[str, str]]] = {}
    for pid, wait_class, event in samples.select("pid", "wait_class", "wait_event").iter_rows():
        waits.setdefault(pid, set()).add((wait_class, event))
    return waits


@contextmanager
def _held(dsn: str) -> Iterator[dict[int, tuple[str, str]]]:
    """Yields sessions that each stay in one wait, by pid, until the end."""
    with ExitStack() as stack:
        admin = _connection(stack, dsn)
        admin.execute("drop table if exists held")
        admin.execute("create table held as select 1 as a")
        stack.callback(lambda: admin.execute("drop table held"))
        idle, holder = _connection(stack, dsn), _connection(stack, dsn)
        idle.execute("select 1")
        holder.execute("select pg_advisory_lock(1)")
        holder.execute("begin")
        holder.execute("update held set a = a")
        version = admin.info.server_version
        parallel = "debug_parallel_query" if version >= 160000 else "force_parallel_mode"
        waiting = {
            ("Timeout", "PgSleep"): ["select pg_sleep(600)"],
            ("Lock", "advisory"): ["select pg_advisory_lock(1)"],
            ("Lock", "transactionid"): ["update held set a = a"],
            ("Lock", "tuple"): ["update held set a = a"],  # queues behind the one before
            ("Lock", "relation"): ["lock table held in access exclusive mode"],
            ("IPC", "ExecuteGather"): [f"set {parallel} = on", "select pg_sleep(600)"],
        }
        held = {idle.info.backend_pid: ("Client", "ClientRead")}
        for names, statements in waiting.items():
            pid = _start(stack, dsn, statements)
            held[pid] = names
            eventually(lambda pid=pid, names=names: _waits(admin).get(pid) == names)
        stack.callback(_end, admin, list(held))
        eventually(lambda: held.items() <= _waits(admin).items())
        yield held


def _connection(stack: ExitStack, dsn: str) -> psycopg.Connection[Any]:
    return stack.enter_context(psycopg.connect(dsn, autocommit=True))


def _start(stack: ExitStack, dsn: str, statements: list[str]) -> int:
    """Starts a session that stays in the last of its statements."""
    connection = _connection(stack, dsn)
    connection.execute("begin")

    def run() -> None:
        try:
            for statement in statements:
                connection.execute(statement.encode())
        except psycopg.errors.AdminShutdown:
            pass

    thread = Thread(target=run, daemon=True)
    thread.start()
    stack.callback(thread.join, 10)
    return connection.info.backend_pid


def _end(admin: psycopg.Connection[Any], pids: list[int]) -> None:
    admin.execute("select pg_terminate_backend(p) from unnest(%s::int[]) as p", [pids])


def _waits(admin: psycopg.Connection[Any]) -> dict[int, tuple[str, str]]:
    rows = admin.execute("select pid, wait_event_type, wait_event from pg_stat_activity").fetchall()
    return {pid: (wait_class, event) for pid, wait_class, event in rows}
