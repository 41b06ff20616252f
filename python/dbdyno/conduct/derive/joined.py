"""Joins the tables of a run's parts while conclusions are drawn from them.

A long run takes far more memory in frames than in Parquet, and no conclusion needs all of it at once. So a
long table of packed parts is unpacked when it is requested, and not kept here.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import IO

import polars as pl

from dbdyno.store import finite, parquet

_SHORT_ROWS = 10_000
"""Tables of no more rows stay unpacked: unpacking would cost more than they take, some MB."""


def pack(tables: Mapping[str, pl.DataFrame]) -> dict[str, bytes]:
    """Returns the tables as Parquet. NaN and infinite values become unknown, as in the store."""
    return {table: parquet(finite(frame.lazy()).collect()) for table, frame in tables.items()}


class Packed(Mapping[str, pl.DataFrame]):
    """Packed tables, several pieces one after the other; a long one is unpacked each time it is asked for."""

    def __init__(self, pieces: Sequence[Mapping[str, bytes]]) -> None:
        """``pieces`` has at least one piece; all have the same tables."""
        self._pieces = pieces
        self._short = dict[str, pl.DataFrame]()

    def __getitem__(self, table: str) -> pl.DataFrame:
        if table in self._short:
            return self._short[table]
        pieces = list[IO[bytes]](io.BytesIO(p[table]) for p in self._pieces)
        rows = pl.scan_parquet(pieces).collect(engine="streaming")
        if rows.height <= _SHORT_ROWS:
            self._short[table] = rows
        return rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces[0])

    def __len__(self) -> int:
        return len(self._pieces[0])


class Joined(MutableMapping[str, pl.DataFrame]):
    """The tables of several parts, concatenated when they are read; tables that are set are kept."""

    def __init__(self, parts: Sequence[Mapping[str, pl.DataFrame]]) -> None:
        """``parts`` has at least one part; all have the same tables."""
        self._pieces = {t: list(parts) for t in parts[0]}

    def __getitem__(self, table: str) -> pl.DataFrame:
        pieces = [piece[table] for piece in self._pieces[table]]
        return pieces[0] if len(pieces) == 1 else pl.concat(pieces)

    def __setitem__(self, table: str, frame: pl.DataFrame) -> None:
        self._pieces[table] = [{table: frame}]

    def __delitem__(self, table: str) -> None:
        del self._pieces[table]

    def __contains__(self, table: object) -> bool:
        return table in self._pieces

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)

    def append(self, table: str, rows: pl.DataFrame) -> None:
        """Appends a part."""
        self._pieces[table].append({table: rows})

    def only(self, tables: Iterable[str]) -> Joined:
        """Returns those of ``tables`` that are present."""
        few = Joined([{}])
        few._pieces = {t: self._pieces[t] for t in tables if t in self._pieces}
        return few
