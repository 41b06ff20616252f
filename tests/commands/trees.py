"""The watch over a tree of processes, for tests: python -m tests.commands.trees SPEC RESULT."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from dbdyno.model.results.raw import CellMeta, RawCell
from dbdyno.model.schema.tables import RAW, empty, raw
from tests.fakery import LIO, S, plan_cell, rows

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = Path(__file__).with_name("tree_launcher.py")


def cell(
    argv: list[str],
    *,
    seconds: int = 1,
    sessions: int = 1,
    trace: str = "off",
    user: int = 0,
    before: Sequence[str] = (),
) -> RawCell:
    """Returns the window of a load of such executions.

    ``before`` is the command that starts the measuring process; that and its launcher become ``user``.
    """
    result = Path(argv[0]).parent / f"{time.monotonic_ns()}.pickle"
    spec = {"argv": argv, "seconds": seconds, "sessions": sessions, "trace": trace, "user": user}
    module = [sys.executable, "-m", "tests.commands.trees", json.dumps(spec), str(result)]
    subprocess.run([*before, *module], cwd=ROOT, check=True, timeout=60)
    meta, tables = pickle.loads(result.read_bytes())
    return RawCell(CellMeta.model_validate_json(meta), tables)


def measure(
    argv: list[str], seconds: int, sessions: int, trace: str, user: int
) -> tuple[str, dict[str, pl.DataFrame]]:
    from dbdyno import _core, engines
    from dbdyno.engines.command.watching import watch_spec
    from dbdyno.observe.watch import frames

    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    command = [python, "-I", str(LAUNCHER), json.dumps({"argv": argv, "sessions": sessions})]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    spec = watch_spec(launcher.pid) | {"trace": trace, "host": True, "sample_hz": 10.0}
    watch = _core.Watch(json.dumps(spec))
    t0 = time.monotonic_ns() + S
    t1 = t0 + seconds * S
    watch.start(t0, t1)
    time.sleep((t1 - time.monotonic_ns()) / S + 0.2)
    launcher.terminate()
    executions = json.loads(launcher.communicate()[0])
    watch.stop()
    for e in executions:
        e["measured"] = t0 <= e["start_ns"] < t1
    statuses = {name: [status, detail] for name, (status, detail) in watch.source_status().items()}
    tables = {**frames(watch), "executions": rows("executions", executions)}
    tables["sources"] = rows(
        "sources",
        [{"name": n, "provenance": "", "status": s, "detail": d} for n, (s, d) in statuses.items()],
    )
    ends = {"start_ns": t0, "t0_ns": t0, "t1_ns": t1, "end_ns": t1}
    meta = CellMeta(
        cell=plan_cell(sessions),
        workload=LIO,
        calibration=None,
        driver_threads=1,
        usable_cpus=os.cpu_count() or 1,
        status="ok",
        wait_families=engines.wait_families("command"),
        **ends,
    )
    return meta.model_dump_json(), {name: tables.get(name, empty(raw(name))) for name in RAW}


if __name__ == "__main__":
    with Path(sys.argv[2]).open("wb") as result:  # before it becomes somebody else
        pickle.dump(measure(**json.loads(sys.argv[1])), result)
