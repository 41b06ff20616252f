"""CPU of commands that only look: start-up is most of it. In turn, so that drift of the machine cancels."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

from tests.fakery import WITH_ENGINES

_FAKE = ("--engine", "fake", "--dsn", "fake:cpus=2,cpu=50ms,wait=IO/Read:10ms", "--sessions", "1,2,4,8")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("--version",), ("--help",), ("show", "--help"), ("runs",), ("show", "last"), ("sql", "from rungs"),
)  # fmt: skip


def main(count: int, _seconds: float) -> None:
    with tempfile.TemporaryDirectory() as store:
        environment = {**os.environ, "DBDYNO_STORE": store, "PYTHONPATH": WITH_ENGINES}
        _cpu_s(("run", "cpu", *_FAKE, "--measure", "2s", "--settle", "100ms"), environment)
        found: dict[tuple[str, ...], list[float]] = {words: [] for words in COMMANDS}
        for _ in range(count):
            for words in COMMANDS:
                found[words].append(_cpu_s(words, environment))
    for words, seconds in found.items():
        print(
            f"dbdyno {' '.join(words):14} {statistics.median(seconds):.3f} s of CPU "
            f"[{min(seconds):.3f} .. {max(seconds):.3f}], user and system, {count} times",
            flush=True,
        )


def _cpu_s(words: tuple[str, ...], environment: dict[str, str]) -> float:
    program = subprocess.Popen(
        [sys.executable, "-m", "dbdyno", *words], env=environment, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    if program.returncode:
        raise RuntimeError(f"dbdyno {' '.join(words)} ended with exit code {program.returncode}")
    return used.ru_utime + used.ru_stime
