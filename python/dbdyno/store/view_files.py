"""Which files of which runs a view reads, each compared with its checksum; what is left out, and why."""

from __future__ import annotations

import hashlib
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dbdyno.model.derived import OF_SESSIONS, WHOLLY
from dbdyno.model.errors import StoreError
from dbdyno.model.rawtables import RAW
from dbdyno.store import files
from dbdyno.store.listing import Listed

_SHOWN = 3
REBUILD = "dbdyno rebuild RUN derives it again"


class Warnings:
    """What a query leaves out, said once for all runs it concerns."""

    def __init__(self) -> None:
        self._runs: dict[str, list[str]] = defaultdict(list)

    def add(self, what: str, run: str) -> None:
        if run not in self._runs[what]:
            self._runs[what].append(run)

    def lines(self) -> list[str]:
        return [f"{what}: {_some(runs)}" for what, runs in self._runs.items()]


def table_files(table: str, runs: Sequence[Listed], warnings: Warnings) -> list[Path]:
    """The whole Parquet files of a table. Raw ones lie in each cell's directory."""
    return [path for run in runs for path in _of_run(table, run, warnings)]


def document(run: Listed, name: str, warnings: Warnings) -> Any:
    """A JSON file of a run, or ``None`` where it is not there or is damaged."""
    path = run.path / name
    try:
        return files.from_json(files.read(path)) if path.exists() else None
    except (StoreError, ValueError) as error:
        warnings.add(f"{name} is damaged ({error})", run.id)
        return None


def derived_document(run: Listed, name: str, warnings: Warnings) -> Any:
    """As :func:`document`, of the directory ``derived`` and compared with its checksum."""
    directory = run.path / "derived"
    if not directory.is_dir() or not _checked(directory, name, run, warnings):
        return None
    return document(run, f"derived/{name}", warnings)


def _of_run(table: str, run: Listed, warnings: Warnings) -> Iterator[Path]:
    name = f"{table}.parquet"
    if table not in RAW:
        yield from _derived(table, run, warnings)
        return
    for directory in _cells(run):
        if _checked(directory, "cell.json", run, warnings) and _checked(directory, name, run, warnings):
            yield directory / name


def _derived(table: str, run: Listed, warnings: Warnings) -> Iterator[Path]:
    """What is said of all sessions together, and the rows of single sessions, which lie with the parts."""
    directory, parts = run.path / "derived", _cells(run, "parts")
    if not directory.is_dir():
        return
    if not (parts and table in WHOLLY) and _checked(directory, f"{table}.parquet", run, warnings):
        yield directory / f"{table}.parquet"
    name = f"{table}.sessions.parquet"
    for part in parts if table in OF_SESSIONS else ():
        if (part / name).exists() and _checked(part, name, run, warnings):
            yield part / name


def _cells(run: Listed, directory: str = "cells") -> list[Path]:
    try:
        found = [p for p in (run.path / directory).iterdir() if p.is_dir() and not p.name.startswith(".")]
    except OSError:
        return []
    return sorted(found)


def _checked(directory: Path, name: str, run: Listed, warnings: Warnings) -> bool:
    """Whether the file is there and whole. One that its manifest does not name is of an older format."""
    derived = directory.name == "derived"
    cure = "" if directory.parent.name == "cells" else f"; {REBUILD}"
    where = name if derived else f"{directory.name}/{name}"
    try:
        digests = _manifest(directory)
        if name not in digests:
            warnings.add(f"{name} is not there, an older dbdyno did not write it{cure}", run.id)
            return False
        if digests[name] != _digest(directory / name):
            raise StoreError("its checksum differs")
    except (StoreError, OSError, ValueError, TypeError) as error:
        warnings.add(f"{where} is damaged and left out ({_reason(error)}){cure}", run.id)
        return False
    return True


def _manifest(directory: Path) -> Mapping[str, str]:
    return dict(files.from_json(files.read(directory / files.MANIFEST)))


def _digest(path: Path) -> str:
    if not stat.S_ISREG(path.lstat().st_mode):  # a FIFO has no end, a link leads out of the store
        raise StoreError("it is no regular file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, StoreError) else getattr(error, "strerror", None) or str(error)


def _some(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - _SHOWN} more runs" if len(runs) > _SHOWN else ""
    return ", ".join(runs[:_SHOWN]) + more
