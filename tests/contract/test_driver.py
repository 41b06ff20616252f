"""The driver on real servers: exact counts, errors, faults, probes (docs/core.md)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import psycopg
import pytest
from tests.contract.driving import connect_load, failure, load, run, start, statement, tables, until_done
from tests.contract.plain_server import PlainServer, plain_server
from tests.waiting import eventually

from dbdyno import _core

if TYPE_CHECKING:
    from tests.conftest import Servers

pytestmark = pytest.mark.db

ONE = [statement("select 1")]
SLEEP = [statement("select pg_sleep($1::float8)", "30")]
CLIENTS = "select count(*) from pg_stat_activity where backend_type = 'client backend'"


@pytest.fixture(scope="module")
def server(servers: Servers) -> Iterator[PlainServer]:
    with plain_server(servers.bin_dir(18)) as server:
        yield server


@pytest.fixture
def counter(server: PlainServer) -> Iterator[str]:
    """The SQL that draws from a sequence, which counts at the server."""
    server.ask("drop sequence if exists c")
    server.ask("create sequence c")
    yield "select nextval('c')"
    server.ask("drop sequence c")


def calls_served(server: PlainServer) -> int:
    last, called = server.ask("select last_value, is_called from c")[0]
    return int(last) if called else 0


# -- counting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sessions", "threads"), [(1, 1), (2, 2), (7, 2), (300, None)])
def test_a_limit_of_calls_is_met_exactly(
    server: PlainServer, counter: str, sessions: int, threads: int | None
) -> None:
    result = run(server.target(), [statement(counter)], sessions, threads=threads, max_calls=20)
    rows = result["sessions"]
    assert rows["session"].to_list() == list(range(sessions))
    assert rows["calls"].to_list() == [20] * sessions
    assert set(rows["end_reason"]) == {"limit"}
    assert calls_served(server) == 20 * sessions == result["histogram"]["count"].sum()


@pytest.mark.parametrize("sessions", [1, 9])
def test_what_the_server_counted_is_what_the_driver_counted(
    server: PlainServer, counter: str, sessions: int
) -> None:
    running = connect_load(server.target(), [statement(counter)], sessions)
    t1 = start(running, seconds=0.4, settle_s=0.4)
    result = tables(running)
    rows = result["sessions"]
    assert rows["calls_total"].sum() == calls_served(server)
    assert rows["errors_total"].sum() == 0 and result["errors"].is_empty()
    assert (rows["calls"] < rows["calls_total"]).all()
    assert set(rows["end_reason"]) == {"deadline"}
    assert (rows["first_start_ns"] >= t1 - 400_000_000).all() and (rows["first_start_ns"] < t1).all()
    assert (rows["in_call_ns"] <= rows["last_end_ns"] - rows["first_start_ns"]).all()
    assert result["histogram"]["count"].sum() == rows["calls"].sum() == _calls_between(result, rows)
    assert running.progress()[0] == rows["calls_total"].sum()


def _calls_between(result: dict[str, pl.DataFrame], rows: pl.DataFrame) -> int:
    """Returns the number of calls in buckets between the shortest and the longest call."""
    shortest, longest = rows["min_ns"].min(), rows["max_ns"].max()
    inside = result["histogram"].filter((pl.col("high_ns") >= shortest) & (pl.col("low_ns") <= longest))
    return int(inside["count"].sum())


@pytest.mark.parametrize("sessions", [1, 4])
def test_a_call_of_several_statements_runs_them_all_in_order(server: PlainServer, sessions: int) -> None:
    server.ask("create table steps (n int)")
    call = [
        statement("begin"),
        statement("insert into steps values ($1::int)", "1"),
        statement("update steps set n = n + $1::int where xmin::text::bigint = txid_current()", "41"),
        statement("commit"),
    ]
    result = run(server.target(), call, sessions, max_calls=25)
    assert server.ask("select count(*), min(n), max(n) from steps") == [(25 * sessions, 42, 42)]
    assert result["sessions"]["calls"].to_list() == [25] * sessions
    server.ask("drop table steps")


def test_time_to_connect_and_time_to_set_up_are_separate(server: PlainServer) -> None:
    group = {"setup": ["select pg_sleep(0.2)"], "warm": ["select pg_sleep(0.2)"], "warm_calls": 2}
    result = run(server.target(), ONE, 2, group=group, max_calls=1)
    assert (result["sessions"]["prepare_ns"] >= 400_000_000).all()
    assert (result["sessions"]["connect_ns"] > 0).all()
    assert result["sessions"]["calls_total"].to_list() == [1, 1]


def test_backends_and_threads_are_known_before_the_start(server: PlainServer) -> None:
    running = connect_load(server.target(application_name="known"), ONE, 3, threads=2, max_calls=1)
    assert tuple(running.progress()) == (0, 0, 3, 0, 0, 0)
    pids = {pid for _, pid, _ in running.backends()}
    asked = server.ask("select pid from pg_stat_activity where application_name = 'known'")
    assert pids == {pid for (pid,) in asked} and [s for s, *_ in running.backends()] == [0, 1, 2]
    assert len(running.threads()) == 2
    assert all(Path(f"/proc/self/task/{tid}").exists() for tid in running.threads())
    start(running)
    assert set(tables(running)["sessions"]["backend_pid"]) == pids


@pytest.mark.parametrize("sessions", [1, 3])
def test_huge_results_are_read_to_their_end(server: PlainServer, counter: str, sessions: int) -> None:
    call = [statement("select repeat('x', 1000) from generate_series(1, 20000)"), statement(counter)]
    result = run(server.target(), call, sessions, threads=1, max_calls=3)
    assert result["sessions"]["calls"].to_list() == [3] * sessions and calls_served(server) == 3 * sessions


@pytest.mark.parametrize("sessions", [1, 3])
def test_huge_parameters_are_sent_to_their_end(server: PlainServer, sessions: int) -> None:
    megabytes = "x" * 5_000_000
    call = [statement("select 1 / (length($1::text) = 5000000)::int", megabytes)]
    result = run(server.target(), call, sessions, threads=1, max_calls=3)
    assert result["sessions"]["calls"].to_list() == [3] * sessions
    assert result["errors"].is_empty()


def test_what_the_server_says_unasked_is_tolerated(server: PlainServer) -> None:
    call = [
        statement("do $$ begin raise notice 'here'; end $$"),
        statement("select set_config('application_name', 'other', false)"),
        statement("select pg_notify('news', repeat('n', 5000))"),
        statement("select set_config('application_name', 'dbdyno', false)"),
    ]
    result = run(server.target(), call, 2, group={"setup": ["listen news"]}, threads=1, max_calls=30)
    assert result["sessions"]["calls"].to_list() == [30, 30] and result["errors"].is_empty()


def test_null_is_a_parameter(server: PlainServer) -> None:
    result = run(server.target(), [statement("select 1 / ($1::text is null)::int", None)], max_calls=2)
    assert result["sessions"]["calls"].to_list() == [2]


# -- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sessions", [1, 4])
def test_errors_are_counted_by_code_and_the_next_call_is_clean(server: PlainServer, sessions: int) -> None:
    server.ask("create table failing (n int)")
    call = [
        statement("begin"),
        statement("insert into failing values (1)"),
        statement("select 1 / $1::int", "0"),
        statement("commit"),
    ]
    result = run(server.target(), call, sessions, max_calls=10)
    assert result["sessions"]["errors"].to_list() == [10] * sessions
    assert result["sessions"]["calls"].to_list() == [0] * sessions
    assert result["sessions"]["min_ns"].null_count() == sessions
    errors = result["errors"]
    assert errors["sqlstate"].to_list() == ["22012"] * sessions
    assert errors["count"].to_list() == [10] * sessions
    assert set(errors["message"]) == {"division by zero"}
    assert server.ask("select count(*) from failing") == [(0,)]
    server.ask("drop table failing")


def test_calls_and_errors_add_up(server: PlainServer, counter: str) -> None:
    result = run(server.target(), [statement(f"select 1 / (({counter}) % 3)")], 2, max_calls=300)
    rows = result["sessions"].sum()
    assert rows["calls_total"].item() + rows["errors_total"].item() == 600 == calls_served(server)
    assert rows["errors_total"].item() == 200 == result["errors"]["count"].sum()


def test_one_terminated_backend_ends_its_session_alone(server: PlainServer) -> None:
    for call in (ONE, SLEEP):
        running = connect_load(server.target(), call, 3, threads=2, grace_ms=200)
        victim = running.backends()[1][1]
        start(running, seconds=1.5)
        server.ask(f"select pg_terminate_backend({victim})")
        result = tables(running)
        lost = result["sessions"].row(1, named=True)
        assert lost["end_reason"] == "lost" and "57P01" in lost["end_detail"]
        errors = result["errors"].filter(pl.col("session") == 1)
        assert errors["sqlstate"].to_list() == ["08006"] and errors["count"].to_list() == [1]
        others = set(result["sessions"].filter(pl.col("session") != 1)["end_reason"])
        assert others == ({"deadline"} if call is ONE else {"lost"})


@pytest.mark.parametrize(("mode", "words"), [("immediate", "57P0"), ("fast", "57P01")])
def test_a_server_that_stops_in_mid_run_loses_all_sessions_and_says_why(
    servers: Servers, mode: str, words: str
) -> None:
    with plain_server(servers.bin_dir(18)) as server:
        running = connect_load(server.target(), SLEEP, 4, probe=_probe("select 1 as one", "one"))
        start(running)
        time.sleep(0.3)
        server.stop(mode)
        result = tables(running)
    rows = result["sessions"]
    assert set(rows["end_reason"]) == {"lost"}
    assert all(words in detail for detail in rows["end_detail"]), rows["end_detail"].to_list()
    assert result["errors"]["count"].sum() == 4
    after = result["counters"].filter(pl.col("phase").str.starts_with("after"))
    assert after["value"].null_count() == 8 and set(after["status"]) == {"lost"}


def test_stop_lets_the_calls_in_flight_end(server: PlainServer) -> None:
    running = connect_load(server.target(), [statement("select pg_advisory_xact_lock_shared(7)")], 3)
    waiting = "select 1 from pg_locks where locktype = 'advisory' and not granted"
    with psycopg.connect(server.dsn) as holder:
        holder.execute("select pg_advisory_xact_lock(7)")
        start(running)
        eventually(lambda: len(server.ask(waiting)) == 3)
        running.stop()
        assert not running.wait(0.1)
    result = tables(running)
    assert set(result["sessions"]["end_reason"]) == {"stopped"}
    assert result["sessions"]["calls"].to_list() == [1, 1, 1]


@pytest.mark.parametrize("sessions", [1, 5])
def test_abort_breaks_off_at_once(server: PlainServer, sessions: int) -> None:
    running = connect_load(server.target(), SLEEP, sessions)
    start(running)
    time.sleep(0.1)
    running.abort()
    until_done(running, 25)  # sooner than the call
    result = tables(running)
    assert set(result["sessions"]["end_reason"]) == {"aborted"} and result["errors"].is_empty()


@pytest.mark.parametrize("sessions", [1, 3])
def test_a_call_that_outlives_the_grace_is_lost(server: PlainServer, sessions: int) -> None:
    running = connect_load(server.target(), SLEEP, sessions, grace_ms=300)
    start(running, seconds=0.1)
    until_done(running, 25)  # sooner than the call
    result = tables(running)
    assert set(result["sessions"]["end_reason"]) == {"lost"}
    assert all("no answer within 300 ms" in d for d in result["sessions"]["end_detail"])


def test_dropping_a_running_load_leaves_no_session(server: PlainServer) -> None:
    running = connect_load(server.target(application_name="dropped"), ONE, 4)
    start(running)
    del running
    eventually(lambda: not server.ask("select 1 from pg_stat_activity where application_name = 'dropped'"))


# -- connecting and preparing -----------------------------------------------------------------------


def test_failures_say_what_and_which_session(server: PlainServer) -> None:
    target = server.target()
    kind, message, sqlstate, session = failure(target, [statement("select * from nowhere")], 2)
    assert (kind, sqlstate) == ("statement", "42P01") and session in (0, 1) and "nowhere" in message
    assert failure(server.target(database="nix"), ONE)[::2] == ("server", "3D000")
    assert failure(server.target(host="/nowhere"), ONE)[0] == "unreachable"
    assert failure(server.target(host="127.0.0.1", port=1), ONE)[0] == "unreachable"
    assert failure(target, ONE, group={"setup": ["select 1/0"]})[::2] == ("server", "22012")
    assert failure(target, [statement("select 1/$1::int", "0")], group={"warm_calls": 1})[::2] == (
        "server",
        "22012",
    )


def test_more_sessions_than_the_server_allows_are_an_error_and_leave_none(server: PlainServer) -> None:
    assert failure(server.target(), ONE, 420)[::2] == ("full", "53300")
    eventually(lambda: server.ask(CLIENTS) == [(1,)])
    assert run(server.target(), ONE, 5, max_calls=1)["sessions"].height == 5


def test_a_wrong_number_of_parameters_is_refused_before_the_start(server: PlainServer) -> None:
    kind, message, *_ = failure(server.target(), [statement("select $1::int + $2::int", "1")])
    assert kind == "spec" and "2 parameters, 1 were given" in message


@pytest.mark.parametrize(
    "sql", ["copy pg_class to stdout", "  -- a comment\nCOPY x FROM STDIN", "copy (select 1) to stdout"]
)
def test_copy_is_refused(server: PlainServer, sql: str) -> None:
    kind, message, *_ = failure(server.target(), [statement(sql)])
    assert kind == "spec" and "COPY from or to the client cannot be a call" in message


def test_copy_in_setup_does_not_hang(server: PlainServer) -> None:
    kind, message, *_ = failure(server.target(), ONE, group={"setup": ["copy (select 1) to stdout"]})
    assert kind == "spec" and "COPY" in message


def test_unknown_keys_are_errors(server: PlainServer) -> None:
    for wrong in ({"nonsense": 1}, {"log_call": True}, {"threads": "two"}):
        with pytest.raises(_core.DriverError) as caught:
            load(server.target(), ONE, **wrong)
        assert caught.value.args[0] == "spec"
    with pytest.raises(_core.DriverError):
        load(server.target(sslmode="x"), ONE)
    with pytest.raises(_core.DriverError):
        _core.Load("oracle", json.dumps({}))


def test_phases_out_of_order_are_refused(server: PlainServer) -> None:
    running = load(server.target(), ONE)
    for phase in (running.finish, running.tables, lambda: running.start(0, 0, 0)):
        with pytest.raises(_core.DriverError, match="not connected"):
            phase()


def test_connecting_can_be_broken_off(server: PlainServer) -> None:
    running = load(server.target(), ONE, 3, group={"setup": ["select pg_sleep(30)"]})
    running.connect()
    assert not running.wait(0.2)
    running.abort()
    with pytest.raises(_core.DriverError) as caught:
        running.wait(60)
    assert caught.value.args[0] == "aborted"


def test_wait_lets_other_python_threads_run(server: PlainServer) -> None:
    running = connect_load(server.target(), [statement("select pg_sleep(0.3)")], max_calls=1)
    start(running)
    ticks: list[float] = []
    ticker = threading.Thread(target=lambda: [ticks.append(time.sleep(0.01) or 0.0) for _ in range(10)])
    ticker.start()
    until_done(running)
    ticker.join()
    assert len(ticks) == 10


# -- probes and the log of calls --------------------------------------------------------------------


def _probe(read: str, *names: str, flush: tuple[str, ...] = ()) -> dict[str, Any]:
    columns = [{"name": n, "kind": "counter", "unit": "blocks"} for n in names]
    return {"flush": list(flush), "read": read, "columns": columns}


def _values(result: dict[str, pl.DataFrame], name: str, session: int) -> dict[str, float | None]:
    rows = result["counters"].filter((pl.col("name") == name) & (pl.col("session") == session))
    return dict(zip(rows["phase"], rows["value"], strict=True))


def test_probes_count_the_calls_and_their_own_cost(server: PlainServer, counter: str) -> None:
    """The probe itself draws from the sequence, so its own cost is one and is subtracted."""
    probe = _probe("select nextval('c') as drawn, 7 as constant", "drawn", "constant")
    result = run(server.target(), [statement(counter)], 1, probe=probe, max_calls=50)
    drawn = _values(result, "drawn", 0)
    assert drawn == {"before1": 2, "before2": 3, "after1": 54, "after2": 55}
    assert _values(result, "constant", 0) == dict.fromkeys(drawn, 7)
    assert set(result["counters"]["status"]) == {"ok"}
    assert (result["counters"]["before_ns"] <= result["counters"]["after_ns"]).all()


def test_a_probe_that_fails_is_a_null_with_its_reason(server: PlainServer) -> None:
    server.ask("create role small login")
    hba = server.data / "pg_hba.conf"
    hba.write_text(hba.read_text() + "local all small trust\n")
    server.ask("select pg_reload_conf()")
    eventually(lambda: psycopg.connect(server.dsn, user="small").close() is None)
    cases = {
        "select nothing() as x": "not supported",
        "select pg_read_file('x') as x": "not permitted",
        "select null as x": "not supported",
    }
    for read, status in cases.items():
        result = run(server.target(user="small"), ONE, 2, probe=_probe(read, "x"), max_calls=3)
        assert result["counters"]["value"].null_count() == 8
        assert set(result["counters"]["status"]) == {status}
        assert result["sessions"]["calls"].to_list() == [3, 3]
    server.ask("drop role small")


def test_the_log_has_each_call_and_the_backends_cpu(server: PlainServer) -> None:
    result = run(server.target(), ONE, 3, seconds=0.2, settle_s=0.1, log_calls=True, log_cpu=True)
    calls, rows = result["calls"], result["sessions"]
    assert calls.height == rows["calls_total"].sum()
    assert calls.filter("measured").height == rows["calls"].sum()
    assert calls["ok"].all() and calls["cpu"].null_count() == 0 and (calls["cpu"] >= 0).all()
    by_session = dict(calls.filter("measured").group_by("session").agg(pl.col("duration_ns").sum()).rows())
    assert [by_session.get(n, 0) for n in rows["session"]] == rows["in_call_ns"].to_list()  # 0: busy


def test_the_log_ends_at_its_limit(server: PlainServer) -> None:
    result = run(server.target(), ONE, 2, threads=1, max_calls=40, log_calls=True, log_limit=10)
    assert result["calls"].height == 10 and result["calls"]["cpu"].null_count() == 10
    assert "calls" not in run(server.target(), ONE, max_calls=1)
