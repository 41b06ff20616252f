"""Table ``top_events``: the foreground's ten largest parts of DB time, DB CPU and CPU WAIT among them."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.cell_groups import groups, of_cells
from dbdyno.model.column import CELL
from dbdyno.model.session_time import Part, base, parts
from dbdyno.model.tables import rows
from dbdyno.model.units import NS_PER_S

TOP = 10

Tables = Mapping[str, pl.DataFrame]


class Seconds(NamedTuple):
    """Of one cell, or of several: seconds by part, and what their shares are of."""

    by_name: dict[str, Part]
    base: float

    def merge(self, other: Seconds) -> Seconds:
        """Both together; intervals are taken as independent."""
        total = dict(self.by_name)
        for name, part in other.by_name.items():
            total[name] = _plus(total[name], part) if name in total else part
        return Seconds(total, self.base + other.base)


def seconds(tables: Tables) -> dict[str, Seconds]:
    """By cell."""
    return {window["cell"]: _seconds(cell, window) for _, window, cell in of_cells(tables)}


def top_events(windows: pl.DataFrame, found: Mapping[str, Seconds]) -> pl.DataFrame:
    """Per cell. A wait's seconds are true sleep; its run-queue seconds stand beside it and are counted in
    CPU WAIT, so the shares of DB time add up to 100 % at most."""
    keys = windows.select(c.name for c in CELL).to_dicts()
    return rows("top_events", [key | row for key in keys for row in _ranked(found[key["cell"]])])


def top_events_total(windows: pl.DataFrame, found: Mapping[str, Seconds]) -> pl.DataFrame:
    """The same over all usable cells of a workload, variant and rung together (cell ``all``): the windows of
    an observation, or repeats."""
    made: list[dict[str, Any]] = []
    for head, cells in groups(windows):
        total = functools.reduce(Seconds.merge, (found[w["cell"]] for w in cells), Seconds({}, 0.0))
        made += [head | row for row in _ranked(total)]
    return rows("top_events", made)


def _seconds(cell: Tables, window: Mapping[str, Any]) -> Seconds:
    wall = window["wall_s"]
    return Seconds(
        {name: _times(part, wall) for name, part in parts(cell).items()}, base(cell, window) * wall
    )


def _times(part: Part, wall: float) -> Part:
    figures = (None if v is None else v * wall for v in (part.low, part.high, part.runq, part.waits))
    low, high, runq, waits = figures
    return Part(part.aas * wall, low, high, part.source, runq, waits)


def _plus(a: Part, b: Part) -> Part:
    value = a.aas + b.aas
    low = None if a.low is None or b.low is None else value - math.hypot(a.aas - a.low, b.aas - b.low)
    high = None if a.high is None or b.high is None else value + math.hypot(a.high - a.aas, b.high - b.aas)
    source = a.source if a.source == b.source else f"{a.source}; {b.source}"
    runq, waits = _sum(a.runq, b.runq), _sum(a.waits, b.waits)
    return Part(value, low, high, source if len(source) < 120 else a.source, runq, waits)


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None and b is None else (a or 0.0) + (b or 0.0)


def _ranked(seconds: Seconds) -> list[dict[str, Any]]:
    largest = sorted(seconds.by_name.items(), key=lambda item: -item[1].aas)[:TOP]
    return [
        {
            "rank": rank,
            "name": name,
            "seconds": part.aas,
            "low": part.low,
            "high": part.high,
            "share": part.aas / seconds.base if seconds.base else None,
            "runq_s": part.runq,
            "waits": part.waits,
            "mean_ns": part.aas / part.waits * NS_PER_S if part.waits else None,
            "source": part.source,
        }
        for rank, (name, part) in enumerate(largest, 1)
    ]
