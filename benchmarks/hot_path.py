"""Throughput and client CPU per transaction, against pgbench: whole processes, the same statement."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable

from benchmarks.common import Bench, pairs, print_ratio, server

_TRANSACTIONS = re.compile(r"number of transactions actually processed: (\d+)")
_TPS = re.compile(r"tps = ([0-9.]+)")


def throughput(count: int, seconds: float) -> None:
    """Measures calls per second at 1, 2, 8 and 50 sessions."""
    with server() as bench:
        for sessions in (1, 2, 8, 50):
            measured = pairs(count, *_sides(bench, sessions, seconds, "rate"))
            print_ratio(f"throughput, {sessions} sessions, against pgbench", measured, "calls/s", ">= 1.05")


def client_cpu(count: int, seconds: float) -> None:
    """Measures user and system CPU of the client process per transaction, including start and end."""
    with server() as bench:
        for sessions in (8, 50):
            measured = pairs(count, *_sides(bench, sessions, seconds, "cpu"))
            wanted = "<= 0.75" if sessions == 50 else "at 50 sessions <= 0.75"
            print_ratio(
                f"client CPU a transaction, {sessions} sessions, against pgbench", measured, "us", wanted
            )


def _sides(
    bench: Bench, sessions: int, seconds: float, what: str
) -> tuple[Callable[[], float], Callable[[], float]]:
    def ours() -> float:
        text, cpu_s = _process(bench.point_select(sessions, f"seconds={seconds:g}"))
        figures = json.loads(text)
        return float(figures["rate"]) if what == "rate" else cpu_s * 1e6 / float(figures["calls"])

    def theirs() -> float:
        text, cpu_s = _process(bench.pgbench(sessions, "-T", f"{seconds:g}"))
        match = _TPS.search(text), _TRANSACTIONS.search(text)
        assert match[0] and match[1], text
        return float(match[0][1]) if what == "rate" else cpu_s * 1e6 / float(match[1][1])

    return ours, theirs


def _process(command: list[str]) -> tuple[str, float]:
    """Returns output and CPU seconds of a command (wait4)."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, text)
    return text, usage.ru_utime + usage.ru_stime
