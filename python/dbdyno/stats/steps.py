"""Steps: did the level of a series with correlated neighbours change on the way, and when?

For a stretch of the series let T be the difference of the means inside and outside over its standard error
for independent values. A lasting change is a stretch that reaches to an end; a temporary one lies inside. The
largest T of all stretches is compared with that of normal noise with lag-one correlation :data:`RHO` (an
autoregressive process of order 1). A series with a lower correlation has fewer false alarms. Its own
correlation is not estimated, as tens of values are too few, and a change looks like correlation.

There is no change if a straight line leaves a smaller sum of squares (drift), or if medians do not show it
(single values).

The interval of a change inverts the same test: a place belongs to it unless its sum of squares exceeds the
least by more than in 95 % of such noise (benchmarks/steps.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RHO = 0.75
"""Assumed lag-one correlation of noise: the rate of false alarms is kept for correlations up to 0.7."""
LEVEL = 0.05
LEAST = 8
"""Least number of values of a series that is tested."""
SIDE = 3
"""Least number of values inside and outside of a stretch, and at each end of the series."""
MOST = 40
"""Largest length of a series; in a longer one neighbours are averaged."""
DRAWS = 4_000
LEAST_P = 2 / (DRAWS + 1)
"""The smallest p with this number of draws."""
_UNLIKELY = 4.0
"""Least T that is compared with noise: a smaller one is never significant."""
_PLACED = 18.0
"""Largest n log(RSS / least RSS) of a place in the interval (by simulation, benchmarks/steps.py)."""


class Stretch(NamedTuple):
    """Values ``start`` to ``end`` (exclusive) that have another level than the others. ``end`` is the
    number of values if the change lasts."""

    start: int
    end: int
    start95: tuple[int, int]
    end95: tuple[int, int]
    """First and last possible place of each end."""
    before: float
    """Mean of the values outside."""
    inside: float
    p: float

    @property
    def relative(self) -> float:
        return self.inside / self.before - 1 if self.before else math.inf


def change(values: Sequence[float], least_variance: float = 0.0) -> Stretch | None:
    """Returns the change of a series; None for fewer than :data:`LEAST` values, for drift, or without a
    possible change. ``least_variance``: lower bound of a value's variance by counting statistics."""
    if len(values) < LEAST:
        return None
    size = math.ceil(len(values) / MOST)
    x = np.array([np.mean(values[i : i + size]) for i in range(0, len(values), size)])
    n = len(x)
    starts, ends = _stretches(n)
    floor = n * least_variance / size
    t, left = _t_of_stretches(x[None, :], floor)
    best = int(np.argmax(t[0]))
    top, rss = float(t[0, best]), float(left[0, best])
    start, end = int(starts[best]), int(ends[best])
    if top < _UNLIKELY or rss > _line_squares(x) + floor or not _seen_in_medians(x, start, end):
        return None
    null = _null(n)
    p = float((1 + np.count_nonzero(null >= top)) / (1 + null.size))
    inside, outside = x[start:end], np.concatenate([x[:start], x[end:]])
    possible = n * np.log((left[0] + 1e-300) / (rss + 1e-300)) <= _PLACED
    places = [_ends(starts, ends, possible, n, of_start=s, start=start, end=end) for s in (True, False)]
    begins, stops = (
        (low * size - (size - 1), min(high * size + (size - 1), len(values))) for low, high in places
    )
    if end == n:
        stops = len(values), len(values)
    return Stretch(
        start * size,
        min(end * size, len(values)),
        begins,
        stops,
        float(outside.mean()),
        float(inside.mean()),
        p,
    )


def _ends(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    possible: NDArray[np.bool_],
    n: int,
    *,
    of_start: bool,
    start: int,
    end: int,
) -> tuple[int, int]:
    """Returns the first and last place of one end, with the other end fixed."""
    if end == n:
        if not of_start:
            return n, n
        selected = possible & (ends == n)
        return int(starts[selected].min()), int(starts[selected].max())
    selected = possible & ((ends == end) if of_start else (starts == start)) & (ends < n)
    places = starts[selected] if of_start else ends[selected]
    return int(places.min()), int(places.max())


@lru_cache(maxsize=64)
def _stretches(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns starts and ends of all stretches with enough values on each side. A stretch that reaches to
    the end also stands for its complement."""
    bounds = [(a, b) for a in range(SIDE, n) for b in range(a + SIDE, n + 1) if b == n or n - b >= SIDE]
    pairs = np.array(bounds, dtype=np.int64)
    return pairs[:, 0], pairs[:, 1]


def _t_of_stretches(rows: Floats, floor: float = 0.0) -> tuple[Floats, Floats]:
    """Returns T of each stretch of each row, and the remaining sum of squares."""
    n = rows.shape[1]
    starts, ends = _stretches(n)
    centred = rows - rows.mean(axis=1, keepdims=True)
    sums = np.pad(centred.cumsum(axis=1), ((0, 0), (1, 0)))
    inside = sums[:, ends] - sums[:, starts]
    length = (ends - starts).astype(float)
    gained = inside**2 * n / (length * (n - length))
    left = np.maximum((centred**2).sum(axis=1)[:, None] - gained, 0.0) + floor
    return np.sqrt(gained * (n - 2) / np.maximum(left, 1e-300)), left


@lru_cache(maxsize=32)
def _null(n: int) -> Floats:
    """Returns the largest T of noise with lag-one correlation :data:`RHO`."""
    random = np.random.default_rng(n)
    parts = []
    for _ in range(DRAWS // 500):
        parts.append(_t_of_stretches(correlated_noise(random, 500, n, RHO))[0].max(axis=1))
    return np.concatenate(parts)


def correlated_noise(random: np.random.Generator, rows: int, n: int, rho: float) -> Floats:
    """Returns normal noise of standard deviation 1: x(t) = rho x(t - 1) + e(t)."""
    x = random.normal(size=(rows, n))
    x[:, 1:] *= math.sqrt(1 - rho * rho)
    for t in range(1, n):
        x[:, t] += rho * x[:, t - 1]
    return x


def _line_squares(x: Floats) -> float:
    """Returns the sum of squares about a straight line."""
    at = np.arange(len(x)) - (len(x) - 1) / 2
    centred = x - x.mean()
    return float((centred**2).sum() - (at @ centred) ** 2 / (at @ at))


def _seen_in_medians(x: Floats, start: int, end: int) -> bool:
    """Returns whether medians show at least half of the difference of means, in the same direction."""
    inside, outside = x[start:end], np.concatenate([x[:start], x[end:]])
    means = float(inside.mean() - outside.mean())
    return float(np.median(inside) - np.median(outside)) / means > 0.5 if means else False
