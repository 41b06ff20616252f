"""Cost of a live view with three readers: ``dbdyno web`` beside ``dbdyno observe`` and pgbench -S, with and
without readers in alternating slices."""

from __future__ import annotations

import contextlib
import math
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

from benchmarks.common import Bench, server
from benchmarks.observe import load
from dbdyno.model.units import NS_PER_S
from dbdyno.stats.estimates import students_quantile

READERS, WINDOW_S, SESSIONS = 3, 10, 8
LEAST_SLICE_S = 20.0
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)(/\S*)")


@dataclass
class Lab:
    """The server in a process of its own, and readers of the events of one run."""

    process: subprocess.Popen[str]
    port: int
    cookie: str
    events: int = 0
    _open: list[HTTPConnection] = field(default_factory=list)

    def cpu_s(self) -> float:
        """Returns the CPU time of all its threads so far."""
        of_threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(p.read_text().split()[0]) for p in of_threads) / NS_PER_S

    def memory_mb(self, name: str = "VmRSS") -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition(f"{name}:")[2].split()[0]) / 1024

    def page(self, path: str) -> str:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"Cookie": self.cookie})
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    @contextlib.contextmanager
    def readers(self, run: str, number: int) -> Iterator[None]:
        """Opens the page, and reads its events ``number`` times at once, as that many browsers do."""
        match = re.search(r"/events\?after=([0-9a-f]+-\d+)", self.page(f"/live/{run}")) if number else None
        for _ in range(number):
            assert match is not None
            connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request("GET", f"/live/{run}/events?after={match[1]}", headers={"Cookie": self.cookie})
            self._open.append(connection)
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()
        try:
            yield
        finally:
            for connection in self._open:
                if connection.sock is not None:
                    connection.sock.shutdown(2)
            self._open.clear()

    def _read(self, connection: HTTPConnection) -> None:
        with contextlib.suppress(OSError, ValueError):
            answer = connection.getresponse()
            while line := answer.readline():
                self.events += line.startswith(b"event: ")


@contextlib.contextmanager
def lab(store: Path) -> Iterator[Lab]:
    command = [sys.executable, "-m", "dbdyno", "web", "--listen", "127.0.0.1:0", "--store", str(store)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        match = next(m for line in process.stdout if (m := _ADDRESS.search(line)))
        threading.Thread(target=process.stdout.read, daemon=True).start()
        connection = HTTPConnection("127.0.0.1", int(match[1]), timeout=60)
        connection.request("GET", match[2])
        answer = connection.getresponse()
        cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
        connection.close()
        yield Lab(process, int(match[1]), cookie)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def observed(bench: Bench, store: Path) -> Iterator[str]:
    """Observes in the background; yields the run's id once its first windows are stored."""
    dsn = f"host={bench.socket} user={bench.user} dbname=postgres"
    command = [sys.executable, "-m", "dbdyno", "observe", "--dsn", dsn, "--store", str(store), "--quiet"]
    process = subprocess.Popen(
        [*command, "--window", f"{WINDOW_S}s"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until_s = time.monotonic() + 120
        while not (parts := [*store.glob("*/parts/*/part.json")]) and time.monotonic() < until_s:
            time.sleep(0.5)
        yield parts[0].parents[2].name
    finally:
        process.terminate()
        process.wait()


def main(pairs: int, seconds: float) -> None:
    slice_s = max(LEAST_SLICE_S, seconds)
    with (
        tempfile.TemporaryDirectory() as directory,
        server(driver=False) as bench,
        load(bench, SESSIONS) as running,
        observed(bench, Path(directory)) as run,
        lab(Path(directory)) as web,
    ):
        print(f"the server after its start: {web.memory_mb():.0f} MB", flush=True)
        logs, shares = [], []
        for pair in range(pairs):
            rates = {}
            for readers in (READERS, 0) if pair % 2 else (0, READERS):
                with web.readers(run, readers):
                    time.sleep(2)
                    before_s, began_s = web.cpu_s(), time.monotonic()
                    rates[readers] = running.rate(slice_s)
                    share = (web.cpu_s() - before_s) / (time.monotonic() - began_s)
                shares += [share] if readers else []
            logs.append(math.log(rates[READERS] / rates[0]))
            print(
                f"  {rates[0]:,.0f} tps, with {READERS} readers {rates[READERS]:,.0f}; the server "
                f"{100 * shares[-1]:.2f} % of a CPU, {web.memory_mb():.0f} MB, {web.events} events",
                flush=True,
            )
        spread = statistics.stdev(logs) if len(logs) > 1 else math.nan
        half = students_quantile(len(logs) - 1) * spread / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
        low, mean, high = (math.exp(statistics.fmean(logs) + d) for d in (-half, 0, half))
        print(
            f"live view, windows of {WINDOW_S} s, {READERS} readers, pgbench -S -c {SESSIONS}: throughput "
            f"ratio {mean:.4f} [{low:.4f}, {high:.4f}] over {len(logs)} pairs; the server "
            f"{100 * statistics.median(shares):.2f} % of a CPU (wanted <= 1), at most "
            f"{web.memory_mb('VmHWM'):.0f} MB (wanted <= 150)",
            flush=True,
        )
