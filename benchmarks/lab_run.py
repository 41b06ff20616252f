"""The page of a run with 50 rungs, from the store over a warm server of the lab."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from dbdyno import conduct
from dbdyno.store import RunStore

ROOT = Path(__file__).parent.parent
RUNGS, TIMES = 50, 10
_WANTED_S = 0.3


def main(_count: int, _seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run = _stored(Path(directory))
        server = subprocess.Popen(
            [sys.executable, "-m", "dbdyno", "web", "--listen", "127.0.0.1:0", "--store", directory],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        try:
            assert server.stdout is not None
            address = next(line.strip() for line in server.stdout if "?token=" in line)
            _report(address, run)
        finally:
            server.terminate()
            server.wait()


def _stored(directory: Path) -> str:
    """Stores a ladder of the simulated server and returns its id."""
    sys.path.insert(0, str(ROOT))
    from tests.fakery import climb, recorded

    measured = climb(f"fake:cpus=8,cpu=2ms,wait=IO/Read:10ms,maximum={RUNGS + 20}", range(1, RUNGS + 1))
    run = recorded(RunStore(directory), measured)
    run.finish("complete")
    conduct.rebuild(run, lambda _: None)
    return run.id


def _report(address: str, run: str) -> None:
    place = urlsplit(address)
    cookie = _ask(place.netloc, f"/?{place.query}", "")[1]
    first, size = _timed(place.netloc, f"/run/{run}", cookie)
    made = [_timed(place.netloc, f"/run/{run}?n={n}", cookie)[0] for n in range(TIMES)]
    kept = [_timed(place.netloc, f"/run/{run}", cookie)[0] for _ in range(TIMES)]
    print(f"{RUNGS} rungs, {size / 1e6:.1f} MB; the first page of the server {first:.2f} s")
    for words, times in (("made from the store", made), ("kept", kept)):
        print(
            f"{TIMES} pages {words}: median {statistics.median(times):.3f} s "
            f"[{min(times):.3f} .. {max(times):.3f}] (wanted <= {_WANTED_S} s)",
            flush=True,
        )


def _timed(host: str, path: str, cookie: str) -> tuple[float, int]:
    before = time.monotonic()
    size, _ = _ask(host, path, cookie)
    return time.monotonic() - before, size


def _ask(host: str, path: str, cookie: str) -> tuple[int, str]:
    """Returns the length of the answer, and the cookie that came with it."""
    connection = HTTPConnection(host, timeout=120)
    try:
        connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status in (200, 303), content[-500:]
        return len(content), (answer.getheader("Set-Cookie") or "").partition(";")[0]
    finally:
        connection.close()
