"""Cost of the data source memory: milliseconds per read, and throughput of a load beside it."""

from __future__ import annotations

import contextlib
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg

from benchmarks.common import Bench, server
from benchmarks.observe import SLICES, load
from dbdyno import _core
from dbdyno.conduct.measure.cell import MachineClock
from dbdyno.conduct.memory.measurement_memory import MeasurementMemory
from dbdyno.conduct.memory.memory import READ_NS, MemoryReader
from dbdyno.engines import open_server
from dbdyno.engines.postgres.embedded import StartOptions, open_instance
from dbdyno.model.engine.protocols import Server, Target
from dbdyno.model.plan.plan import Experiment, Observation
from dbdyno.plan import resolve_observation
from dbdyno.stats.estimates import students_quantile

SIZES = (("128MB", 16_384, (1, 100)), ("1GB", 131_072, (1, 100)), ("4GB", 524_288, (1,)))
"""Size of shared buffers, number of buffers, and numbers of sessions that have touched all of them."""
_READS = 5
_ASKED = "select pid from pg_stat_activity where application_name = 'dbdyno' and pid <> pg_backend_pid()"
_WINDOW_NS = 10 * 10**9


def cost(_count: int, _seconds: float) -> None:
    """Measures milliseconds per read by the size of the server's cache, all in use, and by sessions that
    have touched it."""
    for size, buffers, sessions in SIZES:
        with _instance(size, max(sessions) + 10) as dsn, open_server("postgres", Target(dsn=dsn)) as opened:
            _fill(dsn, buffers)
            for count in sessions:
                with _touching(dsn, count):
                    _print_medians(size, count, opened)


@contextlib.contextmanager
def _instance(size: str, sessions: int) -> Iterator[str]:
    instance = open_instance(
        None, StartOptions(settings={"shared_buffers": size, "fsync": "off"}, sessions=sessions)
    )
    try:
        yield str(instance.facts()["dsn"])
    finally:
        instance.close()


def _fill(dsn: str, buffers: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create extension if not exists pg_buffercache")
        connection.execute("create extension if not exists pg_prewarm")
        connection.execute("drop table if exists filling")
        connection.execute(
            "create unlogged table filling with (fillfactor = 10) as "
            f"select repeat('x', 500) from generate_series(1, {buffers * 95 // 100})".encode()
        )
        connection.execute("checkpoint")
        connection.execute("select pg_prewarm('filling')")


@contextlib.contextmanager
def _touching(dsn: str, count: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(psycopg.connect(dsn, autocommit=True))
            one.execute("select pg_prewarm('filling', 'buffer')")
        yield


def _print_medians(size: str, count: int, opened: Server) -> None:
    """Prints medians of time, CPU of dbdyno and CPU of the server's process, and figures for which time
    was lacking."""
    reader = MemoryReader(opened)
    steps = {
        "machine and processes": lambda: reader.machine("start"),
        "cache and files": lambda: reader.cache("start"),
        "the same without limit": lambda: reader.cache("start", 1000 * READ_NS),
    }
    for name, step in steps.items():
        took = [_milliseconds(step) for _ in range(_READS)]
        wall, own_ms, server_ms = (statistics.median(of) for of in zip(*took, strict=True))
        lacks = opened.caching.state().detail if opened.caching and name != "machine and processes" else ""
        print(
            f"shared_buffers {size}, {count} sessions, {name}: {wall:.0f} ms, CPU here {own_ms:.0f} ms, "
            f"of the server {server_ms:.0f} ms{'; ' if lacks else ''}{lacks}",
            flush=True,
        )


def _milliseconds(step: Callable[[], object]) -> tuple[float, float, float]:
    """Returns milliseconds of a step: wall time, CPU of this thread, and CPU of the servers' processes."""
    servers = [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/comm") if _is_server(p)]
    before, wall, here = _run_ms(servers), time.perf_counter(), time.thread_time()
    step()
    return 1000 * (time.perf_counter() - wall), 1000 * (time.thread_time() - here), _run_ms(servers) - before


def _is_server(comm: Path) -> bool:
    with contextlib.suppress(OSError):
        return comm.read_text() == "postgres\n"
    return False


def _run_ms(pids: list[int]) -> float:
    return sum(_core.read_task(pid, pid)["run_ns"] or 0 for pid in pids) / 1e6


def main(count: int, seconds: float) -> None:
    """Runs slices of one load with reads at their default rate, and without, in turn. Prints the reads'
    CPU."""
    with server(120) as bench:
        for sessions in (8, 100):
            _beside(bench, sessions, count, seconds)


def _beside(bench: Bench, sessions: int, count: int, seconds: float) -> None:
    dsn = f"host={bench.socket} user={bench.user} dbname=postgres"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create extension if not exists pg_buffercache")
    at_work, ended = threading.Event(), threading.Event()
    with load(bench, sessions) as running, open_server("postgres", Target(dsn=dsn)) as opened:
        plan = resolve_observation(Experiment(name="observed", observation=Observation()), 2, "")
        memory = MeasurementMemory(opened, plan, MachineClock())
        spent: list[tuple[float, float]] = []  # seconds here, and of the server's process that is asked

        def read() -> None:
            with psycopg.connect(dsn, autocommit=True) as other:
                asked = [int(row[0]) for row in other.execute(_ASKED).fetchall()]
            while not ended.wait(1):
                if at_work.is_set():
                    begun, before_ms = time.thread_time(), _run_ms(asked)
                    memory.beside(_WINDOW_NS)
                    spent.append((time.thread_time() - begun, (_run_ms(asked) - before_ms) / 1000))

        reading = threading.Thread(target=read)
        reading.start()
        logs, on_s = [], 0.0
        for number in range(count * SLICES):
            rates = {}
            for on in (True, False) if number % 2 else (False, True):
                at_work.set() if on else at_work.clear()
                begun = time.monotonic()
                rates[on] = running.rate(seconds)
                on_s += (time.monotonic() - begun) * on
            logs.append(math.log(rates[True] / rates[False]))
        ended.set()
        reading.join()
    half = students_quantile(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    low, mean, high = (math.exp(statistics.fmean(logs) + d) for d in (-half, 0, half))
    own_pct, server_pct = (100 * sum(of) / on_s for of in zip(*spent, strict=True))
    print(
        f"memory beside pgbench -S -c {sessions}: throughput ratio {mean:.4f} [{low:.4f}, {high:.4f}] over "
        f"{len(logs)} pairs (wanted >= 0.99); {sum(s > 0.005 for s, _ in spent)} reads, CPU here "
        f"{own_pct:.2f} % and of the server {server_pct:.2f} % of one CPU",
        flush=True,
    )
