"""Intervals by repeats: climbs are drawn anew with replacement, then the points within each of their rungs.

The hierarchical bootstrap (Davison and Hinkley, Bootstrap Methods and their Application (1997), section 3.8)
gives the spread of a figure. Few climbs show too little of it, by sqrt((R - 1) / R), and Student's t with R -
1 degrees of freedom takes the place of the normal quantile (Hesterberg, The American Statistician 69 (2015)
371, section 5.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbdyno.stats.distributions import students_quantile
from dbdyno.stats.scaling.curves import Floats
from dbdyno.stats.scaling.fit import Fit
from dbdyno.stats.scaling.models import tabled
from dbdyno.stats.scaling.solve import solve

LEAST = 3
"""Whole climbs from which on repeats are drawn: of two Student's t makes no use."""
DRAWS = 400


@dataclass(frozen=True)
class Drawn:
    """Parameters of each draw, (draws, parameters), throughput in the fit's unit."""

    p: Floats
    repeats: int

    @property
    def quantile(self) -> float:
        """By what a standard deviation over draws becomes half a 95 % interval."""
        r = self.repeats
        return students_quantile(r - 1) * float(np.sqrt(r / (r - 1)))

    def std_err(self, values: Floats) -> float:
        r = self.repeats
        return float(values.std(ddof=1) * np.sqrt(r / (r - 1)))

    def interval(self, value: float, values: Floats, log: bool = False) -> tuple[float, float]:
        """Around ``value``; on the scale of logarithms where the figure is a size."""
        if log:
            half = self.quantile * np.log(values).std(ddof=1)
            return value * float(np.exp(-half)), value * float(np.exp(half))
        half = self.quantile * values.std(ddof=1)
        return value - float(half), value + float(half)


def means(climbs: Floats, seed: int, draws: int = DRAWS) -> Floats:
    """Mean throughput of each rung, of each draw: (draws, loads)."""
    chance = np.random.default_rng(seed)
    repeats, _, each = climbs.shape
    picked = climbs[chance.integers(0, repeats, (draws, repeats))]
    if each > 1:
        within = chance.integers(0, each, picked.shape)
        picked = np.take_along_axis(picked, within, axis=3)
    return np.asarray(picked.mean(axis=(1, 3)))


def drawn(found: Fit, climbs: Floats, seed: int) -> Drawn:
    """The model fitted to every draw: with as many points on every rung that is a fit to the rungs' means."""
    loads = np.unique(found.n)
    x = means(climbs, seed) / found.size
    minima = found.minima[: 3 if len(found.model.knees) else 1]
    start = np.tile(minima, (len(x), 1))
    p, rss = solve(tabled(found.model, loads), loads, np.repeat(x, len(minima), 0), start, gain=1e-7)
    best = rss.reshape(len(x), -1).argmin(1)
    return Drawn(p.reshape(len(x), len(minima), -1)[np.arange(len(x)), best], climbs.shape[0])
