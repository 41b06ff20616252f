"""Shared by benchmarks: a server with pgbench's tables, paired runs, medians with their range."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dbdyno.engines.postgres.embedded import StartOptions, open_instance
from dbdyno.engines.postgres.embedded.programs import find_programs

ROOT = Path(__file__).parent.parent
SQL = "select abalance from pgbench_accounts where aid = 1"
"""The same constant statement on both sides, so that neither spends time on random numbers."""
POINT_SELECT = ROOT / "target" / "release" / "examples" / "point_select"


@dataclass(frozen=True)
class Bench:
    """A running server with pgbench's tables."""

    socket: str
    user: str
    pgbench_program: Path
    script: Path

    def pgbench(self, sessions: int, *words: str) -> list[str]:
        """Returns a pgbench command that executes the same prepared statement."""
        return [
            str(self.pgbench_program),
            "-n",
            "-M",
            "prepared",
            "-f",
            str(self.script),
            "-h",
            self.socket,
            "-U",
            self.user,
            "-c",
            str(sessions),
            "-j",
            str(min(2, sessions)),
            *words,
            "postgres",
        ]

    def point_select(self, sessions: int, *words: str) -> list[str]:
        """Returns a command that runs only the driver's hot path."""
        return [
            str(POINT_SELECT),
            f"host={self.socket}",
            f"user={self.user}",
            "database=postgres",
            f"sessions={sessions}",
            f"threads={min(2, sessions)}",
            f"sql={SQL}",
            *words,
        ]


@contextmanager
def server(sessions: int = 120, *, driver: bool = True) -> Iterator[Bench]:
    """Starts the embedded PostgreSQL with pgbench's tables at scale 10. Builds the driver's example first,
    unless it is not needed."""
    if driver:
        example = ["-p", "dyno-engine-postgres", "--example", "point_select"]
        subprocess.run(["cargo", "build", "--release", "--quiet", *example], cwd=ROOT, check=True)
    instance = open_instance(None, StartOptions(sessions=sessions))
    try:
        facts = instance.facts()
        with tempfile.TemporaryDirectory() as directory:
            script = Path(directory) / "select.sql"
            script.write_text(SQL + ";\n")
            bench = Bench(facts["socket"], "dbdyno", find_programs(None).bin_dir / "pgbench", script)
            subprocess.run(
                [
                    bench.pgbench_program,
                    "-i",
                    "-q",
                    "-s",
                    "10",
                    "-h",
                    bench.socket,
                    "-U",
                    bench.user,
                    "postgres",
                ],
                check=True,
                capture_output=True,
            )
            yield bench
    finally:
        instance.close()


def run_json(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


T = TypeVar("T")


def pairs(count: int, ours: Callable[[], T], theirs: Callable[[], T]) -> list[tuple[T, T]]:
    """Returns ``count`` pairs; the sides alternate in going first."""
    measured = []
    for i in range(count):
        if i % 2:
            b, a = theirs(), ours()
        else:
            a, b = ours(), theirs()
        measured.append((a, b))
    return measured


def print_ratio(what: str, measured: list[tuple[float, float]], unit: str, wanted: str) -> None:
    """Prints the medians of both sides, and the median, smallest and largest ratio."""
    ratios = sorted(a / b for a, b in measured)
    ours, theirs = (statistics.median(side) for side in zip(*measured, strict=True))
    print(
        f"{what}: {ours:,.4g} against {theirs:,.4g} {unit}; ratio {statistics.median(ratios):.3f} "
        f"[{ratios[0]:.3f} .. {ratios[-1]:.3f}] over {len(measured)} pairs (wanted {wanted})",
        flush=True,
    )
