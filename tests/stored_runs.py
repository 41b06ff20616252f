"""A stored run of the simulated server, and copies of it: stores of many runs that cost little."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from dbdyno import conduct, observe
from dbdyno.conclude.run.case import VERSION
from dbdyno.conduct.derive.derive import TOGETHER, Making, held
from dbdyno.conduct.derive.rebuild import conclude_made
from dbdyno.drive import Interrupt
from dbdyno.model.engine.protocols import Target
from dbdyno.model.schema.tables import REGISTERED, empty
from dbdyno.plan import observed_cell
from dbdyno.store import Run, RunStore
from tests.fakery import S, climb, recorded


def derived_run(store: Path) -> Path:
    """Records a ladder of one and two sessions, derives it, and returns its directory."""
    run = recorded(RunStore(store), climb("fake:cpu=50ms,wait=IO/Read:10ms", [1, 2]))
    run.finish("complete")
    conduct.rebuild(run, lambda _: None)
    return run.path


def copied_run(store: Path, model: Path, run_id: str, **changes: object) -> Path:
    """Copies ``model`` as a run of the day in ``run_id``, with other fields of ``run.json``.

    ``run_id``: as 20260102-100000-lio-0002.
    """
    path = store / run_id
    shutil.copytree(model, path)
    document = json.loads((path / "run.json").read_text())
    day = f"{run_id[:4]}-{run_id[4:6]}-{run_id[6:8]}T10:00:00Z"
    document |= {"id": run_id, "started": day, "ended": day, **changes}
    (path / "run.json").write_text(json.dumps(document))
    return path


_BUSY = {"aas", "low", "high", "seconds", "run", "sleep", "runq", "runq_s", "total", "per_s", "db_time_s"}
Change = Callable[[str, pl.DataFrame, int], pl.DataFrame]


def observed_window(store: Path, window_s: int = 10, sessions: int = 3) -> Run:
    """Observes the simulated server for one window, and returns the stored run."""
    law = f"fake:cpus=2,foreign={sessions},cpu=2ms,think=5ms,wait=IO/DataFileRead:3ms"
    length = f"{window_s}s"
    experiment = conduct.observation_of({"engine": "fake"}, duration=length, window=length)
    plan = conduct.observation_plan(experiment, observe.host())
    listener: conduct.ObservationListener = conduct.NullObservationListener()
    context = conduct.RunContext(observe.host(), Target(dsn=law), RunStore(store), listener, Interrupt())
    return conduct.observe_server(plan, context).record


def observation(store: Path, window: Run, starts_s: Sequence[float], change: Change) -> Run:
    """Returns an observation of copies of a window that begin at these times.

    ``change`` returns a derived table of the window as it is at a place in the order.
    """
    run = RunStore(store).create(window.plan, workloads=window.info.workloads)
    run.write_environment(window.environment)
    (name,) = window.cells()
    (part,) = window.parts.read(held())
    sessions = {t: window.parts.of_sessions(t) for t, r in REGISTERED.items() if r.sessions != "none"}
    tables = {
        t: pl.concat([part[0].get(t, empty(t)), sessions.get(t, empty(t))]) for t in {*held(), *sessions}
    }
    (document,) = part[1]
    began_ns = part[0]["windows"]["t0_ns"][0] - run.info.started_monotonic_ns
    cells = [observed_cell(number + 1, S) for number in range(len(starts_s))]
    for first in range(0, len(cells), TOGETHER):
        several = range(first, min(first + TOGETHER, len(cells)))
        later_ns = {n: round(starts_s[n] * S) - began_ns for n in several}
        moved = {
            t: pl.concat([_moved(change(t, f, n), cells[n].id, n + 1, later_ns[n]) for n in several])
            for t, f in tables.items()
        }
        facts = {cells[n].id: document["facts"]["cells"][name] for n in several}
        further = {"facts": {"version": VERSION, "cells": facts}, "workloads": document["workloads"]}
        run.parts.write(cells[first].id, moved, further)
    conclude_made(Making(run).resume())
    run.finish("complete")
    return run


def busy(factors: Sequence[float]) -> Change:
    """Multiplies what grows with the load of each window."""
    return lambda _, frame, number: busier(frame, pl.lit(factors[number]))


def busier(frame: pl.DataFrame, factor: pl.Expr | pl.Series) -> pl.DataFrame:
    """Returns a derived table with the figures that grow with the load multiplied."""
    figures = [c for c, kind in frame.schema.items() if c in _BUSY and kind == pl.Float64]
    return frame.with_columns(pl.col(c) * factor for c in figures)


def _moved(frame: pl.DataFrame, cell: str, number: int, later_ns: int) -> pl.DataFrame:
    if "cell" not in frame.columns:
        return frame
    times = [pl.col(c) + later_ns for c in ("t0_ns", "t1_ns") if c in frame.columns]
    return frame.with_columns(pl.lit(cell).alias("cell"), pl.lit(number, pl.Int64).alias("repeat"), *times)
