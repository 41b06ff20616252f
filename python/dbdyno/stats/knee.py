"""Where growth bends, as measured: the largest surplus over a straight line, by its neighbours.

Let X(N) be the throughput at load N and x1 the largest throughput per unit of load. Where one more brings
less than the share s of x1, the surplus X(N) - s x1 N has its maximum, whatever law the ladder follows as
long as each further one brings no more than the one before. So a knee is the maximum of a function with one
peak, and needs no fit (the difference curve of Satopaa et al., "Finding a Kneedle in a Haystack", 2011, with
a slope of our choice).
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
"""Shares of what one brings at best: below the first is the knee, below the second growth has ended."""
NOISE = 0.02
"""Relative standard deviation of a point from one repeat to the next, as long as nothing else is known: that
of a machine which does nothing else."""
SIGMAS = 2.0
_NOISE_WEIGHT = 3  # counts as much as four repeats of one point
_ROUGH_FROM = 4
"""Points between two others, from which on their scatter is an estimate."""
_TURNS = 32
"""Loads that are tried as the one at which a curve turns from bending up to bending down."""
Load = TypeVar("Load", int, float)
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Bend(Generic[Load]):
    """Where one more begins to bring less than a share. ``low``, ``high``: the nearest loads with a surplus
    that is smaller by more than the noise; ``None``: there is none on that side."""

    at: Load
    low: Load | None
    high: Load | None


def bend(throughputs: Mapping[Load, Mean], share: float, noise: float | None = None) -> Bend[Load]:
    """``throughputs``: by load, one at least. ``noise``: of one measurement, relative; ``None``: by
    :func:`noise_of`."""
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
    """The larger of two: that of the repeats, pooled and drawn to ``NOISE``; and what a smooth curve leaves
    over below the peak (:func:`_off_smooth`)."""
    squares = sum(m.m2 / m.value**2 for m in throughputs.values())
    degrees = sum(m.n - 1 for m in throughputs.values())
    repeats = math.sqrt((_NOISE_WEIGHT * NOISE**2 + squares) / (_NOISE_WEIGHT + degrees))
    bent = _off_smooth({n: m.value for n, m in throughputs.items()})
    if bent > repeats:
        return Noise(bent, "by how far points lie off a smooth curve")
    return Noise(repeats, "by repeats" if degrees else "assumed")


def roughness(throughputs: Mapping[Load, Mean]) -> float:
    """Relative standard deviation of a measurement by how much points scatter about lines between their
    neighbours, both on the scale of logarithms: the median deviation, which a bend or two do not move, with
    ``NOISE`` as if it had been seen, too. For ladders without repeats."""
    loads = sorted(throughputs)
    n, x = ([math.log(v) for v in values] for values in (loads, (throughputs[k].value for k in loads)))
    off = []
    for i in range(1, len(n) - 1):
        part = (n[i + 1] - n[i]) / (n[i + 1] - n[i - 1])
        line = part * x[i - 1] + (1 - part) * x[i + 1]
        off.append((x[i] - line) / math.sqrt(1 + part**2 + (1 - part) ** 2))
    if len(off) < _ROUGH_FROM:
        return 0.0
    middle, points = median(off), len(off) / 2  # a median is worth about half of its points
    scatter = median(abs(v - middle) for v in off) / NormalDist().inv_cdf(0.75)
    return math.sqrt((_NOISE_WEIGHT * NOISE**2 + points * scatter**2) / (_NOISE_WEIGHT + points))


def noise_or_scatter(throughputs: Mapping[Load, Mean]) -> Noise:
    """That of :func:`noise_of`; without repeats what points scatter, where that is more."""
    found = noise_of(throughputs)
    rough = 0.0 if any(m.n > 1 for m in throughputs.values()) else roughness(throughputs)
    return Noise(rough, "by the scatter of the rungs") if rough > found.share else found


def level_with_best(throughputs: Mapping[Load, Mean], noise: float) -> list[Load]:
    """The load with the largest mean throughput, of equal ones the lowest, and those beside it that are not
    below it beyond chance, as far as there is no trend among them either; ascending."""
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
    """Whether throughput rises (1) or falls (-1) over these loads beyond chance; 0: neither. By the slope of
    a line, both on the scale of logarithms."""
    weights = [throughputs[n].n for n in loads]
    x, y = [math.log(n) for n in loads], [math.log(throughputs[n].value) for n in loads]
    middle = sum(w * v for w, v in zip(weights, x, strict=True)) / sum(weights)
    spread = sum(w * (v - middle) ** 2 for w, v in zip(weights, x, strict=True))
    slope = sum(w * (v - middle) * t for w, v, t in zip(weights, x, y, strict=True))
    if len(loads) < 3 or abs(slope) <= SIGMAS * noise * math.sqrt(spread):
        return 0
    return 1 if slope > 0 else -1


def _off_smooth(values: Mapping[Load, float]) -> float:
    """Root of the mean square of relative distances, from the lowest load to the peak, to the nearest curve
    that grows faster and faster than the load up to some load, and bends down beyond it; either part may be
    empty."""
    peak = max(values, key=lambda n: values[n])
    points: Points = [(n, values[n]) for n in sorted(values) if n <= peak]
    turns = [*range(0, len(points), max(1, len(points) // _TURNS)), len(points) - 1]
    return math.sqrt(min(_mean_square(points[: turn + 1], points[turn:]) for turn in turns))


def _mean_square(up: Points, down: Points) -> float:
    """Of the distances of ``up`` and ``down``, which share a point, to what they should be. ``up``: on the
    scale of logarithms above its lower convex hull, or with less per unit of load than before. ``down``:
    below its upper convex hull, the smaller of those as they are and on the scale of logarithms: cores and
    threads are straight pieces on the one, a power of the load on the other."""
    logs = _logs(up)
    bent = [math.exp(x - line) - 1 for (_, x), line in zip(logs, _hull_at(logs, -1), strict=True)]
    best = accumulate((x / n for n, x in up), max)
    fallen = [1 - x / n / most for (n, x), most in zip(up, best, strict=True)]
    straight = [1 - x / line for (_, x), line in zip(down, _hull_at(down, 1), strict=True)]
    logs = _logs(down)
    power = [1 - math.exp(x - line) for (_, x), line in zip(logs, _hull_at(logs, 1), strict=True)]
    off = [*map(max, bent, fallen), *map(min, straight, power)]
    return sum(d * d for d in off) / max(1, len(up) + len(down) - 3)  # without the first and the peak


def _logs(points: Points) -> Points:
    return [(math.log(n), math.log(x)) for n, x in points]


def _hull_at(points: Points, side: int) -> list[float]:
    """Heights at the ascending ``points`` of their upper (``side`` 1) or lower (-1) convex hull."""
    hull: list[tuple[float, float]] = []
    for point in points:
        while len(hull) > 1 and side * (_rise(hull[-2], point) - _rise(hull[-2], hull[-1])) >= 0:
            hull.pop()
        hull.append(point)
    found, edge = [hull[0][1]], 0
    for n, _ in points[1:]:
        while hull[edge + 1][0] < n:
            edge += 1
        found.append(hull[edge][1] + _rise(hull[edge], hull[edge + 1]) * (n - hull[edge][0]))
    return found


def _rise(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])
