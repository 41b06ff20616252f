"""System calls of a program that knows what it called: counts, errors, bytes and sizes to the last one; time
asleep, on a CPU and in the run queue as laws that hold on a busy machine, too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dbdyno import _core
from dbdyno.model.schema.tables import from_core

PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char block[1 << 16];

static long long cpu_ns(void)
{
    struct timespec t;
    syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
    struct iovec parts[2] = {{block, 8192}, {block + 8192, 8192}};
    struct timespec nap = {0, 10000000};
    int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600), ends[2];
    long long before, loop_ns;

    if (file < 0 || pipe2(ends, O_NONBLOCK) || read(0, block, 1) != 1)
        return 1;
    before = cpu_ns();
    for (int i = 0; i < 100000; i++)
        syscall(SYS_getppid);
    loop_ns = cpu_ns() - before;
    for (int i = 0; i < 20; i++)
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &nap, 0);
    for (int i = 0; i < 300; i++)
        close(-1);
    for (int i = 0; i < 250; i++)
        read(ends[0], block, 100);
    for (int i = 0; i < 40; i++)
        pwrite(file, block, 8192, i * 8192L);
    for (int i = 0; i < 3; i++)
        pwrite(file, block, 100, 0);
    for (int i = 0; i < 35; i++)
        pread(file, block, 8192, i * 8192L);
    for (int i = 0; i < 5; i++)
        pread(file, block, 65536, 100 << 20);
    for (int i = 0; i < 7; i++)
        preadv(file, parts, 2, 0);
    for (int i = 0; i < 9; i++)
        write(ends[1], block, 1);
    fprintf(stderr, "%lld\n", loop_ns);
    read(0, block, 1);
    return 0;
}
"""
GETPPIDS, NAPS, NAP_NS = 100_000, 20, 10_000_000
COUNTS = {  # calls, errors, bytes
    "getppid": (GETPPIDS, 0, 0),
    "clock_nanosleep": (NAPS, 0, 0),
    "close": (300, 300, 0),
    "pwrite64": (43, 0, 40 * 8192 + 300),
    "pread64": (40, 0, 35 * 8192),
    "preadv": (7, 0, 7 * 16384),
}
SIZES = {
    ("pwrite64", 8192): 40,
    ("pwrite64", 64): 3,
    ("pread64", 8192): 35,
    ("pread64", 0): 5,
    ("preadv", 16384): 7,
    ("write", 1): 9,
}


@pytest.fixture(scope="module")
def known_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, pl.DataFrame], int]]:
    """Tables of the watched program, and the CPU time of its loop by its own clock."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler here: apt-get install gcc libc6-dev")
    path = tmp_path_factory.mktemp("calls")
    (path / "calls.c").write_text(PROGRAM)
    subprocess.run([compiler, "-O1", "-w", "-o", path / "calls", path / "calls.c"], check=True)
    with subprocess.Popen(
        [path / "calls", path / "file"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        try:
            yield _watch(process)
        finally:
            process.kill()


def _watch(process: subprocess.Popen[bytes]) -> tuple[dict[str, pl.DataFrame], int]:
    assert process.stdin is not None and process.stderr is not None
    blocked_in = Path(f"/proc/{process.pid}/syscall")
    while blocked_in.read_text().split()[0] != "0":  # until it reads its input: all calls before are over
        time.sleep(0.01)
    watch = _core.Watch(
        json.dumps(
            {"os": True, "sessions": [[0, process.pid]], "host": False, "memory_hz": 0, "syscalls": True}
        )
    )
    status, detail = watch.source_status()["scheduler trace"]
    if status in {"not permitted", "not supported"}:
        pytest.skip(f"no scheduler trace here: {detail}")
    now = _core.now_ns()
    watch.start(now, now + 10**9)
    process.stdin.write(b"x")
    loop_ns = int(process.stderr.readline())
    time.sleep(0.3)  # it blocks in its last read
    watch.stop()
    return {name: from_core(name, columns) for name, columns in watch.tables().items()}, loop_ns


def _last_rows(tables: dict[str, pl.DataFrame], table: str) -> list[dict[str, Any]]:
    frame = tables[table]
    return frame.filter(pl.col("after_ns") == pl.col("after_ns").max()).to_dicts()


Known = tuple[dict[str, pl.DataFrame], int]


@pytest.mark.root
def test_calls_errors_and_bytes_are_counted_to_the_last(known_program: Known) -> None:
    rows = {r["name"]: r for r in _last_rows(known_program[0], "syscalls")}
    counts = {name: (rows[name]["calls"], rows[name]["errors"], rows[name]["bytes"]) for name in COUNTS}
    assert counts == COUNTS
    # one read was under way when the watch came, and one is now; each other one ended with EAGAIN
    assert (rows["read"]["calls"], rows["read"]["errors"], rows["read"]["bytes"]) == (251, 250, 1)
    assert {r["status"] for r in rows.values()} == {"ok"}


@pytest.mark.root
def test_sizes_are_counted_by_powers_of_two(known_program: Known) -> None:
    calls_by_size = {
        (r["name"], r["size_bytes"]): r["calls"] for r in _last_rows(known_program[0], "syscall_sizes")
    }
    assert calls_by_size.items() >= SIZES.items()
    calls = {r["name"]: r["calls"] - r["errors"] for r in _last_rows(known_program[0], "syscalls")}
    for name in ("pread64", "pwrite64", "preadv", "read", "write"):
        assert sum(n for (call, _), n in calls_by_size.items() if call == name) == calls[name]


@pytest.mark.root
def test_time_inside_is_on_a_cpu_in_the_run_queue_or_asleep(known_program: Known) -> None:
    tables, loop_ns = known_program
    rows = {r["name"]: r for r in _last_rows(tables, "syscalls")}
    for row in rows.values():
        assert 0 <= row["cpu_ns"] <= row["time_ns"] - row["runq_ns"]
    asleep = {name: r["time_ns"] - r["cpu_ns"] - r["runq_ns"] for name, r in rows.items()}
    unclear = sum(r["unclear"] for r in rows.values())
    # a nap is asleep for its time, and costs next to no CPU time; a call that never sleeps is all CPU
    assert rows["clock_nanosleep"]["time_ns"] >= asleep["clock_nanosleep"] >= NAPS * NAP_NS * 0.99
    assert rows["clock_nanosleep"]["cpu_ns"] < 0.1 * asleep["clock_nanosleep"]
    assert asleep["getppid"] == 0 or unclear
    assert 0 < rows["getppid"]["cpu_ns"] <= loop_ns
    traced = _last_rows(tables, "traced")[0]
    inside = sum(r["cpu_ns"] for r in rows.values())
    assert inside <= traced["run_ns"]
    assert sum(asleep.values()) <= traced["sleep_ns"] * 1.001 or unclear
    wall_ns = traced["run_ns"] + traced["runq_ns"] + traced["sleep_ns"]
    assert sum(r["time_ns"] for r in rows.values()) <= wall_ns * 1.001


@pytest.mark.root
def test_sums_never_fall_from_one_read_to_the_next(known_program: Known) -> None:
    """Each read has the time of the call under way: a window's figures are differences of two reads."""
    figures = ("calls", "errors", "time_ns", "cpu_ns", "runq_ns", "client_ns", "bytes")
    for _, rows in known_program[0]["syscalls"].sort("after_ns").group_by("name"):
        for name in figures:
            assert (rows[name].diff().drop_nulls() >= 0).all(), name
