"""``dbdyno observe`` beside a load that dbdyno did not start: its figures, its store, its messages; and
faults."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.db.conftest import PROGRAM, Bench, eventually
from tests.db.pgbench import load, program, terminal

pytestmark = pytest.mark.db
S = 1_000_000_000
WINDOWS_STORED = re.compile(r"\b[1-9]\d* windows? stored")
SLEEPER = "select pg_sleep(2);\n"
CALLING = """select count(*) from pg_stat_activity
    where state = 'active' and query like '%lio%' and pid <> pg_backend_pid()"""


@pytest.fixture(scope="module", autouse=True)
def tables(bench: Bench) -> None:
    import subprocess

    done = subprocess.run([program(), "-i", "-q", bench.dsn], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    bench.ask("drop role if exists guest, watcher; create role guest login; create role watcher login")
    bench.ask("grant pg_monitor to watcher")


@contextlib.contextmanager
def sleepers(bench: Bench, tmp_path: Path, count: int, dsn: str | None = None) -> Iterator[None]:
    """Keeps sessions asleep in the server nearly all the time."""
    script = tmp_path / "sleep.sql"
    script.write_text(SLEEPER)
    with load(dsn or bench.dsn, "-c", str(count), "-f", str(script)):
        asleep = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"
        eventually(lambda: bench.ask(asleep)[0][0] == count)
        yield
    # without their client they would sleep on, into the next test
    ended = "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'"
    eventually(lambda: not bench.ask(ended))


def observe(bench: Bench, *words: str, code: int = 0) -> dict[str, Any]:
    done = bench.here("observe", "--json", "--dsn", bench.dsn, *words)
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout))


def sessions(document: dict[str, Any], cell: str | None = None) -> set[int]:
    rows = [r for r in document["microstates"] if r["role"] == "session" and not r["worker"]]
    return {r["session"] for r in rows if cell in (None, r["cell"])}


def account(document: dict[str, Any], name: str, cell: str, detail: str | None = None) -> float:
    whole = (r for r in document["ledger"] if r["scope"] == "rung" and r["parent"] is None)
    rows = [r for r in whole if (r["account"], r["cell"]) == (name, cell)]
    return float(sum(r["aas"] for r in rows if r["aas"] is not None and detail in (None, r["detail"])))


def test_sessions_of_another_client_are_observed_and_their_waits_named(bench: Bench, tmp_path: Path) -> None:
    with sleepers(bench, tmp_path, 4):
        document = observe(bench, "--for", "6s", "--window", "3s")
    assert [w["status"] for w in document["windows"]] == ["ok", "ok"]
    first, second = document["windows"]
    assert second["t0_ns"] == first["t1_ns"]  # without a hole
    for window in document["windows"]:
        assert 4 <= len(sessions(document, window["cell"])) <= 5  # one may still be ending
        slept = account(document, "sleep", window["cell"], "Timeout/PgSleep")
        assert 3 < slept < 4.01  # between two statements each waits for its client
    assert (
        len(sessions(document, first["cell"]) & sessions(document, second["cell"])) >= 4
    )  # the same numbers
    assert document["run"]["status"] == "complete"


def test_the_load_profile_is_that_of_others_alone(bench: Bench) -> None:
    """dbdyno samples ten times a second and takes a snapshot in each window. Next to nothing of that is
    left in an idle server, and all of pgbench's 40 transactions a second (pgbench draws their
    times)."""
    for _ in range(3):  # the server may just be cleaning up after other tests
        idle = _rates(observe(bench, "--for", "6s", "--window", "3s"))
        if idle["logical reads"] < 60:
            break
    assert idle["commits"] < 4
    assert idle["logical reads"] < 60  # the server's own processes look at its catalogues
    with load(bench.dsn, "-S", "-c", "1", "-R", "40", "-n"):
        beside = _rates(observe(bench, "--for", "6s", "--window", "3s"))
    assert 25 < beside["commits"] - idle["commits"] < 55


def _rates(document: dict[str, Any]) -> dict[str, float]:
    rows = [r for r in document["profile"] if r["cell"] == "all" and r["total"] is not None]
    assert all("less dbdyno's own" in r["source"] for r in rows if r["name"] in ("commits", "logical reads"))
    return {r["name"]: r["per_s"] for r in rows}


def test_a_stored_observation_is_shown_reported_exported_rebuilt_and_removed(
    bench: Bench, tmp_path: Path
) -> None:
    with sleepers(bench, tmp_path, 2):
        document = observe(bench, "--for", "2s")
    run = document["run"]["id"]
    assert run in [r["id"] for r in bench.runs()]
    for words in (
        ("show", run),
        ("show", run, "--events", "--microstates", "--profile", "--cross-check"),
        ("show", run, "--window", "1"),
        ("show", run, "--profile"),
        ("report", run, "-o", str(tmp_path / "r.html")),
        ("rebuild", run),
        *(("export", run, "--to", kind, "-o", str(tmp_path / kind)) for kind in ("csv", "xlsx", "json")),
    ):
        done = bench.here(*words)
        assert done.returncode == 0, f"{words}\n{done.stderr}"
        assert done.stdout.strip()
    assert "PgSleep" in bench.here("show", run, "--events").stdout
    profile = json.loads(bench.here("show", run, "--profile", "--json").stdout)
    assert {"DB time", "DB CPU", "CPU WAIT"} <= {r["name"] for r in profile["profile"]}
    assert bench.here("show", run, "--profile", "--window", "9").returncode == 2
    assert bench.here("rm", "--yes", run).returncode == 0
    assert run not in [r["id"] for r in bench.runs()]


def test_filters_choose_sessions(bench: Bench, tmp_path: Path) -> None:
    guest = bench.with_words(user="guest", application_name="shop")
    with load(bench.dsn, "-S", "-c", "2", "-R", "50"), load(guest, "-c", "1", "-f", _script(tmp_path)):
        working = "select pid from pg_stat_activity where usename = 'guest' and wait_event = 'PgSleep'"
        # not pgbench's first session, which asks for tables alone
        ((pid,),) = eventually(lambda: bench.ask(working))
        for words in (("--only-user", "guest"), ("--only-application", "shop"), ("--only-pid", str(pid))):
            document = observe(bench, "--for", "1s", "--window", "1s", *words)
            assert len(sessions(document)) == 1, words
            assert {r["pid"] for r in document["microstates"] if r["role"] == "session"} == {pid}


def _script(tmp_path: Path) -> str:
    script = tmp_path / "guest.sql"
    script.write_text(SLEEPER)
    return str(script)


def test_a_filter_that_matches_nobody_says_so_at_once_and_waits(bench: Bench) -> None:
    words = ("observe", "--dsn", bench.dsn, "--only-user", "guest", "--for", "2s", "--lines")
    # the server ends a session that was killed in mid-statement only when it looks at its socket again
    eventually(lambda: not bench.ask("select 1 from pg_stat_activity where usename = 'guest'"))
    done = bench.here(*words)
    assert done.returncode == 0, done.stderr
    assert "no session matches user guest" in done.stderr
    assert any(f["id"] == "nobody-observed" for f in bench.last()["findings"])


def test_a_user_that_does_not_exist_is_an_error_with_the_nearest_name(bench: Bench) -> None:
    done = bench.here("observe", "--dsn", bench.dsn, "--only-user", "gest", "--for", "2s")
    assert done.returncode == 2
    assert "guest" in done.stderr


def test_ctrl_c_keeps_whole_windows_and_the_one_under_way(bench: Bench, tmp_path: Path) -> None:
    words = ("observe", "--dsn", bench.dsn, "--window", "8s", "--lines")
    with sleepers(bench, tmp_path, 2), bench.background(*words) as observing:
        eventually(lambda: _cells(bench, observing.pid))
        time.sleep(1.5)  # so that more than a second of the next window has been
        observing.send_signal(signal.SIGINT)
        output, errors = observing.communicate(timeout=180)
    assert observing.returncode == 0, errors  # that is how it is ended
    assert "observing cost" in output
    windows = bench.last()["windows"]
    assert [w["status"] for w in windows] == ["ok"] * (len(windows) - 1) + ["short"]
    assert windows[-1]["reason"] == "stopped by the user" or "late at its end" in windows[-1]["reason"]
    assert 1 <= windows[-1]["wall_s"] <= 8
    assert bench.last()["run"]["status"] == "complete"


def test_ctrl_c_before_the_time_asked_for_is_cut_short(bench: Bench) -> None:
    with bench.background("observe", "--dsn", bench.dsn, "--for", "60s", "--window", "1s") as observing:
        eventually(lambda: _cells(bench, observing.pid))
        observing.send_signal(signal.SIGINT)
        _, errors = observing.communicate(timeout=180)
    assert observing.returncode == 130, errors
    assert bench.last()["run"]["status"] == "cut short"


def _cells(bench: Bench, pid: int) -> list[Path]:
    """Returns saved windows of that process's run."""
    cells = []
    for run in bench.home.glob("data/dbdyno/*-observed-*/run.json"):
        with contextlib.suppress(ValueError, OSError):
            if json.loads(run.read_text())["pid"] == pid:
                cells += [p for p in run.parent.glob("cells/[0-9]*") if p.is_dir()]
    return cells


def test_an_observation_goes_on_after_a_restart_of_the_server(fresh_bench: Bench, tmp_path: Path) -> None:
    bench = fresh_bench
    bench.dbdyno("server", "start")
    watching = "select 1 from pg_stat_activity where application_name like 'dbdyno activity%'"
    with contextlib.ExitStack() as stack:
        stack.enter_context(sleepers(bench, tmp_path, 2))
        began = time.monotonic()
        observing = stack.enter_context(bench.background("observe", "--dsn", bench.dsn, "--window", "60s"))
        eventually(lambda: bench.ask(watching))
        # More than a second of the window: it begins as long after its watch as that took to open.
        time.sleep(3 + time.monotonic() - began)
        assert bench.here("server", "stop").returncode == 0
        assert bench.dbdyno("server", "start").returncode == 0
        began = time.monotonic()
        stack.enter_context(sleepers(bench, tmp_path, 3))
        eventually(lambda: bench.ask(watching), 60)
        time.sleep(3 + time.monotonic() - began)
        observing.send_signal(signal.SIGINT)
        _, errors = observing.communicate(timeout=180)
    assert observing.returncode == 0, errors
    assert "the server is away" in errors
    assert "the server is back" in errors
    document = bench.last()
    before, after = document["windows"]
    assert [w["status"] for w in (before, after)] == ["short", "short"]
    assert "the server went away" in before["reason"]
    assert after["reason"] == "stopped by the user"
    assert after["t0_ns"] > before["t1_ns"] + S // 10  # the gap shows
    assert len(sessions(document, before["cell"])) >= 2
    assert len(sessions(document, after["cell"])) >= 3  # and whoever of this test looked in
    assert not sessions(document, before["cell"]) & sessions(document, after["cell"])
    assert any(f["id"] == "observation-gap" for f in document["findings"])


def test_a_server_gone_for_good_leaves_what_was_measured(fresh_bench: Bench) -> None:
    bench = fresh_bench
    bench.dbdyno("server", "start")
    with bench.background("observe", "--dsn", bench.dsn, "--window", "1s", "--for", "8s") as observing:
        eventually(lambda: _cells(bench, observing.pid))
        os.kill(int(bench.status()["pid"]), signal.SIGQUIT)  # immediate shutdown
        _, errors = observing.communicate(timeout=180)
    assert observing.returncode == 5, errors
    run = bench.last()["run"]
    assert run["status"] == "cut short"
    assert "was not back" in run["reason"]


def test_rights_revoked_in_the_middle_change_what_is_known(bench: Bench, tmp_path: Path) -> None:
    bench.ask("grant pg_monitor to watcher")
    words = ("observe", "--dsn", bench.with_words(user="watcher"), "--window", "2s", "--lines")
    with sleepers(bench, tmp_path, 2), bench.background(*words) as observing:
        eventually(lambda: _cells(bench, observing.pid))
        bench.ask("revoke pg_monitor from watcher")
        before = len(_cells(bench, observing.pid))
        eventually(lambda: len(_cells(bench, observing.pid)) >= before + 2)
        observing.send_signal(signal.SIGINT)
        _, errors = observing.communicate(timeout=180)
    assert observing.returncode == 0, errors
    assert "sessions of other users: not permitted" in errors  # reported when it happened
    document = bench.last()
    hidden = [s for s in document["sources"] if s["name"] == "sessions of other users"]
    assert [s["status"] for s in hidden] == ["not permitted"]
    assert "GRANT pg_monitor" in hidden[0]["detail"]
    for window in document["windows"]:
        assert len(sessions(document, window["cell"])) >= 2  # still there, by their databases


def test_an_observation_beside_a_run_measures_its_sessions(bench: Bench) -> None:
    with bench.background(
        "run",
        "lio",
        "--dsn",
        bench.dsn,
        "--sessions",
        "2",
        "--measure",
        "100s",
        "--call-target",
        "50ms",
        "--think",
        "50ms",
    ) as run:
        eventually(lambda: bench.ask(CALLING)[0][0] >= 2)
        document = observe(bench, "--for", "2s")
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=180)
    assert run.returncode == 130
    assert len(sessions(document)) >= 2
    (window,) = document["windows"]
    assert account(document, "run", window["cell"]) + account(document, "runq", window["cell"]) > 0.5


def test_an_address_without_a_server_is_an_error_and_leaves_no_run(bench: Bench) -> None:
    done = bench.here("observe", "--dsn", "host=127.0.0.1 port=1 user=x", "--for", "2s")
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert [r for r in bench.runs() if r["status"] == "running"] == []


def test_keys_sort_and_filter_the_live_view(bench: Bench, tmp_path: Path) -> None:
    argv = [PROGRAM, "observe", "--dsn", bench.dsn, "--window", "2s", "--refresh", "0.5"]
    with (
        sleepers(bench, tmp_path, 2),
        load(bench.dsn, "-S", "-c", "1", "-R", "100"),
        terminal(argv, bench.env) as screen,
    ):
        screen.until(lambda text: text.count("pgbench") >= 3 and "Timeout/PgSleep" in text)
        screen.until(lambda text: "DB%\u25bc" in text)
        asleep = screen.until(lambda text: _pids(text) and WINDOWS_STORED.search(text))
        screen.press("c")
        by_cpu = screen.until(lambda text: "CPU%\u25bc" in text)
        assert sorted(_pids(by_cpu)) == sorted(_pids(asleep))
        assert _pids(by_cpu)[0] not in _pids(by_cpu)[1:]
        screen.press("/PgSleep\r\x1b[D\x1b[D\x1b[D\x1b[D")
        by_pid = screen.until(lambda text: "pid\u25bc" in text)
        assert _pids(by_pid) == sorted(_pids(by_pid), reverse=True)
        screen.press("fPgSleep\r")
        screen.until(lambda text: "only 'PgSleep'" in text and len(_pids(text)) == 2)
        screen.press("\r")
        alone = screen.until(lambda text: "its events, share of its time" in text)
        assert "Timeout/PgSleep" in alone.split("its events")[1]
        assert "Client/ClientRead" not in alone.split("top events")[0].split("session ")[0]
        screen.press("\x1b")
        screen.press("p")
        screen.until(lambda text: "PAUSED" in text)
        screen.press("h")
        screen.until(lambda text: "process id of the session" in text)
        assert screen.modes() != screen.before  # keys come one by one
        screen.press("q")  # closes the help
        screen.until(lambda text: "process id of the session" not in text and "PAUSED" in text)
        screen.press("q")
        assert screen.wait() == 0
        assert screen.modes() == screen.before
        assert b"\x1b[?1049l" in screen.data  # back from its own screen
        assert b"\x1b[?25h" in screen.data  # with a cursor
    assert len(bench.last()["windows"]) >= 1


@contextlib.contextmanager
def blocked(dsn: str) -> Iterator[tuple[int, int]]:
    """Yields the processes of a session that holds a lock and of one that waits for it."""
    with psycopg.connect(dsn) as waiter, contextlib.ExitStack() as end:
        holder = psycopg.connect(dsn)
        holder.execute("select pg_advisory_xact_lock(37)")
        wait = "select pg_advisory_xact_lock(37) as wanted"
        waiting = threading.Thread(target=waiter.execute, args=[wait])
        end.callback(waiting.join)
        end.callback(holder.close)
        waiting.start()
        yield holder.info.backend_pid, waiter.info.backend_pid


def test_the_screen_of_transactions_names_the_blocker_and_the_blocked(bench: Bench) -> None:
    argv = [PROGRAM, "observe", "--dsn", bench.dsn, "--window", "2s", "--refresh", "0.5"]
    with blocked(bench.dsn) as (holder, waiter), terminal(argv, bench.env) as screen:
        screen.until(lambda text: "5 transactions" in text)
        screen.press("5")
        text = screen.until(lambda text: f"blocks {waiter} for" in text and f"waits for {holder}" in text)
        rows = {int(line.split()[0]): line for line in text.splitlines() if line[:8].strip().isdigit()}
        assert "idle in tx" in rows[holder] and f"blocks {waiter}" in rows[holder]
        assert "active" in rows[waiter]
        screen.press("/as wanted\r\r")
        screen.until(lambda text: "select pg_advisory_xact_lock(37) as wanted" in text)
        screen.until(WINDOWS_STORED.search)
        screen.press("q")
        assert screen.wait() == 0


def test_q_ends_and_says_that_it_is_saving(bench: Bench) -> None:
    argv = [PROGRAM, "observe", "--dsn", bench.dsn, "--window", "3s", "--refresh", "0.5"]
    with load(bench.dsn, "-S", "-c", "1", "-R", "100"), terminal(argv, bench.env) as screen:
        screen.until(WINDOWS_STORED.search)
        screen.press("q")
        screen.until(lambda text: "saving" in text)
        assert screen.wait() == 0
    assert screen.data.index(b"saving") < screen.data.index(b"\x1b[?1049l")  # before its screen is left
    assert bench.last()["run"]["status"] == "complete"
    assert len(bench.last()["windows"]) >= 1
    shown = bench.here("show", "last", "--profile")
    assert shown.returncode == 0 and "DB time" in shown.stdout


def test_the_terminal_is_restored_after_ctrl_c_and_after_an_error(bench: Bench) -> None:
    argv = [PROGRAM, "observe", "--dsn", bench.dsn, "--window", "1s"]
    with terminal(argv, bench.env) as screen:
        screen.until(lambda text: "dbdyno observe" in text)
        screen.press("\x03")
        assert screen.wait() in (0, 130)
        assert screen.modes() == screen.before
    with terminal([*argv, "--store", "/proc/none"], bench.env) as screen:
        assert screen.wait() == 4
        assert screen.modes() == screen.before


def _pids(text: str) -> list[int]:
    """Returns the pids in the table of sessions, in their order."""
    lines = text.split("user@database")[-1].splitlines()
    return [int(line[:7]) for line in lines if line[:7].strip().isdigit()]


def test_no_connection_is_left_for_the_server_to_miss(bench: Bench) -> None:
    """PostgreSQL counts sessions whose client went away without a word, and monitoring alerts on them."""
    bench.ask("drop database if exists counted")
    bench.ask("create database counted")
    dsn = bench.with_words(dbname="counted")
    done = bench.here("observe", "--dsn", dsn, "--for", "1s", "--window", "1s")
    assert done.returncode == 0, done.stderr
    of_it = "where datname = 'counted'"
    assert eventually(lambda: bench.ask(f"select count(*) from pg_stat_activity {of_it}") == [(0,)])
    counted = bench.ask(f"select sessions > 0, sessions_abandoned from pg_stat_database {of_it}")
    assert counted == [(True, 0)]
