"""The points of a ladder as arrays, checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dbdyno.model.errors import UsageError
from dbdyno.model.scaling import Ladder

FARTHEST = 2.0
"""Times the largest measured load beyond which a model's word is a guess, and a warning is due."""
FEWEST = 4
"""Different loads below which nothing is said of scaling."""
Floats = NDArray[np.float64]
NEEDED = ("load", "throughput")


@dataclass(frozen=True)
class Points:
    """By load, then repeat."""

    n: Floats
    x: Floats
    repeat: Floats

    @cached_property
    def loads(self) -> Floats:
        return np.unique(self.n)

    @cached_property
    def climbs(self) -> Floats | None:
        """Throughput by repeat, load and point: (repeats, loads, points of a rung in one climb). None: there
        is one climb only, or not every climb has the same points on every rung."""
        names, loads = np.unique(self.repeat), self.loads
        each = len(self.n) // (len(names) * len(loads))
        if len(names) < 2 or len(names) * len(loads) * each != len(self.n):
            return None
        order = np.lexsort((self.n, self.repeat))
        shape = (len(names), len(loads), each)
        n, repeat, x = (a[order].reshape(shape) for a in (self.n, self.repeat, self.x))
        whole = (n == loads[None, :, None]).all() and (repeat == names[:, None, None]).all()
        return x if whole else None


def too_few(loads: int) -> str:
    """The refusal of a ladder with less than :data:`FEWEST` different loads."""
    rungs = "no rung" if loads == 0 else "one rung" if loads == 1 else f"{loads} rungs"
    verb = "tells" if loads < 2 else "tell"
    return f"{rungs} {verb} nothing of scaling: at least {FEWEST} different loads are needed"


def points_of(ladder: Ladder) -> Points:
    """Raises :class:`UsageError` where a point is of no use; nothing is left out silently."""
    frame = ladder.points
    for name in NEEDED:
        if name not in frame.columns:
            raise UsageError(
                f"{ladder.name}: no column {name!r}", f"there are: {', '.join(frame.columns) or 'none'}"
            )
    if frame.is_empty():
        raise UsageError(f"{ladder.name}: no points", "a ladder needs a load and a throughput for every rung")
    columns = {name: _numbers(ladder.name, frame, name) for name in NEEDED}
    repeat = (
        frame["repeat"].fill_null(1).to_numpy().astype(float)
        if "repeat" in frame.columns
        else np.ones(len(frame))
    )
    order = np.lexsort((repeat, columns["load"]))
    return Points(columns["load"][order], columns["throughput"][order], repeat[order])


def _numbers(ladder: str, frame: pl.DataFrame, name: str) -> Floats:
    if not frame[name].dtype.is_numeric():
        raise UsageError(f"{ladder}: {name} is not a number but {frame[name].dtype}", "give numbers only")
    values = frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(bad):
        what = frame[name][int(bad[0])]
        raise UsageError(
            f"{ladder}: {name} of point {int(bad[0]) + 1} is {what if what is not None else 'missing'}",
            "it must be a number above 0: leave the point out, or measure it again",
        )
    return np.asarray(values, dtype=float)
