"""A closed terminal, a closed pipe, a stopped process: no measurement is lost, and none counts as good."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence

import pytest

from dbdyno import conduct
from dbdyno.model.results.results import Results
from dbdyno.store import RunStore
from tests.db.conftest import PROGRAM, Bench

pytestmark = pytest.mark.db
BRIEF = ("--call-target", "1ms", "--think", "100ms", "--measure", "1500ms")  # leaves others the CPUs
STOPPED_S = 2.0
NS_PER_S = 1_000_000_000
_STYLES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_PATIENCE_S = 120


class Terminal:
    """The program as leader of a session on a terminal of its own."""

    def __init__(self, bench: Bench, words: Sequence[str]) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(bench.home)
            os.execve(PROGRAM, [PROGRAM, *words], bench.env | {"TERM": "xterm", "COLUMNS": "200"})
        self._seen = b""
        self.stops: list[tuple[int, int]] = []  # CLOCK_MONOTONIC, ns

    def until(self, words: str) -> bytes:
        """Returns the output up to ``words``. Earlier output does not count."""
        deadline = time.monotonic() + _PATIENCE_S
        self._seen = b""
        while not re.search(words.encode(), _STYLES.sub(b"", self._seen)):
            assert select.select([self._master], [], [], deadline - time.monotonic())[0], self._seen
            self._seen += os.read(self._master, 65536)
        return self._seen

    def stop(self) -> None:
        """Stops the program for a while, as Ctrl-Z or a debugger does."""
        os.kill(self.pid, signal.SIGSTOP)
        from_ns = time.monotonic_ns()
        time.sleep(STOPPED_S)
        self.stops.append((from_ns, time.monotonic_ns()))
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> int:
        """Closes the terminal and returns the program's exit code."""
        os.close(self._master)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        assert os.WIFEXITED(status), status
        return os.WEXITSTATUS(status)


@contextlib.contextmanager
def on_a_terminal(bench: Bench, *words: str) -> Iterator[Terminal]:
    terminal = Terminal(bench, words)
    try:
        yield terminal
    finally:
        if terminal.pid:
            os.kill(terminal.pid, signal.SIGKILL)
            with contextlib.suppress(AssertionError):
                terminal.close()


def _last(bench: Bench) -> Results:
    """Returns the last run, which has a report beside it."""
    record = RunStore(bench.home / "data/dbdyno").open("last")
    assert (record.path / "report.html").exists()
    return conduct.derived_of(record)


def _stopped_s(stops: Sequence[tuple[int, int]], t0_ns: int, t1_ns: int) -> float:
    """Returns for how long (s) dbdyno was stopped in that time."""
    return sum(max(0, min(b, t1_ns) - max(a, t0_ns)) for a, b in stops) / NS_PER_S


def _check(bench: Bench, stops: Sequence[tuple[int, int]], rest_ns: int) -> list[str]:
    """Checks that measurements are marked if dbdyno was stopped within them, and not otherwise. Returns
    their statuses.

    A test on a busy machine may send its signal late, so the check uses the times that it noted.
    """
    cells, _ = RunStore(bench.home / "data/dbdyno").open("last").read_cells()
    for cell in cells:
        m = cell.meta
        names_the_stop = "dbdyno was stopped for " in (m.reason or "")
        if _stopped_s(stops, m.t0_ns, m.t1_ns) > 0.6:
            assert names_the_stop and m.status != "ok", m
        if _stopped_s(stops, m.t0_ns - rest_ns, max(m.t1_ns, m.end_ns) + rest_ns) == 0:
            assert not names_the_stop, m
    return [c.meta.status for c in cells]


def test_stops_and_a_closed_terminal_in_a_run(bench: Bench) -> None:
    words = ("run", "lio", "--dsn", bench.dsn, "--setting", "work_mem=5MB", "--sessions", "1,2,3,4,1,2")
    with on_a_terminal(bench, *words, *BRIEF, "--settle", "1s") as terminal:
        for phase in ("calibrating", "1 session +settling", "2 sessions +measuring"):
            terminal.until(phase)
            terminal.stop()
        terminal.until("4 sessions +settling")
        assert terminal.close() == 130
    statuses = _check(bench, terminal.stops, NS_PER_S // 5)
    assert "invalid" in statuses and "ok" in statuses, statuses
    results = _last(bench)
    assert (results.info.status, results.info.reason) == ("cut short", "stopped by the user")
    reasons = [f.text for f in results.findings if f.id == "cell-invalid"]
    assert any("dbdyno was stopped for " in t for t in reasons) and not any("(-" in t for t in reasons), (
        reasons
    )
    assert bench.ask("show work_mem") != [("5MB",)]


def test_stops_and_a_closed_terminal_in_an_observation(bench: Bench) -> None:
    report = bench.home / "closed.html"
    words = ("observe", "--dsn", bench.dsn, "--window", "1s", "--lines", "--report", str(report))
    with on_a_terminal(bench, *words) as terminal:
        terminal.until("postgres 1")
        terminal.stop()
        line = r"\n\S+ +\d+( +[\d.]+)+"
        while b"dbdyno was stopped for " not in terminal.until(f"dbdyno was stopped for |({line}.*){{3}}"):
            terminal.stop()  # the one before was between two windows
        terminal.until(rf"{line} +(I/O [^:\r]*)?\r\n")  # and a whole window after it
        assert terminal.close() == 0
    statuses = _check(bench, terminal.stops, NS_PER_S // 5)
    assert "ok" in statuses and set(statuses) != {"ok"}, statuses
    assert report.exists()
    results = _last(bench)
    assert results.info.status == "complete"
    marked = [f for f in results.findings if "dbdyno was stopped for " in f.text]
    assert {f.id for f in marked} <= {"window-short", "cell-invalid"} and marked


def test_nohup_and_a_pipe_that_is_closed_change_nothing(bench: Bench) -> None:
    words = ("run", "lio", "--dsn", bench.dsn, "--sessions", "1", *BRIEF, "--settle", "100ms")
    with _run_piped(bench, ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", PROGRAM, *words]) as process:
        assert process.stderr is not None
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait(_PATIENCE_S) == 0
    assert _last(bench).info.status == "complete"


def test_an_observation_without_an_end_ends_with_its_reader(bench: Bench) -> None:
    report = bench.home / "head.html"
    words = ("observe", "--dsn", bench.dsn, "--window", "1s", "--report", str(report))
    with _run_piped(bench, [PROGRAM, *words], "postgres ") as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        assert process.wait(_PATIENCE_S) in (0, 130), errors  # 130: not even a second was measured
    assert b"the reader of the output has ended" in errors
    assert b"Traceback" not in errors


@contextlib.contextmanager
def _run_piped(bench: Bench, argv: list[str], after: str = "run ") -> Iterator[subprocess.Popen[bytes]]:
    """Reads the program's output up to a line that begins with ``after``, then closes its standard output."""
    with subprocess.Popen(
        argv, env=bench.env, cwd=bench.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        printed = process.stderr if after == "run " else process.stdout
        while not printed.readline().decode().startswith(after):
            assert process.poll() is None
        process.stdout.close()
        yield process
