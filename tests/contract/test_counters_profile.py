"""The load profile's counters grow by the work that was done, on every version."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Thread
from typing import Any

import psycopg
import pytest
from tests.autovacuum import without_autovacuum
from tests.contract import loads
from tests.contract.plain_server import PlainServer, plain_server
from tests.contract.pooled import cell_of, measure
from tests.extensions import skip_without
from tests.waiting import eventually

from dbdyno.account import window
from dbdyno.account.ledger import cross_check, ledger
from dbdyno.engines.postgres import PostgresServer
from dbdyno.model.engine.protocols import Pool

pytestmark = pytest.mark.db

Values = dict[str, float | None]
STATEMENTS = "pg_stat_statements"
BLOCK_BYTES = 8192
OTHERS = """select count(*) from pg_stat_activity
    where backend_type = 'client backend' and pid <> pg_backend_pid()"""
FILL = "insert into big select n, repeat('x', 400) from generate_series(1, 40000) as n"


class Bench:
    """A server of its own that nobody else uses."""

    def __init__(self, plain: PlainServer, server: PostgresServer) -> None:
        self.plain, self.server = plain, server

    def read(self) -> Values:
        frame = self.server.counters("t0")
        return {row["name"]: row["value"] for row in frame.to_dicts() if row["scope"] == "server"}

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.plain.dsn, autocommit=True)

    def grown(self, name: str, least: float, work: Callable[[], object]) -> float:
        """Returns what ``work`` adds, once it is at least ``least``, since sessions report late, on 14 in
        a message."""
        before = self.read()[name]
        work()
        deadline = time.monotonic() + 60
        while True:
            now = self.read()[name]
            assert now is not None
            assert before is not None
            if now - before >= least or time.monotonic() > deadline:
                return now - before
            time.sleep(0.1)

    def fill(self) -> None:
        with self.connect() as connection:
            connection.execute("truncate big")
            connection.execute(
                "insert into big select n, repeat('x', 400) from generate_series(1, 40000) as n"
            )
            connection.execute("vacuum (freeze, analyze) big")

    def explained(self, statement: str) -> dict[str, Any]:
        """Executes a query and returns the top node of its plan. Its effects are in the counters by then."""
        plan = self.plain.ask(f"explain (analyze, buffers, format json) {statement}")
        self.settled()
        return dict(plan[0][0][0]["Plan"])

    def settled(self) -> None:
        """Waits until nobody else's work is counted: two reads a second apart differ by the reads' own
        only."""
        with self.connect() as connection:
            connection.execute("checkpoint")
            eventually(lambda: connection.execute(OTHERS).fetchall() == [(1,)])  # counted once they have gone
        time.sleep(1.1)


@pytest.fixture(scope="module", params=range(14, 19), ids=lambda v: f"pg{v}")
def bench(servers: Any, request: pytest.FixtureRequest) -> Iterator[Bench]:
    settings = {"autovacuum": "off", "fsync": "off", "jit": "off", "max_parallel_workers_per_gather": "0"}
    with (
        plain_server(servers.bin_dir(request.param), settings) as plain,
        closing(PostgresServer(plain.dsn)) as server,
    ):
        bench = Bench(plain, server)
        plain.ask("create table big (n int, t text)")
        bench.fill()
        yield bench


def repeat(bench: Bench, statement: str, times: int) -> Callable[[], None]:
    def work() -> None:
        with bench.connect() as connection:
            for _ in range(times):
                connection.execute(statement.encode())

    return work


def test_transactions_are_counted(bench: Bench) -> None:
    bench.settled()
    grown = bench.grown("transactions_committed", 1000, repeat(bench, "select 1", 1000))
    assert 1000 <= grown < 1000 + 400  # and those of our own reads
    failing = "do $$ begin raise exception 'x'; end $$"

    def fail() -> None:
        with bench.connect() as connection:
            for _ in range(20):
                with pytest.raises(psycopg.errors.RaiseException):
                    connection.execute(failing.encode())

    assert bench.grown("transactions_rolled_back", 20, fail) == 20


def test_sessions_are_counted(bench: Bench) -> None:
    bench.settled()

    def log_on() -> None:
        for _ in range(7):
            with bench.connect() as connection:
                connection.execute("select 1")

    assert bench.grown("logons", 7, log_on) == 7


def test_logical_reads_are_those_of_explain(bench: Bench) -> None:
    scan = "select count(*) from big"
    top = bench.explained(scan)
    blocks = top["Shared Hit Blocks"] + top["Shared Read Blocks"]
    assert blocks > 2000
    nothing = bench.grown("logical_reads", 1, repeat(bench, "select 1", 1))
    grown = bench.grown("logical_reads", 10 * blocks, repeat(bench, scan, 10))
    assert 10 * blocks <= grown <= 10 * blocks + 5 * nothing + 5000


def test_temporary_bytes_are_those_of_explain(bench: Bench) -> None:
    spill = "select count(*) from (select n from generate_series(1, 500000) as n order by n desc) as s"
    written = bench.explained(spill)["Temp Written Blocks"] * BLOCK_BYTES
    assert written > 1_000_000
    grown = bench.grown("temporary_bytes", 0.5 * written, repeat(bench, spill, 1))
    assert 0.5 * written < grown <= written  # blocks of a file are used again


def test_wal_bytes_are_those_of_the_log(bench: Bench) -> None:
    bench.settled()
    position = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"
    before = float(bench.plain.ask(position)[0][0])
    write = "create table more as select n, repeat('y', 400) as t from generate_series(1, 20000) as n"
    grown = bench.grown("wal_bytes", 8_000_000, repeat(bench, write, 1))
    after = float(bench.plain.ask(position)[0][0])
    bench.plain.ask("drop table more")
    assert 0.97 * (after - before) < grown <= after - before  # page headers are the log's own


def test_block_writes_are_those_of_a_checkpoint(bench: Bench) -> None:
    bench.settled()
    blocks = bench.plain.ask("select relpages from pg_class where relname = 'big'")[0][0]

    def write() -> None:
        bench.plain.ask("update big set n = n")
        bench.plain.ask("checkpoint")

    grown = bench.grown("block_writes", 2 * blocks, write)
    bench.plain.ask("truncate big")
    with bench.connect() as connection:
        connection.execute("insert into big select n, repeat('x', 400) from generate_series(1, 40000) as n")
        connection.execute("vacuum (freeze, analyze) big")
    assert (
        2 * blocks <= grown < 4 * blocks
    )  # the old versions' blocks and the new ones'; before 16 extending, too


def test_work_of_sessions_and_of_the_servers_own_processes_is_counted_apart(bench: Bench) -> None:
    """A session changes every block and extends the table; a checkpoint writes what it changed."""
    bench.settled()
    blocks = bench.plain.ask("select relpages from pg_class where relname = 'big'")[0][0]
    before = bench.read()
    parts = [n for n in before if n.startswith(("sessions_", "background_"))]
    assert {n.partition("_")[2] for n in parts} >= {"writes", "written_bytes"}
    assert [n for n in parts if before[n] is None] == []

    def write() -> None:
        bench.plain.ask("update big set n = n")
        bench.plain.ask("checkpoint")

    by_checkpoint = bench.grown("background_writes", blocks, write)
    now = bench.read()
    bench.fill()
    grown = {n: (now[n] or 0.0) - (before[n] or 0.0) for n in now if before.get(n) is not None}
    # Old versions' blocks and new ones', but for those that the session had to write to make room.
    assert blocks <= by_checkpoint < 3 * blocks
    assert grown["sessions_written_bytes"] >= 0.8 * blocks * BLOCK_BYTES  # new versions need new blocks
    assert grown["background_written_bytes"] >= by_checkpoint * BLOCK_BYTES
    written = grown["sessions_written_bytes"] + grown["background_written_bytes"]
    assert written >= 2 * blocks * BLOCK_BYTES
    if "sessions_logical_reads" in grown:  # from 16 on
        assert grown["sessions_logical_reads"] > 2 * blocks > grown["background_logical_reads"]
    assert grown["wal_writes" if "wal_writes" in grown else "sessions_wal_writes"] > 0


def test_database_time_is_that_of_statements(bench: Bench) -> None:
    slept = bench.grown("db_time_ns", 0.3e9, repeat(bench, "select pg_sleep(0.3)", 1))
    assert slept >= 0.3e9

    def idle() -> None:
        with bench.connect() as connection:
            connection.execute("begin")
            time.sleep(0.3)
            connection.execute("commit")

    assert bench.grown("idle_in_transaction_ns", 0.3e9, idle) >= 0.3e9
    values = bench.read()
    assert values["session_time_ns"] is not None
    assert values["session_time_ns"] > 0.6e9


def test_a_deadlock_is_counted(bench: Bench) -> None:
    def lock() -> None:
        with bench.connect() as one, bench.connect() as two:
            for connection, key in ((one, 1), (two, 2)):
                connection.execute("begin")
                connection.execute("select pg_advisory_xact_lock(%s)", [key])
            crossed = Thread(target=one.execute, args=["select pg_advisory_xact_lock(2)"])
            one.execute("set deadlock_timeout = '60s'")  # so that the other one finds it
            two.execute("set deadlock_timeout = '10ms'")
            crossed.start()
            with pytest.raises(psycopg.errors.DeadlockDetected):
                while True:  # until the first one waits for us
                    two.execute("savepoint here")
                    two.execute("set local lock_timeout = '100ms'")
                    try:
                        two.execute("select pg_advisory_xact_lock(1)")
                    except psycopg.errors.LockNotAvailable:
                        two.execute("rollback to here")
            two.execute("rollback")
            crossed.join()
            one.execute("rollback")

    assert bench.grown("deadlocks", 1, lock) == 1


def test_a_reset_and_the_start_are_reported(bench: Bench) -> None:
    before = bench.read()
    assert before["server_start_s"] == pytest.approx(
        float(bench.plain.ask("select extract(epoch from pg_postmaster_start_time())")[0][0]), abs=1e-3
    )
    assert before["statistics_reset_s"] is not None
    assert bench.grown("statistics_reset_s", 1e-6, lambda: bench.plain.ask("select pg_stat_reset()")) > 0


def test_statements_are_counted_where_the_extension_is(bench: Bench) -> None:
    bin_dir = bench.plain.bin_dir
    unknown = bench.server.counters("t0").to_dicts()
    by_name = {row["name"]: row for row in unknown}
    for name in ("executions", "blocks_dirtied", "statements_dropped"):
        assert (by_name[name]["value"], by_name[name]["status"]) == (None, "not supported")
    source = {s.name: s for s in bench.server.sources()}["statement counters"]
    assert source.status == "not supported"
    skip_without(STATEMENTS, bench.plain.dsn)
    assert "shared_preload_libraries" in source.detail
    with plain_server(bin_dir, {"shared_preload_libraries": STATEMENTS, "autovacuum": "off"}) as plain:
        plain.ask('create schema "Odd one"')
        plain.ask(f'create extension {STATEMENTS} schema "Odd one"')
        with closing(PostgresServer(plain.dsn)) as server:
            _count_statements(Bench(plain, server))


def _count_statements(bench: Bench) -> None:
    assert "statement counters" in {s.name for s in bench.server.sources() if s.status == "ok"}
    bench.plain.ask("create table dirty (a int)")
    bench.read()

    def between(work: Callable[[], object]) -> tuple[float, float]:
        before = bench.read()
        work()
        after = bench.read()
        both = [(before[n], after[n]) for n in ("executions", "blocks_dirtied")]
        first, second = (b - a for a, b in both if a is not None and b is not None)
        return first, second

    own, _ = between(lambda: None)
    executed, _ = between(repeat(bench, "select 1", 100))
    assert executed == own + 100
    _, dirtied = between(repeat(bench, "insert into dirty select from generate_series(1, 9000)", 1))
    blocks = bench.plain.ask(f"select pg_relation_size('dirty') / {BLOCK_BYTES}")[0][0]
    assert blocks <= dirtied <= blocks + 3  # and perhaps some of the catalogue
    bench.plain.ask('select "Odd one".pg_stat_statements_reset()')
    values = bench.read()
    assert values["statements_reset_s"] is not None
    assert values["statements_reset_s"] > (values["server_start_s"] or 0)


@pytest.mark.parametrize("any_dsn", [14, 16, 18], indirect=True, ids=lambda v: f"pg{v}")
def test_counters_of_a_load_are_those_of_its_calls(any_dsn: str) -> None:
    """Before 18 the server counts all calls when the session ends, those before the barrier among them."""
    lio = loads.workload("lio")
    params = loads.defaults(lio, blocks=256)
    with without_autovacuum(any_dsn), closing(PostgresServer(any_dsn)) as server:
        server.prepare(lio, params, 2)
        calibration = server.calibrate(lio, params, 20_000_000, "test")
        cell = cell_of(lio, Pool(2, "", 2, "prepared"), 1.5, params=params)
        raw = measure(server, lio, cell, calibration)
    cut = window.cut([raw])
    checks = cross_check(cut, ledger(cut)).filter(source="engine counters")
    verdicts = dict(checks.select("quantity", "verdict").rows())
    assert verdicts["logical_reads"] == "agrees" and verdicts["db_time"] != "differs", str(checks.to_dicts())
