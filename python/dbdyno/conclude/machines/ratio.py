"""The ratio of two ladders over load: at a load, and where it crosses 1."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

import numpy as np

from dbdyno.conclude.machines.rungs import Floats, Rungs
from dbdyno.model.scaling import Estimate
from dbdyno.stats.distributions import students_quantile

_STEPS = 16
"""Between two rungs, when ends of a crossing's interval are looked for; then by halves."""


def critical(a: Rungs, b: Rungs, va: float, vb: float, alpha: float = 0.05) -> float:
    """Student's two-sided quantile with Welch's degrees of freedom (1947, Biometrika 34, 28-35)."""
    shares = [v * v / r.degrees for v, r in ((va, a), (vb, b)) if math.isfinite(r.degrees)]
    below = sum(shares)
    degrees = (va + vb) ** 2 / below if below > 0 else math.inf
    return students_quantile(degrees, alpha)


def estimate(r: Rungs, load: float, name: str, unit: str) -> Estimate:
    """The quantity itself: a geometric mean over repeats."""
    log, v = r.at(load)
    t = critical(r, r, v, 0.0)
    return _exp(name, unit, log, v, t, r.basis)


def ratio(a: Rungs, b: Rungs, load_a: float, load_b: float | None = None) -> Estimate:
    """B over A, at one load or each at its own."""
    (la, va), (lb, vb) = a.at(load_a), b.at(load_a if load_b is None else load_b)
    return _exp("ratio", "", lb - la, va + vb, critical(a, b, va, vb), _basis(a, b))


def crossings(a: Rungs, b: Rungs, loads: Sequence[float]) -> tuple[Estimate, ...]:
    """Loads where the ratio passes 1, each with the loads around it at which it cannot be told from 1.

    The set of loads whose 95 % interval of the ratio holds 1 holds the crossing with 95 % (a test inverted,
    as Fieller's interval is).
    """
    found = []
    for low, high in pairwise(loads):
        d0, d1 = _difference(a, b, low), _difference(a, b, high)
        if d0 * d1 < 0 or (d1 == 0 and d0 != 0 and high != loads[-1] and _passes(a, b, loads, high, d0)):
            at = math.exp(math.log(low) + (math.log(high) - math.log(low)) * d0 / (d0 - d1))
            found.append(_crossing(a, b, loads, at))
    known = bool(_basis(a, b))
    return tuple(_without_noise(found)) if not known or _told_apart(a, b, loads) else ()


def _told_apart(a: Rungs, b: Rungs, loads: Sequence[float]) -> bool:
    """At some load, at 5 % for all loads together (Bonferroni)."""
    for load in loads:
        va, vb = a.at(load)[1], b.at(load)[1]
        t = critical(a, b, va, vb, 0.05 / len(loads))
        if abs(_difference(a, b, load)) > t * math.sqrt(va + vb):
            return True
    return False


def _without_noise(found: Sequence[Estimate]) -> Iterator[Estimate]:
    """Several of one interval are noise about one true crossing, or about none where they are even."""
    for ends, group in groupby(found, key=lambda e: (e.method, e.low, e.high)):
        mine = list(group)
        if not ends[0]:
            yield from mine
        elif len(mine) % 2:
            yield mine[len(mine) // 2]


def _passes(a: Rungs, b: Rungs, loads: Sequence[float], at: float, before: float) -> bool:
    """The ratio is just 1 at this rung, and beyond it lies on the other side."""
    after = next((d for n in loads if n > at and (d := _difference(a, b, n)) != 0), 0.0)
    return after * before < 0


def _difference(a: Rungs, b: Rungs, load: float) -> float:
    return b.at(load)[0] - a.at(load)[0]


def _crossing(a: Rungs, b: Rungs, loads: Sequence[float], at: float) -> Estimate:
    if not _basis(a, b):
        return Estimate("crossing", at, note="no interval: neither repeats nor a model's band")
    grid = list(_grid(loads))
    return Estimate(
        "crossing",
        at,
        low=_end(a, b, at, [x for x in reversed(grid) if x < at]),
        high=_end(a, b, at, [x for x in grid if x > at]),
        method=f"loads at which the ratio may be 1, {_basis(a, b)}",
    )


def _end(a: Rungs, b: Rungs, at: float, away: Sequence[float]) -> float | None:
    """How far from ``at`` the ratio may be 1 on the way ``away``; ``None``: all the way."""
    inside = at
    for outside in away:
        if not _may_be_one(a, b, outside):
            for _ in range(12):
                middle = math.sqrt(inside * outside)
                inside, outside = (middle, outside) if _may_be_one(a, b, middle) else (inside, middle)
            return inside
        inside = outside
    return None


def _grid(loads: Sequence[float]) -> Iterator[float]:
    for low, high in pairwise(loads):
        steps: Floats = np.geomspace(low, high, _STEPS, endpoint=False)
        yield from (float(x) for x in steps)
    yield loads[-1]


def _may_be_one(a: Rungs, b: Rungs, load: float) -> bool:
    made = ratio(a, b, load)
    return made.low is not None and made.high is not None and made.low <= 1 <= made.high


def _exp(name: str, unit: str, log: float, variance: float, t: float, basis: str) -> Estimate:
    value = math.exp(log)
    if not basis or math.isnan(variance):
        return Estimate(name, value, unit, note="no interval: neither repeats nor a model's band")
    error = math.sqrt(variance)
    low, high = math.exp(log - t * error), math.exp(log + t * error)
    return Estimate(name, value, unit, low, high, method=basis, std_err=value * error)


def _basis(a: Rungs, b: Rungs) -> str:
    if not (a.basis and b.basis):
        return ""
    return a.basis if a.basis == b.basis else f"{a.basis} and {b.basis}"
