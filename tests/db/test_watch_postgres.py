"""Activity samples of real PostgreSQL servers, whose sessions do what we tell them."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import polars as pl
import psycopg
import pytest

from dbdyno import _core
from dbdyno.engines import open_server
from dbdyno.model.engine.protocols import Target
from dbdyno.model.schema.tables import empty
from dbdyno.observe import How, frames, open_watch, sources
from tests.db.conftest import eventually

BUSY = (
    "select count(*), count(*) filter (where wait_event in ('advisory', 'PgSleep')) from pg_stat_activity "
    "where pid = any(%s) and state = 'active'"
)
SPIN = "select count(*) from generate_series(1, 1000000000)"


class Sessions:
    """Sessions of psycopg in the place of a load, which open_watch asks for pids and threads only."""

    def __init__(self, connections: Sequence[psycopg.Connection[Any]]) -> None:
        self._connections = connections

    def backends(self) -> Sequence[tuple[int, int, int]]:
        return [(n, c.info.backend_pid, c.info.backend_pid) for n, c in enumerate(self._connections)]

    def threads(self) -> Sequence[int]:
        return [threading.get_native_id()]


@contextmanager
def doing(connection: psycopg.Connection[Any], statement: str) -> Iterator[None]:
    """Executes ``statement`` in another thread, and breaks it off at the end."""

    def run() -> None:
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(statement.encode())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        connection.cancel_safe()
        thread.join()


def watch(dsn: str, connections: Sequence[psycopg.Connection[Any]]) -> tuple[dict[str, pl.DataFrame], Any]:
    """Returns tables of a watch of one second, and the last figures of the live display."""
    with open_server("postgres", Target(dsn=dsn)) as server:
        watching = open_watch(server, Sessions(connections), How(sample_hz=20.0))  # type: ignore[arg-type]
        t0_ns = _core.now_ns() + 50_000_000
        watching.start(t0_ns, t0_ns + 1_000_000_000)
        time.sleep(1.1)
        watching.stop()
        latest = watching.latest()
        tables = frames(watching) | {"sessions": empty("sessions")}
        return tables | {"sources": sources(server, tables)}, latest


@pytest.mark.db
def test_every_session_is_seen_doing_what_it_does(any_dsn: str) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(psycopg.connect(any_dsn, autocommit=True)) for _ in range(4)]
        holder, waiter, sleeper, spinner = connections
        holder.execute("select pg_advisory_lock(7)")
        stack.enter_context(doing(waiter, "select pg_advisory_lock(7)"))
        stack.enter_context(doing(sleeper, "select pg_sleep(1000)"))
        stack.enter_context(doing(spinner, SPIN))
        pids = [c.info.backend_pid for c in connections[1:]]
        with psycopg.connect(any_dsn, autocommit=True) as asking:
            eventually(lambda: asking.execute(BUSY, [pids]).fetchone() == (3, 2), 60)
        tables, latest = watch(any_dsn, connections)
    samples = tables["samples"].filter(pl.col("role") == "session")
    assert set(samples["status"]) == {"ok"}
    expected = {
        0: ("idle", "Client", "ClientRead"),
        1: ("active", "Lock", "advisory"),
        2: ("active", "Timeout", "PgSleep"),
        3: ("active", None, None),
    }
    for session, (state, wait_class, wait_event) in expected.items():
        rows = samples.filter(pl.col("session") == session)
        seen = set(rows.select("state", "wait_class", "wait_event").iter_rows())
        assert (state, wait_class, wait_event) in seen
        most = rows["task_state"].mode().to_list()
        assert most == (["R"] if session == 3 else ["S"])
    assert set(latest) >= {"run or queue", "Client:ClientRead", "Lock:advisory", "Timeout:PgSleep"}
    assert sum(latest.values()) == pytest.approx(1)

    tasks = tables["tasks"].filter(pl.col("status") == "ok")
    roles = set(tasks["role"])
    assert {"session", "helper:main", "helper:checkpointer", "driver", "dbdyno"} <= roles
    spun = tasks.filter(pl.col("session") == 3)["run_ns"]
    slept = tasks.filter(pl.col("session") == 2)["run_ns"]
    assert spun[-1] > spun[0]
    assert slept[-1] == slept[0]
    statuses = dict(tables["sources"].select("name", "status").iter_rows())
    assert statuses["os tasks"] == statuses["activity samples"] == statuses["host"] == "ok"
    for via in ("sql", "memory"):
        samplings = tables["sampler"].filter((pl.col("via") == via) & (pl.col("status") == "ok"))
        assert samplings.height == samples.filter(pl.col("via") == via)["sample"].n_unique()


@pytest.mark.db
def test_the_observers_own_backend_is_not_in_its_samples_but_its_cpu_time_is_ours(dsn18: str) -> None:
    with psycopg.connect(dsn18, autocommit=True) as connection:
        tables, _ = watch(dsn18, [connection])
    backends = tables["tasks"].filter((pl.col("role") == "dbdyno") & pl.col("comm").str.contains("postgres"))
    assert backends["pid"].n_unique() == 2  # the samples' and the control connection's
    assert backends["pid"][0] not in set(tables["samples"]["pid"])
    grown = backends.group_by("pid").agg(ns=pl.col("run_ns").max() - pl.col("run_ns").min())
    assert grown["ns"].max() > 0
