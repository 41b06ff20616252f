"""Does throughput step along a ladder: another level from some load on, which no smooth curve explains?

On the scale of logarithms a ladder is a shape plus noise. Smooth shapes are straight lines, Amdahl's law, the
USL, and growth with one or two knees, falling ones among them; a step is one of the simpler shapes times a
factor from some load on. Both are sought on grids of their parameters. How much better the step is, as a
logarithm of the ratio of sums of squares, is compared with the same figure of ladders drawn about the best
smooth shape with its own noise: so the choice of shape and place is in the test. Deviations below
:data:`RESOLUTION` count for nothing, as the grids are no finer. Where a shape that drifts from some load on
explains the ladder nearly as well, there is no step.
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
"""Ladders of fewer different loads have no step."""
SMALLEST = 0.10
"""A step is a change by this share at least."""
LEVEL = 0.01
RESOLUTION = 0.01
MOST = 40
"""More loads are made as few by means of neighbours."""
_DRAWS = 99
_BEFORE = 2
"""Loads below a step, at least."""
_MOST_PAIRED = 16
"""With more loads knees are sought on a grid alone."""
_DRIFT = 3.0
"""The same over a curve that drifts: below it a step may be a drift."""
_WORTH = 2.0
"""Logarithm of the ratio of sums of squares, times loads, below which no step is tested."""


class Cliff(NamedTuple):
    low: float
    high: float
    """It is between these two loads that were measured."""
    relative: float
    relative_low: float
    relative_high: float
    """Throughput beyond over what the curve before gives, less 1; with its 95 % interval."""
    loads_beyond: int
    p: float


class _Shapes(NamedTuple):
    loads: Floats
    smooth: Floats
    """Logarithms, (shapes, loads); each row has a mean of 0."""
    stepped: Floats
    """Those that a step is looked for on."""


def cliff(n: Sequence[float], x: Sequence[float]) -> Cliff | None:
    """``n``: loads; ``x``: throughputs above 0; a load may be there several times. ``None``: no step."""
    loads, logs = _means(np.asarray(n, dtype=float), np.log(np.asarray(x, dtype=float)))
    if len(loads) < LEAST or not np.isfinite(logs).all():
        return None
    groups = _grouped(loads)
    means = np.array([logs[g].mean() for g in groups])
    places = np.array([math.exp(np.log(loads[g]).mean()) for g in groups])
    shapes = _shapes(places)
    smooth, best = _smooth(means[None, :], shapes, means)
    squares = _stepped(means[None, :], shapes)
    gain = float(len(means) * np.log(smooth[0] / squares[0].min()))
    if gain < _WORTH:
        return None
    at = int(np.argmin(squares[0])) + _BEFORE  # the first place beyond
    found = _size(means, shapes, at)
    if abs(found[0]) < SMALLEST or found[1] * found[2] <= 0:
        return None
    if len(means) * math.log(_drifting(means, shapes) / squares[0].min()) < _DRIFT:
        return None
    p = _chance(shapes, int(best[0]), float(smooth[0]), gain)
    if p > LEVEL:
        return None
    held = _BEFORE + np.flatnonzero(len(means) * np.log(squares[0] / squares[0].min()) <= 6.0)
    first, last = int(held.min()), int(held.max())
    low, high = float(loads[groups[first - 1]].min()), float(loads[groups[last]].max())
    return Cliff(low, high, *found, int(np.count_nonzero(loads >= high)), p)


def _means(n: Floats, logs: Floats) -> tuple[Floats, Floats]:
    """Different loads and the mean at each."""
    loads, which = np.unique(n, return_inverse=True)
    return loads, np.bincount(which, logs) / np.bincount(which)


def _grouped(loads: Floats) -> list[NDArray[np.int64]]:
    return np.array_split(np.arange(len(loads)), min(len(loads), MOST))


def _shapes(u: Floats) -> _Shapes:
    """Each family on its grid."""
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
    return _Shapes(u, *(_centred(np.concatenate(made)) for made in (smooth, stepped)))


def _kneed(u: Floats, knee: float, last: float, shares: Floats) -> Floats:
    """``shares``: growth beyond the knee, of that below; negative: of what would bring it to 0 at the end."""
    slopes = np.where(shares >= 0, shares, shares * knee / (last - knee))[:, None]
    return np.asarray(np.log(np.minimum(u, knee) + slopes * np.clip(u - knee, 0.0, None)))


def _two_knees(logs: Floats, u: Floats, rows: Floats) -> Floats:
    """The least sum of squares about growth with two knees, for each row, by least squares relative to
    ``logs`` for each pair of knees. Growth between them is not negative, and the second is before the last
    load but one: a fall over a single gap is no curve."""
    last = u[-3] if len(u) > _MOST_PAIRED else u[-3] * 1.0001
    knees = np.unique(
        np.concatenate([np.geomspace(u[0], last, 24), u[u <= last] if len(u) <= _MOST_PAIRED else []])
    )
    first, second = (knees[i][:, None] for i in np.triu_indices(len(knees), 1))
    design = parts_of(u, first, second) * np.exp(-logs)[:, None]
    y = np.exp(rows - logs).T
    found = np.linalg.pinv(design) @ y
    left = ((y - design @ found) ** 2).sum(axis=1)
    return np.asarray(np.where(found[:, 1] >= 0, left, np.inf).min(axis=0, initial=np.inf))


def _centred(rows: Floats) -> Floats:
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


def _smooth(rows: Floats, shapes: _Shapes, around: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """The least sum of squares about a smooth shape, and which it is, for each row."""
    centred, s = _centred(rows), shapes.smooth
    left = (s * s).sum(axis=1)[None, :] - 2 * centred @ s.T
    best = left.argmin(axis=1)
    least = left[np.arange(len(rows)), best] + (centred * centred).sum(axis=1)
    kneed = _two_knees(around, shapes.loads, rows)
    return np.asarray(np.minimum(np.maximum(least, 0.0), kneed) + rows.shape[1] * RESOLUTION**2), best


def _stepped(rows: Floats, shapes: _Shapes) -> Floats:
    """The least sum of squares with a step before each place from the third on, (rows, places)."""
    n = rows.shape[1]
    found = [_both_sides(rows, shapes.stepped, at).min(axis=1) for at in range(_BEFORE, n)]
    return np.asarray(np.stack(found, axis=1) + n * RESOLUTION**2)


def _both_sides(rows: Floats, s: Floats, at: int) -> Floats:
    """Sums of squares with a level of its own on each side of a step, (rows, shapes)."""
    total: Floats = np.zeros((len(rows), len(s)))
    for side in (slice(None, at), slice(at, None)):
        y, z = _centred(rows[:, side]), _centred(s[:, side])
        total += (y * y).sum(axis=1)[:, None] + (z * z).sum(axis=1)[None, :] - 2 * y @ z.T
    return np.asarray(np.maximum(total, 0.0))


def _drifting(logs: Floats, shapes: _Shapes) -> float:
    """The least sum of squares about a shape whose logarithm drifts evenly from some place on, over two rungs
    at least: a machine that becomes slower as the ladder is climbed."""
    n, s = len(logs), np.concatenate([shapes.stepped, shapes.smooth])
    off = _centred(logs[None, :] - s)
    squares, least = (off * off).sum(axis=1), np.inf
    for at in range(_BEFORE, n - 1):
        ramp = np.maximum(np.arange(n) - at + 1.0, 0.0)
        ramp = (ramp - ramp.mean()) / np.linalg.norm(ramp - ramp.mean())
        least = min(least, float((squares - (off @ ramp) ** 2).min()))
    return max(least, 0.0) + n * RESOLUTION**2


def _size(logs: Floats, shapes: _Shapes, at: int) -> tuple[float, float, float]:
    """By its profile over the shapes: each has a parabola of the step's size."""
    n, s = len(logs), shapes.stepped
    squares = _both_sides(logs[None, :], s, at)[0] + n * RESOLUTION**2
    left = logs[None, :] - s
    sizes = left[:, at:].mean(axis=1) - left[:, :at].mean(axis=1)
    least, degrees = float(squares.min()), max(1, n - 4)
    limit = least * (1 + students_quantile(degrees) ** 2 / degrees)
    some = squares <= limit
    half = np.sqrt((limit - squares[some]) * n / (at * (n - at)))
    best = float(sizes[int(np.argmin(squares))])
    ends = float((sizes[some] - half).min()), float((sizes[some] + half).max())
    return math.expm1(best), math.expm1(ends[0]), math.expm1(ends[1])


def _chance(shapes: _Shapes, best: int, squares: float, gain: float) -> float:
    """How often ladders about the best smooth shape, with its noise, gain as much by a step."""
    n = shapes.smooth.shape[1]
    noise = math.sqrt(squares / max(1, n - 3))
    rows = shapes.smooth[best] + noise * np.random.default_rng(n).normal(size=(_DRAWS, n))
    gains = n * np.log(_smooth(rows, shapes, shapes.smooth[best])[0] / _stepped(rows, shapes).min(axis=1))
    return float((1 + np.count_nonzero(gains >= gain)) / (1 + _DRAWS))
