"""Cells one by one, and cells that belong together: an observation's windows, or the repeats of a rung."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from dbdyno.model.column import CELL
from dbdyno.model.tables import ByCell, empty
from dbdyno.model.wait_families import TABLE as FAMILIES

TOGETHER = "all"
"""The cell name of what several cells say together."""

_NEEDED = ("ledger", "events", "cut_levels", "cell_sessions", "cell_sources", "cut_sampler")
_CELL = [c.name for c in CELL]

Tables = Mapping[str, pl.DataFrame]
Window = dict[str, Any]


def of_cells(tables: Tables) -> Iterator[tuple[dict[str, Any], Window, dict[str, pl.DataFrame]]]:
    """(key, window, its tables) of every cell, in the order of running."""
    parts, labels = _parts(tables), _labels(tables)
    for window in tables["windows"].iter_rows(named=True):
        yield {name: window[name] for name in _CELL}, window, parts.of(window["cell"]) | labels


def groups(windows: pl.DataFrame) -> Iterator[tuple[dict[str, Any], list[Window]]]:
    """(key with cell ``all`` and repeat 0, its cells); without invalid cells, unless there are no others."""
    by = ["workload", "variant", "sessions"]
    for key, rows in windows.group_by(by, maintain_order=True):
        found = rows.to_dicts()
        head = dict(zip(by, key, strict=True)) | {"cell": TOGETHER, "repeat": 0}
        yield head, [w for w in found if w["status"] != "invalid"] or found


def _labels(tables: Tables) -> dict[str, pl.DataFrame]:
    return {FAMILIES: tables.get(FAMILIES, empty(FAMILIES))}


def _parts(tables: Tables) -> ByCell:
    return ByCell({name: tables.get(name, empty(name)) for name in _NEEDED})
