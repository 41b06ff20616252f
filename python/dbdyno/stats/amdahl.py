"""Amdahl's law: the serial share of one job, from its durations with 1, 2, 4, ... threads.

``T(n) = a + b / n`` with the serial part ``a`` and the parallel part ``b`` (Amdahl 1967, AFIPS 30,
483-485). The serial share is ``a / (a + b)``. T is linear in ``1 / n``, so it is fitted by least squares,
weighted so that deviations count relative to the duration. The interval of the share is Fieller's (1954,
JRSS B 16, 175-185).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dbdyno.stats.estimates import students_quantile

_LACK = 0.01
"""Significance level of the test of lack of fit."""
_Floats = npt.NDArray[np.float64]


class Serial(NamedTuple):
    """The serial share of a job."""

    share: float  # serial part of the duration with one thread
    low: float | None  # 95 % interval; None if it is unbounded, or without a degree of freedom
    high: float | None
    one_s: float  # duration with one thread, by the law
    fits: bool  # the lack of fit is not significant against the scatter of repeats

    def speed_up(self, n: float) -> float:
        """Returns the speed-up of ``n`` threads against one, by the law."""
        return 1 / (self.share + (1 - self.share) / n)


def serial_share(threads: Sequence[float], seconds: Sequence[float]) -> Serial | None:
    """Returns the serial share, from one duration per measurement; None for fewer than two numbers of
    threads."""
    n, t = np.asarray(threads, float), np.asarray(seconds, float)
    levels = np.unique(n)
    if len(levels) < 2 or (t <= 0).any():
        return None
    means = np.array([t[n == v].mean() for v in levels])
    x = np.column_stack([np.ones_like(n), 1 / n])
    weight = 1 / means[np.searchsorted(levels, n)]
    xw, tw = x * weight[:, None], t * weight
    (a, b), *_ = np.linalg.lstsq(xw, tw, rcond=None)
    inverse = np.asarray(np.linalg.inv(xw.T @ xw), float)
    variance, degrees, fits = _variance(n, levels, means, weight, tw, tw - xw @ np.array([a, b]))
    share = a / (a + b)
    if degrees < 1:
        return Serial(float(share), None, None, float(a + b), fits)
    ends = _fieller(float(a), float(a + b), np.asarray(variance * inverse, float), students_quantile(degrees))
    return Serial(float(share), *ends, float(a + b), fits)


def _variance(
    n: _Floats, levels: _Floats, means: _Floats, weight: _Floats, tw: _Floats, residuals: _Floats
) -> tuple[float, int, bool]:
    """Returns the variance of a weighted duration, its degrees of freedom, and whether the law fits. The
    variance comes from all residuals; if the lack of fit is significant, from the lack of fit alone."""
    at = np.searchsorted(levels, n)
    within = float(((tw - means[at] * weight) ** 2).sum())
    total = float((residuals**2).sum())
    free, lack, rest = len(n) - len(levels), len(levels) - 2, len(n) - 2
    departs = max(0.0, total - within)
    if free >= 1 and lack >= 1 and within > 0:
        from dbdyno.stats.laws import f_above

        # F test of lack of fit: deviation of the means from the law against the scatter of repeats about
        # their means.
        if f_above(departs / lack / (within / free), lack, free) < _LACK:
            return departs / lack, lack, False
    return (total / rest if rest else math.nan), rest, True


def _fieller(a: float, c: float, cov: _Floats, t: float) -> tuple[float | None, float | None]:
    """Returns the interval of ``a / c`` with ``c = a + b``; (None, None) if it is unbounded."""
    vaa, vac = float(cov[0, 0]), float(cov[0, 0] + cov[0, 1])
    vcc = float(cov.sum())
    q2, q1, q0 = c * c - t * t * vcc, -2 * (a * c - t * t * vac), a * a - t * t * vaa
    root = q1 * q1 - 4 * q2 * q0
    # c is not significantly different from 0: Fieller's set is then no interval.
    if q2 <= 0 or root < 0:
        return None, None
    low, high = ((-q1 + sign * math.sqrt(root)) / (2 * q2) for sign in (-1, 1))
    return low, high
