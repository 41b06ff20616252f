"""Change points: when did a series change its level? Finds one change after the other, each with an interval.

Levels are medians. For a split, let S be the sum of absolute deviations from the medians of both sides, and
S0 that from the median of all. The gain n log(S0 / S) is the logarithm of the likelihood ratio for Laplace
noise. A single outlier adds the same to S0 and S, so it makes no change. A temporary level has no such split:
the stretch whose ranks differ most from the others is tested, too (circular binary segmentation: Olshen and
others 2004, Biostatistics 5, 557-572), and both tests share the level. If a change is found, both parts are
tested in turn, and share the level again.

Neighbouring runs are correlated (other users, the state of a disk, the temperature of a machine), so that
levels wander without a change and n values count as fewer independent ones. The test statistic is (S0 / S -
1) (1 - r) / (1 + r), with r the lag-one correlation of the residuals of the best split. Its null distribution
comes from the values in random orders with lag-one correlation :data:`RHO`; below :data:`ORDERS` values there
are too few orders, and it comes from normal noise with that correlation. Up to that correlation, a series
without a change has a false alarm with a probability of about :data:`LEVEL` or less, whatever the
distribution of its values; with a correlation of 0.7 it is about 0.15 (benchmarks/trend.py).

The interval of a change inverts a test: a split belongs to it unless its gain is further below the largest
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
"""Least number of values of a series that is tested."""
SIDE = 3
"""Least number of values on each side of a change."""
RHO = 0.35
"""Assumed lag-one correlation of a series without a change."""
_SEEN = 20
"""Number of values from which on their own correlation counts in full; that of fewer counts in proportion."""
ORDERS = 10
_SHORT = 5
"""Number of values below which none of a side may lie nearer to the other side's median."""
_EPISODES = 14
"""Least number of values for a search for temporary levels."""
_OF_SINGLE = 0.7
"""Share of the significance level for a lasting change; the rest is for a temporary level."""
_BIAS = 4.0
"""Bias of the correlation of a best split's residuals, times the number of values (by simulation)."""
_RESOLUTION = 1e-5
"""Deviation of a value, in logarithms, below which values count as equal."""
_DRAWS, _FEW_DRAWS = 999, 199
_MOST_OUTLYING = 0.25
"""Largest share of values that may be outliers."""
OUTLYING = 5.0
"""Distance of an outlier from its level, in robust standard deviations."""
_SIGMA_OF_MAD = 1.4826
"""Standard deviation over median absolute deviation, of a normal distribution."""


class Change(NamedTuple):
    """A change of level."""

    at: int
    """Index of the first value after the change."""
    low: int
    high: int
    """95 % interval of ``at``."""
    p: float
    ratio: float
    """Level after over level before, up to the neighbouring changes."""
    ratio_low: float
    ratio_high: float
    """95 % interval, Student's t on logarithms without outliers."""


def changes(values: Sequence[float] | Floats) -> list[Change]:
    """Returns the significant changes of a series of positive values, by place."""
    logs = np.log(np.asarray(values, dtype=float))
    splits = _split(logs, 0, len(logs), LEVEL)
    ends = [0, *(at for at, *_ in splits), len(logs)]
    return [
        Change(at, low, high, p, *_ratio(logs[ends[n] : at], logs[at : ends[n + 2]]))
        for n, (at, low, high, p) in enumerate(splits)
    ]


def outliers(values: Sequence[float], places: Sequence[int]) -> list[int]:
    """Returns the indices of values far from the level around them, given the places of the changes."""
    logs = np.log(np.asarray(values, dtype=float))
    ends = [0, *places, len(logs)]
    levels = np.concatenate([np.full(b - a, np.median(logs[a:b])) for a, b in pairwise(ends)])
    return [int(n) for n in np.flatnonzero(_outlying(logs - levels))]


def _split(logs: Floats, start: int, end: int, level: float) -> list[tuple[int, int, int, float]]:
    """Returns the changes between ``start`` and ``end`` as (place, low, high, p)."""
    part = logs[start:end]
    places, p = _significant_splits(part, level) if end - start >= LEAST else ([], 1.0)
    if not places:
        return []
    ends = [0, *places, end - start]
    splits: list[tuple[int, int, int, float]] = []
    for n, (a, b) in enumerate(pairwise(ends)):
        splits += _split(logs, start + a, start + b, level / (len(ends) - 1))
        if b < end - start:
            low, high = _interval(part[a : ends[n + 2]], b - a)
            splits.append((start + b, start + a + low, start + a + high, p))
    return splits


def _significant_splits(logs: Floats, level: float) -> tuple[list[int], float]:
    """Returns the splits of a lasting change or of a temporary level, and the p of both tests together."""
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
    """Returns the split with the largest gain, and its p; None if an outlier alone could cause every
    split."""
    n = len(logs)
    places, gains = _largest(logs[None, :])
    at = int(places[0])
    if gains[0] <= 0 or not _parted(logs[:at], logs[at:]):
        return None
    # 1e-9 lets ties within rounding count as equal. Adding 1 to both numbers keeps p above 0 (Phipson and
    # Smyth 2010).
    null = _normal(n) if n < ORDERS else _largest(_correlated_orders(logs))[1]
    return at, float((1 + np.count_nonzero(null >= gains[0] - 1e-9)) / (1 + null.size))


def _largest(rows: Floats, resolution: float = _RESOLUTION) -> tuple[NDArray[np.int64], Floats]:
    """Returns for each row the split with the largest gain, and the test statistic."""
    gains = _gains(rows, SIDE, resolution)
    at = np.argmax(gains, axis=1)
    return at, _independence(rows, at) * np.expm1(gains.max(axis=1) / rows.shape[1])


def _independence(rows: Floats, *places: NDArray[np.int64]) -> Floats:
    """Returns (1 - r) / (1 + r), the number of independent values that a value of each row counts for. The
    level changes at ``places``, and at one further place that leaves least: a change that was not found
    yet would look like correlation."""
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
    """Subtracts from each value the mean of its part."""
    left = rows.copy()
    for part in range(int(parts.max()) + 1):
        inside = parts == part
        level = np.where(inside, rows, 0.0).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)
        left -= np.where(inside, level[:, None], 0.0)
    return left


def _correlated_orders(logs: Floats) -> Floats:
    """Returns the values in random orders with lag-one correlation :data:`RHO`."""
    noise = correlated_noise(np.random.default_rng(1), _DRAWS, len(logs), RHO)
    # Ranks of correlated normal noise give the order: the values keep their distribution.
    return np.sort(logs)[noise.argsort(axis=1).argsort(axis=1)]


def _episode(logs: Floats) -> tuple[int, int, float]:
    """Returns begin, end and p of the inner stretch whose ranks differ most from the others, against
    random orders."""
    n = len(logs)
    ranks = _centred_ranks(logs)
    rows = np.vstack([ranks, _correlated_orders(ranks)])
    sums = np.pad(rows.cumsum(axis=1), ((0, 0), (1, 0)))
    best, began, ended = np.zeros(len(rows)), *np.zeros((2, len(rows)), dtype=int)
    for length in range(SIDE, n - 2 * SIDE + 1):
        inside = sums[:, SIDE + length : n - SIDE + 1] - sums[:, SIDE : n - SIDE - length + 1]
        score = inside**2 * n / (length * (n - length))
        top, at = score.max(axis=1), SIDE + score.argmax(axis=1)
        began, ended = (np.where(top > best, new, old) for new, old in ((at, began), (at + length, ended)))
        best = np.maximum(best, top)
    best /= np.maximum(float(ranks @ ranks) - best, 1e-9)
    best *= _independence(rows, began, ended)
    p = float((1 + np.count_nonzero(best[1:] >= best[0] - 1e-9)) / (1 + _DRAWS))
    return int(began[0]), int(ended[0]), p


def _centred_ranks(logs: Floats) -> Floats:
    """Returns ranks with mean 0. Values that are equal within the resolution share the middle of their
    ranks."""
    _, places, counts = np.unique(np.round(logs / _RESOLUTION), return_inverse=True, return_counts=True)
    middles = counts.cumsum() - (counts + 1) / 2 - (len(logs) - 1) / 2
    return np.asarray(middles[places], dtype=float)


def _parted(*sides: Floats) -> bool:
    """Returns whether each value of a short side is nearer to its own median than to the other side's."""
    middles = [float(np.median(side)) for side in sides]
    return all(
        len(side) >= _SHORT or bool((np.abs(side - own) < np.abs(side - other)).all())
        for side, own, other in zip(sides, middles, reversed(middles), strict=True)
    )


def _interval(logs: Floats, at: int) -> tuple[int, int]:
    """Returns the first and last split that the data do not exclude. The search stops after two excluded
    ones in a row."""
    gains = _gains(logs[None, :], 1)[0]
    ends = []
    for step in (-1, 1):
        end, split, missed = at, at + step, 0
        while 0 < split < len(logs) and missed < 2:
            possible = _is_possible(logs, split, float(gains.max() - gains[split]))
            end, missed = (split, 0) if possible else (end, missed + 1)
            split += step
        ends.append(end)
    return ends[0], ends[1]


def _is_possible(logs: Floats, split: int, below: float) -> bool:
    """Returns whether ``split`` is not excluded: random orders within both sides have a gain that is at
    least as far ``below`` the largest in more than 5 % of cases. A side may have a single value."""
    rows = _orders(logs, 0, split, _FEW_DRAWS)
    rows[:, split:] = _orders(logs, split, len(logs), _FEW_DRAWS)[:, split:]
    null = _gains(rows, 1)
    as_much = np.count_nonzero(null.max(axis=1) - null[:, split] >= below - 1e-9)
    return bool((1 + as_much) / (1 + _FEW_DRAWS) > LEVEL)


def _orders(logs: Floats, start: int, end: int, draws: int) -> Floats:
    """Returns rows with the values from ``start`` to ``end`` in random order."""
    rows = np.tile(logs, (draws, 1))
    np.random.default_rng(1).permuted(rows[:, start:end], axis=1, out=rows[:, start:end])
    return rows


@lru_cache(maxsize=8)
def _normal(n: int) -> Floats:
    """Returns the test statistic of normal noise with lag-one correlation :data:`RHO`."""
    return _largest(correlated_noise(np.random.default_rng(n), 9_999, n, RHO), 0.0)[1]


def _gains(rows: Floats, side: int, resolution: float = _RESOLUTION) -> Floats:
    """Returns the gain of each split of each row, (draws, n + 1); -inf if a side is shorter than ``side``."""
    n = rows.shape[1]
    before, after = _deviations(rows), _deviations(rows[:, ::-1])[:, ::-1]
    least = n * resolution
    gains = n * np.log((before[:, -1:] + least) / np.maximum(before + after + least, 1e-300))
    gains[:, :side] = gains[:, n - side + 1 :] = -math.inf
    return np.asarray(gains)


def _deviations(rows: Floats) -> Floats:
    """Returns the sum of absolute deviations from the median of the first k values of each row, for k =
    0..n."""
    n = rows.shape[1]
    sums = np.zeros((len(rows), n + 1))
    for k in range(2, n + 1):
        part = np.sort(rows[:, :k], axis=1)
        sums[:, k] = part[:, (k + 1) // 2 :].sum(axis=1) - part[:, : k // 2].sum(axis=1)
    return sums


def _outlying(residuals: Floats) -> NDArray[np.bool_]:
    """Marks outliers; none if they are more than :data:`_MOST_OUTLYING`, as the values then have no single
    level."""
    spread = _SIGMA_OF_MAD * float(np.median(np.abs(residuals)))
    marks = np.asarray(np.abs(residuals) > OUTLYING * max(spread, _RESOLUTION))
    return marks if marks.mean() <= _MOST_OUTLYING else np.zeros_like(marks)


def _ratio(before: Floats, after: Floats) -> tuple[float, float, float]:
    """Returns the ratio of levels with its 95 % interval, by the pooled variance of both sides."""
    residuals = np.concatenate([before - np.median(before), after - np.median(after)])
    kept = ~_outlying(residuals)
    sides = (before, kept[: len(before)]), (after, kept[len(before) :])
    means = [Mean.of(side[kept_] if np.count_nonzero(kept_) > 1 else side) for side, kept_ in sides]
    degrees = means[0].n + means[1].n - 2
    variance = (means[0].m2 + means[1].m2) / degrees
    half = students_quantile(degrees) * math.sqrt(variance * (1 / means[0].n + 1 / means[1].n))
    difference = means[1].value - means[0].value
    return math.exp(difference), math.exp(difference - half), math.exp(difference + half)
