"""The report of 50 rungs x 50 sessions, from generated tables, written as HTML."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from dbdyno import present

ROOT = Path(__file__).parent.parent


def main(count: int, _seconds: float) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "unit"))
    from report_results import World, results  # type: ignore[import-not-found]  # of the tests

    large = results(World(rungs=range(26, 76), cpus=16))
    with tempfile.TemporaryDirectory() as directory:
        times = [_write(large, Path(directory)) for _ in range(max(2, count))]
    print(
        f"50 rungs of 26 to 75 sessions: first report of a process {times[0]:.2f} s, "
        f"later {min(times[1:]):.2f} .. {max(times[1:]):.2f} s (wanted <= 3 s)",
        flush=True,
    )


def _write(results: object, directory: Path) -> float:
    before = time.monotonic()
    present.write_report(results, directory / "r.html")  # type: ignore[arg-type]
    return time.monotonic() - before
