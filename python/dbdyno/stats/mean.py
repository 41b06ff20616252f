"""A value that carries its error, after latte's ``Mean{n,value,std_err}``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dbdyno.stats.distributions import students_quantile


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean of ``n`` values, with the sum of squared deviations ``m2`` (Welford; merge: Chan et al. 1979)."""

    n: int = 0
    value: float = math.nan
    m2: float = 0.0

    @staticmethod
    def of(values: Iterable[float]) -> Mean:
        mean = Mean()
        for v in values:
            mean = mean.merge(Mean(1, v))
        return mean

    def merge(self, other: Mean) -> Mean:
        """Commutative and associative within rounding; ``Mean()`` is neutral."""
        if self.n == 0 or other.n == 0:
            return other if self.n == 0 else self
        n = self.n + other.n
        delta = other.value - self.value
        return Mean(
            n,
            self.value + delta * other.n / n,
            self.m2 + other.m2 + delta * delta * self.n * other.n / n,
        )

    @property
    def std_dev(self) -> float | None:
        """Sample standard deviation; ``None`` (not 0) for fewer than two values."""
        return math.sqrt(self.m2 / (self.n - 1)) if self.n > 1 else None

    @property
    def std_err(self) -> float | None:
        return None if self.std_dev is None else self.std_dev / math.sqrt(self.n)

    @property
    def interval95(self) -> tuple[float, float] | None:
        """Student's 95 % interval of the mean; ``None`` for fewer than two values."""
        if self.std_err is None:
            return None
        half = students_quantile(self.n - 1) * self.std_err
        return self.value - half, self.value + half
