"""Reads the rows of a run's tables, some at a time: a raw table may be larger than memory."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path

import polars as pl

from dbdyno.model.errors import StoreError, UsageError, did_you_mean
from dbdyno.model.schema.tables import DERIVED, REGISTERED, empty, raw
from dbdyno.store import files
from dbdyno.store.listing import list_run
from dbdyno.store.parts import conforming, readable
from dbdyno.store.view_files import OF_RUN, View, ViewColumn, Warnings, table_files, views

BATCH = 50_000
"""Rows that are in memory at a time while a whole table is read."""
Key = tuple[str, str, int]
"""Workload, variant and sessions of a measurement."""
_OF_LOAD = ("workload", "variant", "sessions")


def run_tables() -> Mapping[str, View]:
    """Returns the derived and raw tables of a run by name, without former names."""
    derived = {n: v for n, v in views().items() if v.table == n and not v.raw}
    return derived | {n: v for n, v in views().items() if v.raw}


class TableRows:
    """The rows of one table of a run, or those of some measurements.

    ``left_out``: why rows of damaged files are missing.
    """

    def __init__(self, run: Path, name: str, cells: Mapping[str, Key] | None = None) -> None:
        """``cells``: the wanted measurements with their keys. A table that has no row per measurement is
        restricted to their loads. Raises :class:`UsageError` for an unknown table."""
        known = run_tables()
        if name not in known:
            raise UsageError(f"no table {name!r}", did_you_mean(name, known))
        self.name, self._view, self._cells = name, known[name], dict(cells or {})
        self.holds, self.columns = self._view.holds, self.columns_of(name)
        self._schema = raw(self._view.table) if self._view.raw else self._view.table
        warnings = Warnings()
        paths = table_files(self._view, [list_run(run)], warnings, self._cells)
        self.left_out = warnings.lines()
        self._parts = [(path, rows) for path in paths if (rows := self._count(path))]

    @staticmethod
    def columns_of(name: str) -> Sequence[ViewColumn]:
        """Returns the columns, without those that say which run it is."""
        return run_tables()[name].columns[len(OF_RUN) :]

    def __len__(self) -> int:
        return sum(rows for _, rows in self._parts)

    def some(self, first: int, most: int) -> pl.DataFrame:
        """Returns at most ``most`` rows from the row ``first`` on, which counts from 0."""
        frames = [self._none()]
        for path, rows in self._parts:
            if first < rows and most > 0:
                frames.append(self._read(path, first, most))
                most -= frames[-1].height
            first = max(0, first - rows)
        return pl.concat(frames)

    def batches(self) -> Iterator[pl.DataFrame]:
        """Yields all rows, at most :data:`BATCH` at a time; first none, with the columns."""
        yield self._none()
        for path, rows in self._parts:
            for first in range(0, rows, BATCH):
                yield self._read(path, first, BATCH)

    def _none(self) -> pl.DataFrame:
        schema = conforming(self._schema, pl.LazyFrame()).collect_schema()
        return pl.DataFrame(schema={"cell": pl.String, **schema} if self._view.raw else schema)

    def _count(self, path: Path) -> int:
        if not self._view.raw and self._cells:
            with _sound(path):
                return int(self._scan(path).select(pl.len()).collect().item())
        return _rows(path)

    def _read(self, path: Path, first: int, most: int) -> pl.DataFrame:
        with _sound(path):
            return self._scan(path).slice(first, most).collect(engine="streaming")

    def _scan(self, path: Path) -> pl.LazyFrame:
        rows = conforming(self._schema, pl.scan_parquet(path, glob=False))
        if self._view.raw:
            return rows.select(pl.lit(path.parent.name).alias("cell"), pl.all())
        return rows.filter(self._wanted()) if self._cells else rows

    def _wanted(self) -> pl.Expr:
        names = {c.name for c in self.columns}
        if "cell" in names:
            return pl.col("cell").is_in([*self._cells])
        if not names.issuperset(_OF_LOAD):
            return pl.lit(True)
        loads = dict.fromkeys(self._cells.values())
        return pl.any_horizontal(
            [
                pl.all_horizontal([pl.col(n) == v for n, v in zip(_OF_LOAD, load, strict=True)])
                for load in loads
            ]
        )


def tables_with_rows(run: Path) -> set[str]:
    """Returns the tables that have any rows, by the checksums of their files alone."""
    return {name for name, _ in _with_rows(run)}


def row_counts(run: Path) -> Mapping[str, int]:
    """Returns the number of rows of the tables that have any, without those of damaged files.

    Checksums are not verified, so that a large run is listed at once.
    """
    counts = Counter[str]()
    for name, path in _with_rows(run):
        with contextlib.suppress(StoreError):
            counts[name] += _rows(path)
    return {name: counts[name] for name in run_tables() if counts[name]}


def _with_rows(run: Path) -> Iterator[tuple[str, Path]]:
    """Yields the files that have rows, each with the name of its table."""
    names = {v.table: n for n, v in run_tables().items() if v.raw}
    for directory in _directories(run / "cells"):
        for table, digest in _digests(directory):
            if table in names and digest != _of_no_rows(raw(table)):
                yield names[table], directory / f"{table}.parquet"
    older = {o: t.name for t in REGISTERED.values() for o in t.older}
    for directory in (run / "derived", *_directories(run / "parts")):
        for table, digest in _digests(directory):
            name = older.get(n := table.removesuffix(".sessions"), n)
            of_run = directory.name == "derived" or n != table  # the rest of a part is in the whole, too
            if of_run and name in DERIVED and digest != _of_no_rows(name):
                yield name, directory / f"{table}.parquet"


def _directories(path: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")]
    return []


def _digests(directory: Path) -> Iterator[tuple[str, object]]:
    """Yields the Parquet files of a directory, without their ending, with the checksums of its manifest."""
    with contextlib.suppress(StoreError, ValueError, TypeError):
        for name, digest in dict(files.from_json(files.read(directory / files.MANIFEST))).items():
            if str(name).endswith(".parquet") and "/" not in str(name):
                yield str(name).removesuffix(".parquet"), digest


@cache
def _of_no_rows(table: str) -> str:
    """Returns the checksum of a table without rows: half of the raw files are such."""
    return sha256(files.parquet(empty(table))).hexdigest()


def _rows(path: Path) -> int:
    with _sound(path):
        status = path.lstat()
        return _counted(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=8192)
def _counted(path: Path, _size: int, _changed_ns: int) -> int:
    return int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())


@contextlib.contextmanager
def _sound(path: Path) -> Iterator[None]:
    try:
        with readable():
            yield
    except (ValueError, pl.exceptions.PolarsError) as error:
        raise StoreError(f"{path.name} of {path.parent.name} cannot be read: {error}") from error
