"""Seconds of ``pgbench -i`` and of ``dbdyno workload prepare pgbench`` at scale 50, in pairs, each beginning
without tables, on the embedded server; and what a row of order entry costs at two scales."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dbdyno.engines.postgres.embedded import Wish, open_instance
from dbdyno.engines.postgres.embedded.programs import find_programs

SCALE = 50
WANTED = 0.6
PROGRAM = str(Path(sys.executable).parent / "dbdyno")


def main(pairs: int, _seconds: float) -> None:
    instance = open_instance(None, Wish(sessions=20))
    try:
        dsn = str(instance.facts()["dsn"])
        ratios = [_pair(dsn) for _ in range(pairs)]
        middle = statistics.median(ratios)
        print(
            f"workload prepare / pgbench -i at scale {SCALE}: {middle:.2f} "
            f"[{min(ratios):.2f} .. {max(ratios):.2f}] over {pairs} pairs (wanted <= {WANTED})",
            flush=True,
        )
        for scale in (4, 40):
            made = _timed([PROGRAM, *_ORDERS, "--scale", str(scale), "--json", "--dsn", dsn])[1]
            facts = json.loads(made)
            per_row = facts["seconds"] / facts["rows"] * 1e6
            print(f"order-entry at scale {scale}: {facts['rows']:,} rows, {per_row:.2f} us each", flush=True)
            _timed([PROGRAM, "workload", "drop", "order-entry", "--dsn", dsn])
    finally:
        instance.close()


_ORDERS = ("workload", "prepare", "order-entry")


def _pair(dsn: str) -> float:
    pgbench = str(find_programs(None).bin_dir / "pgbench")
    theirs = _timed([pgbench, "-i", "-q", "-s", str(SCALE), dsn])[0]
    _timed([pgbench, "-i", "-I", "d", dsn])
    ours = _timed([PROGRAM, "workload", "prepare", "pgbench", "-s", str(SCALE), "--dsn", dsn])[0]
    _timed([PROGRAM, "workload", "drop", "pgbench", "--dsn", dsn])
    print(f"pgbench -i {theirs:.2f} s, workload prepare {ours:.2f} s", flush=True)
    return ours / theirs


def _timed(argv: Sequence[str]) -> tuple[float, str]:
    before = time.monotonic()
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return time.monotonic() - before, done.stdout
