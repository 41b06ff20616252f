"""Creates, finds, lists and removes the runs of a store."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dbdyno import __version__
from dbdyno.model.errors import StoreError
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.results import RunInfo
from dbdyno.model.schema.tables import SCHEMA_VERSION
from dbdyno.store import files
from dbdyno.store.files import read_limited
from dbdyno.store.listing import Listed, default_root, list_run, list_runs, start_ticks
from dbdyno.store.overview import find_run
from dbdyno.store.run import Run, is_in_use, to_json

_CALL_SIZES = ".call-sizes.json"
_NOISE, _MOST_NOISE = ".noise.json", 200


class RunStore:
    """All runs below ``root`` (default: :func:`default_root`). The first run creates the directory."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = default_root() if root is None else root

    def create(self, plan: Plan, **fields: Any) -> Run:
        """Creates a run of this process with status ``running``. ``fields`` are further fields of
        :class:`RunInfo`."""
        files.make_directory(self.root)
        started = datetime.now(UTC)
        path = self._new_directory(plan, started)
        known: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "id": path.name,
            "dbdyno": __version__,
            "started": started,
            "started_monotonic_ns": time.monotonic_ns(),
            "pid": os.getpid(),
            "pid_start_ticks": start_ticks(os.getpid()) or 0,
        }
        files.make_directory(path / "cells")
        files.write_atomic(path / "plan.json", to_json(plan))
        files.write_atomic(path / "run.json", to_json(RunInfo.model_validate(known | fields)))
        return Run(path)

    def open(self, wanted: str) -> Run:
        """Returns the run of :func:`find_run`. Raises :class:`NoSuchRun`."""
        return Run(find_run(self.root, wanted))

    def remove(self, wanted: str) -> str:
        """Removes a run, broken ones included, and returns its id. Of a link only the link is removed.

        Raises :class:`StoreError` if the run is still running or in use, and :class:`NoSuchRun`.
        """
        path = find_run(self.root, wanted)
        if list_run(path).status == "running":
            raise StoreError(f"run {path.name} is still running", "stop it first, or wait")
        if not path.is_symlink() and is_in_use(path):
            raise StoreError(f"run {path.name} is still being worked out", "wait until its command has ended")
        with files.guard(self.root):
            if path.is_symlink():
                path.unlink()
            else:
                shutil.rmtree(path)
        return path.name

    def list(self) -> Sequence[Listed]:
        """Returns all runs, oldest first; an unreadable one has the status ``broken`` and the reason."""
        return list_runs(self.root)

    def call_size(self, key: str) -> int | None:
        """Returns the size of a call that was remembered for ``key``, or None."""
        size = self._call_sizes().get(key)
        return size if isinstance(size, int) and size > 0 else None

    def remember_call_size(self, key: str, size: int) -> None:
        """Remembers the size of a call, so that later runs with the same ``key`` are comparable."""
        content = json.dumps(self._call_sizes() | {key: size}, indent=1)
        files.write_atomic(self.root / _CALL_SIZES, content.encode())

    def noise(self) -> Sequence[Any] | None:
        """Returns the records of measured noise, oldest first; None if their file cannot be read."""
        try:
            records = files.from_json(read_limited(self.root / _NOISE))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError):
            return None
        return records if isinstance(records, list) else None

    def remember_noise(self, records: Sequence[Any]) -> Path | None:
        """Replaces the records of measured noise; only the newest are kept. A file that cannot be read is
        set aside: its new path is returned."""
        path, aside = self.root / _NOISE, None
        if self.noise() is None:
            aside = path.with_name(f"{_NOISE}.damaged")
            with files.guard(self.root):
                path.replace(aside)
        files.write_atomic(path, json.dumps(list(records)[-_MOST_NOISE:], indent=1).encode())
        return aside

    def _call_sizes(self) -> dict[str, object]:
        try:
            sizes = files.from_json(read_limited(self.root / _CALL_SIZES))
        except (OSError, ValueError):  # absent or damaged: calls are calibrated again
            return {}
        return sizes if isinstance(sizes, dict) else {}

    def _new_directory(self, plan: Plan, started: datetime) -> Path:
        experiment = plan.experiment
        scripts = "-".join([*(Path(s.name).stem for s in plan.scripts), *(j.name for j in plan.jobs)])
        name = experiment.workload or scripts or experiment.name
        name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
        path = self.root / f"{started:%Y%m%d-%H%M%S}-{name}-{secrets.token_hex(2)}"
        with files.guard(self.root):
            path.mkdir(mode=0o700)
        return path
