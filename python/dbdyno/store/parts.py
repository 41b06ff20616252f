"""Stores derived tables by part: ``parts/FIRST_CELL`` holds those of one or more consecutive cells.

In a long run, parts are merged as it goes on, so that there are few files. Tables of the whole run are in
``derived``. Rows of single sessions, which only single views and exports need, stay in the parts and are
read on demand.
"""

from __future__ import annotations

import io
import json
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import polars as pl

from dbdyno.model.errors import StoreError
from dbdyno.model.results.results import Query
from dbdyno.model.schema.derived import REGISTERED, sessions_in
from dbdyno.model.schema.tables import conform, conform_scanned, empty, schema, shaped
from dbdyno.store import files
from dbdyno.store.listing import rebuild_cure

_FORMAT = 1
_DOCUMENT = "part.json"
_MOST_ROWS = 200_000_000
_TOGETHER = 16
"""Parts that are read at a time."""


class Parts:
    """The parts of the run at ``run``."""

    def __init__(self, run: Path, directory: str = "parts") -> None:
        self.path, self.run = run / directory, run.name
        self._sound: dict[Path, bool] = {}  # files whose checksum was verified

    def names(self) -> list[str]:
        """Returns the names in the order of running; each is the id of the part's first cell."""
        try:
            names = [p.name for p in self.path.iterdir() if not p.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(names, key=files.in_order)

    def inodes(self) -> dict[str, int]:
        """Returns the inode of each part's directory, which a merge changes, by name in the order of
        running."""
        inodes: dict[str, int] = {}
        for name in self.names():
            with suppress(OSError):  # merged meanwhile
                inodes[name] = (self.path / name).stat().st_ino
        return inodes

    def write(self, name: str, tables: Mapping[str, pl.DataFrame], document: Mapping[str, Any]) -> None:
        """Writes a part without syncing it: a part lost in a crash is derived again. Raises
        :class:`StoreFull`."""
        contents: dict[str, bytes] = {}
        for table, frame in tables.items():
            sessions, rest = _split_sessions(table, frame)
            contents |= {f"{table}.parquet": files.parquet(rest)} if rest.height else {}
            contents |= {f"{table}.sessions.parquet": files.parquet(sessions)} if sessions.height else {}
        part_document = {"format": _FORMAT, "tables": list(tables), **document}
        contents[_DOCUMENT] = json.dumps(part_document).encode()
        files.make_directory(self.path)
        files.write_directory(self.path / name, contents, synced=False)

    def merge(self, names: Sequence[str], document: Mapping[str, Any]) -> None:
        """Replaces consecutive parts by one with the first name.

        Raises :class:`StoreError` or :class:`StoreFull`, which leave the parts unchanged.
        """
        documents = [files.from_json(self._read(n, _DOCUMENT) or b"") for n in names]
        merged_document = {
            "format": _FORMAT,
            "tables": documents[0]["tables"],
            "merged": list(names),
            **document,
        }
        contents: dict[str, bytes] = {}
        for table in documents[0]["tables"]:
            for file in (f"{table}.parquet", f"{table}.sessions.parquet"):
                if parquets := [c for n in names if (c := self._read(n, file))]:
                    contents[file] = files.parquet(conformed(table, parquets))
        contents[_DOCUMENT] = json.dumps(merged_document).encode()
        files.write_directory(self.path / names[0], contents, synced=False)
        self._drop(names[1:])

    def _drop(self, names: Sequence[str]) -> None:
        with files.guard(self.path):
            for name in names:
                files.remove(self.path / name)

    def clear(self) -> None:
        with files.guard(self.path):
            files.remove(self.path)

    def read(self, tables: Sequence[str]) -> Iterator[tuple[dict[str, pl.DataFrame], list[dict[str, Any]]]]:
        """Yields some parts at a time: tables without rows of single sessions, and the document of each
        part.

        Raises :class:`StoreError` if the parts are missing, damaged or of another version.
        """
        try:
            names, documents = self._documents()
            if not names or any(d["format"] != _FORMAT or set(tables) - set(d["tables"]) for d in documents):
                raise StoreError(f"no derived tables of this version in {self.path}", rebuild_cure(self.run))
            for first in range(0, len(names), _TOGETHER):
                few = slice(first, first + _TOGETHER)
                parquets = {t: [self._read(n, f"{t}.parquet") for n in names[few]] for t in tables}
                yield (
                    {t: _rows(t, [c for c in contents if c]) for t, contents in parquets.items()},
                    documents[few],
                )
        except (ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
            raise StoreError(
                f"derived tables in {self.path} are damaged: {error}", rebuild_cure(self.run)
            ) from error

    def read_one(self, name: str, tables: Sequence[str]) -> dict[str, pl.DataFrame]:
        """Returns tables of one part, without rows of single sessions.

        Raises :class:`StoreError` if it is missing, damaged or being replaced.
        """
        try:
            contents = {t: c for t in tables if (c := self._read(name, f"{t}.parquet"))}
            read = all_conformed([(t, [c]) for t, c in contents.items()])
        except (ValueError, pl.exceptions.PolarsError) as error:
            raise StoreError(
                f"derived tables in {self.path / name} are damaged: {error}", rebuild_cure(self.run)
            ) from error
        return {t: empty(t) for t in tables} | dict(zip(contents, read, strict=True))

    def _documents(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Returns names and documents, and removes parts that an interrupted merge left behind."""
        documents = {n: files.from_json(self._read(n, _DOCUMENT) or b"") for n in self.names()}
        left = [
            n for first, d in documents.items() for n in d.get("merged", ()) if n != first and n in documents
        ]
        self._drop(left)
        kept = {n: d for n, d in documents.items() if n not in left}
        return list(kept), list(kept.values())

    def _read(self, name: str, file: str) -> bytes | None:
        return files.read_one(self.path / name, file)

    def of_sessions(self, table: str, cell: str | None = None) -> pl.DataFrame:
        """Returns rows of single sessions, of all cells or of one. Raises :class:`StoreError` on damage."""
        if cell is None:
            return self.ask(table, _every)
        names = self.names()
        return self.ask(
            table,
            lambda rows: rows.filter(pl.col("cell") == cell),
            names[: bisect(names, files.in_order(cell), key=files.in_order)][-1:],
        )

    def of_cells(self, first: str, last: str) -> list[str]:
        """Returns the names of the parts with the cells from ``first`` to ``last``, in order."""
        names = self.names()
        begin = bisect(names, files.in_order(first), key=files.in_order) - 1
        return names[max(0, begin) : bisect(names, files.in_order(last), key=files.in_order)]

    def ask(self, table: str, query: Query, names: Sequence[str] | None = None) -> pl.DataFrame:
        """Returns the result of ``query`` on rows of single sessions, of all parts or of those named."""
        paths = [
            self.path / n / f"{table}.sessions.parquet" for n in (self.names() if names is None else names)
        ]
        try:
            sound = [path for path in paths if self._is_sound(path)]
            rows = pl.scan_parquet(sound, glob=False) if sound else empty(table).lazy()
            return _guarded(query(conforming(table, rows)))
        except (StoreError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise _damaged(self.run, table, error) from error

    def _is_sound(self, path: Path) -> bool:
        if path not in self._sound:
            self._sound[path] = files.is_sound(path)
        return self._sound[path]


class Stored(Mapping[str, pl.DataFrame]):
    """Tables of Parquet files, each parsed on first access; their columns are checked at once.

    Raises :class:`ValueError` if the columns are wrong, and :class:`StoreError` if rows cannot be read.
    """

    def __init__(self, contents: Mapping[str, bytes], known: Mapping[str, str], run: str) -> None:
        """``known`` maps a table to the name of its schema."""
        self._run = run
        self._contents = {t: contents[f"{t}.parquet"] for t in known if f"{t}.parquet" in contents}
        self._known, self._parsed = known, dict[str, pl.DataFrame]()
        for table, content in self._contents.items():
            with readable():
                shaped(known[table], tuple(pl.read_parquet_schema(io.BytesIO(content))))

    def __getitem__(self, table: str) -> pl.DataFrame:
        if table not in self._parsed:
            try:
                self._parsed[table] = conformed(self._known[table], [self._contents[table]])
            except (ValueError, pl.exceptions.PolarsError) as error:
                raise _damaged(self._run, table, error) from error
        return self._parsed[table]

    def __contains__(self, table: object) -> bool:
        return table in self._contents

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents)

    def __len__(self) -> int:
        return len(self._contents)


class Derived(Mapping[str, pl.DataFrame]):
    """The derived tables of a stored run; rows of single sessions are read on demand.

    ``ledger`` and ``events`` are without those rows except in :meth:`whole`.
    """

    def __init__(self, kept: Mapping[str, pl.DataFrame], parts: Parts) -> None:
        self.kept, self._parts = kept, parts
        self._asked: dict[tuple[str, Query], pl.DataFrame] = {}

    def __getitem__(self, table: str) -> pl.DataFrame:
        return self.whole(table) if sessions_in(table) == "all" else self.kept[table]

    def __contains__(self, table: object) -> bool:
        """Returns whether the table exists, without reading it."""
        return table in self.kept or (isinstance(table, str) and sessions_in(table) == "all")

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.kept, *_session_tables())))

    def __len__(self) -> int:
        return len({*self.kept, *_session_tables()})

    def whole(self, table: str) -> pl.DataFrame:
        """Returns a table with the rows of single sessions, by cell."""
        rows = self.ask(table, _every)
        return rows.sort("cell", maintain_order=True) if sessions_in(table) != "none" else rows

    def ask(self, table: str, query: Query) -> pl.DataFrame:
        """Returns the result of ``query`` on all rows, those of single sessions last; results are cached.

        Raises :class:`StoreError` on damage.
        """
        kept = self.kept.get(table, empty(table)).lazy()
        if sessions_in(table) == "none":
            return query(kept).collect()
        if (table, query) not in self._asked:
            self._asked[table, query] = self._parts.ask(table, lambda rows: query(pl.concat([kept, rows])))
        return self._asked[table, query]

    def of_cell(self, table: str, cell: str) -> pl.DataFrame:
        """Returns all rows of one cell."""
        kept = self.kept.get(table, empty(table)).filter(pl.col("cell") == cell)
        return (
            pl.concat([kept, self._parts.of_sessions(table, cell)]) if sessions_in(table) != "none" else kept
        )


def _session_tables() -> Iterator[str]:
    """Yields the tables that have only rows of single sessions."""
    return (name for name, table in REGISTERED.items() if table.sessions == "all")


def _damaged(run: str, table: str, error: BaseException) -> StoreError:
    return StoreError(f"derived rows of {table} are damaged: {error}", rebuild_cure(run))


def _every(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows


def conformed(table: str, contents: Sequence[bytes]) -> pl.DataFrame:
    """Returns the rows of Parquet files; numbers that no figure can be are NULL, as later steps require.

    Raises :class:`StoreError` if a file is no Parquet, or would not fit into memory.
    """
    return all_conformed([(table, contents)])[0]


def all_conformed(tables: Sequence[tuple[str, Sequence[bytes]]]) -> list[pl.DataFrame]:
    """Returns :func:`conformed` for several tables, which are read as one query."""
    with readable():
        frames = pl.collect_all([_read(contents) for _, contents in tables], engine="streaming")
    if any(rows.height > _MOST_ROWS for rows in frames):
        raise StoreError(f"a table of more than {_MOST_ROWS:,} rows, which are the most that are read")
    return [conform(table, rows) for (table, _), rows in zip(tables, frames, strict=True)]


def _read(contents: Sequence[bytes]) -> pl.LazyFrame:
    files = list[IO[bytes]](io.BytesIO(c) for c in contents)
    return finite(pl.scan_parquet(files, n_rows=_MOST_ROWS + 1))


def scanned(table: str, path: Path) -> pl.LazyFrame:
    """Returns the rows of a Parquet file of integers and strings that may be larger than memory.

    All of it is read once to make sure that this is possible. Raises :class:`StoreError`,
    :class:`ValueError`.
    """
    with readable():
        return conform_scanned(table, pl.scan_parquet(path))


def _guarded(query: pl.LazyFrame) -> pl.DataFrame:
    with readable():
        return query.collect(engine="streaming")


@contextmanager
def readable() -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PanicException, MemoryError, OSError) as error:  # PanicException is no Exception
        raise StoreError(f"a table cannot be read: {error}") from error


_FIGURES, _SOURCE = pl.selectors.float(), pl.selectors.by_name("source", require_all=False)
_FINITE = (
    pl.when(_FIGURES.abs() < files.MOST_NUMBER).then(_FIGURES).otherwise(None),
    _SOURCE.str.replace_all(", raked", ", estimated", literal=True),
)


def finite(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Sets numbers that no figure can be to NULL, and renames data sources of older versions."""
    return rows.with_columns(*_FINITE)


def conforming(table: str, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Returns the columns of the schema; those that an older version did not write are NULL."""
    present = rows.collect_schema().names()
    columns = schema(table)
    known = [pl.col(n) if n in present else pl.lit(None).alias(n) for n in columns]
    return finite(rows.select(c.cast(t) for c, t in zip(known, columns.values(), strict=True)))


def _rows(table: str, contents: Sequence[bytes]) -> pl.DataFrame:
    return conformed(table, contents) if contents else empty(table)


def _split_sessions(table: str, frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the rows of single sessions, and the other rows."""
    if sessions_in(table) == "all":
        return frame, frame.clear()
    if sessions_in(table) == "none":
        return frame.clear(), frame
    of_session = pl.col("who") == "session"
    return frame.filter(of_session), frame.filter(~of_session)
