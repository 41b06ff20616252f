"""Series with correlated neighbours: the error of their mean, and a test of residuals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST = 5
"""Least number of values for an error."""
LEAST_DEGREES = 3
"""Least degrees of freedom for a p of Durbin and Watson's d: below, its law is not nearly a beta
distribution."""


class Correlated(NamedTuple):
    """The mean of a series, its standard error, and the number of independent values with the same error."""

    mean: float
    std_err: float
    effective: float
    n: int


def correlated(values: Sequence[float]) -> Correlated | None:
    """Returns the mean and its error; None for fewer than five values. For few values the error tends to
    be too small."""
    series = np.asarray(values, dtype=float)
    n = len(series)
    if n < LEAST:
        return None
    mean = float(series.mean())
    variance = float(series.var(ddof=1))
    tau = integrated_time(series - mean) if variance > 0 else 1.0
    return Correlated(mean, math.sqrt(variance * tau / n), n / tau, n)


def integrated_time(centred: Sequence[float] | Floats) -> float:
    """Returns the integrated autocorrelation time in steps, 1 + 2 times the sum of autocorrelations (Sokal
    1997).

    The sum is cut by Geyer's initial monotone sequence (1992, Statistical Science 7, 473-483): sums of
    neighbouring pairs of autocovariances, as long as they are positive, each limited by the previous one.
    The result is below 1 if neighbours lie on opposite sides of the mean, and never below 1/n.
    """
    series = np.asarray(centred, dtype=float)
    n = len(series)
    # Wiener-Khinchin: the autocovariance is the inverse transform of the power. Padding to 2 n avoids
    # wrap-around.
    power = np.abs(np.fft.rfft(series, 2 * n)) ** 2
    covariance = np.fft.irfft(power)[:n] / n
    pairs = covariance[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    positive = pairs[: int(np.argmax(pairs <= 0))] if (pairs <= 0).any() else pairs
    monotone = np.minimum.accumulate(positive)
    return float(max(1 / n, 2 * monotone.sum() / covariance[0] - 1))


def durbin_watson(
    residuals: Floats, basis: Floats, joined: NDArray[np.bool_] | None = None
) -> tuple[float, float]:
    """Returns d (about 2 without autocorrelation, near 0 with) and its two-sided p under independent
    residuals.

    ``basis``: (n, k), an orthonormal basis of the fitted space; ``residuals``: (n,) in their order;
    ``joined``: (n - 1,), which neighbours belong together, all by default. The first two moments of d are
    exact, and its law is approximated by a beta distribution on 0..4 (Durbin, Watson 1951, Biometrika 38,
    159-178, section 4). Both are NaN without anything to compare, or with fewer than 3 degrees of freedom.
    """
    from dbdyno.stats.special import beta_below

    n, k = basis.shape
    degrees = n - k
    weights = np.ones(n - 1) if joined is None else joined.astype(float)
    rss = float(residuals @ residuals)
    if rss == 0 or degrees < LEAST_DEGREES or not weights.any():
        return math.nan, math.nan
    d = float(weights @ np.diff(residuals) ** 2) / rss
    steps = weights[:, None] * np.diff(basis, axis=0)
    pulled = np.zeros_like(basis)  # A Q, with A the matrix of the numerator of d and Q the basis
    pulled[:-1] -= steps
    pulled[1:] += steps
    inner = basis.T @ pulled
    diagonal = np.zeros(n)
    diagonal[:-1] += weights
    diagonal[1:] += weights
    trace = float(diagonal.sum()) - float(np.trace(inner))
    trace_of_square = (
        float(diagonal @ diagonal)
        + 2 * float(weights.sum())
        - 2 * float(np.sum(pulled**2))
        + float(np.sum(inner**2))
    )
    mean = trace / degrees
    variance = 2 * (trace_of_square - trace * mean) / (degrees * (degrees + 2))
    # Sum of the beta distribution's two parameters, by its mean and variance on 0..4.
    s = mean * (4 - mean) / variance - 1
    below = float(beta_below(mean / 4 * s, (1 - mean / 4) * s, d / 4))
    return d, min(1.0, 2 * min(below, 1 - below))
