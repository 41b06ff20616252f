"""The mean of a series whose neighbours resemble each other: what it is worth in independent values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEAST = 5
"""Of fewer values nothing is said."""


class Correlated(NamedTuple):
    """Of a series: mean, its standard error, the number of independent values with the same error."""

    mean: float
    std_err: float
    effective: float
    n: int


def correlated(values: Sequence[float]) -> Correlated | None:
    """``None``: fewer than five values. Of few values the error is rather too small than too large."""
    series = np.asarray(values, dtype=float)
    n = len(series)
    if n < LEAST:
        return None
    mean = float(series.mean())
    variance = float(series.var(ddof=1))
    tau = integrated_time(series - mean) if variance > 0 else 1.0
    return Correlated(mean, math.sqrt(variance * tau / n), n / tau, n)


def integrated_time(centred: Sequence[float] | np.typing.NDArray[np.float64]) -> float:
    """Integrated autocorrelation time, 1 + 2 times the sum of autocorrelations, in steps (Sokal 1997).

    The sum is cut by Geyer's initial monotone sequence (1992, Statistical Science 7, 473-483): sums of
    neighbouring pairs of autocovariances, as long as they are positive, none above the one before. Below 1
    where neighbours lie on opposite sides of the mean; never below 1/n.
    """
    series = np.asarray(centred, dtype=float)
    n = len(series)
    power = np.abs(np.fft.rfft(series, 2 * n)) ** 2
    covariance = np.fft.irfft(power)[:n] / n
    pairs = covariance[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    positive = pairs[: int(np.argmax(pairs <= 0))] if (pairs <= 0).any() else pairs
    monotone = np.minimum.accumulate(positive)
    return float(max(1 / n, 2 * monotone.sum() / covariance[0] - 1))
