"""Least squares with standard errors that hold for uneven or correlated errors.

Shapes: ``x`` is (n, k) with the column of ones in front, ``y`` is (n,); results are (k,), (k, k) or (n,).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats.estimates import chi_square_tail

Floats = NDArray[np.float64]

ALONE = 1e-10
"""1 - leverage below which a point determines a coefficient alone."""

LEAST_DEGREES = 1.75
"""Least degrees of freedom of a variance: with fewer, intervals of simulated ladders are several times too
wide."""

_FIXED_B = (1.9600, 2.9694, 0.4160, -0.5324)
"""Polynomial of the critical value with Bartlett's kernel, 97.5 % (Kiefer, Vogelsang 2005, Econometric Theory
21, 1130-1164, table 1)."""


class Fit(NamedTuple):
    """A fit by ordinary least squares."""

    x: Floats
    y: Floats
    beta: Floats
    residuals: Floats
    bread: Floats
    """Inverse of X'X."""
    leverage: Floats
    """Diagonal of the hat matrix: each value in 0..1, sum k."""

    @property
    def degrees(self) -> int:
        return len(self.y) - len(self.beta)

    @property
    def basis(self) -> Floats:
        """Orthonormal basis of the column space; (n, k)."""
        return np.asarray(np.linalg.qr(self.x / np.linalg.norm(self.x, axis=0))[0])

    @property
    def rss(self) -> float:
        return float(self.residuals @ self.residuals)

    @property
    def r_squared(self) -> float:
        """Coefficient of determination; NaN if ``y`` does not vary."""
        centred = self.y - self.y.mean()
        total = float(centred @ centred)
        return 1 - self.rss / total if total > 0 else math.nan


def ols(x: Floats, y: Floats) -> Fit:
    """Fits by QR of columns scaled to one length (Golub 1965), as units of work span many powers of ten."""
    scale = np.linalg.norm(x, axis=0)
    q, r = np.linalg.qr(x / scale)
    inverse = np.linalg.inv(r) / scale[:, None]
    beta = inverse @ (q.T @ y)
    residuals = y - x @ beta
    return Fit(x, y, beta, residuals, inverse @ inverse.T, np.sum(q * q, axis=1))


def hc3(fit: Fit) -> Floats:
    """Returns the covariance of the coefficients for errors of uneven size: residuals over 1 - leverage
    (MacKinnon, White 1985, J. Econometrics 29, 305).

    A point with leverage 1 determines the line alone, and the error is ``inf``.
    """
    return newey_west(fit, 0)


def hc3_degrees(fit: Fit) -> Floats:
    """Returns degrees of freedom (k,) of each variance by :func:`hc3`, :data:`LEAST_DEGREES` to n - k.

    With few points of high leverage a variance has few terms. With even errors it has the first two
    moments of a chi-squared with these degrees (Bell, McCaffrey 2002, Survey Methodology 28, 169-181;
    Imbens, Kolesar 2016, Rev. Econ. Stat. 98, 701-712).
    """
    free = 1 - fit.leverage
    if bool((free < ALONE).any()):
        return np.full(len(fit.beta), float(fit.degrees))
    squares = (fit.x @ fit.bread / free[:, None]) ** 2
    inner = np.einsum("nj,np,nq->jpq", squares, fit.basis, fit.basis)
    spread = (squares**2 * (1 - 2 * fit.leverage)[:, None]).sum(axis=0) + (inner**2).sum(axis=(1, 2))
    return np.asarray(((squares * free[:, None]).sum(axis=0) ** 2 / spread).clip(LEAST_DEGREES, fit.degrees))


def newey_west(fit: Fit, lags: int, jackknife: bool = True) -> Floats:
    """Returns the covariance of the coefficients for errors in time order that are correlated over ``lags``
    neighbours, with Bartlett weights 1 - l / (lags + 1).

    Newey, West 1987, Econometrica 55, 703-708, equation 5. ``jackknife``: residuals over 1 - leverage as
    in HC3, without which the result is too small for few points.
    """
    free = 1 - fit.leverage if jackknife else np.ones_like(fit.leverage)
    if bool((free < ALONE).any()):
        return np.full_like(fit.bread, np.inf)
    scores = fit.x * (fit.residuals / free)[:, None]
    meat = scores.T @ scores
    for lag in range(1, min(lags, len(scores) - 1) + 1):
        across = scores[lag:].T @ scores[:-lag]
        meat += (1 - lag / (lags + 1)) * (across + across.T)
    return fit.bread @ meat @ fit.bread


def whitened(fit: Fit, lags: int) -> Floats:
    """Returns variances (k,) of the coefficients by :func:`newey_west` after first-order prewhitening.

    Each point's contribution to a coefficient is regressed on that of the previous point (slope r >= 0,
    its bias corrected by (1 + 3 r) / n: Kendall 1954). The residuals go into Newey and West's sum, which
    is divided by (1 - r)^2 (Andrews, Monahan 1992, Econometrica 60, 953-966). r is at most 0.97, as there.
    """
    free = 1 - fit.leverage
    if bool((free < ALONE).any()):
        return np.full(len(fit.beta), np.inf)
    return np.array([_whitened(z, lags) for z in ((fit.x * (fit.residuals / free)[:, None]) @ fit.bread).T])


def _whitened(contributions: Floats, lags: int) -> float:
    n, before = len(contributions), contributions[:-1]
    size = float(before @ before)
    r = float(contributions[1:] @ before) / size if size > 0 else 0.0
    r = min(max(r + (1 + 3 * r) / n, 0.0), 0.97) if r > 0 else 0.0
    left = contributions[1:] - r * before
    total = float(left @ left)
    for lag in range(1, min(lags, n - 2) + 1):
        total += 2 * (1 - lag / (lags + 1)) * float(left[lag:] @ left[:-lag])
    return total * n / (n - 1) / (1 - r) ** 2


_AUTOREGRESSIONS = np.linspace(-0.6, 0.995, 60)


def autoregressive(fit: Fit, r: Floats = _AUTOREGRESSIONS) -> Floats:
    """Returns variances (k,) of the coefficients if errors follow a first-order autoregression by one of
    ``r``.

    Residuals are less correlated than errors, the more so the fewer they are, and a variance at one
    estimate of r ignores r's own error. So the variance is averaged over r, weighted by its restricted
    likelihood and the reference prior 1 / sqrt(1 - r^2) (Berger, Yang 1994, Econometric Theory 10,
    461-482). At each r, the variance of the errors follows from the expected sum of squares of the
    residuals.
    """
    n, k = fit.x.shape
    together = np.column_stack([fit.x / np.linalg.norm(fit.x, axis=0), fit.y])
    across = together[1:].T @ together[:-1]
    whole, inner = together.T @ together, together[1:-1].T @ together[1:-1]
    steps = whole - r[:, None, None] * (across + across.T) + (r**2)[:, None, None] * inner
    design, response = steps[:, :k, :k], steps[:, :k, k]
    left = steps[:, k, k] - np.sum(response * np.linalg.solve(design, response[..., None])[..., 0], axis=1)
    if float(left.min()) <= 0:  # the points lie exactly on the line
        return np.zeros(k)
    log_likelihood = -np.linalg.slogdet(design)[1] / 2 - (n - k) / 2 * np.log(left)
    weights = np.exp(log_likelihood - log_likelihood.max())
    decay = r[:, None] ** np.arange(n)
    expected_squares = n - decay @ _lagged(fit.basis).sum(axis=1)  # the trace of residuals' covariance
    variances = fit.rss / expected_squares[:, None] * (decay @ _lagged(fit.x @ fit.bread))
    return np.asarray(weights @ variances / weights.sum())


def _lagged(columns: Floats) -> Floats:
    """Returns (n, k): for each column the sums of products of values l apart, doubled for l > 0."""
    n = len(columns)
    power = np.abs(np.fft.rfft(columns, 2 * n, axis=0)) ** 2
    sums = np.fft.irfft(power, 2 * n, axis=0)[:n]
    sums[1:] *= 2
    return np.asarray(sums)


def bandwidth(n: int) -> int:
    """Returns S = 1.3 sqrt(n), rounded up (Lazarus, Lewis, Stock, Watson 2018, J. Bus. Econ. Stat. 36, 541,
    eq. 3).

    Lags are S - 1. This is longer than older rules (4 (n / 100)^(2/9)): it widens intervals but keeps
    their coverage, with critical values that depend on S / n (:func:`fixed_b`).
    """
    return max(1, min(math.ceil(1.3 * math.sqrt(n)), n - 1))


def fixed_b(share: float) -> float:
    """Returns the two-sided 95 % critical value of t by Newey and West with ``share`` = S / n, 0..1."""
    a0, a1, a2, a3 = _FIXED_B
    return a0 + a1 * share + a2 * share**2 + a3 * share**3


def breusch_pagan(fit: Fit) -> float:
    """Returns p that squared residuals do not depend on x: n R2 of their regression is chi-squared
    (Koenker 1981, J. Econometrics 17, 107-112). NaN if they do not vary."""
    auxiliary = ols(fit.x, fit.residuals**2)
    if math.isnan(auxiliary.r_squared):
        return math.nan
    return chi_square_tail(max(0.0, len(fit.y) * auxiliary.r_squared), fit.x.shape[1] - 1)


def cook(fit: Fit) -> Floats:
    """Returns the shift of all predictions without a point, in units of their error (Cook 1977,
    Technometrics 19). NaN if a point determines a coefficient alone, or the fit is exact."""
    free = 1 - fit.leverage
    scale = fit.x.shape[1] * fit.rss / fit.degrees
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = fit.residuals**2 / scale * fit.leverage / free**2
    return np.where((free < ALONE) | (scale == 0), np.nan, moved)
