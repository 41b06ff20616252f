"""The paced hot path: instructions per call at a rate, and the lag of calls behind their due times."""

from __future__ import annotations

import json
import shutil
import subprocess

from benchmarks.common import Bench, server
from benchmarks.instructions import LENGTHS, _per_call

RATES = {"calls that wait for a session": 5_000, "sessions that wait for calls": 500}
ACCURACY = 1_000
"""Calls per second when measuring the lag."""
SESSIONS = 8


def instructions(_pairs: int, _seconds: float) -> None:
    """Prints user instructions of a paced call, against the closed loop, by callgrind: difference of two
    lengths."""
    if shutil.which("valgrind") is None:
        print("no valgrind here: install it (Debian: apt-get install valgrind)")
        return
    with server() as bench:
        closed = _instructions(bench)
        for what, rate in RATES.items():
            paced = _instructions(bench, f"rate={rate}")
            print(
                f"{what}: {paced:,.0f} user instructions a call, closed loop {closed:,.0f}; "
                f"{paced - closed:+,.0f}",
                flush=True,
            )


def accuracy(count: int, seconds: float) -> None:
    """Prints the lag from due to start, on an otherwise idle machine."""
    with server() as bench:
        words = bench.point_select(SESSIONS, f"rate={ACCURACY}", f"seconds={max(1, round(seconds))}")
        for _ in range(count):
            figures = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
            p50, p99, most = (_quantile(figures["lags"], q) / 1e3 for q in (0.5, 0.99, 1.0))
            print(
                f"{figures['rate']:,.0f} calls/s of {ACCURACY:,}; due to begun: median {p50:,.0f} us, "
                f"p99 {p99:,.0f} us, most {most:,.0f} us",
                flush=True,
            )


def _instructions(bench: Bench, *words: str) -> float:
    return _per_call([bench.point_select(1, f"calls={n}", *words) for n in LENGTHS], 1)


def _quantile(buckets: list[tuple[int, int]], q: float) -> float:
    """Returns the upper end of the bucket with the quantile."""
    left = q * sum(count for _, count in buckets)
    for ns, count in buckets:
        left -= count
        if left <= 0:
            return float(ns)
    return float(buckets[-1][0]) if buckets else 0.0
