"""When did a series change its level? One change after the other, each with an interval of its place.

Levels are medians: for a split, let S be the sum of absolute deviations from the medians of both sides, S0
that from the median of all. The gain of a split, n log(S0 / S), is the logarithm of the likelihood ratio
for noise by Laplace's law; a single outlier adds the same to S0 and S, so that it makes no change. A level
that came and went has no such split: the stretch whose ranks differ most from the others is tested beside
it (circular binary segmentation: Olshen and others 2004, Biostatistics 5, 557-572), and both tests share
the level. Where a change is found, its parts are tested in turn, and share the level again.

Neighbouring runs resemble each other (other users, the state of a disk, the heat of a machine), and then
levels wander without a change. So values are worth fewer independent ones: what is tested is S0 / S - 1 times
(1 - r) / (1 + r), with r the correlation of the neighbouring residuals of the best split. It is compared with
the same of the values in random orders in which neighbours are correlated by :data:`RHO`; below
:data:`ORDERS` values orders are too few, and it is compared with such normal noise. Up to that correlation a
series without a change has a false alarm with a probability of about :data:`LEVEL` or less, whatever the law
of its values is; with a correlation of 0.7 with one of about 0.15 (benchmarks/trend.py).

The interval of a change inverts a test: a split belongs to it unless its gain lies further below the largest
than in 95 % of random orders of the values within its two sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats.estimates import Mean, students_quantile
from dbdyno.stats.steps import correlated_noise

Floats = NDArray[np.float64]

LEVEL = 0.05
LEAST = 6
"""A series of fewer values is not tested."""
SIDE = 3
"""Values on each side of a change, at least."""
RHO = 0.35
"""Correlation of neighbouring values that a series without a change is taken to have."""
_SEEN = 20
"""Values from which on their own correlation is believed; that of fewer, in proportion to their number."""
ORDERS = 10
_SHORT = 5
"""On a side with fewer values none may lie nearer to the other side's median."""
_EPISODES = 14
"""Values from which on a level that came and went is looked for."""
_OF_SINGLE = 0.7
"""Share of the level for a single change; the rest is for one that came and went."""
_BIAS = 4.0
"""So much less, over the number of values, residuals of a best split resemble each other than values do."""
_RESOLUTION = 1e-5
"""Deviation of a value, in logarithms, that means nothing."""
_DRAWS, _FEW_DRAWS = 999, 199
_MOST_OUTLYING = 0.25
"""Share of the values that may be outliers."""
OUTLYING = 5.0
"""Robust standard deviations from its level: an outlier."""
_SIGMA_OF_MAD = 1.4826


class Change(NamedTuple):
    at: int
    """Index of the first value after it."""
    low: int
    high: int
    """95 % interval of ``at``."""
    p: float
    ratio: float
    """Level after over level before, as far as the changes beside."""
    ratio_low: float
    ratio_high: float
    """95 % interval, Student's t on logarithms without outliers."""


def changes(values: Sequence[float] | Floats) -> list[Change]:
    """Of positive ``values`` in their order, those that are beyond chance, by place."""
    logs = np.log(np.asarray(values, dtype=float))
    found = _split(logs, 0, len(logs), LEVEL)
    ends = [0, *(at for at, *_ in found), len(logs)]
    return [
        Change(at, low, high, p, *_ratio(logs[ends[n] : at], logs[at : ends[n + 2]]))
        for n, (at, low, high, p) in enumerate(found)
    ]


def outliers(values: Sequence[float], places: Sequence[int]) -> list[int]:
    """Indices of values far from the level around them, given where it changed."""
    logs = np.log(np.asarray(values, dtype=float))
    ends = [0, *places, len(logs)]
    levels = np.concatenate([np.full(b - a, np.median(logs[a:b])) for a, b in pairwise(ends)])
    return [int(n) for n in np.flatnonzero(_outlying(logs - levels))]


def _split(logs: Floats, start: int, end: int, level: float) -> list[tuple[int, int, int, float]]:
    part = logs[start:end]
    places, p = _found(part, level) if end - start >= LEAST else ([], 1.0)
    if not places:
        return []
    ends = [0, *places, end - start]
    found: list[tuple[int, int, int, float]] = []
    for n, (a, b) in enumerate(pairwise(ends)):
        found += _split(logs, start + a, start + b, level / (len(ends) - 1))
        if b < end - start:
            low, high = _interval(part[a : ends[n + 2]], b - a)
            found.append((start + b, start + a + low, start + a + high, p))
    return found


def _found(logs: Floats, level: float) -> tuple[list[int], float]:
    """Splits of one change, or of a level that came and went, and the p of both questions together."""
    n = len(logs)
    single = _change(logs)
    if n < _EPISODES:
        p = single[1] if single else 1.0
        return ([single[0]] if single and p <= level else []), p
    if single and (p := single[1] / _OF_SINGLE) <= level:
        return [single[0]], p
    began, ended, p = _episode(logs)
    p = min(1.0, p / (1 - _OF_SINGLE))
    middle, beside = logs[began:ended], np.concatenate([logs[:began], logs[ended:]])
    return ([began, ended] if p <= level and _parted(middle, beside) else []), p


def _change(logs: Floats) -> tuple[int, float] | None:
    """The split with the largest gain, and its p; ``None``: none that an outlier alone could not make."""
    n = len(logs)
    places, gains = _largest(logs[None, :])
    at = int(places[0])
    if gains[0] <= 0 or not _parted(logs[:at], logs[at:]):
        return None
    null = _normal(n) if n < ORDERS else _largest(_resembling(logs))[1]
    return at, float((1 + np.count_nonzero(null >= gains[0] - 1e-9)) / (1 + null.size))


def _largest(rows: Floats, resolution: float = _RESOLUTION) -> tuple[NDArray[np.int64], Floats]:
    """Split with the largest gain of each row, and that gain, less where neighbours resemble each other."""
    gains = _gains(rows, SIDE, resolution)
    at = np.argmax(gains, axis=1)
    return at, _worth(rows, at) * np.expm1(gains.max(axis=1) / rows.shape[1])


def _worth(rows: Floats, *places: NDArray[np.int64]) -> Floats:
    """Independent values that a value of each row stands for, where its level changes at ``places``, and at
    the one place more that leaves least: a change that is not looked at yet is no resemblance."""
    n, index = rows.shape[1], np.arange(rows.shape[1])
    parts = np.sum([index >= at[:, None] for at in places], axis=0)
    left = _without_levels(rows, parts)
    ends = np.column_stack([np.zeros(len(rows), int), *places, np.full(len(rows), n)])
    before = index + 1 - np.take_along_axis(ends, parts, axis=1)
    after = np.take_along_axis(ends, parts + 1, axis=1) - index - 1
    gained = left.cumsum(axis=1) ** 2 * (before + after) / np.maximum(before * after, 1)
    gained[np.minimum(before, after) < SIDE] = 0.0
    more = np.where(gained.max(axis=1) > 0, gained.argmax(axis=1) + 1, n)
    parts += index >= more[:, None]
    left = _without_levels(rows, parts)
    products = np.where(parts[:, 1:] == parts[:, :-1], left[:, 1:] * left[:, :-1], 0.0).sum(axis=1)
    r = products / np.maximum((left**2).sum(axis=1), 1e-300) + _BIAS / n
    r = (r * min(1.0, n / _SEEN)).clip(-0.5, 0.95)
    return np.asarray((1 - r) / (1 + r))


def _without_levels(rows: Floats, parts: NDArray[np.int64]) -> Floats:
    left = rows.copy()
    for part in range(int(parts.max()) + 1):
        inside = parts == part
        level = np.where(inside, rows, 0.0).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)
        left -= np.where(inside, level[:, None], 0.0)
    return left


def _resembling(logs: Floats) -> Floats:
    """The values in random orders in which neighbours are correlated by :data:`RHO`."""
    noise = correlated_noise(np.random.default_rng(1), _DRAWS, len(logs), RHO)
    return np.sort(logs)[noise.argsort(axis=1).argsort(axis=1)]


def _episode(logs: Floats) -> tuple[int, int, float]:
    """The stretch inside whose ranks differ most from the others, against random orders."""
    n = len(logs)
    ranks = _centred_ranks(logs)
    rows = np.vstack([ranks, _resembling(ranks)])
    sums = np.pad(rows.cumsum(axis=1), ((0, 0), (1, 0)))
    best, began, ended = np.zeros(len(rows)), *np.zeros((2, len(rows)), dtype=int)
    for length in range(SIDE, n - 2 * SIDE + 1):
        inside = sums[:, SIDE + length : n - SIDE + 1] - sums[:, SIDE : n - SIDE - length + 1]
        score = inside**2 * n / (length * (n - length))
        top, at = score.max(axis=1), SIDE + score.argmax(axis=1)
        began, ended = (np.where(top > best, new, old) for new, old in ((at, began), (at + length, ended)))
        best = np.maximum(best, top)
    best /= np.maximum(float(ranks @ ranks) - best, 1e-9)
    best *= _worth(rows, began, ended)
    p = float((1 + np.count_nonzero(best[1:] >= best[0] - 1e-9)) / (1 + _DRAWS))
    return int(began[0]), int(ended[0]), p


def _centred_ranks(logs: Floats) -> Floats:
    """Values that are equal, but for the resolution, share theirs."""
    _, places, counts = np.unique(np.round(logs / _RESOLUTION), return_inverse=True, return_counts=True)
    middles = counts.cumsum() - (counts + 1) / 2 - (len(logs) - 1) / 2
    return np.asarray(middles[places], dtype=float)


def _parted(*sides: Floats) -> bool:
    """Whether each value of a short side is nearer to its own median than to the other side's."""
    middles = [float(np.median(side)) for side in sides]
    return all(
        len(side) >= _SHORT or bool((np.abs(side - own) < np.abs(side - other)).all())
        for side, own, other in zip(sides, middles, reversed(middles), strict=True)
    )


def _interval(logs: Floats, at: int) -> tuple[int, int]:
    """First and last split that the data do not exclude, as far as none or one beside is excluded."""
    gains = _gains(logs[None, :], 1)[0]
    ends = []
    for step in (-1, 1):
        end, split, missed = at, at + step, 0
        while 0 < split < len(logs) and missed < 2:
            held = _is_possible(logs, split, float(gains.max() - gains[split]))
            end, missed = (split, 0) if held else (end, missed + 1)
            split += step
        ends.append(end)
    return ends[0], ends[1]


def _is_possible(logs: Floats, split: int, below: float) -> bool:
    """Whether random orders within both sides, where ``split`` is true, have a gain there that is as much
    ``below`` the largest, in 5 % at least. A side may have a single value."""
    rows = _orders(logs, 0, split, _FEW_DRAWS)
    rows[:, split:] = _orders(logs, split, len(logs), _FEW_DRAWS)[:, split:]
    null = _gains(rows, 1)
    as_much = np.count_nonzero(null.max(axis=1) - null[:, split] >= below - 1e-9)
    return bool((1 + as_much) / (1 + _FEW_DRAWS) > LEVEL)


def _orders(logs: Floats, start: int, end: int, draws: int) -> Floats:
    """Rows with the values from ``start`` to ``end`` in random order."""
    rows = np.tile(logs, (draws, 1))
    np.random.default_rng(1).permuted(rows[:, start:end], axis=1, out=rows[:, start:end])
    return rows


@lru_cache(maxsize=8)
def _normal(n: int) -> Floats:
    """Largest gains of normal noise whose neighbours are correlated by :data:`RHO`."""
    return _largest(correlated_noise(np.random.default_rng(n), 9_999, n, RHO), 0.0)[1]


def _gains(rows: Floats, side: int, resolution: float = _RESOLUTION) -> Floats:
    """Gain of each split of each row, (draws, n + 1); -inf where a side is shorter than ``side``."""
    n = rows.shape[1]
    before, after = _deviations(rows), _deviations(rows[:, ::-1])[:, ::-1]
    least = n * resolution
    gains = n * np.log((before[:, -1:] + least) / np.maximum(before + after + least, 1e-300))
    gains[:, :side] = gains[:, n - side + 1 :] = -math.inf
    return np.asarray(gains)


def _deviations(rows: Floats) -> Floats:
    """Sum of absolute deviations from the median of the first k of each row, for k = 0..n."""
    n = rows.shape[1]
    found = np.zeros((len(rows), n + 1))
    for k in range(2, n + 1):
        part = np.sort(rows[:, :k], axis=1)
        found[:, k] = part[:, (k + 1) // 2 :].sum(axis=1) - part[:, : k // 2].sum(axis=1)
    return found


def _outlying(residuals: Floats) -> NDArray[np.bool_]:
    """None where they are more than :data:`_MOST_OUTLYING`: then the values have no single level."""
    spread = _SIGMA_OF_MAD * float(np.median(np.abs(residuals)))
    found = np.asarray(np.abs(residuals) > OUTLYING * max(spread, _RESOLUTION))
    return found if found.mean() <= _MOST_OUTLYING else np.zeros_like(found)


def _ratio(before: Floats, after: Floats) -> tuple[float, float, float]:
    """With its 95 % interval, by the pooled variance of both sides."""
    residuals = np.concatenate([before - np.median(before), after - np.median(after)])
    kept = ~_outlying(residuals)
    sides = (before, kept[: len(before)]), (after, kept[len(before) :])
    means = [Mean.of(side[some] if np.count_nonzero(some) > 1 else side) for side, some in sides]
    degrees = means[0].n + means[1].n - 2
    variance = (means[0].m2 + means[1].m2) / degrees
    half = students_quantile(degrees) * math.sqrt(variance * (1 / means[0].n + 1 / means[1].n))
    apart = means[1].value - means[0].value
    return math.exp(apart), math.exp(apart - half), math.exp(apart + half)
