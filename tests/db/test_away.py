"""A closed terminal, a closed pipe, a stopped process: nothing measured is lost, nothing is praised."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.db.conftest import PROGRAM, Bench, eventually

pytestmark = pytest.mark.db
BRIEF = ("--settle", "200ms", "--call-target", "20ms")


def _cells(bench: Bench) -> int:
    return len([p for p in bench.home.glob("data/dbdyno/*/cells/*") if not p.name.startswith(".")])


def _measuring(bench: Bench, sessions: int) -> bool:
    """So many sessions make calls."""
    ours = "query like '%lio%' and pid <> pg_backend_pid()"
    active = f"select 1 from pg_stat_activity where {ours} and state = 'active'"
    return len(bench.ask(active)) >= sessions


def _last(bench: Bench) -> dict[str, object]:
    run = bench.last()["run"]
    assert isinstance(run, dict)
    return run


def _on_a_terminal(bench: Bench, words: Sequence[str]) -> tuple[int, int]:
    """(process, master) of the program as leader of a session on a terminal of its own."""
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(bench.home)
        os.execve(PROGRAM, [PROGRAM, *words], bench.env | {"TERM": "xterm"})
    return pid, master


def test_a_hang_up_puts_back_keeps_and_reports(bench: Bench) -> None:
    words = ("run", "lio", "--dsn", bench.dsn, "--setting", "work_mem=5MB", "--sessions", "1,2,3")
    before = _cells(bench)
    with bench.background(*words, "--measure", "1s", *BRIEF) as run:
        eventually(lambda: _cells(bench) > before)
        run.send_signal(signal.SIGHUP)
        run.send_signal(signal.SIGHUP)  # the shell's, and the kernel's
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 130, errors
    assert (_last(bench)["status"], _last(bench)["reason"]) == ("cut short", "stopped by the user")
    assert bench.ask("show work_mem") != [("5MB",)]


@pytest.mark.parametrize("what", ["run", "observe"])
def test_a_terminal_that_is_closed_loses_nothing(bench: Bench, what: str) -> None:
    run = ("run", "lio", "--sessions", "1,2,3", "--measure", "1s", *BRIEF)
    words = run if what == "run" else ("observe", "--window", "1s")
    pid, master = _on_a_terminal(bench, (*words, "--dsn", bench.dsn))
    before = _cells(bench)
    while _cells(bench) == before:
        os.read(master, 65536)
    os.close(master)
    _, status = os.waitpid(pid, 0)
    assert os.WIFEXITED(status), status
    last = _last(bench)
    assert last["status"] == ("cut short" if what == "run" else "complete")
    assert (Path(str(bench.home)) / "data/dbdyno" / str(last["id"]) / "report.html").exists()


def test_nohup_and_a_pipe_that_is_closed_change_nothing(bench: Bench) -> None:
    words = ("run", "lio", "--dsn", bench.dsn, "--sessions", "1,2", "--measure", "1s", *BRIEF)
    with subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", PROGRAM, *words],
        env=bench.env,
        cwd=bench.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith(b"run ")
        process.stdout.close()
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
    assert _last(bench)["status"] == "complete"


def test_a_measurement_in_which_dbdyno_was_stopped_is_invalid(bench: Bench) -> None:
    words = ("run", "lio", "--dsn", bench.dsn, "--sessions", "1,2", "--measure", "4s", *BRIEF)
    before = _cells(bench)
    with bench.background(*words) as run:
        eventually(lambda: _cells(bench) > before and _measuring(bench, 2))
        time.sleep(1)  # they make calls, so the window begins within the time of settling
        run.send_signal(signal.SIGSTOP)
        time.sleep(4)  # longer than what is left of the window
        run.send_signal(signal.SIGCONT)
        run.communicate(timeout=60)
    shown = bench.last()
    assert [r["status"] for r in shown["rungs"]] == ["ok", "invalid"]
    told = [f["claim"] for f in shown["findings"] if f["id"] == "cell-invalid"]
    assert len(told) == 1 and "dbdyno was stopped for " in told[0]
    assert shown["run"]["status"] == "complete"


def test_windows_in_which_dbdyno_was_stopped_are_marked(bench: Bench) -> None:
    words = ("observe", "--dsn", bench.dsn, "--window", "1500ms", "--for", "9s", "--lines")
    before = _cells(bench)
    with bench.background(*words) as run:
        eventually(lambda: _cells(bench) > before)
        run.send_signal(signal.SIGSTOP)
        time.sleep(4)
        run.send_signal(signal.SIGCONT)
        out, errors = run.communicate(timeout=60)
    assert run.returncode == 0, errors
    assert "dbdyno was stopped for " in errors and "dbdyno was stopped for " in out
    marked = [f for f in bench.last()["findings"] if "dbdyno was stopped for " in f["claim"]]
    assert {f["id"] for f in marked} <= {"window-short", "cell-invalid"} and marked
