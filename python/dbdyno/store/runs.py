"""The runs of a store."""

from __future__ import annotations

import difflib
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
from dbdyno.model.errors import NoSuchRun, StoreError
from dbdyno.model.home import base_directory
from dbdyno.model.plan import Plan
from dbdyno.model.results import RunInfo
from dbdyno.model.tables import SCHEMA_VERSION
from dbdyno.store import files
from dbdyno.store.process import start_ticks
from dbdyno.store.run import Run, read_info, to_json

_STORE_CURE = "name one: DBDYNO_STORE=DIR, or --store DIR"
_LIKE_A_RUN = re.compile(r"\d{8}-\d{6}-.+")


def default_root() -> Path:
    """``$XDG_DATA_HOME/dbdyno``, else ``~/.local/share/dbdyno`` (XDG Base Directory Specification 0.8)."""
    return base_directory("XDG_DATA_HOME", ".local/share", "the run store", _STORE_CURE) / "dbdyno"


class RunStore:
    """All runs below ``root`` (default: :func:`default_root`). The directory is made by the first run."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = default_root() if root is None else root

    def create(self, plan: Plan, **fields: Any) -> Run:
        """A new run of this process, status ``running``. ``fields``: further fields of :class:`RunInfo`."""
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
        """A run by its id, a unique beginning of it, or ``last``. Raises :class:`NoSuchRun`."""
        return Run(self._find(wanted))

    def remove(self, wanted: str) -> str:
        """Removes a run, or a link to one, whose target stays; its name. One that is broken is removed, too.

        Raises :class:`StoreError` where the run is still running, and :class:`NoSuchRun`.
        """
        path = self._find(wanted)
        if _info_or_broken(path).status == "running":
            raise StoreError(f"run {path.name} is still running", "stop it first, or wait")
        with files.guard(self.root):
            if path.is_symlink():
                path.unlink()
            else:
                shutil.rmtree(path)
        return path.name

    def _find(self, wanted: str) -> Path:
        ids = self._ids()
        if wanted == "last":
            if not ids:
                raise NoSuchRun(f"no runs in {self.root}", "make one: dbdyno run lio")
            return self.root / ids[-1]
        matching = [i for i in ids if i == wanted] or [i for i in ids if wanted and i.startswith(wanted)]
        if len(matching) == 1:
            return self.root / matching[0]
        if matching:
            raise NoSuchRun(
                f"{len(matching)} runs begin with {wanted!r}", f"say more: {', '.join(matching[-5:])}"
            )
        raise NoSuchRun(f"no run {wanted!r} in {self.root}", _nearest(wanted, ids))

    def list(self) -> Sequence[RunInfo]:
        """All runs, oldest first; one that cannot be read has status ``broken`` and the reason."""
        return [_info_or_broken(self.root / run_id) for run_id in self._ids()]

    def _new_directory(self, plan: Plan, started: datetime) -> Path:
        experiment = plan.experiment
        name = experiment.workload or (Path(experiment.script).stem if experiment.script else experiment.name)
        name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
        path = self.root / f"{started:%Y%m%d-%H%M%S}-{name}-{secrets.token_hex(2)}"
        with files.guard(self.root):
            path.mkdir(mode=0o700)
        return path

    def _ids(self) -> Sequence[str]:
        try:
            with files.guard(self.root):
                return sorted(p.name for p in self.root.iterdir() if _is_run(p))
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return []
            raise


def _is_run(path: Path) -> bool:
    return path.is_dir() and (_LIKE_A_RUN.fullmatch(path.name) is not None or (path / "run.json").exists())


def _nearest(wanted: str, ids: Sequence[str]) -> str:
    near = difflib.get_close_matches(wanted, ids, n=3, cutoff=0.4) or list(ids[-3:])
    return (
        f"nearest: {', '.join(near)}; all of them: dbdyno runs" if near else "there are none: dbdyno run lio"
    )


def _info_or_broken(path: Path) -> RunInfo:
    try:
        return read_info(path)
    except StoreError as error:
        return RunInfo(
            schema_version=SCHEMA_VERSION,
            id=path.name,
            dbdyno="unknown",
            started=_time_of(path),
            started_monotonic_ns=0,
            status="broken",
            reason=error.message,
        )


def _time_of(path: Path) -> datetime:
    """From the name, else the directory's own time."""
    try:
        return datetime.strptime(path.name[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
