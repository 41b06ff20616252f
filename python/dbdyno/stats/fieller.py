"""The ratio of two means with its interval: Fieller (1954, J. R. Statist. Soc. B 16, 175-185).

A ratio rho is in the interval just where ``y - rho x`` does not differ from 0 by Student's t. That is a
quadratic in rho; where the baseline's mean is itself not clear of 0 it has no bounded solution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dbdyno.stats.distributions import students_quantile, students_tail


@dataclass(frozen=True, slots=True)
class Moments:
    """Means of baseline and variant, (co)variances of these means, degrees of freedom of the variances."""

    x: float
    y: float
    vxx: float
    vyy: float
    vxy: float
    degrees: int

    @property
    def ratio(self) -> float:
        return self.y / self.x

    def variance(self, rho: float) -> float:
        """Of ``y - rho x``."""
        return max(0.0, self.vyy - 2 * rho * self.vxy + rho * rho * self.vxx)

    def floored(self, wxx: float, wyy: float) -> Moments:
        """With these variances of (independent) means instead, where they are the larger ones."""
        other = replace(self, vxx=wxx, vyy=wyy, vxy=0.0)
        return other if other.variance(self.ratio) > self.variance(self.ratio) else self

    @property
    def std_err(self) -> float:
        """Of the ratio, by the delta method."""
        return math.sqrt(self.variance(self.ratio)) / abs(self.x)

    @property
    def p(self) -> float:
        """Two-sided: that both means are the same."""
        spread = self.variance(1.0)
        if spread == 0:
            return 1.0 if self.x == self.y else 0.0
        return students_tail((self.y - self.x) / math.sqrt(spread), self.degrees)


def interval(m: Moments, alpha: float = 0.05) -> tuple[float, float] | None:
    """Both ends; ``None``: the interval is not bounded, because the baseline's mean is not clear of 0."""
    t2 = students_quantile(m.degrees, alpha) ** 2
    a, b, c = m.x**2 - t2 * m.vxx, m.x * m.y - t2 * m.vxy, m.y**2 - t2 * m.vyy
    if a <= 0:
        return None
    root = math.sqrt(max(0.0, b * b - a * c))
    return (b - root) / a, (b + root) / a
