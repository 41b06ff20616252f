"""Tables of many cells, taken apart by cell once instead of filtered again and again."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl


class ByCell:
    """The tables that have a column ``cell``, cell by cell."""

    def __init__(self, tables: Mapping[str, pl.DataFrame]) -> None:
        self._none = {name: t.clear() for name, t in tables.items() if "cell" in t.columns}
        self._parts = {
            name: {str(key[0]): part for key, part in tables[name].partition_by("cell", as_dict=True).items()}
            for name in self._none
        }

    def table(self, name: str, cell: str) -> pl.DataFrame:
        """The rows of one cell; empty where it has none."""
        return self._parts[name].get(cell, self._none[name])

    def of(self, cell: str) -> dict[str, pl.DataFrame]:
        """All tables of one cell."""
        return {name: self.table(name, cell) for name in self._none}
