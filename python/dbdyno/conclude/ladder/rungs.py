"""Concludes from the rungs of a ladder without any model: peak, efficiency, gain of the last rungs, drops,
and measurements that do not fit between their neighbours. Every comparison is of two figures and their noise.

Noise is relative, one value for the whole ladder. It comes from repeats
(:func:`~dbdyno.stats.knee.noise_of`). With few or no repeats it is assumed, unless the scatter of the loads
is larger.
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
"""Relative noise from which on the end of good efficiency cannot be located."""
DROP = 0.25
"""Share of throughput lost from one rung to the next that counts as a drop, if it is also beyond noise."""
_SURE = 3.0
"""Standard errors for a drop. They are more than for one comparison, because a drop is the largest of many
differences."""
_WIDE = 1.5
"""Factor between the highest load and the load from which the gain of the last rungs is measured, if there is
one."""


@dataclass(frozen=True)
class Reach:
    """The load up to which throughput scales."""

    value: float
    low: float
    """The last load up to which efficiency is good beyond noise."""
    high: float | None
    """The first load from which efficiency is below the limit beyond noise. None if there was no such
    load."""
    next: float | None
    """The measured load above ``value``. None if ``value`` is the highest."""
    rests_on: float | None = None
    """A load whose single measurement alone decides that scaling ends, or that it ends at ``value``."""


_CACHE: deque[tuple[pl.DataFrame, Rungs]] = deque(maxlen=4)
"""Rungs of the most recent ladders: each answer about a ladder asks for them again."""


@dataclass(frozen=True)
class Rungs:
    """Mean throughput by load, ascending, with at least one load."""

    means: Mapping[float, Mean]

    @staticmethod
    def of(ladder: Ladder) -> Rungs:
        for points, rungs in _CACHE:
            if points is ladder.points:
                return rungs
        grouped = ladder.points.sort("load").group_by("load", maintain_order=True).agg("throughput")
        rungs = Rungs({n: Mean.of(x) for n, x in grouped.iter_rows()})
        _CACHE.append((ladder.points, rungs))
        return rungs

    @cached_property
    def loads(self) -> list[float]:
        return list(self.means)

    @cached_property
    def noise(self) -> Noise:
        """The relative noise of one measurement."""
        return noise_or_scatter(self.means)

    def x(self, load: float) -> float:
        return self.means[load].value

    def share(self, load: float) -> float:
        """Returns the relative standard error of a rung's throughput."""
        return self.noise.share / math.sqrt(self.means[load].n)

    def below(self, one: float, other: float, sigmas: float = SIGMAS) -> bool:
        """Returns whether load ``one`` delivers less than load ``other`` beyond chance."""
        error = math.hypot(self.share(one) * self.x(one), self.share(other) * self.x(other))
        return self.x(other) - self.x(one) > sigmas * error

    # -- the peak --

    @cached_property
    def best(self) -> float:
        """The load with the largest mean throughput, the lowest of equal ones."""
        return max(self.loads, key=lambda n: (self.x(n), -n))

    @cached_property
    def peak(self) -> list[float]:
        """The best rung and its neighbours that are not below it beyond chance, as long as they show no trend
        either."""
        return level_with_best(self.means, self.noise.share)

    @property
    def is_constant(self) -> bool:
        """Whether throughput is equal at all loads within noise, and noise is small enough for that to mean
        something."""
        level = min(map(self.x, self.loads)) >= (1 - DROP) * self.x(self.best)
        return len(self.loads) > 1 and len(self.peak) == len(self.loads) and level

    def gain(self) -> tuple[float, Estimate] | None:
        """Returns the load from which the last rungs are judged and the change of throughput from there to
        the highest load. It starts well below the highest load, or at the peak if throughput falls or is
        level. None for one load."""
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
        """Whether some load was measured more than once."""
        return any(m.n > 1 for m in self.means.values())

    def goes_on(self, first: float, rises: bool) -> bool:
        """Returns whether a change from ``first`` to the highest load is more than that of one pair of
        measurements: there are repeats, or throughput moves the same way from the first third of these rungs
        (at least three) to the second and on to the last."""
        if self.repeated:
            return True
        loads = self.loads[min(self.loads.index(first), max(len(self.loads) - 3, 0)) :]
        if len(loads) < 3:
            return False
        ends = [round(i * len(loads) / 3) for i in range(4)]
        parts = [loads[a:b] for a, b in pairwise(ends)]
        level = [sum(map(self.x, p)) / len(p) for p in parts]
        error = [self.noise.share * x / math.sqrt(len(p)) for x, p in zip(level, parts, strict=True)]
        sign = 1 if rises else -1
        return all(sign * (level[i + 1] - level[i]) > math.hypot(error[i], error[i + 1]) for i in (0, 1))

    def drop(self) -> tuple[float, float, Estimate] | None:
        """Returns the largest loss from one rung to the next that counts as one (:data:`DROP`): both loads
        and the change."""
        pairs = list(zip(self.loads, self.loads[1:], strict=False))
        drops = [
            p for p in pairs if self.x(p[1]) < (1 - DROP) * self.x(p[0]) and self.below(p[1], p[0], _SURE)
        ]
        if not drops:
            return None
        a, b = min(drops, key=lambda p: self.x(p[1]) / self.x(p[0]))
        return a, b, self._change("drop", a, b)

    def _change(self, name: str, first: float, last: float) -> Estimate:
        """Returns throughput at ``last`` over that at ``first``, less 1."""
        ratio = self.x(last) / self.x(first)
        error = math.hypot(self.share(first), self.share(last))
        # Errors are relative, so the interval is symmetric on the logarithm of the ratio.
        low, high = (ratio * math.exp(sign * SIGMAS * error) - 1 for sign in (-1, 1))
        return Estimate(name, ratio - 1, "", low, high, self.method)

    @property
    def method(self) -> str:
        return f"noise of {self.noise_text}, {self.noise.source}"

    @property
    def noise_text(self) -> str:
        """Noise in percent with two digits: ``2 %``, ``3.6 %``."""
        return f"{format_plain(float(f'{100 * self.noise.share:.2g}'))} %"

    # -- efficiency --

    def each(self, load: float) -> float:
        """Returns throughput per unit of load."""
        return self.x(load) / load

    @cached_property
    def above_one(self) -> tuple[float, Estimate] | None:
        """The load with the largest throughput per unit of load and its ratio to that at the lowest load,
        if this is above 1 beyond chance. The threshold allows for as many comparisons as there are other
        loads."""
        first = self.loads[0]
        sigmas = NormalDist().inv_cdf(1 - 0.025 / max(1, len(self.loads) - 1))
        higher = []
        for n in self.loads[1:]:
            ratio, error = self.each(n) / self.each(first), math.hypot(self.share(first), self.share(n))
            if math.log(ratio) > max(sigmas, SIGMAS) * error:
                low, high = (ratio * math.exp(sign * SIGMAS * error) for sign in (-1, 1))
                higher.append((n, Estimate("efficiency", ratio, "", low, high, self.method)))
        return max(higher, key=lambda f: f[1].value, default=None)

    @cached_property
    def first(self) -> float:
        """The load that efficiency refers to: the lowest. If efficiency is above 1 beyond noise, it is the
        first load whose throughput per unit of load equals the best within noise."""
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
        """Throughput per unit of load over that at :attr:`first`, by load."""
        return {n: self.each(n) / self.each(self.first) for n in self.loads}

    def reach(self) -> Reach | None:
        """Returns the highest load before the first with an efficiency below :data:`GOOD_SCALING`.
        Efficiencies that rise with the load are averaged first, because that is noise: a single dip does not
        end scaling. None for one load."""
        if len(self.loads) < 2:
            return None
        loads = [n for n in self.loads if n >= self.first]
        reach = self._reach(loads)
        if len(loads) < 4 or self.means[loads[0]].n > 1:
            return reach
        # The first load enters every efficiency. If it was measured once, the result must hold without it.
        other = self._reach(loads[1:])
        nowhere = reach.value == loads[0] and other.value == loads[1]
        if nowhere or reach.low <= other.value < (reach.high or math.inf):
            return reach
        highs = (reach.high, other.high)
        high = None if None in highs else max(h for h in highs if h is not None)
        return replace(reach, low=min(reach.low, other.low), high=high, rests_on=loads[0])

    def _reach(self, loads: Sequence[float]) -> Reach:
        level = _falling([self.each(n) for n in loads], [self.means[n].n for n in loads])
        (one, points), noise = level[0], self.noise.share
        shares = [x / one for x, _ in level]
        errors = [noise * math.sqrt(1 / points + 1 / m) if i else 0.0 for i, (_, m) in enumerate(level)]
        sure = [s * (1 - SIGMAS * e) >= GOOD_SCALING for s, e in zip(shares, errors, strict=True)]
        end, low = (_last_good(good, loads) for good in ([s >= GOOD_SCALING for s in shares], sure))
        bad = [
            n for n, s, e in zip(loads, shares, errors, strict=True) if s * (1 + SIGMAS * e) < GOOD_SCALING
        ]
        single = len(bad) == 1 and self.means[bad[0]].n == 1
        after = next((n for n in loads if n > end), None)
        return Reach(end, min(low, end), bad[0] if bad else None, after, bad[0] if single else None)


def _last_good(good: Sequence[bool], loads: Sequence[float]) -> float:
    """Returns the last load before the first that is not good. The first load always is."""
    return loads[(good.index(False) if False in good else len(loads)) - 1]


def _falling(values: Sequence[float], weights: Sequence[int]) -> list[tuple[float, int]]:
    """Returns each value, and the number of points behind it, after neighbours that rise are averaged (pool
    adjacent violators: Barlow et al., Statistical Inference under Order Restrictions, 1972)."""
    blocks: list[tuple[float, int, int]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-1][0] > blocks[-2][0]:
            (a, m, i), (b, k, j) = blocks[-2:]
            blocks[-2:] = [((a * m + b * k) / (m + k), m + k, i + j)]
    return [(value, weight) for value, weight, count in blocks for _ in range(count)]


# -- measurements that do not fit between their neighbours --

FEWEST = 4
"""Different loads that are needed to recognise one of them as an outlier."""
FAR = 5.0
"""Standard errors by which an outlier exceeds what its neighbours allow; :data:`MUCH` must hold as well."""
MUCH = 0.10
"""Least difference of an outlier from what its neighbours allow, as a logarithm: about 10 %."""
_END_FACTOR = 3.0
"""Factor beyond extrapolation from the only neighbour at an end of the ladder that is too much."""
ROUGHER = 4.0
"""Factor by which an outlier is farther out than any other measurement."""
_CANDIDATES = 3
"""Measurements that are tried, the farthest first, because an outlier makes its neighbours look like
outliers."""


@dataclass(frozen=True)
class Outlier:
    """A measurement beyond what its neighbours allow; throughput is in the ladder's unit."""

    load: float
    repeat: int
    throughput: float
    low: float
    high: float


def outlier(ladder: Ladder) -> Outlier | None:
    """Returns the single measurement that does not fit between its neighbours, if the others fit without it;
    else None.

    Throughput between two loads is at least what the lower of them delivers (where it rises, the value on the
    line between them), and at most the value with the previous growth or with a constant rate per unit of
    load. These bounds hold for every concave law of scaling. If several measurements do not fit, the ladder
    is rough and none of them is an outlier. Nor is the second load if it delivers too much for the first and
    as much as the loads above it: rather the first is slow (cold caches, CPUs that sleep between calls).
    """
    usable = ladder.points.filter((pl.col("throughput") > 0) & pl.col("throughput").is_finite())
    if usable.height < ladder.points.height or usable["load"].n_unique() < FEWEST:
        return None
    rungs = Rungs.of(ladder)
    points = ladder.points.select("load", "repeat", "throughput").rows()
    beyond = sorted(((_bounds(rungs, n).excess(x), n, r, x) for n, r, x in points), reverse=True)
    for excess, n, r, x in beyond[:_CANDIDATES]:
        rest = without(ladder, candidate := Outlier(n, r, x, 0.0, 0.0))
        others = Rungs.of(rest)
        bounds = _bounds(others, n, others.noise.share)
        rough = max(_bounds(others, m).excess(y) for m, y in rest.points.select("load", "throughput").rows())
        far = excess > MUCH and bounds.excess(x) > max(MUCH, FAR * bounds.error, ROUGHER * rough)
        high = x > bounds.high
        if far and (not _first_is_slow(others, n, x) if high else _recovers(others, n)):
            return replace(candidate, low=bounds.low, high=bounds.high)
    return None


def _first_is_slow(rungs: Rungs, load: float, x: float) -> bool:
    """Returns whether ``load`` is the second one and all above it deliver about ``x``, too."""
    above = [rungs.x(n) for n in rungs.loads if n > load]
    return load < rungs.loads[1] and all(abs(math.log(other / x)) < MUCH for other in above)


def _recovers(rungs: Rungs, load: float) -> bool:
    """Returns whether throughput beyond ``load`` is at its level below it, or was falling there already.
    Otherwise it has another level from ``load`` on, and a low measurement there is the first at that
    level."""
    lower, upper = [n for n in rungs.loads if n < load][-2:], [n for n in rungs.loads if n > load][:1]
    if not lower or not upper or not rungs.below(upper[0], lower[-1]):
        return True
    return len(lower) > 1 and rungs.below(lower[-1], lower[0])


def without(ladder: Ladder, excluded: Outlier) -> Ladder:
    """Returns ``ladder`` without that measurement, which is kept in ``outliers``."""
    same_rung = (pl.col("load") == excluded.load) & (pl.col("repeat") == excluded.repeat)
    points = ladder.points.filter(~(same_rung & (pl.col("throughput") == excluded.throughput)))
    return replace(ladder, points=points, outliers=(*ladder.outliers, (excluded.load, excluded.throughput)))


class _Bounds(NamedTuple):
    low: float
    high: float
    error: float
    """Relative standard error of a comparison with the bounds."""

    def excess(self, x: float) -> float:
        """Returns how far ``x`` lies outside the bounds, as a logarithm; 0 within them."""
        return max(math.log(self.low / x) if self.low > 0 else 0.0, -math.log(self.high / x), 0.0)


def _bounds(rungs: Rungs, load: float, noise: float = 0.0) -> _Bounds:
    """Returns the range of throughput at ``load`` that its neighbours allow."""
    loads, x = rungs.loads, rungs.x
    i = bisect.bisect_left(loads, load)
    lower, upper = loads[max(0, i - 2) : i], [n for n in loads[i : i + 3] if n != load]
    if not lower:
        rises = x(upper[0]) < x(upper[1])
        high = _END_FACTOR * x(upper[0]) if rises else math.inf
        return _Bounds(rungs.each(upper[0]) * load / _END_FACTOR, high, noise)
    if not upper:
        return _Bounds(0.0, _END_FACTOR * rungs.each(lower[-1]) * load, noise)
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
