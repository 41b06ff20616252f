"""What the rungs of a ladder show without any model: peak, efficiency, what the last ones added, drops, and
measurements that do not fit between their neighbours. Every comparison is of two figures and their noise.

Noise is relative, one for the whole ladder: of the repeats (:func:`~dbdyno.stats.knee.noise_of`), and where
there are none or few an assumed one, unless the rungs themselves show more.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

import polars as pl

from dbdyno.model.results.analyses import Estimate, Ladder
from dbdyno.model.schema.derived import GOOD_SCALING
from dbdyno.model.units import format_plain
from dbdyno.stats.estimates import Mean
from dbdyno.stats.knee import SIGMAS, Noise, level_with_best, noise_or_scatter

HIDES = 0.3
"""Noise from which on it hides where efficiency ends."""
DROP = 0.25
"""From one rung to the next throughput drops if it loses this share, and more than noise can."""
_SURE = 3.0
"""Standard errors of a drop, which is the largest difference of many."""
_WIDE = 1.5
"""What the last rungs added is said from a load so many times below the highest one, where there is one."""


@dataclass(frozen=True)
class Reach:
    """Up to which load throughput scales."""

    value: float
    low: float
    """Efficiency is good up to here beyond noise."""
    high: float | None
    """From here on efficiency is below it beyond noise; ``None``: at no load that was measured."""
    next: float | None
    """The measured load above ``value``; ``None``: it is the highest."""
    rests_on: float | None = None
    """A load whose one measurement alone shows that it ends, or that it ends at ``value``."""


_LAST: deque[tuple[pl.DataFrame, Rungs]] = deque(maxlen=4)
"""Those that were asked for last: each answer of a ladder asks anew."""


@dataclass(frozen=True)
class Rungs:
    """Mean throughput by load, ascending; one load at least."""

    means: Mapping[float, Mean]

    @staticmethod
    def of(ladder: Ladder) -> Rungs:
        for points, made in _LAST:
            if points is ladder.points:
                return made
        grouped = ladder.points.sort("load").group_by("load", maintain_order=True).agg("throughput")
        made = Rungs({n: Mean.of(x) for n, x in grouped.iter_rows()})
        _LAST.append((ladder.points, made))
        return made

    @cached_property
    def loads(self) -> list[float]:
        return list(self.means)

    @cached_property
    def noise(self) -> Noise:
        """Of one measurement, relative."""
        return noise_or_scatter(self.means)

    def x(self, load: float) -> float:
        return self.means[load].value

    def share(self, load: float) -> float:
        """Standard error of a rung's throughput, relative."""
        return self.noise.share / math.sqrt(self.means[load].n)

    def below(self, one: float, other: float, sigmas: float = SIGMAS) -> bool:
        """Whether the first load delivers less than the other one beyond chance."""
        error = math.hypot(self.share(one) * self.x(one), self.share(other) * self.x(other))
        return self.x(other) - self.x(one) > sigmas * error

    # -- the peak --

    @cached_property
    def best(self) -> float:
        """The load with the largest mean throughput; of equal ones the lowest."""
        return max(self.loads, key=lambda n: (self.x(n), -n))

    @cached_property
    def peak(self) -> list[float]:
        """The best rung, and those beside it that are not below it beyond chance, as far as there is no trend
        among them either."""
        return level_with_best(self.means, self.noise.share)

    @property
    def is_constant(self) -> bool:
        """Whether throughput is the same at all loads: within noise, and noise is not all there is."""
        level = min(map(self.x, self.loads)) >= (1 - DROP) * self.x(self.best)
        return len(self.loads) > 1 and len(self.peak) == len(self.loads) and level

    def gain(self) -> tuple[float, Estimate] | None:
        """What the loads up to the highest one added to throughput, and from which load on: from one well
        below it; where throughput falls or is level, from the peak. ``None``: one load."""
        top = self.loads[-1]
        if len(self.loads) < 2:
            return None
        if self.peak[-1] != top:
            first = self.best
        elif len(self.peak) > 1:
            first = self.peak[0]
        else:
            first = max((n for n in self.loads if n <= top / _WIDE), default=self.loads[-2])
        return first, self._change("last rungs", first, top)

    @cached_property
    def repeated(self) -> bool:
        """Whether a load was measured more than once."""
        return any(m.n > 1 for m in self.means.values())

    def goes_on(self, first: float, rises: bool) -> bool:
        """Whether a change from ``first`` to the highest load is more than that of one pair of measurements:
        there are repeats, or throughput goes that way from the first third of these rungs to the second and
        on to the last, three rungs at least."""
        if self.repeated:
            return True
        found = self.loads[min(self.loads.index(first), max(len(self.loads) - 3, 0)) :]
        if len(found) < 3:
            return False
        ends = [round(i * len(found) / 3) for i in range(4)]
        parts = [found[a:b] for a, b in pairwise(ends)]
        level = [sum(map(self.x, p)) / len(p) for p in parts]
        error = [self.noise.share * x / math.sqrt(len(p)) for x, p in zip(level, parts, strict=True)]
        sign = 1 if rises else -1
        return all(sign * (level[i + 1] - level[i]) > math.hypot(error[i], error[i + 1]) for i in (0, 1))

    def drop(self) -> tuple[float, float, Estimate] | None:
        """The largest loss from one rung to the next, if it is one (:data:`DROP`): both loads, the change."""
        pairs = list(zip(self.loads, self.loads[1:], strict=False))
        sunk = [
            p for p in pairs if self.x(p[1]) < (1 - DROP) * self.x(p[0]) and self.below(p[1], p[0], _SURE)
        ]
        if not sunk:
            return None
        a, b = min(sunk, key=lambda p: self.x(p[1]) / self.x(p[0]))
        return a, b, self._change("drop", a, b)

    def _change(self, name: str, first: float, last: float) -> Estimate:
        """Throughput at ``last`` over that at ``first``, less 1."""
        ratio = self.x(last) / self.x(first)
        error = math.hypot(self.share(first), self.share(last))
        low, high = (ratio * math.exp(sign * SIGMAS * error) - 1 for sign in (-1, 1))
        return Estimate(name, ratio - 1, "", low, high, self.method)

    @property
    def method(self) -> str:
        return f"noise of {self.noise_text}, {self.noise.source}"

    @property
    def noise_text(self) -> str:
        """``2 %``, ``3.6 %``: two digits."""
        return f"{format_plain(float(f'{100 * self.noise.share:.2g}'))} %"

    # -- efficiency --

    def each(self, load: float) -> float:
        """Throughput per unit of load."""
        return self.x(load) / load

    @cached_property
    def above_one(self) -> tuple[float, Estimate] | None:
        """The load with the largest throughput per unit of load, if that is above the lowest load's beyond
        chance (for as many comparisons as there are loads), and how many times that it is."""
        first = self.loads[0]
        sigmas = NormalDist().inv_cdf(1 - 0.025 / max(1, len(self.loads) - 1))
        found = []
        for n in self.loads[1:]:
            ratio, error = self.each(n) / self.each(first), math.hypot(self.share(first), self.share(n))
            if math.log(ratio) > max(sigmas, SIGMAS) * error:
                low, high = (ratio * math.exp(sign * SIGMAS * error) for sign in (-1, 1))
                found.append((n, Estimate("efficiency", ratio, "", low, high, self.method)))
        return max(found, key=lambda f: f[1].value, default=None)

    @cached_property
    def first(self) -> float:
        """The load to which efficiency refers: the lowest; where efficiency is above 100 % beyond noise the
        first with the best throughput per unit of load, but for noise."""
        if self.above_one is None:
            return self.loads[0]
        best = self.above_one[0]
        for n in self.loads:
            error = math.hypot(self.share(n), self.share(best))
            if n == best or math.log(self.each(best) / self.each(n)) <= SIGMAS * error:
                return n
        return best

    @cached_property
    def efficiencies(self) -> dict[float, float]:
        """By load: throughput per unit of load over that at :attr:`first`."""
        return {n: self.each(n) / self.each(self.first) for n in self.loads}

    def reach(self) -> Reach | None:
        """The highest load before the first with an efficiency below :data:`GOOD_SCALING`, after efficiencies
        that rise with the load, which is noise, are averaged: no single dip ends it. ``None``: one load."""
        if len(self.loads) < 2:
            return None
        loads = [n for n in self.loads if n >= self.first]
        found = self._reach(loads)
        if len(loads) < 4 or self.means[loads[0]].n > 1:
            return found
        other = self._reach(loads[1:])  # as if the load that all refer to had not been measured
        nowhere = found.value == loads[0] and other.value == loads[1]
        if nowhere or found.low <= other.value < (found.high or math.inf):
            return found
        highs = (found.high, other.high)
        high = None if None in highs else max(h for h in highs if h is not None)
        return replace(found, low=min(found.low, other.low), high=high, rests_on=loads[0])

    def _reach(self, loads: Sequence[float]) -> Reach:
        level = _falling([self.each(n) for n in loads], [self.means[n].n for n in loads])
        (one, points), noise = level[0], self.noise.share
        shares = [x / one for x, _ in level]
        errors = [noise * math.sqrt(1 / points + 1 / m) if i else 0.0 for i, (_, m) in enumerate(level)]
        sure = [s * (1 - SIGMAS * e) >= GOOD_SCALING for s, e in zip(shares, errors, strict=True)]
        end, low = (_ends(good, loads) for good in ([s >= GOOD_SCALING for s in shares], sure))
        bad = [
            n for n, s, e in zip(loads, shares, errors, strict=True) if s * (1 + SIGMAS * e) < GOOD_SCALING
        ]
        single = len(bad) == 1 and self.means[bad[0]].n == 1
        after = next((n for n in loads if n > end), None)
        return Reach(end, min(low, end), bad[0] if bad else None, after, bad[0] if single else None)


def _ends(good: Sequence[bool], loads: Sequence[float]) -> float:
    """The last load before the first that is not; the first one is."""
    return loads[(good.index(False) if False in good else len(loads)) - 1]


def _falling(values: Sequence[float], weights: Sequence[int]) -> list[tuple[float, int]]:
    """Each value and the points behind it, after neighbours that rise are averaged (pool adjacent violators:
    Barlow et al., Statistical Inference under Order Restrictions, 1972)."""
    blocks: list[tuple[float, int, int]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-1][0] > blocks[-2][0]:
            (a, m, i), (b, k, j) = blocks[-2:]
            blocks[-2:] = [((a * m + b * k) / (m + k), m + k, i + j)]
    return [(value, weight) for value, weight, count in blocks for _ in range(count)]


# -- measurements that do not fit between their neighbours --

FEWEST = 4
"""Different loads from which on one of them can be seen to be an outlier."""
FAR = 5.0
"""Standard errors by which an outlier is beyond what its neighbours allow, and at least this ..."""
MUCH = 0.10
"""... share of it (logarithm)."""
_TIMES = 3.0
"""At an end of the ladder there is one neighbour: so many times what it leads to expect is too much."""
ROUGHER = 4.0
"""Times as far out as any other measurement."""
_CANDIDATES = 3
"""An outlier makes its neighbours look like some: so many are tried, the farthest first."""


@dataclass(frozen=True)
class Outlier:
    """A measurement beyond what its neighbours allow, throughput in the ladder's unit."""

    load: float
    repeat: int
    throughput: float
    low: float
    high: float


def outlier(ladder: Ladder) -> Outlier | None:
    """The one measurement that does not fit between its neighbours, if the others without it do.

    Throughput between two loads is at least what the lower of them delivers (where it rises, what a line
    between them has), and at most what growth as before, or per unit of load, would give: these bounds hold
    for every law of scaling. More than one outlier is none: then the ladder is rough.
    """
    usable = ladder.points.filter((pl.col("throughput") > 0) & pl.col("throughput").is_finite())
    if usable.height < ladder.points.height or usable["load"].n_unique() < FEWEST:
        return None
    rungs = Rungs.of(ladder)
    points = ladder.points.select("load", "repeat", "throughput").rows()
    beyond = sorted(((_bounds(rungs, n).off(x), n, r, x) for n, r, x in points), reverse=True)
    for off, n, r, x in beyond[:_CANDIDATES]:
        rest = without(ladder, found := Outlier(n, r, x, 0.0, 0.0))
        others = Rungs.of(rest)
        bounds = _bounds(others, n, others.noise.share)
        rough = max(_bounds(others, m).off(y) for m, y in rest.points.select("load", "throughput").rows())
        far = off > MUCH and bounds.off(x) > max(MUCH, FAR * bounds.error, ROUGHER * rough)
        if far and (x > bounds.high or _recovers(others, n)):
            return replace(found, low=bounds.low, high=bounds.high)
    return None


def _recovers(rungs: Rungs, load: float) -> bool:
    """Whether throughput beyond ``load`` is what it was below it, or was falling there already. Otherwise it
    is at another level from ``load`` on, and a low measurement there is the first one of these."""
    lower, upper = [n for n in rungs.loads if n < load][-2:], [n for n in rungs.loads if n > load][:1]
    if not lower or not upper or not rungs.below(upper[0], lower[-1]):
        return True
    return len(lower) > 1 and rungs.below(lower[-1], lower[0])


def without(ladder: Ladder, found: Outlier) -> Ladder:
    """``ladder`` less that measurement, which is kept aside."""
    is_it = (pl.col("load") == found.load) & (pl.col("repeat") == found.repeat)
    points = ladder.points.filter(~(is_it & (pl.col("throughput") == found.throughput)))
    return replace(ladder, points=points, outliers=(*ladder.outliers, (found.load, found.throughput)))


class _Bounds(NamedTuple):
    low: float
    high: float
    error: float
    """Relative standard error of a comparison with them."""

    def off(self, x: float) -> float:
        """How far ``x`` is beyond them, as a logarithm; 0: within."""
        return max(math.log(self.low / x) if self.low > 0 else 0.0, -math.log(self.high / x), 0.0)


def _bounds(rungs: Rungs, load: float, noise: float = 0.0) -> _Bounds:
    """What the rungs beside ``load`` allow there."""
    loads, x = rungs.loads, rungs.x
    i = bisect.bisect_left(loads, load)
    lower, upper = loads[max(0, i - 2) : i], [n for n in loads[i : i + 3] if n != load]
    if not lower:
        rises = x(upper[0]) < x(upper[1])
        high = _TIMES * x(upper[0]) if rises else math.inf
        return _Bounds(rungs.each(upper[0]) * load / _TIMES, high, noise)
    if not upper:
        return _Bounds(0.0, _TIMES * rungs.each(lower[-1]) * load, noise)
    a, b = lower[-1], upper[0]
    part = (b - load) / (b - a) if x(b) > x(a) else 0.0
    low = part * x(a) + (1 - part) * x(b)
    high, error = load * max(rungs.each(a), rungs.each(b)), 1.0
    if len(lower) > 1:
        far = (load - a) / (a - lower[0])
        growth = max(x(a) + far * max(0.0, x(a) - x(lower[0])), x(b))
        if growth < high:
            high, error = growth, math.hypot((1 + far) * x(a), far * x(lower[0])) / growth
    return _Bounds(low, max(high, low), noise * math.hypot(1.0, error))
