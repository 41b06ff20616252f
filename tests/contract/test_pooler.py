"""The real PgBouncer as a limit in front of real servers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
import psycopg
import pytest
from tests.conftest import Servers
from tests.contract import loads
from tests.contract.pooled import Notes, cell_of, measure, through
from tests.waiting import eventually

from dbdyno.account import window
from dbdyno.account.ledger import cross_check, ledger
from dbdyno.conduct.request.request import workload
from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres import pooler as front
from dbdyno.engines.postgres.connect import connect, driver_target
from dbdyno.engines.postgres.embedded.worker import argv
from dbdyno.engines.postgres.pooler import config, process
from dbdyno.engines.postgres.pooler.config import ALIAS, Front
from dbdyno.engines.postgres.pooler.process import Pooler
from dbdyno.model.engine.protocols import Pool, Undo
from dbdyno.model.errors import TooFewConnections, UsageError
from dbdyno.model.results.ledger_rows import top_level
from dbdyno.model.results.raw import RawCell

pytestmark = [
    pytest.mark.db,
    pytest.mark.skipif(
        shutil.which("pgbouncer", path=os.pathsep.join(("/usr/sbin", os.environ["PATH"]))) is None,
        reason="no PgBouncer here: apt-get install pgbouncer",
    ),
]
SLEEP = "select pg_sleep(0.05)"
THINK_NS = 20_000_000  # between calls that take the CPU: leaves it to the tests beside it


@pytest.fixture(params=[15, 18], ids=lambda v: f"pg{v}")
def server(servers: Servers, request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with closing(PostgresServer(servers.dsn(request.param))) as server:
        yield server


@pytest.fixture
def server18(dsn18: str) -> Iterator[PostgresServer]:
    with closing(PostgresServer(dsn18)) as server18:
        yield server18


def rung(cell: RawCell) -> dict[str, float | None]:
    rows = top_level(ledger(window.cut([cell]))).filter(scope="rung")
    return dict(rows.group_by("account").agg(pl.col("aas").sum()).rows())


def source(cell: RawCell, name: str) -> tuple[str, str]:
    return cell.tables["sources"].filter(name=name).select("status", "detail").row(0)


# -- what is measured -------------------------------------------------------------------------------
def test_a_known_load_has_its_known_sleep_and_queue_in_the_ledger(server: PostgresServer) -> None:
    """With 6 sessions, 2 connections and calls of 50 ms at most 2 sleep, and at least 4 queue or are on
    the way."""
    pool = Pool(2, "transaction", 6, "extended")
    with through(server, pool):
        raw = measure(
            server,
            loads.script(server, SLEEP, "sleep.sql"),
            cell_of(loads.script(server, SLEEP, "s.sql"), pool),
        )
    accounts = rung(raw)
    rates = window.rates([raw]).filter(scope="rung", name="calls_per_s")
    served = 0.05 * rates["value"][0]  # by the driver's count alone
    assert 0.95 * served <= accounts["sleep"] <= 2.0  # timers are late on a busy machine
    assert accounts["pool.queue"] + max(0.0, accounts["unaccounted"]) >= 4 - 0.05
    assert accounts["pool.queue"] <= 6 - served + 0.05
    assert accounts["pool.queue"] > 3
    parts = sum(accounts[a] for a in ("run", "runq", "sleep", "client", "pool.queue", "unaccounted"))
    assert parts == pytest.approx(6)
    assert source(raw, "pooler") == ("ok", "")


def test_the_servers_processes_are_the_pools_and_the_pooler_is_watched(server: PostgresServer) -> None:
    pool = Pool(2, "transaction", 5, "simple")
    script = loads.script(server, SLEEP, "sleep.sql")
    with through(server, pool):
        raw = measure(server, script, cell_of(script, pool, 1))
        load = server.load(script, cell_of(script, pool, 1), None, False, None)
        assert len(load.backends()) == 2
        with psycopg.connect(server._dsn) as control:
            row = control.execute(
                "select count(*) from pg_stat_activity "
                "where pid = any(%s) and application_name ~ '^dbdyno pool'",
                [[pid for _, pid, _ in load.backends()]],
            ).fetchone()
        load.abort()
        assert row == (2,)
    assert raw.tables["sessions"]["backend_pid"].null_count() == 5
    roles = dict(raw.tables["tasks"].group_by("role").agg(pl.col("pid").n_unique()).rows())
    assert (roles["session"], roles["pooler"]) == (2, 1)


def test_work_is_that_of_the_calibration_and_the_server_agrees(server: PostgresServer) -> None:
    lio = workload("lio")
    params = {n: p.default for n, p in lio.parameters.items()}
    server.prepare(lio, params, 4)
    calibration = server.calibrate(lio, params, 2_000_000, "test")
    pool = Pool(2, "transaction", 4, "extended")
    # three seconds: on a slow machine dbdyno's own reads are half a per cent of those of one
    with through(server, pool):
        raw = measure(server, lio, cell_of(lio, pool, 3, params=params, think_ns=THINK_NS), calibration)
    rates = window.rates([raw]).filter(scope="rung", name="work_per_call")
    assert rates.select("value", "source").row(0) == (calibration.work_per_call, "calibration")
    assert source(raw, "engine counters, per session")[0] == "off"
    # The pool's connections report late, but to the call: a plan other than the calibrated one would be seen.
    cut = window.cut([raw])
    checks = cross_check(cut, ledger(cut)).filter(quantity="logical_reads", source="engine counters")
    assert checks["verdict"].to_list() == ["agrees"]


def test_a_session_pool_keeps_sessions_as_they_are(server: PostgresServer) -> None:
    lio = workload("lio")
    params = {n: p.default for n, p in lio.parameters.items()}
    server.prepare(lio, params, 2)
    calibration = server.calibrate(lio, params, 2_000_000, "test")
    pool = Pool(3, "session", 2)
    with through(server, pool):
        raw = measure(server, lio, cell_of(lio, pool, 1, params=params, think_ns=THINK_NS), calibration)
    rates = window.rates([raw]).filter(scope="rung", name="work_per_call")
    assert rates.select("value", "source").row(0) == (calibration.work_per_call, "engine counters")
    assert rung(raw)["pool.queue"] == 0.0


def test_every_server_connection_has_the_sessions_settings(dsn18: str) -> None:
    """There are more settings than a connect_query has room for."""
    settings = [f"SELECT pg_catalog.set_config('dbdyno.setting_{n}', '{'x' * 90}', false)" for n in range(9)]
    with connect(dsn18) as control:
        pool_front = Front(
            config.find_program(), Pool(3, "transaction", 3), driver_target(control), "dbdyno pool x"
        )
    with closing(Pooler(pool_front, None)) as pooler:
        front._fill(pooler, 3, settings)
        clients = [psycopg.connect(pooler.conninfo(ALIAS), autocommit=True) for _ in range(3)]
        seen = set()
        for client in clients:
            cursor = psycopg.ClientCursor(client)
            cursor.execute("begin")
            cursor.execute("select pg_backend_pid(), current_setting('dbdyno.setting_8')")
            seen.add(cursor.fetchone())
        for client in clients:
            client.close()
    assert {len(value) for _, value in seen} == {90}
    assert len(seen) == 3


def test_a_server_connection_that_breaks_is_in_the_sources_status(server18: PostgresServer) -> None:
    pool = Pool(2, "transaction", 3, "simple")
    script = loads.script(server18, SLEEP, "sleep.sql")
    with through(server18, pool):
        load = server18.load(script, cell_of(script, pool, 1), None, False, None)
        pid = load.backends()[0][1]
        with psycopg.connect(server18._dsn) as control:
            control.execute("select pg_terminate_backend(%s, 5000)", [pid])
        eventually(lambda: _pooler_source(server18).status != "ok")
        source = _pooler_source(server18)
        load.abort()
    assert source.status == "lost" and "1 server connections broke" in source.detail


def _pooler_source(server: PostgresServer):  # type: ignore[no-untyped-def]
    return next(s for s in server.sources() if s.name == "pooler")


def test_a_pooler_that_died_is_a_status_and_no_zero(server18: PostgresServer) -> None:
    pool = Pool(1, "transaction", 1, "simple")
    script = loads.script(server18, SLEEP, "sleep.sql")
    with through(server18, pool) as notes:
        load = server18.load(script, cell_of(script, pool, 1), None, False, None)
        directory = Path(notes.seen[-1].data["directory"])
        for pooler in process._processes(directory):
            os.kill(pooler.pid, signal.SIGKILL)
        rows = server18.counters("t1").filter(scope="pooler", name="pool_wait_ns")
        assert rows.select("value", "status").row(0) == (None, "lost")
        assert _pooler_source(server18).status == "lost"
        load.abort()


def test_without_a_pool_loads_go_to_the_server_again(server18: PostgresServer) -> None:
    script = loads.script(server18, SLEEP, "sleep.sql")
    with through(server18, Pool(1, "transaction", 1, "simple")) as notes:
        server18.load(script, cell_of(script, Pool(1, "transaction", 1, "simple")), None, False, None)
        directory = Path(notes.seen[-1].data["directory"])
        assert directory.is_dir() and process._processes(directory)
    assert not directory.exists() and not process._processes(directory)
    assert server18.counters("t0").filter(scope="pooler").is_empty()


# -- what is refused before the start ---------------------------------------------------------------
def test_a_missing_program_says_how_to_install_it(
    server18: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(config, "PLACES", (str(tmp_path),))
    with pytest.raises(UsageError, match="not installed") as caught:
        server18.check_pool(Pool(2, "transaction", 4, "extended"))
    assert "apt install pgbouncer" in str(caught.value) and "dnf install pgbouncer" in str(caught.value)
    monkeypatch.setenv(config.VARIABLE, "/nowhere/pgbouncer")
    with pytest.raises(UsageError, match="/nowhere/pgbouncer, which is not there"):
        server18.check_pool(Pool(2, "transaction", 4, "extended"))


def test_a_program_that_is_no_pgbouncer_is_refused(
    server18: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(config.VARIABLE, "/bin/true")
    with pytest.raises(UsageError, match="does not say its version"):
        server18.check_pool(Pool(2, "transaction", 4, "extended"))


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        (Pool(0, "transaction", 4, "extended"), "at least one server connection"),
        (Pool(2, "statement", 4, "extended"), "no pool mode statement"),
        (Pool(2, "session", 4), "pool_mode = transaction"),
    ],
)
def test_a_pool_that_cannot_serve_is_refused(server18: PostgresServer, pool: Pool, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        server18.check_pool(pool)
    assert words in str(caught.value)


def test_prepared_statements_are_refused_by_an_old_version(server18: PostgresServer) -> None:
    program = config.find_program()
    pool = Pool(2, "transaction", 4)
    if program.keeps_prepared:
        server18.check_pool(pool)
        return
    with pytest.raises(UsageError, match=program.name) as caught:
        server18.check_pool(pool)
    assert 'driver.protocol = "extended"' in str(caught.value)


def test_a_pool_larger_than_the_server_has_room_for_is_refused(server18: PostgresServer) -> None:
    eventually(lambda: server18.capacity().in_use == 1)  # those of the tests before have gone
    free = server18.capacity().free
    with pytest.raises(TooFewConnections, match=f"{free} are free") as caught:
        server18.check_pool(Pool(free, "transaction", 4, "extended"))
    assert f"pool = {free - 2} at most" in str(caught.value)


# -- what is left behind ----------------------------------------------------------------------------
PROGRAM = """
import json, sys, time
from tests.contract import loads
from tests.contract.pooled import Notes, cell_of
from dbdyno.engines.postgres import PostgresServer
from dbdyno.model.engine.protocols import Pool
server, notes = PostgresServer(sys.argv[1]), Notes()
pool = Pool(2, "transaction", 3, "simple")
script = loads.script(server, "select pg_sleep(0.05)", "s.sql")
server.use_pool(pool, notes)
load = server.load(script, cell_of(script, pool), None, False, None)
load.connect()
load.wait(10)
print(notes.seen[-1].model_dump_json(), flush=True)
time.sleep(60)
"""


def test_after_kill_9_the_pooler_is_gone_and_the_rest_is_put_back(server18: PostgresServer) -> None:
    words = [sys.executable, "-c", PROGRAM, server18._dsn]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as run:
        assert run.stdout is not None
        undo = Undo.model_validate(json.loads(run.stdout.readline()))
        directory = Path(undo.data["directory"])
        (pooler,) = process._processes(directory)
        run.kill()
    eventually(lambda: not pooler.alive)
    assert directory.is_dir()
    assert "left" in (server18.put_back(undo) or "")
    assert not directory.exists()
    assert server18.put_back(undo) is None


def test_a_pooler_that_outlived_its_run_is_ended(server18: PostgresServer) -> None:
    """The death signal is the first guard, not the last."""
    notes = Notes()
    server18.use_pool(Pool(1, "transaction", 1, "simple"), notes)
    script = loads.script(server18, SLEEP, "s.sql")
    server18.load(script, cell_of(script, Pool(1, "transaction", 1, "simple")), None, False, None)
    (pooler,) = process._processes(Path(notes.seen[-1].data["directory"]))
    with closing(PostgresServer(server18._dsn)) as other:
        assert f"process {pooler.pid}" in (other.put_back(notes.seen[-1]) or "")
    assert not pooler.alive


def test_a_strangers_directory_is_left_alone(server18: PostgresServer, tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    undo = Undo(kind="pooler", key="x", what="x", data={"directory": str(tmp_path)})
    assert server18.put_back(undo) is None
    assert (tmp_path / "kept").exists()


def test_what_a_killed_check_left_is_swept_away(tmp_path: Path) -> None:
    place = tmp_path / "dbdyno"
    old, new, strange = (place / name for name in ("p0123456789a", "pabcdef01234", "postgres"))
    for directory in (old, new, strange):
        directory.mkdir(parents=True)
        (directory / "pgbouncer.ini").touch()
    for directory in (old, strange):
        os.utime(directory, (0, 0))
    process.sweep(place)
    assert (old.exists(), new.exists(), strange.exists()) == (False, True, True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: run the tests as root")
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_the_poolers_user_leads_root_nowhere(server18: PostgresServer, tmp_path: Path, kind: str) -> None:
    """Links and pipes stand at every name in the pooler's directory when its log is read and when it is
    removed."""
    victim = tmp_path / "victim"
    victim.write_text("known to root alone")
    victim.chmod(0o600)
    with connect(server18._dsn) as control:
        target = driver_target(control)
    pooler = Pooler(Front(config.find_program(), Pool(1, "session", 1), target, "dbdyno pool x"), None)
    account = process.account_for(target["host"], target["port"])
    make = "mkfifo $f" if kind == "pipe" else f"ln -s {victim} $f"
    names = "log pgbouncer.ini pgbouncer.ini.new root.crt client.key x"
    script = f"cd {pooler.directory}; for f in {names}; do rm -f $f; {make}; done; ln -s {tmp_path} d"
    subprocess.run(argv(account, "0", "/bin/sh", "-c", script), check=True)
    assert pooler.log_tail() == "(it wrote no log)"
    pooler._worker.write(pooler.directory / "root.crt", "new")
    pooler.close()
    assert not pooler.directory.exists()
    assert (victim.read_text(), victim.stat().st_uid) == ("known to root alone", 0)
