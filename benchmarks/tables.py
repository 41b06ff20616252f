"""Times of preparing tables.

``tables`` compares ``pgbench -i`` with ``dbdyno workload prepare pgbench``, in pairs. ``order-tables``
prepares order entry with 10^6 orders, and COPYs the same rows from files over as many connections; then
measures the cost per order with 10^5 to 10^7 orders.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path

from dbdyno.engines.postgres.embedded import StartOptions, open_instance
from dbdyno.engines.postgres.embedded.programs import find_programs
from dbdyno.engines.postgres.loader import Table, description

SCALE = 50
WANTED = 0.6
ORDERS_SCALE = 40  # 10^6 orders
ORDERS_WANTED = 1.3
CONNECTIONS = 2
BYTES_PER_ORDER = 700  # with its items and indexes 500; WAL and sorts
PROGRAM = str(Path(sys.executable).parent / "dbdyno")
WORKLOADS = resources.files("dbdyno.engines.postgres") / "workloads"
_ORDERS = ("workload", "prepare", "order-entry", "--workers", str(CONNECTIONS), "--json")


def main(pairs: int, _seconds: float) -> None:
    with _server() as (dsn, data):
        against_pgbench(dsn, _postmaster(data), find_programs(None).bin_dir, pairs)


def against_pgbench(dsn: str, postmaster: int, programs: Path, pairs: int) -> None:
    """Compares both programs. Each starts without tables. CPU time is that of the program and of all
    processes of the server."""
    pgbench = [str(programs / "pgbench"), "-i", "-q", "-s", str(SCALE)]
    drop = [PROGRAM, "workload", "drop", "pgbench", "--dsn", dsn]
    ways = {
        "pgbench -i": [*pgbench, dsn],
        "pgbench -i -I dtGvp": [*pgbench, "-I", "dtGvp", dsn],
        "workload prepare": [PROGRAM, "workload", "prepare", "pgbench", "-s", str(SCALE), "--dsn", dsn],
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    cpu_s: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(pairs):
        for way, argv in ways.items():
            before_s = _cpu_s(postmaster)
            seconds[way].append(_timed(argv)[0])
            cpu_s[way].append(_cpu_s(postmaster) - before_s)
            _timed(drop if way == "workload prepare" else [pgbench[0], "-i", "-I", "d", dsn])
        print(
            ", ".join(f"{w} {seconds[w][-1]:.2f} s ({cpu_s[w][-1]:.2f} s of CPU)" for w in ways), flush=True
        )
    for theirs in list(ways)[:2]:
        _ratio(f"workload prepare / {theirs}", seconds["workload prepare"], seconds[theirs], WANTED)
        _ratio(f"CPU time, the same / {theirs}", cpu_s["workload prepare"], cpu_s[theirs], WANTED)


def orders(pairs: int, _seconds: float) -> None:
    with _server() as (dsn, data), tempfile.TemporaryDirectory() as files:
        prepare = [PROGRAM, *_ORDERS, "--scale", str(ORDERS_SCALE), "--dsn", dsn]
        _timed(prepare)
        plain = Plain(dsn, Path(files))
        plain.write()
        postmaster = _postmaster(data)
        seconds: list[tuple[float, float]] = []
        cpu_s: list[tuple[float, float]] = []
        for _ in range(pairs):
            _drop(dsn)
            first_s = _cpu_s(postmaster)
            plain_s = plain.load()
            middle_s = _cpu_s(postmaster)
            plain.drop()
            dropped_s = _cpu_s(postmaster)
            seconds.append((_timed(prepare)[0], plain_s))
            cpu_s.append((_cpu_s(postmaster) - dropped_s, middle_s - first_s))
            print(f"workload prepare, plain COPY: {seconds[-1]} s, CPU {cpu_s[-1]} s", flush=True)
        for what, pairs_of_it in (("time", seconds), ("CPU time", cpu_s)):
            ours, theirs = zip(*pairs_of_it, strict=True)
            _ratio(f"{what} of workload prepare order-entry / plain COPY", ours, theirs, ORDERS_WANTED)
        _drop(dsn)
        for scale in (4, 40, 120, 400):
            _cost_of_an_order(dsn, data, scale)


def _cost_of_an_order(dsn: str, data: Path, scale: int) -> None:
    count, free = 25_000 * scale, shutil.disk_usage(data).free
    if free < 2 * count * BYTES_PER_ORDER:
        print(f"{count:,} orders: not tried, {free / 1e9:.0f} GB are free", flush=True)
        return
    document = json.loads(_timed([PROGRAM, *_ORDERS, "--scale", str(scale), "--dsn", dsn])[1])
    parts = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in document["steps"].items())
    size = sum(table["size_bytes"] for table in document["tables"]) / 1e9
    each = document["seconds"] / count * 1e6
    print(
        f"{count:,} orders: {document['seconds']:.1f} s, {each:.2f} us each, {size:.2f} GB ({parts})",
        flush=True,
    )
    _drop(dsn)


class Plain:
    """COPY by psql from files in text format; each table has as many files as there are connections."""

    def __init__(self, dsn: str, files: Path) -> None:
        self._psql = [str(find_programs(None).bin_dir / "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", dsn]
        self._files = files
        self._tables = description("order-entry").tables

    def write(self) -> None:
        """Writes the rows of the existing tables into files."""
        for table, part in self._parts():
            column = f"{table.columns[0].name} % {CONNECTIONS} = {part}"
            query = f"copy (select * from dbdyno.{table.name} where {column}) to stdout"
            with self._file(table, part).open("w") as out:
                subprocess.run([*self._psql, "-c", query], check=True, stdout=out)

    def load(self) -> float:
        """Returns the seconds from no tables to tables with indexes, without a vacuum."""
        before = time.monotonic()
        self._run(self._text(table.ddl) for table in self._tables)
        copies = [f"\\copy dbdyno.{t.name} from {self._file(t, part)}" for t, part in self._parts()]
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(self._one, sorted(copies, key=self._size, reverse=True)))
            list(pool.map(self._one, (self._text(f) for t in reversed(self._tables) for f in t.after)))
        return time.monotonic() - before

    def drop(self) -> None:
        self._run(f"drop table dbdyno.{table.name}" for table in self._tables)

    def _parts(self) -> list[tuple[Table, int]]:
        return [(table, part) for table in self._tables for part in range(CONNECTIONS)]

    def _file(self, table: Table, part: int) -> Path:
        return self._files / f"{table.name}.{part}"

    def _size(self, copy: str) -> int:
        return Path(copy.rpartition(" ")[2]).stat().st_size

    def _text(self, file: str) -> str:
        return (WORKLOADS / "order-entry" / file).read_text(encoding="utf-8")

    def _run(self, statements: Iterable[str]) -> None:
        for statement in statements:
            self._one(statement)

    def _one(self, statement: str) -> None:
        subprocess.run([*self._psql, "-c", statement], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _server() -> Iterator[tuple[str, Path]]:
    """Yields its DSN and its directory."""
    instance = open_instance(None, StartOptions(sessions=20))
    try:
        yield str(instance.facts()["dsn"]), instance.data
    finally:
        instance.close()


def _postmaster(data: Path) -> int:
    return int((data / "postmaster.pid").read_text().splitlines()[0])


def _cpu_s(postmaster: int) -> float:
    """Returns the CPU time so far of the server and of ended programs. A backend ends after its client."""
    time.sleep(0.5)
    ours = os.times()
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = file.read_text().rpartition(")")[2].split()
            if file.parent.name == str(postmaster):
                ticks += sum(map(int, fields[11:15]))  # with the backends that have ended
            elif int(fields[1]) == postmaster:
                ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK") + ours.children_user + ours.children_system


def _ratio(what: str, ours: Sequence[float], theirs: Sequence[float], wanted: float) -> None:
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    middle, middle_s = statistics.median(ratios), [statistics.median(x) for x in (ours, theirs)]
    print(
        f"{what}: {middle:.2f} [{min(ratios):.2f} .. {max(ratios):.2f}] over {len(ratios)} pairs, medians "
        f"{middle_s[0]:.1f} s and {middle_s[1]:.1f} s (wanted <= {wanted})",
        flush=True,
    )


def _drop(dsn: str) -> None:
    _timed([PROGRAM, "workload", "drop", "order-entry", "--dsn", dsn])


def _timed(argv: Sequence[str]) -> tuple[float, str]:
    before = time.monotonic()
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return time.monotonic() - before, done.stdout
