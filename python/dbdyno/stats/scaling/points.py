"""Points of load and throughput as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

FARTHEST = 2.0
"""Multiple of the largest measured load beyond which a model is a guess."""
FEWEST = 4
"""Least number of different loads for a fit."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Points:
    """Points ordered by load, then repeat."""

    n: Floats
    x: Floats
    repeat: Floats

    @cached_property
    def loads(self) -> Floats:
        return np.unique(self.n)

    @cached_property
    def series(self) -> Floats | None:
        """Throughput by repeat, load and point: (repeats, loads, points at a load in one series). None for
        a single series, or if not every series has as many points at every load."""
        names, loads = np.unique(self.repeat), self.loads
        each = len(self.n) // (len(names) * len(loads))
        if len(names) < 2 or len(names) * len(loads) * each != len(self.n):
            return None
        order = np.lexsort((self.n, self.repeat))
        shape = (len(names), len(loads), each)
        n, repeat, x = (a[order].reshape(shape) for a in (self.n, self.repeat, self.x))
        whole = (n == loads[None, :, None]).all() and (repeat == names[:, None, None]).all()
        return x if whole else None
