"""A stored run of the simulated server, and copies of it: stores of many runs that cost little."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from dbdyno import conduct
from dbdyno.store import RunStore
from tests.fakery import climb, recorded


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
