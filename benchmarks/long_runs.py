"""CPU time and peak memory at the end of a long observation, and of looking at one, by the number of windows.

Saves and derives one window of the fake server under 300 sessions (5 s, with as many samples as 55 s at 10
Hz), and repeats it many times. Measures what remains when the last window has been saved: deriving it, and
all conclusions; then the report, and views of the stored run.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
from tests.fakery import WITH_ENGINES

from benchmarks.rebuild import peak_mb
from dbdyno import conduct, observe
from dbdyno.cli.app import app
from dbdyno.conclude.run.case import VERSION
from dbdyno.conduct.derive.derive import TOGETHER, Making, held
from dbdyno.conduct.derive.deriving import LITTLE_MEMORY
from dbdyno.conduct.derive.rebuild import conclude_made
from dbdyno.drive import Interrupt
from dbdyno.model.engine.protocols import Target
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.derived import REGISTERED
from dbdyno.model.schema.tables import empty
from dbdyno.plan import observed_cell
from dbdyno.store import Run, RunStore

SESSIONS, SECONDS = 300, 5
WINDOWS = (180, 1440, 8640)


def main(_count: int, _seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        first = _observed(Path(directory) / "first")
        for count in WINDOWS:
            run = _repeated(Path(directory) / str(count), first, count)
            for what in ("end", *STEPS):
                command = [sys.executable, "-m", "benchmarks.long_runs", what, str(run.path)]
                around = {
                    **os.environ,
                    "PYTHONPATH": WITH_ENGINES,
                    **(LITTLE_MEMORY if what == "end" else {}),
                }
                done = subprocess.run(command, env=around, check=True, capture_output=True, text=True)
                print(f"{count:5} windows of {SESSIONS} sessions: {done.stdout.strip()}", flush=True)


def _observed(directory: Path) -> Run:
    """Returns a run with one window of the fake server."""
    law = f"fake:cpus=2,foreign={SESSIONS},cpu=2ms,think=5ms,wait=IO/DataFileRead:3ms,maximum={SESSIONS + 50}"
    length = f"{SECONDS}s"
    experiment = conduct.observation_of(
        {"engine": "fake", "waits": "sampled"}, duration=length, window=length
    )
    host = observe.host()
    plan = conduct.observation_plan(experiment, host)
    listener = conduct.NullObservationListener()
    return conduct.observe_server(
        plan, conduct.RunContext(host, Target(dsn=law), RunStore(directory), listener, Interrupt())
    ).record


def _repeated(directory: Path, first: Run, count: int) -> Run:
    """Returns a run with the window ``count`` times. All but the last are derived and merged, as during
    observation."""
    run = RunStore(directory).create(first.plan, workloads=first.info.workloads)
    run.write_environment(first.environment)
    (name,) = first.cells()
    raw = first.read_cell(name)
    (part,) = first.parts.read(held())
    sessions = {
        t: first.parts.of_sessions(t) for t, record in REGISTERED.items() if record.sessions != "none"
    }
    tables = {
        t: pl.concat([part[0].get(t, empty(t)), sessions.get(t, empty(t))]) for t in {*held(), *sessions}
    }
    (document,) = part[1]
    length = raw.meta.cell.measure_ns
    cells = [observed_cell(number, length) for number in range(1, count + 1)]
    for first_of in range(0, count - 1, TOGETHER):
        several = list(enumerate(cells[first_of : min(first_of + TOGETHER, count - 1)], first_of))
        for _, cell in several:
            shutil.copytree(first.path / "cells" / name, run.path / "cells" / cell.id, copy_function=os.link)
        moved = {
            t: pl.concat([_moved(frame, c.id, n + 1, n * length) for n, c in several])
            for t, frame in tables.items()
        }
        facts = {c.id: document["facts"]["cells"][name] for _, c in several}
        further = {
            "facts": {"version": VERSION, "cells": facts},
            "seconds": {c.id: document["seconds"][name] for _, c in several},
        }
        run.parts.write(several[0][1].id, moved, {"workloads": document["workloads"], **further})
    run.write_cell(RawCell(raw.meta.model_copy(update={"cell": cells[-1]}), raw.tables))
    return run


def _moved(frame: pl.DataFrame, cell: str, number: int, later_ns: int) -> pl.DataFrame:
    if "cell" not in frame.columns:
        return frame
    times = [pl.col(c) + later_ns for c in ("t0_ns", "t1_ns") if c in frame.columns]
    return frame.with_columns(pl.lit(cell).alias("cell"), pl.lit(number, pl.Int64).alias("repeat"), *times)


def _end(run: Run) -> str:
    """Derives the last window and concludes. The deriving process holds what it derived before."""
    making = Making(run).resume()
    start_s, cpu = time.monotonic(), time.process_time()
    conclude_made(making)
    run.finish("complete")
    return f"{time.process_time() - cpu:.1f} s of CPU, {time.monotonic() - start_s:.1f} s"


def _report(run: Run) -> None:
    conduct.reported(run, conduct.results_of(run))


def _shown(*words: str) -> Callable[[Run], None]:
    def show(run: Run) -> None:
        app(["show", run.id, "--store", str(run.path.parent), *words], standalone_mode=False)

    return show


STEPS: dict[str, Callable[[Run], None]] = {
    "report": _report,
    "show": _shown(),
    "show --microstates": _shown("--microstates"),
    "show --profile": _shown("--profile"),
}


def _measured(what: str, run: Run) -> str:
    if what == "end":
        return f"the end, with the last window: {_end(run)}, peak {f'{peak_mb():,.0f} MB'}"
    began = time.monotonic()
    with Path(os.devnull).open("w") as nowhere:  # renders the summary without showing it
        out, sys.stdout = sys.stdout, nowhere
        STEPS[what](run)
        sys.stdout = out
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = used.ru_utime + used.ru_stime
    return f"{what}: {cpu_s:.1f} s of CPU, {time.monotonic() - began:.1f} s, peak {peak_mb():,.0f} MB"


if __name__ == "__main__":
    print(_measured(sys.argv[1], Run(Path(sys.argv[2]))))
