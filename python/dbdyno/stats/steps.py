"""Did the level of a series change on the way, where neighbouring values resemble each other? When?

For a stretch of the series let T be the difference of the means inside and outside over its standard error,
were values independent. A change that lasts is a stretch that reaches to an end; one that came and went lies
inside. The largest T of all stretches is compared with that of normal noise whose neighbours are correlated
by :data:`RHO` (an autoregressive process of order 1): a series with less of it has fewer false alarms. Its
own correlation is not estimated, as tens of values are too few for that, and a change looks like it.

A line through the values that leaves less than the change does is drift: no change is found then. Nor where
medians do not show it: single values make none.

The interval of a change inverts the same test: a place belongs to it unless the sum of squares there is
larger than the least by more than noise like that makes it in 5 % (benchmarks/steps.py).
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
"""Correlation of neighbouring values that noise is taken to have: up to 0.7 false alarms are surely kept."""
LEVEL = 0.05
LEAST = 8
"""A series of fewer values is not tested."""
SIDE = 3
"""Values inside and outside, at least; at each end of the series, too."""
MOST = 40
"""A longer series is made as short by means of neighbours."""
DRAWS = 4_000
LEAST_P = 2 / (DRAWS + 1)
"""The smallest p that so many draws can show."""
_UNLIKELY = 4.0
"""A largest T below this is not compared: it is no change with so few values."""
_PLACED = 18.0
"""Points of n log(RSS / least RSS) up to which a place belongs to the interval."""


class Stretch(NamedTuple):
    """Values ``start`` to ``end`` (exclusive) have another level than the others; ``end`` is the number of
    values where it stays so."""

    start: int
    end: int
    start95: tuple[int, int]
    end95: tuple[int, int]
    """First and last possible place of both."""
    before: float
    """Mean of the values that are not in it."""
    inside: float
    p: float

    @property
    def relative(self) -> float:
        return self.inside / self.before - 1 if self.before else math.inf


def change(values: Sequence[float], least_variance: float = 0.0) -> Stretch | None:
    """``least_variance``: of a value, where the way of counting does not allow less. ``None``: fewer than
    :data:`LEAST` values, drift, or nothing that could be a change."""
    if len(values) < LEAST:
        return None
    size = math.ceil(len(values) / MOST)
    x = np.array([np.mean(values[i : i + size]) for i in range(0, len(values), size)])
    n = len(x)
    starts, ends = _stretches(n)
    floor = n * least_variance / size
    t, left = _largest(x[None, :], floor)
    best = int(np.argmax(t[0]))
    top, rss = float(t[0, best]), float(left[0, best])
    start, end = int(starts[best]), int(ends[best])
    if top < _UNLIKELY or rss > _line(x) + floor or not _seen_in_medians(x, start, end):
        return None
    null = _null(n)
    p = float((1 + np.count_nonzero(null >= top)) / (1 + null.size))
    inside, outside = x[start:end], np.concatenate([x[:start], x[end:]])
    held = n * np.log((left[0] + 1e-300) / (rss + 1e-300)) <= _PLACED
    places = [_ends(starts, ends, held, n, of_start=s, start=start, end=end) for s in (True, False)]
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
    held: NDArray[np.bool_],
    n: int,
    *,
    of_start: bool,
    start: int,
    end: int,
) -> tuple[int, int]:
    """The first and last place of one end, the other staying where it is."""
    if end == n:
        if not of_start:
            return n, n
        some = held & (ends == n)
        return int(starts[some].min()), int(starts[some].max())
    some = held & ((ends == end) if of_start else (starts == start)) & (ends < n)
    found = starts[some] if of_start else ends[some]
    return int(found.min()), int(found.max())


@lru_cache(maxsize=64)
def _stretches(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All that leave enough values on their sides. What reaches to the end stands for its complement, too."""
    found = [(a, b) for a in range(SIDE, n) for b in range(a + SIDE, n + 1) if b == n or n - b >= SIDE]
    pairs = np.array(found, dtype=np.int64)
    return pairs[:, 0], pairs[:, 1]


def _largest(rows: Floats, floor: float = 0.0) -> tuple[Floats, Floats]:
    """T of each stretch of each row, and the sum of squares that is left."""
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
    """The largest T of noise with neighbours correlated by :data:`RHO`."""
    random = np.random.default_rng(n)
    found = []
    for _ in range(DRAWS // 500):
        found.append(_largest(correlated_noise(random, 500, n, RHO))[0].max(axis=1))
    return np.concatenate(found)


def correlated_noise(random: np.random.Generator, rows: int, n: int, rho: float) -> Floats:
    """Normal, of standard deviation 1: x(t) = rho x(t - 1) + e(t)."""
    x = random.normal(size=(rows, n))
    x[:, 1:] *= math.sqrt(1 - rho * rho)
    for t in range(1, n):
        x[:, t] += rho * x[:, t - 1]
    return x


def _line(x: Floats) -> float:
    """What a straight line leaves."""
    at = np.arange(len(x)) - (len(x) - 1) / 2
    centred = x - x.mean()
    return float((centred**2).sum() - (at @ centred) ** 2 / (at @ at))


def _seen_in_medians(x: Floats, start: int, end: int) -> bool:
    inside, outside = x[start:end], np.concatenate([x[:start], x[end:]])
    means = float(inside.mean() - outside.mean())
    return float(np.median(inside) - np.median(outside)) / means > 0.5 if means else False
