"""Cliffs: does throughput step along a ladder to another level from some load on, which no smooth curve
explains?

On a logarithmic scale a ladder is a shape plus noise. Smooth shapes are straight lines, Amdahl's law, the
USL, and growth with one or two knees, falling ones included. A stepped shape is one of the simpler shapes
times a factor from some load on. Both are searched on grids of their parameters. The logarithm of the
ratio of their sums of squares is compared with that of ladders drawn about the best smooth shape with its
own noise, so the test accounts for the choice of shape and place. Deviations below :data:`RESOLUTION` do
not count, as the grids are no finer. There is no step if a shape that drifts from some load on explains
the ladder nearly as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats.estimates import students_quantile
from dbdyno.stats.tied import parts_of

Floats = NDArray[np.float64]

LEAST = 5
"""Least number of different loads for a step."""
SMALLEST = 0.10
"""Least share by which a step changes throughput."""
LEVEL = 0.01
RESOLUTION = 0.01
MOST = 40
"""Largest number of loads; of more, neighbours are averaged."""
_DRAWS = 99
_BEFORE = 2
"""Least number of loads below a step."""
_MOST_PAIRED = 16
"""Largest number of loads at which knees are searched at the loads, too, and not only on the grid."""
_DRIFT = 3.0
"""The same limit against a drifting curve: below it a step may be a drift."""
_WORTH = 2.0
"""Logarithm of the ratio of sums of squares, times the number of loads, below which no step is tested."""


class Cliff(NamedTuple):
    """A step of throughput."""

    low: float
    high: float
    """The step lies between these two measured loads."""
    relative: float
    relative_low: float
    relative_high: float
    """Throughput beyond the step over that of the continued curve, less 1, with its 95 % interval."""
    loads_beyond: int
    p: float


class _Shapes(NamedTuple):
    loads: Floats
    smooth: Floats
    """Logarithms, (shapes, loads); each row has a mean of 0."""
    stepped: Floats
    """The simpler shapes, on which a step is searched."""


def cliff(n: Sequence[float], x: Sequence[float]) -> Cliff | None:
    """Returns the step of a ladder with loads ``n`` and throughputs ``x`` above 0; None if there is none.
    A load may be repeated."""
    loads, logs = _means(np.asarray(n, dtype=float), np.log(np.asarray(x, dtype=float)))
    if len(loads) < LEAST or not np.isfinite(logs).all():
        return None
    groups = np.array_split(np.arange(len(loads)), min(len(loads), MOST))
    means = np.array([logs[g].mean() for g in groups])
    places = np.array([math.exp(np.log(loads[g]).mean()) for g in groups])
    shapes = _shapes(places)
    smooth, best = _smooth(means[None, :], shapes, means)
    squares = _stepped(means[None, :], shapes)
    gain = float(len(means) * np.log(smooth[0] / squares[0].min()))
    if gain < _WORTH:
        return None
    at = int(np.argmin(squares[0])) + _BEFORE  # the first place beyond the step
    size = _size(means, shapes, at)
    if abs(size[0]) < SMALLEST or size[1] * size[2] <= 0:
        return None
    if len(means) * math.log(_drifting(means, shapes) / squares[0].min()) < _DRIFT:
        return None
    p = _chance(shapes, int(best[0]), float(smooth[0]), gain)
    if p > LEVEL:
        return None
    # Places whose sum of squares exceeds the least by n log(ratio) <= 6 are not excluded.
    possible = _BEFORE + np.flatnonzero(len(means) * np.log(squares[0] / squares[0].min()) <= 6.0)
    first, last = int(possible.min()), int(possible.max())
    low, high = float(loads[groups[first - 1]].min()), float(loads[groups[last]].max())
    return Cliff(low, high, *size, int(np.count_nonzero(loads >= high)), p)


def _means(n: Floats, logs: Floats) -> tuple[Floats, Floats]:
    """Returns the different loads and the mean at each."""
    loads, which = np.unique(n, return_inverse=True)
    return loads, np.bincount(which, logs) / np.bincount(which)


def _shapes(u: Floats) -> _Shapes:
    """Returns each family of shapes on its grid."""
    line, last = np.log(u)[None, :], float(u[-1])
    sigmas = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 25)])
    kappas = np.concatenate([[0.0], np.geomspace(1e-7, 0.3, 28)])
    s, k = (g.reshape(-1, 1) for g in np.meshgrid(sigmas, kappas))
    usl = np.log(u) - np.log(1 + s * (u - 1) + k * u * (u - 1))
    amdahl = np.log(u) - np.log(1 + sigmas[:, None] * (u - 1))
    knees = np.geomspace(u[0], last * 0.98, 72)
    falling, rising = np.linspace(-0.98, -0.02, 24), np.linspace(0.0, 1.0, 26)
    one = np.concatenate(
        [_kneed(u, float(c), last, rising) for c in knees]
        + [_kneed(u, float(c), last, falling) for c in knees if c <= u[-3]]
    )
    flat = np.concatenate([_kneed(u, float(c), last, np.linspace(0.0, 1.0, 11)) for c in knees])
    smooth, stepped = [line, usl, one], [line, amdahl, flat]
    return _Shapes(u, *(_centred(np.concatenate(shapes_)) for shapes_ in (smooth, stepped)))


def _kneed(u: Floats, knee: float, last: float, shares: Floats) -> Floats:
    """Returns growth with a knee. ``shares``: growth beyond the knee over that below; a negative share is
    the fraction of the fall that would reach 0 at the last load."""
    slopes = np.where(shares >= 0, shares, shares * knee / (last - knee))[:, None]
    return np.asarray(np.log(np.minimum(u, knee) + slopes * np.clip(u - knee, 0.0, None)))


def _two_knees(logs: Floats, u: Floats, rows: Floats) -> Floats:
    """Returns for each row the least sum of squares about growth with two knees, by least squares relative
    to ``logs`` for each pair of knees. Growth between the knees is not negative, and the second one is
    below the last load but one, as a fall over a single gap is not a curve."""
    last = u[-3] if len(u) > _MOST_PAIRED else u[-3] * 1.0001
    knees = np.unique(
        np.concatenate([np.geomspace(u[0], last, 24), u[u <= last] if len(u) <= _MOST_PAIRED else []])
    )
    first, second = (knees[i][:, None] for i in np.triu_indices(len(knees), 1))
    design = parts_of(u, first, second) * np.exp(-logs)[:, None]
    y = np.exp(rows - logs).T
    solution = np.linalg.pinv(design) @ y
    left = ((y - design @ solution) ** 2).sum(axis=1)
    return np.asarray(np.where(solution[:, 1] >= 0, left, np.inf).min(axis=0, initial=np.inf))


def _centred(rows: Floats) -> Floats:
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


def _smooth(rows: Floats, shapes: _Shapes, around: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Returns for each row the least sum of squares about a smooth shape, and its index."""
    centred, s = _centred(rows), shapes.smooth
    left = (s * s).sum(axis=1)[None, :] - 2 * centred @ s.T
    best = left.argmin(axis=1)
    least = left[np.arange(len(rows)), best] + (centred * centred).sum(axis=1)
    kneed = _two_knees(around, shapes.loads, rows)
    return np.asarray(np.minimum(np.maximum(least, 0.0), kneed) + rows.shape[1] * RESOLUTION**2), best


def _stepped(rows: Floats, shapes: _Shapes) -> Floats:
    """Returns the least sum of squares with a step before each place from the third on, (rows, places)."""
    n = rows.shape[1]
    squares = [_both_sides(rows, shapes.stepped, at).min(axis=1) for at in range(_BEFORE, n)]
    return np.asarray(np.stack(squares, axis=1) + n * RESOLUTION**2)


def _both_sides(rows: Floats, s: Floats, at: int) -> Floats:
    """Returns sums of squares with a separate level on each side of a step, (rows, shapes)."""
    total: Floats = np.zeros((len(rows), len(s)))
    for side in (slice(None, at), slice(at, None)):
        y, z = _centred(rows[:, side]), _centred(s[:, side])
        total += (y * y).sum(axis=1)[:, None] + (z * z).sum(axis=1)[None, :] - 2 * y @ z.T
    return np.asarray(np.maximum(total, 0.0))


def _drifting(logs: Floats, shapes: _Shapes) -> float:
    """Returns the least sum of squares about a shape whose logarithm drifts linearly from some place on,
    over at least two rungs: a machine that slows down while the ladder is climbed."""
    n, s = len(logs), np.concatenate([shapes.stepped, shapes.smooth])
    off = _centred(logs[None, :] - s)
    squares, least = (off * off).sum(axis=1), np.inf
    for at in range(_BEFORE, n - 1):
        ramp = np.maximum(np.arange(n) - at + 1.0, 0.0)
        ramp = (ramp - ramp.mean()) / np.linalg.norm(ramp - ramp.mean())
        least = min(least, float((squares - (off @ ramp) ** 2).min()))
    return max(least, 0.0) + n * RESOLUTION**2


def _size(logs: Floats, shapes: _Shapes, at: int) -> tuple[float, float, float]:
    """Returns the relative size of the step with its 95 % interval, by profiling over the shapes: for
    each, the sum of squares is a parabola in the size."""
    n, s = len(logs), shapes.stepped
    squares = _both_sides(logs[None, :], s, at)[0] + n * RESOLUTION**2
    left = logs[None, :] - s
    sizes = left[:, at:].mean(axis=1) - left[:, :at].mean(axis=1)
    least, degrees = float(squares.min()), max(1, n - 4)
    limit = least * (1 + students_quantile(degrees) ** 2 / degrees)
    inside = squares <= limit
    half = np.sqrt((limit - squares[inside]) * n / (at * (n - at)))
    best = float(sizes[int(np.argmin(squares))])
    ends = float((sizes[inside] - half).min()), float((sizes[inside] + half).max())
    return math.expm1(best), math.expm1(ends[0]), math.expm1(ends[1])


def _chance(shapes: _Shapes, best: int, squares: float, gain: float) -> float:
    """Returns p: the share of ladders about the best smooth shape, with its noise, that gain as much by a
    step."""
    n = shapes.smooth.shape[1]
    noise = math.sqrt(squares / max(1, n - 3))
    rows = shapes.smooth[best] + noise * np.random.default_rng(n).normal(size=(_DRAWS, n))
    gains = n * np.log(_smooth(rows, shapes, shapes.smooth[best])[0] / _stepped(rows, shapes).min(axis=1))
    return float((1 + np.count_nonzero(gains >= gain)) / (1 + _DRAWS))
