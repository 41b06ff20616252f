"""User instructions of the client per prepared point-select, by callgrind: the difference of two lengths."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.common import server

_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)
LENGTHS = (1000, 11000)
"""Numbers of calls, far apart, since the cost of writing the tables at the end grows with the longest
call."""


def main(_pairs: int, _seconds: float) -> None:
    if shutil.which("valgrind") is None:
        print("no valgrind here: install it (Debian: apt-get install valgrind)")
        return
    with server() as bench:
        for sessions in (1, 8):
            ours = _per_call([bench.point_select(sessions, f"calls={n}") for n in LENGTHS], sessions)
            theirs = _per_call([bench.pgbench(sessions, "-t", str(n)) for n in LENGTHS], sessions)
            print(
                f"{sessions} sessions: {ours:,.0f} against pgbench's {theirs:,.0f} user instructions a call; "
                f"ratio {ours / theirs:.3f} (wanted <= 700)",
                flush=True,
            )


def _per_call(commands: list[list[str]], sessions: int) -> float:
    short, long = (_instructions(c) for c in commands)
    return (long - short) / (sessions * (LENGTHS[1] - LENGTHS[0]))


def _instructions(command: list[str]) -> int:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "callgrind.out"
        subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *command],
            check=True,
            capture_output=True,
        )
        totals = _TOTAL.findall(out.read_text())
    return int(totals[-1])
