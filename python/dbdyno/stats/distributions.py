"""Tails and quantiles of Student's t, chi-square and the binomial distribution, by ``scipy.special``.

It is loaded by the first call that needs it (0.2 s): most commands need none.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""

_T95 = (
    12.706204736175, 4.302652729749, 3.182446305284, 2.776445105198, 2.570581835636, 2.446911851145,
    2.364624251593, 2.306004135204, 2.262157162798, 2.228138851986, 2.200985160092, 2.178812829667,
    2.160368656463, 2.144786687918, 2.131449545560, 2.119905299221, 2.109815577833, 2.100922040241,
    2.093024054408, 2.085963447266, 2.079613844728, 2.073873067904, 2.068657610419, 2.063898561628,
    2.059538552753, 2.055529438643, 2.051830516480, 2.048407141795, 2.045229642133, 2.042272456301,
)  # fmt: skip
"""Student's two-sided 95 % quantiles for 1 to 30 degrees of freedom: few values need no scipy."""


@lru_cache(maxsize=4096)
def students_quantile(degrees: float, alpha: float = 0.05) -> float:
    """The t that is exceeded, on both sides together, with probability ``alpha``; ``inf``: the normal law."""
    if degrees < 1:
        raise ValueError("an interval needs at least two values")
    if alpha == 0.05 and degrees <= len(_T95) and degrees == int(degrees):
        return _T95[int(degrees) - 1]
    if math.isinf(degrees):
        return NormalDist().inv_cdf(1 - alpha / 2)
    from scipy.special import stdtrit

    return -float(stdtrit(degrees, alpha / 2))


def students_tail(t: float, degrees: float) -> float:
    """Two-sided p of ``t``."""
    from scipy.special import stdtr

    return 2 * float(stdtr(degrees, -abs(t)))


def chi_square_tail(x: float, degrees: float) -> float:
    """p of a chi-square at least as large as ``x``."""
    from scipy.special import chdtrc

    return float(chdtrc(degrees, x))


def sign_tail(few: int, many: int) -> float:
    """p of at most ``few`` heads in ``few + many`` throws of a fair coin."""
    from scipy.special import bdtr

    return float(bdtr(few, few + many, 0.5))
