"""What was derived of a run cell by cell: ``parts/FIRST_CELL`` for each part, which is of one or more cells.

What a run says as a whole lies in ``derived``. The rows of single sessions, which only single views and
exports need, stay here and are read when they are asked for.
"""

from __future__ import annotations

import io
import json
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import polars as pl

from dbdyno.model.derived import OF_SESSIONS, WHOLLY
from dbdyno.model.errors import StoreError
from dbdyno.model.tables import conform, empty
from dbdyno.store import files

_FORMAT = 1
_DOCUMENT = "part.json"
_MOST_ROWS = 200_000_000
_REBUILD = "make them again from the raw data: dbdyno rebuild RUN"


class Parts:
    """The parts of the run at ``run``."""

    def __init__(self, run: Path, directory: str = "parts") -> None:
        self.path = run / directory

    def names(self) -> list[str]:
        """In the order of running; each is the id of its first cell."""
        try:
            return sorted(p.name for p in self.path.iterdir() if not p.name.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def write(self, name: str, tables: Mapping[str, pl.DataFrame], document: Mapping[str, Any]) -> None:
        """Not synced: what a crash takes of it is derived again. Raises :class:`StoreFull`."""
        contents: dict[str, bytes] = {}
        for table, frame in tables.items():
            mine, rest = _of_sessions(table, frame)
            contents |= {f"{table}.parquet": files.parquet(rest)} if rest.height else {}
            contents |= {f"{table}.sessions.parquet": files.parquet(mine)} if mine.height else {}
        told = {"format": _FORMAT, "tables": list(tables), **document}
        contents[_DOCUMENT] = json.dumps(told).encode()
        files.make_directory(self.path)
        files.write_directory(self.path / name, contents, synced=False)

    def clear(self) -> None:
        with files.guard(self.path):
            files.remove(self.path)

    def read(self, tables: Sequence[str]) -> tuple[dict[str, pl.DataFrame], list[dict[str, Any]]] | None:
        """Of all parts: tables without rows of single sessions, and each part's document; ``None``: they
        cannot be used."""
        names = self.names()
        try:
            documents = [files.from_json(self._read(n, _DOCUMENT) or b"") for n in names]
            if not names or any(d["format"] != _FORMAT or set(tables) - set(d["tables"]) for d in documents):
                return None
            found = {t: [self._read(n, f"{t}.parquet") for n in names] for t in tables}
            return {t: _rows(t, [c for c in contents if c]) for t, contents in found.items()}, documents
        except (StoreError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError):
            return None

    def _read(self, name: str, file: str) -> bytes | None:
        return files.read_one(self.path / name, file)

    def of_sessions(
        self, table: str, cell: str | None = None, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """Rows of single sessions, of all cells or of one. Raises :class:`StoreError` on damage."""
        names = self.names()
        if cell is not None:
            names = names[max(0, bisect(names, cell) - 1) : bisect(names, cell)]
        read = (files.read_one(self.path / n, f"{table}.sessions.parquet") for n in names)
        found = [content for content in read if content is not None]
        try:
            rows = conformed(table, found, columns) if found else empty(table).select(columns or pl.all())
        except (StoreError, ValueError, pl.exceptions.PolarsError) as error:
            raise StoreError(f"derived rows of {table} are damaged: {error}", _REBUILD) from error
        return rows if cell is None else rows.filter(pl.col("cell") == cell)


class Derived(Mapping[str, pl.DataFrame]):
    """The derived tables of a stored run: rows of single sessions are read when they are asked for.

    ``ledger`` and ``events`` are without them, but for :meth:`whole`.
    """

    def __init__(self, kept: Mapping[str, pl.DataFrame], parts: Parts) -> None:
        self.kept, self._parts = kept, parts
        self._read: dict[str, pl.DataFrame] = {}

    def __getitem__(self, table: str) -> pl.DataFrame:
        if table not in WHOLLY:
            return self.kept[table]
        if table not in self._read:
            self._read[table] = self.whole(table)
        return self._read[table]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.kept, *WHOLLY)))

    def __len__(self) -> int:
        return len(set(self.kept) | set(WHOLLY))

    def whole(self, table: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """With the rows of single sessions, by cell. ``columns``: these alone."""
        kept = self.kept.get(table, empty(table)).select(columns or pl.all())
        if table not in OF_SESSIONS:
            return kept
        rows = pl.concat([kept, self._parts.of_sessions(table, None, columns)])
        return rows.sort("cell", maintain_order=True) if kept.height and "cell" in rows.columns else rows

    def of_cell(self, table: str, cell: str) -> pl.DataFrame:
        """All rows of one cell."""
        kept = self.kept.get(table, empty(table)).filter(pl.col("cell") == cell)
        return pl.concat([kept, self._parts.of_sessions(table, cell)]) if table in OF_SESSIONS else kept


def conformed(table: str, contents: Sequence[bytes], columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The rows of Parquet files; what is no figure of a run is unknown, as later steps count on it.

    Raises :class:`StoreError` where it is no Parquet, or would not fit into memory.
    """
    try:
        read = pl.scan_parquet(list[IO[bytes]](io.BytesIO(c) for c in contents))
        rows = read.select(pl.len()).collect().item()
        if rows > _MOST_ROWS:
            raise StoreError(f"a table of {rows:,} rows; at most {_MOST_ROWS:,} are read")
        frame = (read if columns is None else read.select(columns)).collect()
    except (pl.exceptions.PanicException, MemoryError, OSError) as error:  # a panic is no Exception
        raise StoreError(f"a table cannot be read: {error}") from error
    figures = pl.selectors.float()
    frame = frame.with_columns(pl.when(figures.abs() < files.MOST_NUMBER).then(figures).otherwise(None))
    return conform(table, frame) if columns is None else frame


def _rows(table: str, contents: Sequence[bytes]) -> pl.DataFrame:
    return conformed(table, contents) if contents else empty(table)


def _of_sessions(table: str, frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of single sessions, and the others."""
    if table in WHOLLY:
        return frame, frame.clear()
    mine = pl.col("who") == "session" if table in OF_SESSIONS else pl.lit(False)
    return frame.filter(mine), frame.filter(~mine)
