"""What the scheduler trace costs under the worst load there is: the shortest statements, the most switches.

One pgbench runs all the time; the trace is attached and detached in turn, in slices of some seconds, so that
both sides of a pair see the same placement and the same neighbours.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg

from benchmarks.common import Bench, server
from dbdyno import _core
from dbdyno.engines.postgres import local
from dbdyno.engines.postgres.wait_events import word_spec

SESSIONS = 8
KINDS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("switches and wait events", {}, ">= 0.95"),
    ("system calls, too", {"syscalls": True}, "to be known"),
    ("nothing (the figure's own error)", {"trace": "off"}, "1"),
)
_PROGRESS = re.compile(rb"progress: [\d.]+ s, ([\d.]+) tps")


def main(count: int, seconds: float) -> None:
    """``count`` pairs of slices of about ``seconds`` for each kind."""
    slices = max(1, round(seconds))
    with server() as bench, _load(bench, count * len(KINDS) * 2 * (slices + 1) + 30) as load:
        spec = _spec(bench)
        for _ in range(3):
            _tps(load)
        for what, more, wanted in KINDS:
            made = [_pair(load, spec | more, spec | {"trace": "off"}, slices, i) for i in range(count)]
            _tell(what, made, wanted)


@contextlib.contextmanager
def _load(bench: Bench, seconds: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        str(bench.pgbench_program), "-n", "-S", "-M", "prepared", "-P", "1", "-T", str(seconds),
        "-h", bench.socket, "-U", bench.user, "-c", str(SESSIONS), "-j", "2", "postgres",
    ]  # fmt: skip
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield load
    finally:
        load.kill()
        load.wait()


def _dsn(bench: Bench) -> str:
    return f"host={bench.socket} user={bench.user} dbname=postgres"


def _spec(bench: Bench) -> dict[str, Any]:
    with psycopg.connect(_dsn(bench), autocommit=True) as control:
        asked = control.execute("select pid from pg_stat_activity where application_name = 'pgbench'")
        pids = [row[0] for row in asked]
        version = control.info.server_version
        main_pid = local.presence(control).main_pid
    return {
        "os": True, "main_pid": main_pid, "sessions": list(enumerate(pids)), "host": False,
        "word": word_spec(version // 10000), "memory_hz": 0,
    }  # fmt: skip


def _pair(
    load: subprocess.Popen[bytes], on: dict[str, Any], off: dict[str, Any], slices: int, number: int
) -> tuple[float, float]:
    """Transactions a second with and without."""
    order = (on, off) if number % 2 else (off, on)
    rates = {id(spec): _slice(load, spec, slices) for spec in order}
    return rates[id(on)], rates[id(off)]


def _slice(load: subprocess.Popen[bytes], spec: dict[str, Any], slices: int) -> float:
    watch = _core.Watch(json.dumps(spec))
    status, detail = watch.witnesses()["scheduler trace"]
    if status not in {"ok", "off"}:
        sys.exit(f"no scheduler trace here: {status}: {detail}")
    now = _core.now_ns()
    watch.start(now, now + slices * 10**9)
    _tps(load)  # a second in which it was attached
    rate = statistics.fmean(_tps(load) for _ in range(slices))
    watch.stop()
    return rate


def _tps(load: subprocess.Popen[bytes]) -> float:
    """Of the second that ends next."""
    assert load.stderr is not None
    for line in load.stderr:
        if found := _PROGRESS.match(line):
            return float(found[1])
    raise RuntimeError("pgbench ended too early")


def _tell(what: str, made: list[tuple[float, float]], wanted: str) -> None:
    """Mean of the logarithms of the pairs' ratios, with its 95 % interval (normal)."""
    logs = [math.log(on / off) for on, off in made]
    middle = statistics.fmean(logs)
    error = 1.96 * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    on, off = (statistics.median(side) for side in zip(*made, strict=True))
    low, ratio, high = (math.exp(x) for x in (middle - error, middle, middle + error))
    print(
        f"{what}: {on:,.0f} against {off:,.0f} transactions/s, ratio {ratio:.3f} [{low:.3f}, {high:.3f}] "
        f"over {len(made)} pairs, load {os.getloadavg()[0]:.1f} (wanted {wanted})",
        flush=True,
    )
