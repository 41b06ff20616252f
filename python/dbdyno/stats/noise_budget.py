"""The noise budget: which differences a comparison can see, from the variances of equal measurements.

The test is that of a comparison of variants of one run: each block has one measurement of every variant,
and Student's t of the blocks' log ratios has one degree of freedom less than there are blocks. The variance
of a log ratio is twice that of a measurement beside its neighbour in time. As that variance is itself an
estimate, its upper bound of confidence :data:`CONFIDENCE` is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from dbdyno.stats.estimates import Z95
from dbdyno.stats.power import least_shift, repeats_for
from dbdyno.stats.variance_components import Variance, of_sum

POWER = 0.8
"""Probability with which a promised difference is found."""
CONFIDENCE = 0.8
"""Confidence of the bound of a variance that is planned with."""
LENGTHS_S = (1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0)
"""Lengths of a measurement that are tried."""
LEAST_CELLS = 4
"""Measurements that a variance needs: of fewer its upper bound is more than three times the estimate."""
LEAST_STARTS, LEAST_FOR_DRIFT = 3, 4
"""Starts of the server for their variance; starts, or measurements, for a straight line."""
_STEPS = 5
"""Autocorrelation times that a measurement must at least last: in a shorter one their law does not hold."""


class Budget(NamedTuple):
    """Variances of the logarithm of throughput."""

    cell: Variance
    """Variance of a measurement beside its neighbour on the same start of the server."""
    cell_s: float
    """Length of that measurement."""
    second: Variance
    """Variance of the mean of a long measurement, times its seconds: what more seconds average out."""
    steps_s: float
    """Autocorrelation time."""
    overhead_s: float
    """Time between two measurements."""
    starts: Variance | None = None
    """Variance of the mean of a start's measurements; None if the server was not restarted."""
    per_start: float = 1.0
    """Measurements on one start."""
    restart_s: float = 0.0
    """Further time between two measurements with a restart between them."""

    def as_row(self) -> dict[str, float | None]:
        """Returns the budget as figures by name, of which :meth:`of_row` makes it again."""
        starts = self.starts
        return {
            "measure_s": self.cell_s,
            "variance": self.cell.value,
            "degrees": self.cell.degrees,
            "second_variance": self.second.value,
            "second_degrees": self.second.degrees,
            "autocorrelation_s": self.steps_s,
            "overhead_s": self.overhead_s,
            "start_variance": None if starts is None else starts.value,
            "start_degrees": None if starts is None else starts.degrees,
            "per_start": self.per_start,
            "restart_s": self.restart_s,
            "floor": self.floor,
        }

    @staticmethod
    def of_row(row: Mapping[str, float | None]) -> Budget:
        known = {name: value for name, value in row.items() if value is not None}
        starts = None
        if "start_variance" in known:
            starts = Variance(known["start_variance"], known["start_degrees"])
        return Budget(
            Variance(known["variance"], known["degrees"]),
            known["measure_s"],
            Variance(known["second_variance"], known["second_degrees"]),
            known["autocorrelation_s"],
            known["overhead_s"],
            starts,
            known["per_start"],
            known["restart_s"],
        )

    def variance(self, length_s: float, *, restarts: bool = False) -> Variance:
        """Returns the variance of a measurement of this length. With ``restarts`` each has a start of its
        own. Noise that seconds do not explain is taken not to shrink with length."""
        longer = self.second.times(1 / length_s - 1 / self.cell_s)
        white = self.second.times(1 / length_s)
        total = of_sum(self.cell, longer)
        least = total if total.value >= white.value else white
        if not restarts or self.starts is None:
            return least
        of_starts = of_sum(self.starts, self.cell.times(1 - 1 / self.per_start), longer)
        return of_starts if of_starts.value >= least.value else least

    def deviation(self, length_s: float, *, restarts: bool = False) -> float:
        """Returns the standard deviation of a measurement that is planned with: an upper bound."""
        return math.sqrt(self.variance(length_s, restarts=restarts).upper(CONFIDENCE))

    @property
    def start_variance(self) -> float | None:
        """The variance that a start adds to a measurement; None if unknown."""
        if self.starts is None:
            return None
        return max(0.0, self.starts.value - self.cell.value / self.per_start)

    @property
    def floor(self) -> float | None:
        """The difference of two runs, each on one start of its own, that starts alone exceed in 5 % of
        cases; None if unknown."""
        variance = self.start_variance
        return None if variance is None else math.expm1(Z95 * math.sqrt(2 * variance))

    def least_difference(
        self, repeats: int, length_s: float, alpha: float, *, restarts: bool = False
    ) -> float:
        """Returns the least relative difference that so many repeats find with probability :data:`POWER`."""
        # The variance of a block's log ratio is that of two measurements.
        shift = least_shift(repeats, alpha, POWER) * math.sqrt(2)
        return math.expm1(shift * self.deviation(length_s, restarts=restarts))

    def plan(self, difference: float, alpha: float, least: int, *, restarts: bool = False) -> Repeats | None:
        """Returns the repeats of two variants that find ``difference`` in the shortest time; None if it
        takes too many. ``least``: the fewest repeats that can decide."""
        tried = []
        for length_s in self.lengths():
            deviation = math.sqrt(2) * self.deviation(length_s, restarts=restarts)
            shift = math.log1p(difference) / max(1e-12, deviation)
            if (repeats := repeats_for(shift, alpha, POWER, least)) is not None:
                each_s = length_s + self.overhead_s + (self.restart_s if restarts else 0.0)
                tried.append(Repeats(repeats, length_s, 2 * repeats * each_s))
        return min(tried, key=lambda r: (r.time_s, r.length_s), default=None)

    def lengths(self) -> list[float]:
        """Returns the lengths of a measurement that can be planned with: none shorter than the one measured
        if its seconds are not known."""
        least = _STEPS * self.steps_s if self.second.value else self.cell_s
        usable = sorted(s for s in {*LENGTHS_S, self.cell_s} if s >= least)
        return usable or [max(self.cell_s, LENGTHS_S[-1])]


class Repeats(NamedTuple):
    """A plan for two variants."""

    repeats: int
    length_s: float
    time_s: float
