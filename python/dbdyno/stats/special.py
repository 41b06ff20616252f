"""Distribution functions of arrays, as the core computes them (``crates/dyno-stats``).

Arguments are arrays or numbers, which are broadcast together. Those outside of a function's domain, and NaN,
give NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dbdyno import _core

Floats = NDArray[np.float64]


def log_gamma(x: ArrayLike) -> Floats:
    """Returns the logarithm of the gamma function."""
    return _applied(_core.log_gamma, x)


def gamma_above(shape: ArrayLike, x: ArrayLike) -> Floats:
    """Returns the regularised upper incomplete gamma function Q(shape, x)."""
    return _applied(_core.gamma_above, shape, x)


def gamma_quantile(shape: ArrayLike, below: ArrayLike) -> Floats:
    """Returns the x at which the regularised lower incomplete gamma function P(shape, x) is ``below``."""
    return _applied(_core.gamma_quantile, shape, below)


def beta_below(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Floats:
    """Returns the regularised incomplete beta function I_x(a, b)."""
    return _applied(_core.beta_below, a, b, x)


def students_below(degrees: ArrayLike, below: ArrayLike) -> Floats:
    """Returns the t that is not exceeded with probability ``below``."""
    return _applied(_core.students_below, degrees, below)


def normal_below(below: Floats) -> Floats:
    """Returns the normal quantiles of probabilities between 0 and 1."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse(share) for share in below.ravel().tolist()]).reshape(below.shape)


def logistic(x: Floats) -> Floats:
    """Returns 1 / (1 + e^-x)."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)))


def log_sum_exp(logarithms: Floats, axis: int) -> Floats:
    """Returns the logarithm of the sum of exponentials along an axis, which stays, with length 1."""
    top = np.max(logarithms, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(top + np.log(np.exp(logarithms - top).sum(axis=axis, keepdims=True)))


def _applied(function: Callable[..., None], *arguments: ArrayLike) -> Floats:
    arrays = np.broadcast_arrays(*(np.asarray(a, dtype=float) for a in arguments))
    out = np.empty(arrays[0].size)
    function(*(np.ascontiguousarray(a).ravel() for a in arrays), out)
    return out.reshape(arrays[0].shape)
