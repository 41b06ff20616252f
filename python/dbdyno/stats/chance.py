"""How likely a figure is by chance alone: tails of Student's t and of chi-square, and two tests on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dbdyno.stats.mean import Mean

FALSE_ALARMS = 0.01
"""Of steady runs this share may be told to be unsteady: all tests of a run share it (Bonferroni)."""


class Change(NamedTuple):
    """From a first to a second half."""

    first: float
    second: float
    p: float  # two-sided: as large or larger by chance

    @property
    def relative(self) -> float:
        return self.second / self.first - 1 if self.first else math.inf


def students_p(t: float, degrees: int) -> float:
    """Two-sided tail of Student's t (Abramowitz and Stegun 26.7.3 and 26.7.4, exact for whole degrees)."""
    theta = math.atan(abs(t) / math.sqrt(degrees))
    cos2 = math.cos(theta) ** 2
    odd = degrees % 2
    term = math.cos(theta) if odd else 1.0
    total = 0.0
    for k in range(odd, degrees - 1, 2):
        total += term
        term *= cos2 * (k + 1) / (k + 2)
    inside = math.sin(theta) * total
    return max(0.0, 1 - (2 / math.pi * (theta + inside) if odd else inside))


def chi_square_p(x: float, degrees: int) -> float:
    """Upper tail of chi-square by the cube root of Wilson and Hilferty (1931)."""
    part = 2 / (9 * degrees)
    z = ((x / degrees) ** (1 / 3) - (1 - part)) / math.sqrt(part)
    return 0.5 * math.erfc(z / math.sqrt(2))


def welch(first: Sequence[float], second: Sequence[float], least_variance: float = 0.0) -> Change | None:
    """Do two halves of a series differ? Welch's t (1947), with the variance of a half's mean taken to be at
    least ``least_variance`` (counting whole events cannot be surer). ``None``: fewer than 3 values in one."""
    a, b = Mean.of(first), Mean.of(second)
    if min(a.n, b.n) < 3:
        return None
    errors = [max(m.m2 / (m.n - 1) / m.n, least_variance) for m in (a, b)]
    if sum(errors) == 0:
        return Change(a.value, b.value, 1.0 if a.value == b.value else 0.0)
    spread = sum(e * e / (m.n - 1) for e, m in zip(errors, (a, b), strict=True))
    degrees = max(1, math.floor(sum(errors) ** 2 / spread))
    return Change(a.value, b.value, students_p((b.value - a.value) / math.sqrt(sum(errors)), degrees))


def unequal(values: Sequence[float], variances: Sequence[float]) -> float:
    """Are these values one and the same, each with its own variance? The p of Cochran's Q (1937)."""
    weights = [1 / v for v in variances]
    middle = sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)
    q = sum(w * (x - middle) ** 2 for w, x in zip(weights, values, strict=True))
    return chi_square_p(q, len(values) - 1)
