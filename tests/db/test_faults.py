"""Real faults in mid-run leave a shorter, readable run with the reason."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.db.conftest import LIGHT_CALLS, QUICK, Bench, eventually
from tests.windows import into_the_window

pytestmark = pytest.mark.db
LONG = ("--verbose", "--measure", "60s", "--settle", "300ms", "--no-memory", "--no-snapshots")
THINKING = ("--call-target", "50ms", "--think", "50ms")  # leaves others the CPUs
THREE = ("--sessions", "1,2,3", *QUICK, *LIGHT_CALLS)
OURS = "state = 'active' and query ~ 'lio|pg_sleep.0.01' and pid <> pg_backend_pid()"
CALLING = f"select count(*) from pg_stat_activity where {OURS}"
TERMINATE = f"select pg_terminate_backend(pid) from pg_stat_activity where {OURS} limit 1"


@pytest.fixture
def brief(tmp_path: Path) -> tuple[str, ...]:
    """Returns the words of a load that leaves the machine its CPUs."""
    script = tmp_path / "brief.sql"
    script.write_text("select pg_sleep(0.01)")
    return ("--script", str(script))


def _readable(bench: Bench, reason: str) -> dict[str, object]:
    """Checks that the last run is cut short with that reason, and still shows and exports. Returns its
    document."""
    shown = bench.last()
    run = shown["run"]
    assert isinstance(run, dict)
    assert run["status"] == "cut short"
    assert reason in str(run["reason"])
    for words in (("show", "last"), ("report", "last", "-o", "x.html"), ("export", "last", "--to", "json")):
        assert bench.here(*words).returncode == 0
    return shown


def _saved_cells(bench: Bench) -> int:
    """Returns the number of saved cells of all runs."""
    return len(list(bench.home.glob("data/dbdyno/*/cells/[!.]*")))


def test_ctrl_c_keeps_what_was_measured(bench: Bench) -> None:
    before = _saved_cells(bench)
    with bench.background("run", "lio", "--dsn", bench.dsn, *THREE) as run:
        eventually(lambda: _saved_cells(bench) > before)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=120)
    assert run.returncode == 130, errors
    shown = _readable(bench, "stopped by the user")
    assert shown["rungs"]


def test_a_second_ctrl_c_ends_at_once(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "slow.sql"
    script.write_text("select pg_sleep(60)")
    with bench.background("run", "--script", str(script), "--dsn", bench.dsn, "--sessions", "2") as run:
        eventually(lambda: bench.ask("select 1 from pg_stat_activity where wait_event = 'PgSleep'"))
        run.send_signal(signal.SIGINT)
        time.sleep(1)
        assert run.poll() is None  # calls in flight are waited for
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=120)
    assert run.returncode == 130
    eventually(lambda: not bench.ask("select 1 from pg_stat_activity where wait_event = 'PgSleep'"))


def test_a_server_stopped_in_mid_rung_leaves_a_readable_run(
    fresh_bench: Bench, brief: tuple[str, ...]
) -> None:
    fresh_bench.dbdyno("server", "start")
    pid = int(fresh_bench.status()["pid"])
    with fresh_bench.background("run", *brief, "--dsn", fresh_bench.dsn, "--sessions", "2", *LONG) as run:
        into_the_window(run)
        os.kill(pid, signal.SIGQUIT)  # immediate shutdown
        _, errors = run.communicate(timeout=120)
    assert run.returncode == 5, errors
    _readable(fresh_bench, "lost")


def test_one_backend_terminated_costs_one_session(bench: Bench, brief: tuple[str, ...]) -> None:
    measured = ("--verbose", "--settle", "300ms", "--measure", "6s")
    with bench.background("run", *brief, "--dsn", bench.dsn, "--sessions", "4", *measured) as run:
        into_the_window(run)
        assert eventually(lambda: bench.ask(TERMINATE)) == [(True,)]
        _, errors = run.communicate(timeout=120)
    assert run.returncode == 0, errors
    shown = bench.last()
    assert shown["run"]["status"] == "complete"
    (lost,) = (f for f in shown["findings"] if f["id"] == "sessions-lost")
    assert (lost["value"], lost["unit"]) == (1, "sessions")
    assert "57P01" in lost["claim"]


class Proxy:
    """A TCP proxy before a unix socket that can cut all its connections."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def cut(self) -> None:
        self._listener.close()
        for s in self._pairs:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._upstream)
            self._pairs += [client, server]
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def test_a_cut_network_leaves_a_readable_run(bench: Bench, brief: tuple[str, ...]) -> None:
    status = bench.status()
    proxy = Proxy(str(next(Path(str(status["socket"])).glob(".s.PGSQL.*[0-9]"))))
    dsn = bench.with_words(host="127.0.0.1", port=str(proxy.port), sslmode="disable")
    with bench.background("run", *brief, "--dsn", dsn, "--sessions", "2", *LONG) as run:
        into_the_window(run)
        proxy.cut()
        _, errors = run.communicate(timeout=120)
    assert run.returncode == 5, errors
    _readable(bench, "lost")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs: run the tests as root")
def test_a_full_disk_in_the_store_leaves_a_readable_run(bench: Bench, tmp_path: Path) -> None:
    with _small_tmpfs(tmp_path / "small") as store:
        with bench.background("run", "lio", "--dsn", bench.dsn, *THREE, "--store", str(store)) as run:
            eventually(lambda: list(store.glob("*/cells/[0-9]*")))
            with (store / "filler").open("wb", buffering=0) as f, contextlib.suppress(OSError):
                while True:
                    f.write(b"x" * 4096)
            _, errors = run.communicate(timeout=120)
        assert run.returncode in (4, 5), errors
        assert "space" in errors or "full" in errors
        shown = bench.here("show", "last", "--store", str(store))
        assert shown.returncode == 0, shown.stderr


@contextlib.contextmanager
def _small_tmpfs(where: Path) -> Iterator[Path]:
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(where)], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


def test_a_second_run_on_a_server_is_refused_while_the_first_goes_on(bench: Bench) -> None:
    """The first run goes on until the second is refused, then ends when it is stopped."""
    with bench.background("run", "lio", "--dsn", bench.dsn, "--sessions", "1", *LONG, *THINKING) as first:
        eventually(lambda: bench.ask(CALLING)[0][0] >= 1)
        second = bench.here("run", "lio", "--dsn", bench.dsn, "--sessions", "1", *QUICK)
        assert second.returncode == 3, second.stderr
        assert "another run" in second.stderr or "already" in second.stderr
        into_the_window(first)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=120)
    assert first.returncode == 130
    (window,) = bench.last()["windows"]
    assert (window["status"], window["reason"]) == ("short", "stopped by the user")


def test_no_orphan_survives_a_kill(fresh_bench: Bench) -> None:
    with fresh_bench.background("run", "lio", "--sessions", "1", "--measure", "60s", *LIGHT_CALLS) as run:
        pid = eventually(lambda: fresh_bench.status().get("pid"))
        run.kill()
        run.wait()
    words = ("run", "lio", "--sessions", "1", *QUICK, *LIGHT_CALLS)
    done = fresh_bench.here(*words)
    assert done.returncode == 0, done.stderr
    assert not Path(f"/proc/{pid}").exists()
    assert fresh_bench.status()["running"] is False
