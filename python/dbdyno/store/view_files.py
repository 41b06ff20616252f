"""Selects the files that a view reads, verifies their checksums, and reports what is left out and why."""

from __future__ import annotations

import hashlib
import stat
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from dbdyno.model.errors import StoreError
from dbdyno.model.schema.column import Column, Type
from dbdyno.model.schema.derived import DERIVED, REGISTERED, sessions_in
from dbdyno.model.schema.rawtables import RAW
from dbdyno.model.schema.snapshot_tables import TABLES
from dbdyno.store import files
from dbdyno.store.listing import Listed

_SHOWN = 3
REBUILD = "dbdyno rebuild RUN derives it again"


class Warnings:
    """Reports of data that a query leaves out, each once with all runs that it concerns."""

    def __init__(self) -> None:
        self._runs: dict[str, list[str]] = defaultdict(list)

    def add(self, what: str, run: str) -> None:
        if run not in self._runs[what]:
            self._runs[what].append(run)

    def lines(self) -> list[str]:
        return [f"{what}: {_some(runs)}" for what, runs in self._runs.items()]


def table_files(
    view: View, runs: Sequence[Listed], warnings: Warnings, cells: Collection[str] = ()
) -> list[Path]:
    """Returns the intact Parquet files of a table. Raw tables are in the directory of each cell; of these
    only ``cells``, if any are given."""
    if view.raw:
        return [path for run in runs for path in _raw(view.table, run, warnings, cells)]
    return [path for run in runs for path in _derived(view.table, run, warnings)]


def document(run: Listed, name: str, warnings: Warnings) -> Any:
    """Returns a JSON file of a run; None if it is absent or damaged."""
    path = run.path / name
    try:
        return files.from_json(files.read(path)) if path.exists() else None
    except (StoreError, ValueError) as error:
        warnings.add(f"{name} is damaged ({error})", run.id)
        return None


def derived_document(run: Listed, name: str, warnings: Warnings) -> Any:
    """Returns a JSON file of the directory ``derived`` after verifying its checksum; None as
    :func:`document`."""
    directory = run.path / "derived"
    if not directory.is_dir() or not _checked(directory, name, run, warnings):
        return None
    return document(run, f"derived/{name}", warnings)


def _raw(table: str, run: Listed, warnings: Warnings, cells: Collection[str]) -> Iterator[Path]:
    name = f"{table}.parquet"
    for directory in _cells(run):
        if cells and directory.name not in cells:
            continue
        if _checked(directory, "cell.json", run, warnings) and _checked(directory, name, run, warnings):
            yield directory / name


def _derived(table: str, run: Listed, warnings: Warnings) -> Iterator[Path]:
    """Yields the file of all sessions together, and those of single sessions, which are in the parts."""
    directory, parts = run.path / "derived", _cells(run, "parts")
    if not directory.is_dir():
        return
    older = [f"{name}.parquet" for name in REGISTERED[table].older]
    whole = next((o for o in older if (directory / o).exists()), f"{table}.parquet")
    if not (parts and sessions_in(table) == "all") and _checked(directory, whole, run, warnings):
        yield directory / whole
    name = f"{table}.sessions.parquet"
    for part in parts if sessions_in(table) != "none" else ():
        if (part / name).exists() and _checked(part, name, run, warnings):
            yield part / name


def _cells(run: Listed, directory: str = "cells") -> list[Path]:
    try:
        directories = [
            p for p in (run.path / directory).iterdir() if p.is_dir() and not p.name.startswith(".")
        ]
    except OSError:
        return []
    return sorted(directories)


def _checked(directory: Path, name: str, run: Listed, warnings: Warnings) -> bool:
    """Returns whether a file exists and matches its checksum; a file missing in the manifest is of an
    older format."""
    derived = directory.name == "derived"
    cure = "" if directory.parent.name == "cells" else f"; {REBUILD}"
    where = name if derived else f"{directory.name}/{name}"
    try:
        digests = dict(files.from_json(files.read(directory / files.MANIFEST)))
        if name not in digests:
            warnings.add(f"{name} is not there, an older dbdyno did not write it{cure}", run.id)
            return False
        if digests[name] != _digest(directory / name):
            raise StoreError("its checksum differs")
    except (StoreError, OSError, ValueError, TypeError) as error:
        warnings.add(f"{where} is damaged and left out ({_reason(error)}){cure}", run.id)
        return False
    return True


def _digest(path: Path) -> str:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):  # reading a FIFO never ends; a link leads out of the store
        raise StoreError("it is no regular file")
    return _digest_of(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=8192)
def _digest_of(path: Path, _size: int, _changed_ns: int) -> str:
    """Returns the checksum, which a server asks for with each page of a table."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, StoreError) else getattr(error, "strerror", None) or str(error)


def _some(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - _SHOWN} more runs" if len(runs) > _SHOWN else ""
    return ", ".join(runs[:_SHOWN]) + more


# The views for SQL: tables of all runs of a store, with the run in the first columns.

_SQL_TYPES: dict[Type, str] = {"i64": "BIGINT", "f64": "DOUBLE", "str": "VARCHAR", "bool": "BOOLEAN"}
_SUFFIXES = {
    "_ns2": "ns²", "_ns": "ns", "_per_s": "1/s", "_s": "s", "_seconds": "s", "_aas": "s/s",
    "_bytes": "bytes", "_kib": "KiB", "_mhz": "MHz", "_ticks": "clock ticks",
}  # fmt: skip
_PER_SECOND = "seconds per second"


class ViewColumn(NamedTuple):
    name: str
    type: str  # as SQL names it
    unit: str  # empty if it has none; "unit" if the column ``unit`` holds it
    doc: str


class View(NamedTuple):
    """A view. ``table``: the table whose files it reads, "" for views that are built otherwise."""

    holds: str  # the kind of table
    columns: tuple[ViewColumn, ...]
    table: str = ""
    raw: bool = False


def _columns(columns: tuple[Column, ...]) -> tuple[ViewColumn, ...]:
    has_unit = any(c.name == "unit" for c in columns)
    view_columns: list[ViewColumn] = []
    for c in columns:
        unit = view_columns[-1].unit if c.name in ("low", "high") else _unit(c, has_unit)
        view_columns.append(ViewColumn(c.name, _SQL_TYPES[c.type], unit, c.doc))
    return tuple(view_columns)


def _unit(column: Column, has_unit: bool) -> str:
    """Returns the unit of a column by its name, else by its documentation."""
    if column.type not in ("i64", "f64"):
        return ""
    if _PER_SECOND in column.doc or column.name == "aas":
        return "s/s"
    if has_unit and column.name in ("value", "tolerance", "total"):
        return "unit"
    name = "_" + column.name.removesuffix("_low").removesuffix("_high")
    return next((unit for end, unit in _SUFFIXES.items() if name.endswith(end)), "")


def _countable(counters: tuple[Column, ...]) -> tuple[Column, ...]:
    """Returns the counters that are stored as their growth."""
    return tuple(c for c in counters if c.type == "i64")


OF_RUN = (
    ViewColumn("run_id", "VARCHAR", "", "the run's id"),
    ViewColumn("started", "TIMESTAMP", "", "start of the run, UTC, to the second"),
    ViewColumn("title", "VARCHAR", "", "workload, script or name of the recipe, as in the run's id"),
)
"""The first columns of each view; all three follow from the id of the run."""
_CELL = ViewColumn("cell", "VARCHAR", "", "the measurement: number, workload, variant, sessions, repeat")
RUNS = (
    ViewColumn("ended", "TIMESTAMP", "", "end of the run, UTC; NULL: running, or cut short"),
    ViewColumn("status", "VARCHAR", "", "running | complete | cut short"),
    ViewColumn("reason", "VARCHAR", "", "why it was cut short"),
    ViewColumn("name", "VARCHAR", "", "the user's name for it"),
    ViewColumn("tags", "VARCHAR[]", "", "the user's tags: where list_contains(tags, 'nightly')"),
    ViewColumn("note", "VARCHAR", "", "the user's note"),
    ViewColumn("dbdyno", "VARCHAR", "", "version that measured"),
    ViewColumn("workload", "VARCHAR", "", "NULL: own SQL, or an observation"),
    ViewColumn("engine", "VARCHAR", "", "what was under load"),
    ViewColumn("server", "VARCHAR", "", "version of the server"),
    ViewColumn("address", "VARCHAR", "", "host and port or socket directory, database, user"),
    ViewColumn("cpu", "VARCHAR", "", "model of the processor"),
    ViewColumn("cpus", "DOUBLE", "CPUs", "usable: by affinity and quota"),
    ViewColumn("kernel", "VARCHAR", "", "of the host"),
    ViewColumn("digest", "VARCHAR", "", "of the plan: equal for equal plans"),
)
"""Further columns of the view ``runs``."""
CLAIMS = (
    ViewColumn("id", "VARCHAR", "", "which claim: driver-starved, peak, ..."),
    ViewColumn("severity", "VARCHAR", "", "good | note | warning | invalid"),
    ViewColumn("subject", "VARCHAR", "", "what it is about, where there are several"),
    ViewColumn("claim", "VARCHAR", "", "the sentence"),
    ViewColumn("value", "DOUBLE", "unit", "its figure"),
    ViewColumn("unit", "VARCHAR", "", "of value, low and high"),
    ViewColumn("low", "DOUBLE", "unit", "lower end of its interval"),
    ViewColumn("high", "DOUBLE", "unit", "upper end"),
    ViewColumn("evidence", "VARCHAR", "", "which table and figures it rests on"),
    ViewColumn("cure", "VARCHAR", "", "what to do about it"),
    ViewColumn("cells", "VARCHAR[]", "", "the measurements it is about; empty: the whole run"),
)
"""Further columns of the view ``claims``."""

OF_SNAPSHOT = (
    ViewColumn("snapshot_id", "VARCHAR", "", "the snapshot's id"),
    ViewColumn("taken", "TIMESTAMP", "", "when it was taken, UTC"),
)
"""The first columns of each view of snapshots."""
SNAPSHOTS = (
    ViewColumn("name", "VARCHAR", "", "the user's name for it"),
    ViewColumn("run_id", "VARCHAR", "", "the run that took it; NULL: taken by itself"),
    ViewColumn("cell", "VARCHAR", "", "the measurement of that run"),
    ViewColumn("took_s", "DOUBLE", "s", "time of reading"),
    ViewColumn("every_s", "DOUBLE", "s", "interval of the series that it is of; NULL: taken by hand"),
    ViewColumn("engine", "VARCHAR", "", "the system"),
    ViewColumn("server", "VARCHAR", "", "identity of the server's data"),
    ViewColumn("address", "VARCHAR", "", "host and port, or socket"),
    ViewColumn("version", "VARCHAR", "", "of the server"),
    ViewColumn("server_started", "TIMESTAMP", "", "when the server was started, UTC; NULL: not permitted"),
    ViewColumn("standby", "BOOLEAN", "", "in recovery"),
    ViewColumn("role", "VARCHAR", "", "that read it"),
    ViewColumn("databases", "VARCHAR[]", "", "whose objects were read"),
    ViewColumn("missing", "VARCHAR[]", "", "tables and columns that could not be read"),
)
"""Further columns of the view ``snapshots``."""
OF_SNAPSHOTS = {
    f"snapshot_{name}": View(
        "rows that changed from one snapshot to the next: counters as their growth since, NULL where that is "
        "unknown (the first snapshot, a reset in between); the rest as it is",
        (*OF_SNAPSHOT, *_columns((*form.key, *form.attributes, *_countable(form.counters), *form.gauges))),
    )
    for name, form in TABLES.items()
}
"""Views of the tables of snapshots."""


@cache
def views() -> Mapping[str, View]:
    """Returns all views by name, the most used first."""
    return {
        "runs": View("one row for each run", (*OF_RUN, *RUNS)),
        "claims": View("what was concluded", (*OF_RUN, *CLAIMS)),
        **{name: View("derived", (*OF_RUN, *_columns(DERIVED[name])), name) for name in DERIVED},
        **{
            f"raw_{name}" if name in DERIVED else name: View(
                "raw", (*OF_RUN, _CELL, *_columns(raw_columns)), name, raw=True
            )
            for name, raw_columns in RAW.items()
        },
        "snapshots": View("one row for each snapshot", (*OF_SNAPSHOT, *SNAPSHOTS)),
        **OF_SNAPSHOTS,
        **{
            older: View(f"former name of {name}", (*OF_RUN, *_columns(DERIVED[name])), name)
            for name in DERIVED
            for older in REGISTERED[name].older
        },
    }
