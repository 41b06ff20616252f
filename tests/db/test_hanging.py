"""Servers that hang: before, during and after a measurement. The first Ctrl-C ends every command."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dbdyno.cli.app import app
from dbdyno.engines.postgres import connect, patience, sessions
from dbdyno.store import RunStore
from tests.conftest import Servers
from tests.contract import driving
from tests.contract.hostile import Script, endless_scram, hostile, silent_when_ready
from tests.contract.plain_server import PlainServer, plain_server
from tests.db.conftest import Bench, eventually
from tests.windows import in_the_window

pytestmark = pytest.mark.db
ACTIVE = "select 1 from pg_stat_activity where state = 'active' and pid <> pg_backend_pid() and query ~ "


def test_the_first_ctrl_c_ends_a_command_that_waits_for_a_server(fresh_bench: Bench) -> None:
    """Several run at once, as each waits most of the time."""
    cases: tuple[tuple[Script, tuple[str, ...]], ...] = (
        (silent_when_ready, ("run", "lio")),
        (silent_when_ready, ("observe",)),
        (endless_scram, ("clean",)),
        (endless_scram, ("selftest",)),
    )
    with contextlib.ExitStack() as stack:
        started = []
        for script, words in cases:
            server = stack.enter_context(hostile(script))
            dsn = f"{server.dsn} password=nobody connect_timeout=600"
            started.append((server, stack.enter_context(fresh_bench.background(*words, "--dsn", dsn))))
        for server, _ in started:
            eventually(lambda server=server: server.lines, 120)
        time.sleep(1)
        for _, command in started:
            command.send_signal(signal.SIGINT)
        for _, command in started:
            _, errors = command.communicate(timeout=120)
            assert command.returncode == 130, (command.args, errors)
            assert "Traceback" not in errors
    assert RunStore(fresh_bench.home / "data/dbdyno").list() == []


@pytest.fixture(scope="module")
def server(servers: Servers) -> Iterator[PlainServer]:
    with plain_server(servers.bin_dir(18)) as server:
        yield server


def _pids(server: PlainServer) -> list[int]:
    main = int((server.data / "postmaster.pid").read_text().split()[0])
    return [main, *map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())]


def _stop_processes(server: PlainServer) -> list[int]:
    """Stops all processes of the server and returns them. A backend may end meanwhile."""
    pids = _pids(server)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    return pids


@contextlib.contextmanager
def stopped_in_the_window(server: PlainServer) -> Iterator[None]:
    """Stops the whole server from the window on."""
    stopped: list[int] = []
    try:
        with in_the_window(lambda: stopped.extend(_stop_processes(server))):
            yield
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_a_server_that_hangs_in_mid_run_leaves_a_shorter_run_with_the_reason(
    server: PlainServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "GRACE_MS", 1000)
    monkeypatch.setattr(connect.Connection, "_patience_s", 1.0)
    monkeypatch.setattr(connect, "CANCEL_S", 0.5)
    script = tmp_path / "brief.sql"
    script.write_text("select pg_sleep(0.01)")
    measured = ("--sessions", "2", "--settle", "300ms", "--measure", "4s", "--store", str(tmp_path / "s"))
    with stopped_in_the_window(server):
        done = CliRunner().invoke(app, ["run", "--script", str(script), "--dsn", server.dsn, *measured])
    assert done.exit_code == 5, done.output
    assert "all sessions were lost: no answer within 1000 ms" in done.output
    shown = CliRunner().invoke(app, ["show", "last", "--store", str(tmp_path / "s")])
    assert shown.exit_code == 0
    assert "no answer within" in shown.output


def _saved_windows(store: Path) -> list[Path]:
    return [p for p in store.glob("*/cells/*") if not p.name.startswith(".")]


@contextlib.contextmanager
def stopped_after_a_window(
    server: PlainServer,
    store: Path,
    and_then: Callable[[], None],
    afterwards: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Stops the whole server once a window is saved, until ``and_then`` has returned."""

    def hang() -> None:
        eventually(lambda: _saved_windows(store), 120)
        pids = _stop_processes(server)
        try:
            and_then()
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            afterwards()

    thread = threading.Thread(target=hang)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _observe(server: PlainServer, store: Path, *more: str) -> Result:
    words = ["observe", "--dsn", server.dsn, "--window", "1s", "--store", str(store), *more]
    return CliRunner().invoke(app, words)


def test_a_server_that_hangs_and_comes_back_leaves_an_incomplete_window_and_whole_ones(
    server: PlainServer, tmp_path: Path
) -> None:
    def two_windows_more() -> None:
        before = len(_saved_windows(tmp_path))
        try:
            eventually(lambda: len(_saved_windows(tmp_path)) >= before + 2, 120)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    with stopped_after_a_window(server, tmp_path, lambda: time.sleep(4), two_windows_more):
        done = _observe(server, tmp_path)
    assert done.exit_code == 0, done.output
    assert "is incomplete" in done.output and "the server answered " in done.output
    cells, _ = RunStore(tmp_path).open("last").read_cells()
    ends = [c.meta.t1_ns for c in cells]
    starts = [c.meta.t0_ns for c in cells]
    assert "short" in [c.meta.status for c in cells]
    assert max(b - a for a, b in zip(ends, starts[1:], strict=False)) > 1e9  # a hole, no empty windows


def test_ctrl_c_while_a_server_hangs_keeps_what_was_observed(
    server: PlainServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "STOPPING_S", 1.0)
    monkeypatch.setattr(connect, "CANCEL_S", 0.5)
    over = threading.Event()

    def interrupt() -> None:
        time.sleep(2)
        os.kill(os.getpid(), signal.SIGINT)
        over.wait(60)

    with stopped_after_a_window(server, tmp_path, interrupt):
        done = _observe(server, tmp_path)
        over.set()
    assert done.exit_code in (0, 130), done.output
    assert "Traceback" not in done.output
    assert "the server went away (stopped by the user)" not in done.output
    assert RunStore(tmp_path).open("last").cells()


def _is_sleeping(server: PlainServer) -> bool:
    return bool(server.ask(f"{ACTIVE} 'forever'"))


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("select pg_sleep(600) /* forever */", "no answer within 300 ms"),
        (
            "do $$ begin /* forever */ for i in 1..2000000000 loop raise notice 'flood'; end loop; end $$",
            "notices meanwhile",
        ),
    ],
    ids=["sleep", "notices"],
)
def test_a_call_that_is_given_up_is_cancelled_and_the_reason_stored(
    server: PlainServer, call: str, reason: str
) -> None:
    tables = driving.run(server.target(), [driving.statement(call)], 2, seconds=1, threads=1, grace_ms=300)
    assert tables["sessions"]["end_reason"].to_list() == ["lost", "lost"]
    assert all(reason in words for words in tables["sessions"]["end_detail"])
    eventually(lambda: not _is_sleeping(server))


def test_a_load_that_is_broken_off_leaves_no_call_behind(server: PlainServer) -> None:
    running = driving.connect_load(
        server.target(), [driving.statement("select pg_sleep(600) /* forever */")], 3
    )
    driving.start(running)
    eventually(lambda: _is_sleeping(server))
    running.abort()
    driving.until_done(running)
    eventually(lambda: not _is_sleeping(server))


@pytest.mark.parametrize("command", ["run", "observe", "clean", "selftest"])
@pytest.mark.parametrize("dsn", ["host=127.0.0.1 port=1 password=h", "postgresql://u:hush@127.0.0.1:1/d"])
def test_a_password_on_the_command_line_is_warned_of(command: str, dsn: str) -> None:
    words = {"run": ["lio"]}.get(command, [])
    done = CliRunner().invoke(app, [command, *words, "--dsn", dsn])
    assert done.output.startswith("warning: the password in --dsn")
    assert "~/.pgpass" in done.output
    assert "hush" not in done.output


def test_no_warning_without_a_password() -> None:
    done = CliRunner().invoke(app, ["clean", "--dsn", "host=127.0.0.1 port=1 user=password"])
    assert "warning" not in done.output
