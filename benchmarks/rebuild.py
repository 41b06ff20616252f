"""Deriving a run of 1,000 sessions again: CPU time and memory at 1, 3 and 10 million samples.

Stretches a measurement of the fake server: the window gets longer, its samples are repeated as often as
needed, and their labels and states are drawn anew for each row.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from dbdyno.conduct.derive.derive import derive
from dbdyno.model.results.raw import RawCell
from dbdyno.store import Run, RunStore

ROOT = Path(__file__).parent.parent
SESSIONS, SHORT_S = 1000, 10
_CLOCKS = ("at_ns", "before_ns", "after_ns")
_SAMPLED = ("sql_before_ns", "sql_after_ns", "task_ns", "due_ns", "start_ns", "end_ns")
_GROWING = ("run_ns", "runq_ns", "user_ns", "system_ns", "sleep_ns", "throttled_ns", "blkio_ns", "blocked_ns")


LABELS = (
    "",
    "",
    "Client/ClientRead",
    "Client/ClientRead",
    "IO/DataFileRead",
    "LWLock/WALWrite",
    "Lock/tuple",
)
RUNNABLE = 0.4


def main(_count: int, _seconds: float) -> None:
    figures: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as directory:
        short = _short(Path(directory))
        for millions in (1, 3, 10):
            times = max(1, round(millions * 1e6 / short[1].tables["samples"].height))
            run = _stored(Path(directory) / str(millions), *short, times)
            command = [sys.executable, "-m", "benchmarks.rebuild", str(run.path)]
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            figures.append({"millions": millions, **json.loads(done.stdout)})
            print(
                "{millions} million samples of {sessions} sessions: {cpu_s:.1f} s of CPU, {wall_s:.1f} s, "
                "{peak_mb:,.0f} MB, {rows:,} rows of the ledger".format(sessions=SESSIONS, **figures[-1]),
                flush=True,
            )
    for figure in ("cpu_s", "peak_mb"):
        growth = _exponent(figures[1], figures[2], figure)
        print(f"from 3 to 10 million {figure} grows with the number of samples to the power of {growth:.2f}")


def _exponent(few: dict[str, float], many: dict[str, float], figure: str) -> float:
    return math.log(many[figure] / few[figure]) / math.log(many["millions"] / few["millions"])


def _short(directory: Path) -> tuple[Run, RawCell]:
    sys.path.insert(0, str(ROOT))
    from tests.fakery import climb

    measured = climb(
        f"fake:cpus=2,cpu=2ms,maximum={SESSIONS + 20}", [SESSIONS], measure_ns=SHORT_S * 1_000_000_000
    )
    run = RunStore(directory / "short").create(measured.plan)
    run.write_environment(measured.environment)
    return run, measured.cells[0]


def _stored(directory: Path, short: Run, cell: RawCell, times: int) -> Run:
    run = RunStore(directory).create(short.plan)
    run.write_environment(short.environment)
    run.write_cell(stretched(cell, times))
    run.finish("complete")
    return run


def stretched(cell: RawCell, times: int) -> RawCell:
    """Returns ``cell`` with a window ``times`` as long, and as many times the samples."""
    t0 = cell.meta.t0_ns
    width = cell.meta.t1_ns - t0
    longer_ns = (times - 1) * width
    meta = cell.meta.model_copy(update={"t1_ns": t0 + times * width, "end_ns": cell.meta.end_ns + longer_ns})
    tables = dict(cell.tables)
    first = tables["sampler"].select(pl.col("sample").max()).item() + 1
    inside = tables["sampler"].filter(pl.col("due_ns").is_between(t0, t0 + width, closed="left"))
    for name in ("samples", "sampler"):
        rows = tables[name].join(inside.select("sample", "via"), on=["sample", "via"], how="semi")
        tables[name] = pl.concat([_later(rows, n * width, n * first) for n in range(times)])
    tables["samples"] = _drawn(tables["samples"])
    for name in ("tasks", "traced", "waits", "cgroup", "host", "counters", "progress"):
        tables[name] = tables[name].with_columns(
            *((pl.col(c) - t0) * times + t0 for c in _CLOCKS if c in tables[name].columns),
            *(pl.col(c) * times for c in _GROWING if c in tables[name].columns),
        )
    tables["sessions"] = tables["sessions"].with_columns(
        (pl.col("last_end_ns") + longer_ns), (pl.col("calls") * times)
    )
    return RawCell(meta, tables)


def _later(rows: pl.DataFrame, ns: int, number: int) -> pl.DataFrame:
    moved = [pl.col(c) + ns for c in _SAMPLED if c in rows.columns]
    return rows.with_columns(pl.col("sample") + number, *moved)


def _drawn(samples: pl.DataFrame) -> pl.DataFrame:
    """Draws random labels and task states, with weights per session."""
    random = np.random.default_rng(1)
    drawn = random.integers(0, len(LABELS), samples.height) * random.integers(0, 2, samples.height)
    drawn = (drawn + samples["pid"].to_numpy()) % len(LABELS)
    label = pl.Series(LABELS).gather(drawn.astype(np.uint32)).str.split("/")
    runs = pl.Series(random.random(samples.height) < RUNNABLE)
    return samples.with_columns(
        wait_class=label.list.get(0).replace({"": None}),
        wait_event=label.list.get(1, null_on_oob=True),
        task_state=pl.select(pl.when(runs).then(pl.lit("R")).otherwise(pl.lit("S"))).to_series(),
    )


def _measured(run: Run) -> dict[str, float]:
    before, began = os.times(), time.perf_counter()
    results = derive(run.info, run.plan, run.environment, run.each_cell([]))
    used, wall_s = os.times(), time.perf_counter() - began
    cpu_s = used.user + used.system - before.user - before.system
    figures = {"cpu_s": cpu_s, "wall_s": wall_s, "peak_mb": peak_mb()}
    return figures | {"rows": results.tables["ledger"].height}


def peak_mb() -> float:
    """Returns the peak memory of this program; ru_maxrss would include that of the program before exec."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(_measured(Run(Path(sys.argv[1])))))
