"""Cost of ``dbdyno observe`` for another application's load: pgbench -S, observed or not in alternating
slices."""

from __future__ import annotations

import contextlib
import math
import os
import pty
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.common import Bench, server
from dbdyno.stats.estimates import students_quantile

_TPS = re.compile(rb"progress: [0-9.]+ s, ([0-9.]+) tps")
_COST = re.compile(r"observing cost ([0-9.]+) % .*?(?:samplers ([0-9.]+) %)?\) and ([0-9.]+) %")
SLICES = 4  # pairs of short slices for each pair of runs that was asked for
_READY_S = 2.0  # after the first window's begin: connected, first reads over


@dataclass
class Load:
    """A pgbench that prints its rate each second."""

    process: subprocess.Popen[bytes]

    def rate(self, seconds: float) -> float:
        """Returns the mean transactions per second over whole seconds that begin from now on."""
        assert self.process.stderr is not None
        self._drain()
        until, rates = time.monotonic() + seconds, []
        self.process.stderr.readline()  # the second under way is partly before
        while time.monotonic() < until:
            if match := _TPS.search(self.process.stderr.readline()):
                rates.append(float(match[1]))
        return statistics.fmean(rates)

    def _drain(self) -> None:
        assert self.process.stderr is not None
        while select.select([self.process.stderr], [], [], 0)[0]:
            os.read(self.process.stderr.fileno(), 65536)


@contextlib.contextmanager
def load(bench: Bench, sessions: int, *words: str) -> Iterator[Load]:
    command = [
        str(bench.pgbench_program),
        "-n",
        "-M",
        "prepared",
        "-S",
        "-P",
        "1",
        "-T",
        "36000",
        "-j",
        "2",
        "-c",
        str(sessions),
        "-h",
        bench.socket,
        "-U",
        bench.user,
        *words,
        "postgres",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0)
    try:
        yield Load(process)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def idle(bench: Bench, sessions: int) -> Iterator[None]:
    """Keeps sessions open that do nothing."""
    with contextlib.ExitStack() as stack:
        for _ in range(sessions):
            stack.enter_context(psycopg.connect(host=bench.socket, user=bench.user, dbname="postgres"))
        yield


class Observer:
    """The observing program, on a terminal (live view) or in a pipe (lines). It can be stopped and
    continued."""

    def __init__(self, bench: Bench, store: Path, *words: str, live: bool = False) -> None:
        dsn = f"host={bench.socket} user={bench.user} dbname=postgres"
        command = [sys.executable, "-m", "dbdyno", "observe", "--dsn", dsn, "--store", str(store), *words]
        self._master, out = pty.openpty() if live else os.pipe()
        self._process = subprocess.Popen(
            command, stdin=out if live else subprocess.DEVNULL, stdout=out, stderr=out
        )
        os.close(out)
        self.output = b""
        while (b"waits " if live else b"postgres 1") not in self.output:
            self.output += os.read(self._master, 65536)
        threading.Thread(target=self._read, daemon=True).start()
        time.sleep(_READY_S)

    def _read(self) -> None:
        """Reads its output, so that the pipe never fills up."""
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 65536):
                self.output += data

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def cpu_s(self) -> float:
        """Returns its CPU time so far, without child processes (proc_pid_stat(5), fields 14, 15)."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def files(self) -> int:
        """Returns the number of its open descriptors."""
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def end(self) -> tuple[float, float, float]:
        """Ends it. Returns CPU of the process, of its samplers, and of the server's processes for them, in
        % of one CPU."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        time.sleep(0.2)
        match = _COST.search(self.output.decode("utf-8", "replace").replace("\r", ""))
        if match is None:
            raise RuntimeError(self.output.decode("utf-8", "replace")[-2000:])
        return float(match[1]), float(match[2] or 0), float(match[3])


LIVE_S, LIVE_SESSIONS = 60.0, 50


def live_view(_count: int, _seconds: float) -> None:
    """Prints the CPU time of the observing process beside 50 sessions with little to do, with windows of 5 s:
    in the live view, and with lines, which have its cost alone."""
    with (
        server(200) as bench,
        tempfile.TemporaryDirectory() as directory,
        load(bench, LIVE_SESSIONS, "-R", "200"),
    ):
        for live in (True, False):
            observer = Observer(bench, Path(directory), "--window", "5s", live=live)
            time.sleep(10)
            before_s = observer.cpu_s()
            time.sleep(LIVE_S)
            used = (observer.cpu_s() - before_s) / LIVE_S
            observer.end()
            print(
                f"observe, {'live view' if live else 'lines'}, windows of 5 s, {LIVE_SESSIONS} sessions: "
                f"{100 * used:.1f} % of one CPU (wanted <= 3)",
                flush=True,
            )


def main(count: int, seconds: float) -> None:
    with server(2200) as bench, tempfile.TemporaryDirectory() as directory:
        for sessions in (8, 100):  # a stopped observer's trace goes on: see the benchmark "trace" for that
            _pairs(bench, Path(directory), count, seconds, sessions, "sampled")
        _pairs(bench, Path(directory), count, seconds, 8, "sampled", live=True)
        _many(bench, Path(directory), 2000)
        with idle(bench, 2000):
            _many(bench, Path(directory), 50)


def _pairs(
    bench: Bench, store: Path, count: int, seconds: float, sessions: int, witness: str, *, live: bool = False
) -> None:
    """Runs slices of one load, with the observer running or stopped in turn; its CPU is from a separate
    run."""
    logs = []
    with load(bench, sessions) as running:
        observer = Observer(bench, store, "--waits", witness, live=live)
        time.sleep(30)
        here, samplers, at_server = observer.end()
        observer = Observer(bench, store, "--waits", witness, "--window", "10s", live=live)
        for number in range(count * SLICES):
            rates = {}
            for on in (True, False) if number % 2 else (False, True):
                observer.go_on() if on else observer.stop()
                rates[on] = running.rate(seconds / 2)
            logs.append(math.log(rates[True] / rates[False]))
        observer.go_on()
        observer.end()
    half = students_quantile(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    low, mean, high = (math.exp(statistics.fmean(logs) + d) for d in (-half, 0, half))
    print(
        f"observe --waits {witness}{', live view' if live else ''}, pgbench -S -c {sessions}: throughput "
        f"ratio {mean:.4f} [{low:.4f}, {high:.4f}] over {len(logs)} pairs (wanted >= 0.99); "
        f"CPU here {here:.2f} (samplers {samplers:.2f}), at the server {at_server:.2f} % of one CPU",
        flush=True,
    )


def _many(bench: Bench, store: Path, sessions: int) -> None:
    """Observes very many sessions, nearly all idle, and prints the interval between samples."""
    import polars as pl

    with load(bench, sessions, "-R", "500"):
        time.sleep(20)  # until all are connected
        observer = Observer(bench, store, "--waits", "sampled", "--window", "10s")
        time.sleep(25)
        files = observer.files()
        here, samplers, at_server = observer.end()
    run = max(store.glob("*-observed-*"))
    cell = max(run.glob("cells/*"))
    taken = pl.read_parquet(cell / "sampler.parquet").filter(pl.col("status") == "ok")
    gaps = (
        taken.with_columns(pl.col("via").fill_null("sql"))
        .group_by("via")
        .agg((pl.col("start_ns").sort().diff().median() / 1e6).alias("ms"))
    )
    rows = pl.read_parquet(cell / "tasks.parquet").filter(pl.col("role") == "session")["pid"].n_unique()
    print(
        f"{rows} sessions: CPU here {here:.2f} (samplers {samplers:.2f}), at the server {at_server:.2f} % "
        f"of one CPU; {files} descriptors; ms between samples: {dict(sorted(gaps.iter_rows()))}",
        flush=True,
    )
