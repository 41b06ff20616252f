"""The possible distance of the true law from the models: inside the measured range by their residuals, beyond
it by the disagreement of smooth curves with the same end.

Inside, points are the models' average, a deviation that is correlated from rung to rung, and noise of each
point (a Gaussian process with an exponential correlation: Kennedy and O'Hagan, Journal of the Royal
Statistical Society B 63 (2001) 425). Its size and its range are unknown and averaged over; half of the prior
probability is that there is none. Such a deviation may belong to the law, and then to the curve, or to the
measurement (drift, lasting errors), and then it makes the curve less certain. Bands contain both.

Beyond, throughput continues from its end as a line, a power, a hyperbola (Amdahl's law) or a curve with a
peak (the USL without contention) with the same elasticity there: d log X / d log N, 1 for growth without
loss, 0 at a peak. The measurement cannot distinguish these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbdyno.stats.scaling.averaged import Averaged
from dbdyno.stats.scaling.curves import Floats
from dbdyno.stats.scaling.models import STEEPEST
from dbdyno.stats.scaling.points import Points

SIZES = np.geomspace(0.1, 30.0, 7)
"""Variances of the deviation over that of a point's noise that are averaged over."""
REACHES = (0.7, 1.5, 3.0, 6.0, 12.0)
"""Correlation lengths of the deviation, in rungs, that are averaged over."""
NONE = 0.5
"""Prior probability that there is no deviation."""
SIGMAS = 1.96
FLOOR = 1e-3
"""Least relative error of a throughput."""
MOST = 80
"""Largest number of rungs; of more, neighbours are merged."""


@dataclass(frozen=True)
class Misfit:
    """Logarithms of factors on the models' average, by load. ``noise``: relative error of a point,
    correlated part included."""

    loads: Floats
    low: Floats
    high: Floats
    noise: float

    def at(self, loads: Floats) -> tuple[Floats, Floats]:
        """Returns the lowest and highest factor; outside the measured range those of its ends."""
        rank = np.interp(loads, self.loads, np.arange(len(self.loads), dtype=float))
        places = np.arange(len(self.loads), dtype=float)
        return np.exp(np.interp(rank, places, self.low)), np.exp(np.interp(rank, places, self.high))


def misfit(points: Points, curve: Floats) -> Misfit:
    """Returns the misfit of ``curve``, the models' average at ``points.loads``."""
    loads, at = np.unique(points.n, return_inverse=True)
    counts = np.bincount(at).astype(float)
    mean = np.bincount(at, points.x) / counts
    off = np.log(mean / curve)
    within, free = _within(points, at, mean)
    if len(loads) > MOST:
        loads, counts, off = _merged_rungs(loads, counts, off)
    low, high, noise = _averaged(off, np.log(loads), counts, within, free)
    return Misfit(loads, low, high, noise)


def _within(points: Points, at: np.ndarray, mean: Floats) -> tuple[float, int]:
    """Returns the relative sum of squares of the points about their rung's mean, without differences
    between climbs as a whole, and its degrees of freedom."""
    off = np.log(points.x / mean[at])
    _, climb = np.unique(points.repeat, return_inverse=True)
    off = off - (np.bincount(climb, off) / np.bincount(climb))[climb]
    return float(off @ off), max(len(off) - len(mean) - int(climb.max()), 0)


def _merged_rungs(loads: Floats, counts: Floats, off: Floats) -> tuple[Floats, Floats, Floats]:
    parts = np.array_split(np.arange(len(loads)), MOST)
    total = np.array([counts[p].sum() for p in parts])
    return (
        np.array([loads[p].mean() for p in parts]),
        total,
        np.array([counts[p] @ off[p] for p in parts]) / total,
    )


def _averaged(
    off: Floats, place: Floats, counts: Floats, within: float, free: int
) -> tuple[Floats, Floats, float]:
    """Returns the ends of the curve, averaged over deviations of any size and range with their restricted
    likelihood. Smooth curves are removed from the deviation first, as the models have followed them."""
    m = len(off)
    z = (place - place.mean()) / max(float(np.ptp(place)), 1e-12)
    basis = np.linalg.qr(np.vander(z, min(3, max(m - 2, 1)), increasing=True))[0]
    rank = np.arange(m)
    settings_results, weights = [], []
    settings = [(0.0, 1.0, NONE)]
    each = (1 - NONE) / len(SIZES) / len(REACHES)
    settings += [(float(size), reach, each) for size in SIZES for reach in REACHES]
    for size, reach, prior in settings:
        k = size * np.exp(-np.abs(rank[:, None] - rank) / reach)
        inverse = np.linalg.inv(k + np.diag(1 / counts))
        seen = np.linalg.inv(basis.T @ inverse @ basis)
        left = inverse - inverse @ basis @ seen @ basis.T @ inverse
        degrees = m - basis.shape[1] + free
        squares = max(float(off @ left @ off), 0.0) + within + degrees * FLOOR**2
        variance = squares / max(degrees - 2, 1)
        likely = (np.linalg.slogdet(inverse)[1] + np.linalg.slogdet(seen)[1]) / 2
        weights.append(likely - degrees / 2 * np.log(squares) + np.log(prior))
        smooth, smooth_error = basis @ (seen @ (basis.T @ (inverse @ off))), basis @ seen @ basis.T
        own = k @ left
        whole = smooth + own @ off
        # error of smooth curve and deviation together: universal kriging
        rest = basis - k @ inverse @ basis
        error = np.diag(k - k @ inverse @ k + rest @ seen @ rest.T)
        total = np.sqrt(max(float(np.mean(1 / counts)), 0) + size)
        settings_results.append(
            (
                smooth,
                variance * np.diag(smooth_error),
                whole,
                variance * error,
                np.full(m, total**2 * variance),
            )
        )
    weight = np.exp(np.array(weights) - max(weights))
    weight /= weight.sum()
    smooth, smooth_var, whole, whole_var, noise = (
        np.array([f[i] for f in settings_results]) for i in range(5)
    )
    ends = []
    for mean, variance in ((smooth, smooth_var), (whole, whole_var)):
        middle = weight @ mean
        spread = np.sqrt(np.maximum(weight @ (variance + (mean - middle) ** 2), 0))
        ends.append((middle - SIGMAS * spread, middle + SIGMAS * spread))
    low = np.minimum(ends[0][0], ends[1][0])
    high = np.maximum(ends[0][1], ends[1][1])
    return low, high, float(np.sqrt((weight @ noise)[0]))


# -- beyond the range --


def continued(elasticity: float, ratio: Floats) -> tuple[Floats, Floats]:
    """Returns least and largest throughput at ``ratio`` times the last load, relative to that at the last
    load, of all shapes with this elasticity there."""
    e, r = float(np.clip(elasticity, STEEPEST, 1.0)), ratio
    turn = (1 - e) / max(1 + e, 0.05)
    shapes = [r**e, r / (1 + (1 - e) * (r - 1))]
    shapes.append(1 + e * (r - 1) if e > 0 else r**e)
    shapes.append(r * (1 + turn) / (1 + turn * r**2) if e > -0.95 else r**e)
    return np.min(shapes, axis=0), np.max(shapes, axis=0)


def elasticities(loads: Floats, x: Floats, noise: float) -> tuple[float, float]:
    """Returns an interval of the elasticity at the last load, by a line through the last rungs and, with
    enough of them, a parabola on a double logarithmic scale. ``noise``: relative error of a rung's mean."""
    n, y = np.log(loads / loads[-1]), np.log(x)
    ends = []
    for power, share, least in ((1, 2.2, 3), (2, 6.0, 5)):
        selected = np.flatnonzero(loads >= loads[-1] / share)
        selected = selected if len(selected) >= least else np.arange(max(len(loads) - least, 0), len(loads))
        if len(selected) < least:
            continue
        design = np.vander(n[selected], power + 1, increasing=True)
        own = np.linalg.pinv(design)
        slope = float(own[1] @ y[selected])
        left = y[selected] - design @ (own @ y[selected])
        scatter = float(np.sqrt(left @ left / max(len(selected) - power - 1, 1)))
        error = max(noise, scatter) * float(np.sqrt(own[1] @ own[1]))
        ends.append((slope - SIGMAS * error, slope + SIGMAS * error))
    if not ends:
        return STEEPEST, 1.0
    return min(e[0] for e in ends), max(e[1] for e in ends)


def band(averaged_: Averaged, points: Points, off: Misfit, loads: Floats) -> tuple[Floats, Floats, Floats]:
    """Returns throughput at ``loads`` with 95 % limits, whichever law it follows. ``off``: misfit of
    ``points`` from the models' average."""
    n = np.asarray(loads, dtype=float)
    first, last = float(points.loads[0]), float(points.loads[-1])
    all_loads = np.append(n, (first, last))
    middle, low, high = averaged_.throughput(all_loads)
    least, most = off.at(all_loads)
    low, high = np.minimum(low, middle * least), np.maximum(high, middle * most)
    ends = middle[-2:], low[-2:], high[-2:]
    middle, low, high = middle[:-2], low[:-2], high[:-2]
    where, means, counts = (
        points.loads,
        _means(points),
        np.bincount(np.unique(points.n, return_inverse=True)[1]),
    )
    error = off.noise / np.sqrt(float(counts.mean()))
    beyond, below = n > last, n < first
    if beyond.any():
        e = elasticities(where, means, error)
        r = n[beyond] / last
        _, least, most = (v[1] for v in ends)
        low[beyond] = np.minimum(low[beyond], least * continued(e[0], r)[0])
        high[beyond] = np.maximum(high[beyond], most * continued(e[1], r)[1])
    if below.any():
        e = elasticities(1 / where[::-1], means[::-1], error)
        r = n[below] / first
        _, least, most = (v[0] for v in ends)
        low[below] = np.minimum(low[below], least * r ** max(1.0, -e[0]))
        high[below] = np.maximum(high[below], most * r ** np.clip(-e[1], 0.0, 1.0))
        high[below] = np.minimum(high[below], most)
    steepest = float((means / where).max()) * np.exp(SIGMAS * error)
    high = np.where(below, high, np.minimum(high, np.maximum(n * steepest, middle)))
    return middle, np.minimum(low, middle), np.maximum(high, middle)


def _means(points: Points) -> Floats:
    at = np.unique(points.n, return_inverse=True)[1]
    return np.asarray(np.bincount(at, points.x) / np.bincount(at))
