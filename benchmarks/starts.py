"""Cost of starting a command, against a bare posix_spawn loop in C (starts.c), and against hyperfine."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from benchmarks.common import pairs, print_ratio
from benchmarks.observation import run_load
from dbdyno.engines import open_server
from dbdyno.model.engine.protocols import Server, Target
from dbdyno.model.plan.jobs import PlannedJob
from dbdyno.model.plan.pacing import Pacing
from dbdyno.model.plan.plan import Cell, Variant
from dbdyno.model.units import NS_PER_S

RATE = 200
"""Starts per second in the paced half."""
SLEEP = ("sleep", "0.05")
"""A command of nearly known duration: the rest is due to the tool or the machine."""
HYPERFINE = os.environ.get("HYPERFINE", "hyperfine")
Figures = Mapping[str, float]


def main(count: int, seconds: float) -> None:
    """Measures latency and CPU of a start, as fast as possible and at 200 per second, with observers on
    and off."""
    bare = _built()
    program = shutil.which("true") or "true"
    with open_server("command", Target(sessions=2)) as server:
        for rate in (0, RATE):
            for on in (True, False):
                figures = _figures(count, server, bare, [program], rate, seconds, on)
                _compare(f"{rate or 'all possible'} starts/s, {'' if on else 'not '}observed", figures)


def hyperfine(count: int, seconds: float) -> None:
    """Measures mean and standard deviation of a command's time at equal numbers of runs, by either tool."""
    if shutil.which(HYPERFINE) is None:
        print("no hyperfine here: cargo install hyperfine, or HYPERFINE=PATH")
        return
    with open_server("command", Target(sessions=1)) as server:
        for words in (("true",), SLEEP):
            argv = [shutil.which(words[0]) or words[0], *words[1:]]
            runs: list[int] = []

            def ours(argv: list[str] = argv, runs: list[int] = runs) -> list[float]:
                table = _executions(server, argv, 0, seconds, on=False)
                runs.append(len(table))
                return [float(ns) / 1e3 for ns in table["end_ns"] - table["start_ns"]]

            def theirs(argv: list[str] = argv, runs: list[int] = runs) -> list[float]:
                return _by_hyperfine(argv, runs[-1])

            ours()  # the first pair may begin with hyperfine: it needs a number of runs
            durations = pairs(count, ours, theirs)
            summaries: dict[str, Callable[[list[float]], float]] = {
                "mean": statistics.fmean,
                "standard deviation": statistics.stdev,
                "least": min,
                "median": statistics.median,
            }
            for what, figure in summaries.items():
                values = [(figure(a), figure(b)) for a, b in durations]
                print_ratio(
                    f"{' '.join(words)}, {what} of {runs[-1]} runs, against hyperfine -N",
                    values,
                    "us",
                    "<= 1",
                )


def _figures(
    count: int, server: Server, bare: Path, argv: list[str], rate: int, seconds: float, on: bool
) -> list[tuple[Figures, Figures]]:
    def ours() -> Figures:
        before = _own_cpu_us(server)
        table = _executions(server, argv, rate, seconds, on=on)
        spent = sorted(ns / 1e3 for ns in table["end_ns"] - table["start_ns"])
        used = int(table["user_ns"].sum()) + int(table["system_ns"].sum())
        return {
            "starts": len(spent),
            "mean_us": statistics.fmean(spent),
            "p50_us": statistics.median(spent),
            "p99_us": spent[len(spent) * 99 // 100],
            "cpu_us": (_own_cpu_us(server) - before) / len(spent),
            "command_cpu_us": used / 1e3 / len(spent),
        }

    def theirs() -> Figures:
        words = [str(bare), f"{seconds:g}", str(rate), *argv]
        return dict(json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout))

    return pairs(count, ours, theirs)


def _compare(what: str, figures: Sequence[tuple[Figures, Figures]]) -> None:
    limits = {
        "mean_us": "2,000",
        "p50_us": "2,000",
        "p99_us": "2,000",
        "cpu_us": "1,000",
        "command_cpu_us": "0",
    }
    for name, wanted in limits.items():
        more = sorted(a[name] - b[name] for a, b in figures)
        ours, theirs = (statistics.median(side[i][name] for side in figures) for i in (0, 1))
        print(
            f"{what}, {name}: {ours:,.0f} against {theirs:,.0f}; {statistics.median(more):+,.0f} "
            f"[{more[0]:+,.0f} .. {more[-1]:+,.0f}] over {len(figures)} pairs (wanted <= {wanted})",
            flush=True,
        )
    starts = ([round(side[i]["starts"]) for side in figures] for i in (0, 1))
    print("  starts: {} against {}".format(*starts))


def _built() -> Path:
    program = Path(tempfile.gettempdir(), f"dbdyno-starts-{os.geteuid()}")
    source = Path(__file__).with_name("starts.c")
    subprocess.run(["cc", "-O2", "-o", program, source], check=True)
    return program


def _by_hyperfine(argv: list[str], runs: int) -> list[float]:
    """Returns the microseconds of each run, started without a shell."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        words = [HYPERFINE, "-N", "--style=none", "-r", str(runs), "--export-json", file.name, " ".join(argv)]
        subprocess.run(words, check=True, capture_output=True)
        (result,) = json.loads(Path(file.name).read_text())["results"]
    return [t * 1e6 for t in result["times"]]


def _executions(server: Server, argv: list[str], rate: int, seconds: float, *, on: bool) -> pl.DataFrame:
    """Returns the measured executions of one session, at ``rate`` per second; 0 means one after another."""
    assert server.commands
    variant = Variant(name="base", jobs=(PlannedJob(name="job", argv=tuple(argv), shown=" ".join(argv)),))
    workload = server.commands.jobs(variant.jobs, variant, "job", 0)
    cell = Cell(
        id="b",
        workload=workload.name,
        variant="base",
        sessions=1,
        repeat=1,
        params={},
        settle_ns=NS_PER_S // 5,
        measure_ns=int(seconds * NS_PER_S),
        pacing=Pacing(rate_per_s=rate, arrivals="constant") if rate else None,
    )
    load = server.load(workload, cell, None, False, None)
    return run_load(server, load, cell, on=on)["executions"].filter(pl.col("measured"))


def _own_cpu_us(server: Server) -> float:
    """Returns the CPU of this process, including ended threads, and of the launcher, without that of
    commands."""
    tasks = Path(f"/proc/{server.facts().main_pid}/task").iterdir()
    launcher = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
    return time.process_time_ns() / 1e3 + launcher / 1e3
