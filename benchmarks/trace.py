"""Cost of the scheduler trace under the worst load: the shortest statements, the most context switches.

One pgbench runs all the time. The trace is attached and detached in turn, for slices of some seconds, so that
both sides of a pair have the same placement and the same neighbours. CPU time of pgbench and its backends per
transaction is more reliable than throughput on a machine with other load.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from benchmarks.common import Bench, server
from dbdyno import _core
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.presence import presence
from dbdyno.engines.postgres.query_id import statement_spec
from dbdyno.engines.postgres.wait_events import word_spec
from dbdyno.observe import frames

SESSIONS = 8
KINDS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("switches, wait events and statements", {}, ">= 0.94"),
    ("system calls, too", {"syscalls": True}, "to be known"),
    ("off-CPU stacks", {"off_cpu": {"hz": 199.0}}, "to be known"),
    ("nothing (the figure's own error)", {"trace": "off"}, "1"),
)
_STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
_PROGRESS = re.compile(rb"progress: [\d.]+ s, ([\d.]+) tps")


PROFILES: tuple[tuple[str, dict[str, Any], str], ...] = tuple(
    (f"CPU profile at {hz} Hz", {"trace": "off", "profile": {"hz": hz}}, ">= 0.98") for hz in (49, 99)
)


def main(count: int, seconds: float) -> None:
    """Measures ``count`` pairs of slices of about ``seconds`` for each kind."""
    _paired(KINDS, count, seconds, _own_time)


def profile(count: int, seconds: float) -> None:
    """Measures the CPU profile in the same way: sampling and unwinding. Functions are resolved after the
    measurement."""
    _paired((*PROFILES, KINDS[-1]), count, seconds, _own_samples)


def _own_samples(_load: Load, spec: dict[str, Any]) -> None:
    """Prints the CPU time of the thread that reads and unwinds samples, which other load hardly affects."""
    for what, more, _ in PROFILES:
        watch = _core.Watch(json.dumps(spec | more))
        now = _core.now_ns()
        watch.start(now, now + 10 * 10**9)
        time.sleep(1)
        before, begun = _thread_ns("dbdyno-profile"), _core.now_ns()
        time.sleep(8)
        spent, ended = _thread_ns("dbdyno-profile") - before, _core.now_ns()
        watch.stop()
        samples = frames(watch)["profile_samples"].filter(pl.col("t_ns").is_between(begun, ended))
        n = max(1, samples.height)
        per_s, each, cut = spent / (ended - begun), spent / 1e3 / n, samples["cut"].sum() / n
        print(f"| {what}, dbdyno's thread | {per_s:.3%} of a CPU, {each:.0f} us a sample, {cut:.1%} cut | |")


def _thread_ns(name: str) -> int:
    """Returns the CPU time of this process's thread of this name."""
    tasks = [t for t in Path("/proc/self/task").iterdir() if _read(t / "comm").strip() == name]
    return sum(int((_read(t / "schedstat") or "0").split()[0]) for t in tasks)


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


def _paired(
    kinds: Sequence[tuple[str, dict[str, Any], str]],
    count: int,
    seconds: float,
    last: Callable[[Load, dict[str, Any]], None],
) -> None:
    slices = max(1, round(seconds))
    with server() as bench, _load(bench, count * len(kinds) * 2 * (slices + 3) + 30) as load:
        load.whole_seconds(_core.now_ns(), 3)  # pgbench's own first connection is gone by then
        spec = _spec(bench)
        for what, more, wanted in kinds:
            measured = [_pair(load, spec | more, spec | {"trace": "off"}, slices, i) for i in range(count)]
            _print_ratios(what, measured, wanted)
        last(load, spec)


class Load:
    """A running pgbench: transactions in each second, with the time at which it printed them."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._rates: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if match := _PROGRESS.match(line):
                self._rates.put((_core.now_ns(), float(match[1])))

    def whole_seconds(
        self, since_ns: int, count: int, before: Callable[[], None] = lambda: None
    ) -> list[float]:
        """Returns transactions per second in ``count`` seconds that began after ``since_ns``.

        ``before`` is called at the beginning of the first one.
        """
        while self._rates.get(timeout=30)[0] < since_ns:
            pass
        before()
        return [self._rates.get(timeout=30)[1] for _ in range(count)]


@contextlib.contextmanager
def _load(bench: Bench, seconds: int) -> Iterator[Load]:
    command = [
        str(bench.pgbench_program),
        "-n",
        "-S",
        "-M",
        "prepared",
        "-P",
        "1",
        "-T",
        str(seconds),
        "-h",
        bench.socket,
        "-U",
        bench.user,
        "-c",
        str(SESSIONS),
        "-j",
        "2",
        "postgres",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield Load(process)
    finally:
        process.kill()
        process.wait()


def _dsn(bench: Bench) -> str:
    return f"host={bench.socket} user={bench.user} dbname=postgres"


def _spec(bench: Bench) -> dict[str, Any]:
    with Connection.connect(_dsn(bench), autocommit=True) as control:
        asked = control.execute("select pid from pg_stat_activity where application_name = 'pgbench'")
        pids = [row[0] for row in asked]
        version = control.info.server_version
        here = presence(control)
        word = word_spec(version // 10000, statement_spec(control, here.pid, version // 10000))
    return {
        "os": True,
        "main_pid": here.main_pid,
        "sessions": list(enumerate(pids)),
        "host": False,
        "word": word,
        "memory_hz": 0,
    }


class Slice(NamedTuple):
    per_s: float  # transactions
    cpu_us: float  # for each


def _pair(
    load: Load, on: dict[str, Any], off: dict[str, Any], slices: int, number: int
) -> tuple[Slice, Slice]:
    """Returns a slice with and one without."""
    order = (on, off) if number % 2 else (off, on)
    rates = {id(spec): _slice(load, spec, slices) for spec in order}
    return rates[id(on)], rates[id(off)]


def _slice(load: Load, spec: dict[str, Any], slices: int) -> Slice:
    tasks = _tasks(load, spec)
    watch = _core.Watch(json.dumps(spec))
    status, detail = watch.source_status()["scheduler trace"]
    if status not in {"ok", "off"}:
        sys.exit(f"no scheduler trace here: {status}: {detail}")
    status, detail = watch.source_status().get("CPU profile", ("ok", ""))
    if status != "ok":
        sys.exit(f"no CPU profile here: {status}: {detail}")
    now = _core.now_ns()
    watch.start(now, now + slices * 10**9)
    cpu_ns = [0]
    rates = load.whole_seconds(_core.now_ns(), slices, lambda: cpu_ns.append(-_cpu_ns(tasks)))
    cpu_ns.append(_cpu_ns(tasks))
    watch.stop()
    return Slice(statistics.fmean(rates), sum(cpu_ns) / 1e3 / sum(rates))


def _own_time(load: Load, spec: dict[str, Any], seconds: int = 5) -> None:
    """Prints the kernel's own count of the programs' time (kernel.bpf_stats_enabled, which itself costs a
    little)."""
    watch = _core.Watch(json.dumps(spec))
    now = _core.now_ns()
    watch.start(now, now + 2 * seconds * 10**9)
    try:
        _STATS.write_text("1")
    except OSError as e:
        print(f"the programs' own time is not known: {e}")
        watch.stop()
        return
    try:
        load.whole_seconds(_core.now_ns(), 1)
        before, start_ns = _programs(), _core.now_ns()
        per_s = statistics.fmean(load.whole_seconds(_core.now_ns(), seconds))
        after, wall_ns = _programs(), _core.now_ns() - start_ns
    finally:
        _STATS.write_text("0")
        watch.stop()
    runs, ns = (sum(after[k][i] - before[k][i] for k in after) for i in (0, 1))
    cpus = len(os.sched_getaffinity(0))
    print(
        f"the programs' own time: {ns / runs:.0f} ns an event, {runs / wall_ns * 1e9:,.0f} events/s, "
        f"{ns / 1e3 / (per_s * wall_ns / 1e9):.2f} us a transaction, {ns / wall_ns / cpus:.2%} of {cpus} CPUs"
    )


def _programs() -> dict[str, tuple[int, int]]:
    """Returns runs and nanoseconds of each BPF program that this process has loaded, by file descriptor."""
    programs = {}
    for file in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            info = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
            if "run_cnt" in info:
                programs[file.name] = (int(info["run_cnt"]), int(info["run_time_ns"]))
    return programs


def _tasks(load: Load, spec: dict[str, Any]) -> list[tuple[int, int]]:
    threads = [(load.pid, int(t.name)) for t in Path(f"/proc/{load.pid}/task").iterdir()]
    return threads + [(pid, pid) for _, pid in spec["sessions"]]


def _cpu_ns(tasks: list[tuple[int, int]]) -> int:
    return sum(int(_core.read_task(pid, tid)["run_ns"]) for pid, tid in tasks)


def _print_ratios(what: str, measured: list[tuple[Slice, Slice]], wanted: str) -> None:
    """Prints ratios with and without, each with its 95 % interval."""
    per_s = _ratio([(on.per_s, off.per_s) for on, off in measured])
    cpu = _ratio([(off.cpu_us, on.cpu_us) for on, off in measured])
    on, off = (statistics.median(x.cpu_us for x in side) for side in zip(*measured, strict=True))
    median = statistics.median(x.per_s for _, x in measured)
    print(
        f"{what}: throughput ratio {per_s}, transactions per CPU second {cpu} ({on:.2f} against {off:.2f} us "
        f"each); {len(measured)} pairs, {median:,.0f} transactions/s without, load {os.getloadavg()[0]:.1f} "
        f"(wanted {wanted})",
        flush=True,
    )


def _ratio(pairs: list[tuple[float, float]]) -> str:
    """Returns the mean of the logarithms of the pairs' ratios, with a normal interval."""
    logs = [math.log(a / b) for a, b in pairs]
    middle = statistics.fmean(logs)
    error = 1.96 * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    low, ratio, high = (math.exp(x) for x in (middle - error, middle, middle + error))
    return f"{ratio:.3f} [{low:.3f}, {high:.3f}]"
