"""CPU of read-only commands, mostly of their start-up, and of ``analyze`` with 16 and 200 rungs. Commands
take turns, so that drift of the machine cancels out, and use compiled byte code, as an installed program
does."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fakery import WITH_ENGINES

_FAKE = ("--engine", "fake", "--dsn", "fake:cpus=2,cpu=50ms,wait=IO/Read:10ms", "--sessions", "1,2,4,8")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("--version",),
    ("--help",),
    ("show", "--help"),
    ("runs",),
    ("show", "last"),
    ("sql", "from rungs"),
)
RUNGS = {"16": (*range(1, 7), 8, 10, 12, 14, 16, 20, 24, 32, 48, 64), "200": tuple(range(1, 201))}


def main(count: int, _seconds: float) -> None:
    with tempfile.TemporaryDirectory() as store:
        environment = {**os.environ, "DBDYNO_STORE": store, "PYTHONPATH": WITH_ENGINES}
        environment |= {"PYTHONPYCACHEPREFIX": f"{store}/bytecode", "PYTHONDONTWRITEBYTECODE": ""}
        commands = [*COMMANDS, *(("analyze", _ladder(store, name)) for name in RUNGS)]
        _cpu_s(("run", "cpu", *_FAKE, "--measure", "2s", "--settle", "100ms"), environment)
        seconds_by_command: dict[tuple[str, ...], list[float]] = {words: [] for words in commands}
        for turn in range(count + 1):
            for words in commands:
                used = _cpu_s(words, environment)
                seconds_by_command[words] += [used] if turn else []  # the first writes the byte code
    for words, seconds in seconds_by_command.items():
        print(
            f"dbdyno {' '.join(Path(w).name for w in words):14} {statistics.median(seconds):.3f} s of CPU "
            f"[{min(seconds):.3f} .. {max(seconds):.3f}], user and system, {count} times",
            flush=True,
        )


def _ladder(directory: str, name: str) -> str:
    """Writes a file by the Universal Scalability Law with 1 % noise."""
    draw = random.Random(3)
    points = [(n, 955 * n / (1 + 0.03 * (n - 1) + 0.0008 * n * (n - 1))) for n in RUNGS[name]]
    path = Path(directory, f"{name}.csv")
    path.write_text("sessions,tps\n" + "".join(f"{n},{x * draw.gauss(1, 0.01):.1f}\n" for n, x in points))
    return str(path)


def _cpu_s(words: tuple[str, ...], environment: dict[str, str]) -> float:
    program = subprocess.Popen(
        [sys.executable, "-m", "dbdyno", *words], env=environment, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    if program.returncode:
        raise RuntimeError(f"dbdyno {' '.join(words)} ended with exit code {program.returncode}")
    return used.ru_utime + used.ru_stime
