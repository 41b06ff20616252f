"""Cost of ``dbdyno observe --metrics``: CPU time of pairs of observations, one of each scraped every 5 s."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import server

SESSIONS, RATE = 50, 200
SCRAPE_S, WINDOW_S = 5.0, 10
_PORT = 19187
_TOKEN = "a-token-of-a-benchmark"


@contextlib.contextmanager
def load(socket: str, user: str, program: Path) -> Iterator[None]:
    """Runs pgbench with 50 sessions at a rate that leaves CPUs idle."""
    words = ["-n", "-S", "-c", str(SESSIONS), "-j", "2", "-R", str(RATE), "-T", "36000"]
    command = [str(program), *words, "-h", socket, "-U", user, "postgres"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def observed_cpu_s(socket: str, user: str, store: Path, seconds: int, *, scraped: bool) -> float:
    """Returns the CPU seconds of one observation with all its processes, deriving included."""
    token = store / "token"
    token.write_text(_TOKEN)
    token.chmod(0o600)
    dsn = f"host={socket} user={user} dbname=postgres"
    command = [sys.executable, "-m", "dbdyno", "observe", "--dsn", dsn, "--store", str(store), "--lines"]
    command += ["--for", f"{seconds}s", "--window", f"{WINDOW_S}s"]
    if scraped:
        command += ["--metrics", f"127.0.0.1:{_PORT}", "--metrics-token-file", str(token)]
    over = threading.Event()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    scraper = threading.Thread(target=_scrape, args=(over,), daemon=True)
    if scraped:
        scraper.start()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    over.set()
    if process.returncode:
        raise RuntimeError(f"dbdyno observe ended with exit code {process.returncode}")
    return used.ru_utime + used.ru_stime


def _scrape(over: threading.Event) -> None:
    headers = {"Authorization": f"Bearer {_TOKEN}", "Accept": "application/openmetrics-text"}
    request = urllib.request.Request(f"http://127.0.0.1:{_PORT}/metrics", headers=headers)
    while not over.wait(SCRAPE_S):
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=SCRAPE_S) as answer:
            answer.read()


def compare(socket: str, user: str, program: Path, pairs: int, seconds: int) -> list[float]:
    """Returns the additional CPU of each pair in % of one CPU."""
    more = []
    with load(socket, user, program), tempfile.TemporaryDirectory() as directory:
        for pair in range(pairs):
            cpu_s = {}
            for scraped in (False, True) if pair % 2 else (True, False):
                cpu_s[scraped] = observed_cpu_s(socket, user, Path(directory), seconds, scraped=scraped)
                time.sleep(1)
            more.append(100 * (cpu_s[True] - cpu_s[False]) / seconds)
            print(f"  {100 * cpu_s[False] / seconds:.2f} %, with --metrics {more[-1]:+.2f} %", flush=True)
    return more


def main(pairs: int, seconds: float) -> None:
    print(f"observe --metrics, {SESSIONS} sessions, scraped every {SCRAPE_S:.0f} s, CPU of one observation:")
    with server() as bench:
        more = compare(bench.socket, bench.user, bench.pgbench_program, pairs, max(60, int(seconds)))
    print(
        f"added: median {statistics.median(more):.2f} % of a CPU [{min(more):.2f} .. {max(more):.2f}] "
        f"over {len(more)} pairs (aim: 0.15 %)"
    )
