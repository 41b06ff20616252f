"""The efficiency of a rung with its doubt, for the table, the key figures and the charts alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.results.raw import LEFT_OUT
from dbdyno.model.results.results import Results
from dbdyno.present.document.document import UNKNOWN, Cell, known
from dbdyno.present.figures import figures
from dbdyno.present.figures.figures import Series, percent

_DISTURBED = "uncertain, because the machine was not quiet"
_ABOVE = "above 100 %, so the lowest load may have been slow (cold caches, low clocks, sleeping CPUs)"


class Efficiency(NamedTuple):
    cell: Cell
    """In percent, with a mark if it is in doubt."""
    why: str = ""
    """The reason of the doubt."""


def reference(results: Results, series: Series) -> int | None:
    """Returns the number of sessions that efficiency refers to: the lowest usable load. None if there are
    fewer than two, so that nothing can be compared."""
    ladder = figures.ladder(results, series).drop_nulls("scaling")
    usable = ladder.filter(~pl.col("status").is_in(LEFT_OUT))
    loads = sorted(set((ladder if usable.is_empty() else usable)["sessions"]))
    return loads[0] if len(loads) > 1 else None


def of_ladder(results: Results, series: Series) -> Callable[[Mapping[str, Any]], Efficiency]:
    """Returns a function from a rung of a ladder to its efficiency; nothing without a lower load to compare
    with."""
    lowest, disturbed = reference(results, series), figures.disturbed_loads(results, series)

    def of_rung(rung: Mapping[str, Any]) -> Efficiency:
        value = rung["scaling"]
        if lowest is None or rung["sessions"] < lowest:
            return Efficiency(Cell(""))
        why = ""
        if value is not None and {rung["sessions"], lowest} & disturbed:
            why = _DISTURBED
        elif value is not None and value > 1 and _beyond_noise(results, series):
            why = _ABOVE
        return Efficiency(known(value, lambda v: percent(v) + (UNKNOWN if why else "")), why)

    return of_rung


def _beyond_noise(results: Results, series: Series) -> bool:
    """Returns whether a load of the ladder delivers more per session than the lowest by more than noise."""
    own = (s for s in results.scaling if (s.ladder.workload, s.ladder.variant) == series[:2])
    return any(a.id == "superlinear" for s in own for a in s.answers)
