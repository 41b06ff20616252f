"""The knee of measured growth: the load with the largest surplus over a straight line, with an interval.

Let X(N) be the throughput at load N, and x1 the largest throughput per unit of load. At the load beyond
which one more unit adds less than the share s of x1, the surplus X(N) - s x1 N has its maximum, whatever
the law of the ladder, if each further unit adds no more than the previous one. So a knee is the maximum of
a function with one peak, and needs no fit (the difference curve of Satopaa et al., "Finding a Kneedle in a
Haystack", 2011, with a chosen slope).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist, median
from typing import Generic, NamedTuple, TypeVar

from dbdyno.stats.estimates import Mean

KNEE, END = 0.5, 0.1
"""Shares of the largest gain per unit of load below which is the knee, and below which growth has ended."""
NOISE = 0.02
"""Prior relative standard deviation of a point between repeats: that of an otherwise idle machine."""
SIGMAS = 2.0
_NOISE_WEIGHT = 3  # degrees of freedom of the prior: as many as four repeats of a point have
_ROUGH_FROM = 4
"""Least number of inner points for an estimate of their scatter."""
_TURNS = 32
"""Largest number of loads that are tried as the inflection point of a curve."""
Load = TypeVar("Load", int, float)
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Bend(Generic[Load]):
    """The load beyond which one more unit adds less than a share. ``low``, ``high``: the nearest loads
    with a significantly smaller surplus; None if there is none on that side."""

    at: Load
    low: Load | None
    high: Load | None


def bend(throughputs: Mapping[Load, Mean], share: float, noise: float | None = None) -> Bend[Load]:
    """Returns the bend of ``throughputs`` by load, at least one. ``noise``: relative error of one
    measurement; None: by :func:`noise_of`."""
    one = max(m.value / n for n, m in throughputs.items())
    surplus = {n: m.value - share * one * n for n, m in throughputs.items()}
    at = max(surplus, key=lambda n: surplus[n])
    noise = noise_of(throughputs).share if noise is None else noise
    errors = {n: noise * m.value / math.sqrt(m.n) for n, m in throughputs.items()}
    lower = [n for n in surplus if surplus[at] - surplus[n] > SIGMAS * math.hypot(errors[at], errors[n])]
    return Bend(
        at, max((n for n in lower if n < at), default=None), min((n for n in lower if n > at), default=None)
    )


class Noise(NamedTuple):
    share: float  # relative standard deviation of one measurement of a point
    source: str


def noise_of(throughputs: Mapping[Load, Mean]) -> Noise:
    """Returns the larger of two estimates: the pooled error of repeats, shrunk towards ``NOISE``; and the
    deviation from a smooth curve below the peak (:func:`_off_smooth`)."""
    squares = sum(m.m2 / m.value**2 for m in throughputs.values())
    degrees = sum(m.n - 1 for m in throughputs.values())
    repeats = math.sqrt((_NOISE_WEIGHT * NOISE**2 + squares) / (_NOISE_WEIGHT + degrees))
    bent = _off_smooth({n: m.value for n, m in throughputs.items()})
    if bent > repeats:
        return Noise(bent, "by how far points lie off a smooth curve")
    return Noise(repeats, "by repeats" if degrees else "assumed")


def roughness(throughputs: Mapping[Load, Mean]) -> float:
    """Returns the relative standard deviation of a measurement by the distances of points from lines
    between their neighbours, on a double logarithmic scale. Uses the median absolute deviation, which a
    bend or two do not affect, shrunk towards ``NOISE``. For ladders without repeats."""
    loads = sorted(throughputs)
    n, x = ([math.log(v) for v in values] for values in (loads, (throughputs[k].value for k in loads)))
    off = []
    for i in range(1, len(n) - 1):
        part = (n[i + 1] - n[i]) / (n[i + 1] - n[i - 1])
        line = part * x[i - 1] + (1 - part) * x[i + 1]
        # The distance combines three points with weights 1, part and 1 - part: dividing by the root of the
        # sum of their squares gives the error of one.
        off.append((x[i] - line) / math.sqrt(1 + part**2 + (1 - part) ** 2))
    if len(off) < _ROUGH_FROM:
        return 0.0
    middle, points = (
        median(off),
        len(off) / 2,
    )  # a median absolute deviation is as exact as about half of the points
    scatter = median(abs(v - middle) for v in off) / NormalDist().inv_cdf(0.75)
    return math.sqrt((_NOISE_WEIGHT * NOISE**2 + points * scatter**2) / (_NOISE_WEIGHT + points))


def noise_or_scatter(throughputs: Mapping[Load, Mean]) -> Noise:
    """Returns :func:`noise_of`; without repeats :func:`roughness`, if that is larger."""
    noise = noise_of(throughputs)
    rough = 0.0 if any(m.n > 1 for m in throughputs.values()) else roughness(throughputs)
    return Noise(rough, "by the scatter of the loads") if rough > noise.share else noise


def level_with_best(throughputs: Mapping[Load, Mean], noise: float) -> list[Load]:
    """Returns the load with the largest mean throughput (the lowest of equal ones) and neighbouring loads
    that are not significantly below it and among which there is no trend, in ascending order."""
    loads = sorted(throughputs)
    best = max(loads, key=lambda n: (throughputs[n].value, -n))
    first = last = at = loads.index(best)

    def error(load: Load) -> float:
        return noise * throughputs[load].value / math.sqrt(throughputs[load].n)

    def below(load: Load) -> bool:
        return throughputs[best].value - throughputs[load].value > SIGMAS * math.hypot(
            error(load), error(best)
        )

    while first and not below(loads[first - 1]):
        first -= 1
    while last + 1 < len(loads) and not below(loads[last + 1]):
        last += 1
    while (trend := _trend(throughputs, loads[first : last + 1], noise)) and (first < at or last > at):
        rises = (trend > 0 and first < at) or last == at
        first, last = (first + 1, last) if rises else (first, last - 1)
    return loads[first : last + 1]


def _trend(throughputs: Mapping[Load, Mean], loads: Sequence[Load], noise: float) -> int:
    """Returns whether throughput rises (1) or falls (-1) significantly over these loads; else 0. By the
    slope of a line on a double logarithmic scale."""
    weights = [throughputs[n].n for n in loads]
    x, y = [math.log(n) for n in loads], [math.log(throughputs[n].value) for n in loads]
    middle = sum(w * v for w, v in zip(weights, x, strict=True)) / sum(weights)
    spread = sum(w * (v - middle) ** 2 for w, v in zip(weights, x, strict=True))
    slope = sum(w * (v - middle) * t for w, v, t in zip(weights, x, y, strict=True))
    if len(loads) < 3 or abs(slope) <= SIGMAS * noise * math.sqrt(spread):
        return 0
    return 1 if slope > 0 else -1


def _off_smooth(values: Mapping[Load, float]) -> float:
    """Returns the root mean square of relative distances, from the lowest load to the peak, to the nearest
    curve that is convex up to some load and concave beyond it. Either part may be empty."""
    peak = max(values, key=lambda n: values[n])
    points: Points = [(n, values[n]) for n in sorted(values) if n <= peak]
    turns = [*range(0, len(points), max(1, len(points) // _TURNS)), len(points) - 1]
    return math.sqrt(min(_mean_square(points[: turn + 1], points[turn:]) for turn in turns))


def _mean_square(up: Points, down: Points) -> float:
    """Returns the mean square of the distances of ``up`` and ``down``, which share a point, to the nearest
    such curve.

    ``up``: distance above the lower convex hull on a logarithmic scale, or throughput per unit of load
    below an earlier one. ``down``: distance below the upper convex hull, the smaller of the linear and the
    logarithmic scale: cores and threads are straight pieces on the one, a power law on the other.
    """
    logs = _logs(up)
    bent = [math.exp(x - line) - 1 for (_, x), line in zip(logs, _hull_at(logs, -1), strict=True)]
    best = accumulate((x / n for n, x in up), max)
    fallen = [1 - x / n / most for (n, x), most in zip(up, best, strict=True)]
    straight = [1 - x / line for (_, x), line in zip(down, _hull_at(down, 1), strict=True)]
    logs = _logs(down)
    power = [1 - math.exp(x - line) for (_, x), line in zip(logs, _hull_at(logs, 1), strict=True)]
    off = [*map(max, bent, fallen), *map(min, straight, power)]
    return sum(d * d for d in off) / max(
        1, len(up) + len(down) - 3
    )  # the first point and the peak lie on the curve


def _logs(points: Points) -> Points:
    return [(math.log(n), math.log(x)) for n, x in points]


def _hull_at(points: Points, side: int) -> list[float]:
    """Returns the heights at the ascending ``points`` of their upper (``side`` 1) or lower (-1) convex
    hull."""
    hull: list[tuple[float, float]] = []
    for point in points:
        # Andrew's monotone chain: a point that does not turn the hull the right way is removed.
        while len(hull) > 1 and side * (_rise(hull[-2], point) - _rise(hull[-2], hull[-1])) >= 0:
            hull.pop()
        hull.append(point)
    heights, edge = [hull[0][1]], 0
    for n, _ in points[1:]:
        while hull[edge + 1][0] < n:
            edge += 1
        heights.append(hull[edge][1] + _rise(hull[edge], hull[edge + 1]) * (n - hull[edge][0]))
    return heights


def _rise(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])
