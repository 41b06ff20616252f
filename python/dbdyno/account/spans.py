"""Some windows of an observation that follow one another, as if they were all of it. Pure.

Rows lie in the order of the windows, so that those of a span are one slice. What is shown of all windows
together is pooled from these rows by the makers of totals, as for a whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from dbdyno.account.making import load_makers, made_at, make
from dbdyno.model.results.results import Query
from dbdyno.model.schema.derived import sessions_in

Tables = Mapping[str, pl.DataFrame]
_POOLED_FROM = ("workload", "variant", "sessions", "rate_per_s", "cell", "wall_s", "status")
"""Columns of ``windows`` that makers of totals need."""


class Span(NamedTuple):
    """Windows by their places in the order of time: from the first one to before the last."""

    first: int
    end: int


class Ordered:
    """The rows of cells in the order of the windows. A table is read on first access, and then held."""

    def __init__(self, windows: pl.DataFrame, read: Callable[[str], pl.DataFrame]) -> None:
        """``windows``: rows of cells in the order of time. ``read`` returns a table, totals included."""
        self.windows = windows
        self._places = windows.select("cell", _place=pl.int_range(pl.len(), dtype=pl.Int32))
        self._read = read
        self._held: dict[str, tuple[pl.DataFrame, np.ndarray | None]] = {}

    def size(self) -> int:
        """Returns the bytes that the tables take in memory."""
        return sum(int(frame.estimated_size()) for frame, _ in self._held.values())

    def of(self, table: str, span: Span) -> pl.DataFrame:
        """Returns the rows of a span's cells, without totals; of a table that is not by cell, all rows."""
        if table == "windows":
            return self.windows.slice(span.first, span.end - span.first)
        if table not in self._held:
            self._held[table] = self._in_order(self._read(table))
        frame, places = self._held[table]
        if places is None:
            return frame
        first, end = np.searchsorted(places, [span.first, span.end])
        return frame.slice(first, end - first)

    def _in_order(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray | None]:
        if "cell" not in frame.columns:
            return frame, None
        rows = frame.join(self._places, on="cell", how="inner", maintain_order="left")
        if not rows["_place"].is_sorted():
            rows = rows.sort("_place", maintain_order=True)
        return rows.drop("_place"), rows["_place"].to_numpy()


class Pooled(Mapping[str, pl.DataFrame]):
    """The tables of a span, with the totals over its windows. Each is made on first access."""

    def __init__(
        self, ordered: Ordered, span: Span, names: frozenset[str], ask: Callable[[str, Query], pl.DataFrame]
    ) -> None:
        """``names``: the tables that there are. ``ask`` answers a query on the rows of single sessions of
        the span's cells."""
        load_makers()
        self._ordered, self.span, self._names, self._ask = ordered, span, names, ask
        self._totals = made_at("total")
        self._tables: dict[str, pl.DataFrame] = {}

    def __getitem__(self, table: str) -> pl.DataFrame:
        if table not in self._names:
            raise KeyError(table)
        if sessions_in(table) == "all":
            return self._ask(table, _every)
        if table not in self._tables:
            rows = self._ordered.of(table, self.span)
            self._tables[table] = rows
            if table in self._totals and rows.height:
                for name, total in make("total", _OfCells(self._ordered, self.span), {}, only=table):
                    self._tables[name] = pl.concat([self._ordered.of(name, self.span), total])
        return self._tables[table]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def ask(self, table: str, query: Query) -> pl.DataFrame:
        """Returns the result of ``query`` on all rows of the span's cells."""
        return self._ask(table, query)


def _every(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows


class _OfCells(Mapping[str, pl.DataFrame]):
    """The same without totals, as the makers of totals read them."""

    def __init__(self, ordered: Ordered, span: Span) -> None:
        self._ordered, self._span = ordered, span

    def __getitem__(self, table: str) -> pl.DataFrame:
        rows = self._ordered.of(table, self._span)
        return rows.select(_POOLED_FROM) if table == "windows" else rows

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
