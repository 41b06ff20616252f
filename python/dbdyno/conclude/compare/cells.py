"""The figures of the cells that can be compared: by ladder, rung and repeat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import polars as pl

from dbdyno.model.bycell import ByCell
from dbdyno.model.client_limit import is_limit

Tables = Mapping[str, pl.DataFrame]


class Key(NamedTuple):
    workload: str
    variant: str
    sessions: int


class CellFigures(NamedTuple):
    cell: str
    rates: dict[str, float | None]
    """Of the whole rung, by name."""


class Cells(NamedTuple):
    """Usable cells by their ladder's rung and repeat; those that are not, with the reason."""

    of: dict[Key, dict[int, CellFigures]]
    left_out: tuple[tuple[str, str], ...]

    def rungs(self, workload: str) -> list[int]:
        return sorted({k.sessions for k in self.of if k.workload == workload})

    def workloads(self) -> list[str]:
        return list(dict.fromkeys(k.workload for k in self.of))


def cells_of(tables: Tables) -> Cells:
    """From ``windows`` and ``rates``. A cell whose window or driver makes its figures useless is left out."""
    found: dict[Key, dict[int, CellFigures]] = {}
    left_out: list[tuple[str, str]] = []
    parts = ByCell({"rates": tables["rates"].filter(pl.col("scope") == "rung")})
    for w in tables["windows"].iter_rows(named=True):
        rates = dict(parts.table("rates", w["cell"]).select("name", "value").rows())
        why = w["reason"] or "invalid" if w["status"] == "invalid" else _driver(rates)
        if why:
            left_out.append((w["cell"], why))
        else:
            key = Key(w["workload"], w["variant"], w["sessions"])
            found.setdefault(key, {})[w["repeat"]] = CellFigures(w["cell"], rates)
    return Cells(found, tuple(left_out))


def _driver(rates: dict[str, float | None]) -> str:
    return "it was limited by the client" if is_limit(rates) else ""


def known(cells: Mapping[int, CellFigures], metric: str) -> dict[int, float]:
    """Values by repeat, unknown ones left out."""
    values = ((repeat, c.rates.get(metric)) for repeat, c in cells.items())
    return {repeat: v for repeat, v in values if v is not None}


def everywhere(groups: Iterable[Mapping[int, CellFigures]], metric: str) -> bool:
    """Whether the metric is known and above 0 in at least one cell of each group."""
    return all(any(v > 0 for v in known(g, metric).values()) for g in groups)
