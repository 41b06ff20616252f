"""Every curve that could have made the points, with its probability: shapes of each model under each law of
the noise, drawn by importance sampling.

A shape is a curve at rate 1. Priors say before any data what is thinkable: all models are alike, a knee
lies anywhere between two rungs, a loss by contention has any size from nothing to all. Rate and noise have
the usual scale-free priors, and are integrated in closed form: what is left are up to four numbers in a unit
cube. They are drawn about the best shapes and by the moments of what was found (Cappe, Guillin, Marin and
Robert, Population Monte Carlo, Journal of Computational and Graphical Statistics 13 (2004) 907), all weighted
by the mixture of their proposals (Owen and Zhou, Journal of the American Statistical Association 95 (2000)
135), from fixed low-discrepancy points, so that the same ladder always has the same answer.

Arrays have ladders in front: many ladders with the same loads are sampled at once, as simulations need it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dbdyno.stats.scaling.curves import Floats, power
from dbdyno.stats.scaling.models import MODELS, Curve, carried_on, queue_table

POWER = "power"
"""Averaged with the models, and none of them: a law without a bend that broken lines follow well."""
SIZE_FLOOR = 1e-3
"""No throughput is known better than to this share of the largest one."""
SMALL = 0.2
"""Losses below this are thought evenly likely, above it evenly by ratio."""
LEAST_BEND = 0.95
"""A knee after which one more brings more than this share is none."""
FALLING = 0.3
"""Probability that throughput falls after a knee, before any data."""
FIRST, DRAWS, ROUNDS = 512, 256, 1
STARTS, STEPS, NUDGE = 4, 10, 1e-5
FLAT = 1e-3
"""Relative gain in squares below which no step is taken from there."""
DEGREES = 5
"""Of Student's t, of which the proposals are: tails heavier than the target's."""
FEW = 40
"""Effective draws from which a proposal is made."""


@dataclass(frozen=True)
class Series:
    """Ladders of the same loads in units of their largest throughput, under one law of the noise."""

    n: Floats
    """Loads, (loads,), ascending, no two alike."""
    y: Floats
    """(ladders, loads): mean throughput, or mean logarithm of it."""
    counts: Floats
    """Points at each load, (loads,)."""
    within: Floats
    """Sum of squares of the points about ``y``, (ladders,)."""
    proportional: bool
    """Errors in proportion: the logarithm has errors of one size."""
    scales: int
    """Rates that were fitted: one, or one a climb."""
    jacobian: Floats
    """Log density of the throughputs over that of ``y``'s scale, (ladders,)."""

    @property
    def degrees(self) -> int:
        return int(self.counts.sum()) - self.scales


@dataclass(frozen=True)
class Family:
    """A model's shapes: ``prior`` makes of points in the unit cube its parameters at rate 1."""

    name: str
    size: int
    prior: Callable[[Floats, Floats], Floats]
    ascending: int = 0
    """As many of the first numbers are in ascending order, and all orders are one."""

    def outside(self, u: Floats) -> NDArray[np.bool_]:
        disorder = (np.diff(u[..., : self.ascending], axis=-1) < 0).any(-1)
        return np.asarray(((u < 0) | (u > 1)).any(-1) | disorder)

    def density(self, u: Floats, centre: Floats, root: Floats) -> Floats:
        """Log density of a proposal over that of the prior."""
        return np.asarray(_density(u, centre, root) - special.gammaln(self.ascending + 1))

    def even(self, count: int) -> Floats:
        """Fills the prior."""
        u = uniform(count, self.size).copy()
        u[:, : self.ascending] = np.sort(u[:, : self.ascending], axis=1)
        return u


def _loss(u: Floats, most: float) -> Floats:
    return np.asarray(SMALL * np.expm1(u * np.log1p(max(most, 1e-9) / SMALL)))


def _place(u: Floats, loads: Floats) -> Floats:
    """Between any two neighbours with the same probability."""
    return np.interp(u * (len(loads) - 1), np.arange(len(loads)), loads)


def _sigma(u: Floats, n: Floats) -> Floats:
    span = max(n[-1] - 1, 1e-3)
    return np.asarray(np.minimum(_loss(u, span) / span, 1.0))


def _kappa(u: Floats, n: Floats) -> Floats:
    return np.asarray(_loss(u, 4 * n[-1] ** 2) / n[-1] ** 2)


def _fall(u: Floats, reached: Floats, rest: Floats) -> Floats:
    """Slopes with which ``reached`` falls to any share of it at the last load, ``rest`` further on."""
    return -np.clip(1 - u, 0.0, 0.98) * reached / np.maximum(rest, 1e-9)


def _after(u: Floats, most: Floats, reached: Floats, rest: Floats) -> Floats:
    up = most * (u - FALLING) / (1 - FALLING)
    return np.where(u < FALLING, _fall(u / FALLING, reached, rest), up)


def _one_knee(u: Floats, n: Floats) -> Floats:
    knee = _place(u[..., 0], n[:-1])
    after = _after(u[..., 1], np.full_like(knee, LEAST_BEND), knee, n[-1] - knee)
    return _stack(knee, after)


def _two_knees(u: Floats, n: Floats) -> Floats:
    """The second number is the load at which growth without loss would reach what the second knee has: where
    it is well known and the knees are not, all that is possible is a box."""
    knee, level, knee2 = (_place(np.maximum.accumulate(u[..., :3], -1)[..., i], n[:-1]) for i in range(3))
    after = (level - knee) / np.maximum(knee2 - knee, 1e-9)
    after2 = _after(u[..., 3], after * LEAST_BEND, level, n[-1] - knee2)
    return _stack(knee, after, knee2, after2)


def _stack(*columns: Floats) -> Floats:
    return np.stack([np.ones_like(columns[0]), *columns], axis=-1)


FAMILIES = (
    Family("linear", 0, lambda u, _: np.ones((*u.shape[:-1], 1))),
    Family("amdahl", 1, lambda u, n: _stack(_sigma(u[..., 0], n))),
    Family("usl", 2, lambda u, n: _stack(_sigma(u[..., 0], n), _kappa(u[..., 1], n))),
    Family(POWER, 1, lambda u, _: _stack(u[..., 0])),
    Family("plateau", 1, lambda u, n: _stack(_place(u[..., 0], n))),
    Family("queue", 1, lambda u, n: _stack(_place(u[..., 0], np.append(n, 2 * n[-1])))),
    Family("one-knee", 2, _one_knee),
    Family("two-knees", 4, _two_knees, ascending=3),
)


@dataclass(frozen=True)
class Sampled:
    """Draws of one family under one law, (ladders, draws) in front of everything."""

    family: Family
    series: Series
    p: Floats
    """Parameters at rate 1."""
    log_weight: Floats
    """-inf outside the priors."""
    rate: Floats
    """The best one of each draw, in units of the largest throughput."""
    error: Floats
    """Its relative standard error, without drift."""
    top: Floats
    """Largest log likelihood, (ladders,)."""

    @property
    def log_evidence(self) -> Floats:
        return np.asarray(special.logsumexp(self.log_weight, axis=1))


def sampled(family: Family, series: Series) -> Sampled:
    """Draws from what ``series`` leave of ``family``: everywhere, then about the best shapes by the curvature
    there, then by the moments of all draws so far."""
    n, count, d = series.n, len(series.y), family.size
    problem = _Problem(family, series, curve_of(family.name, n, float(n[0]), float(n[-1])))
    u = family.even(FIRST * (8 if d > 2 else 1) if d else 1)[None]
    found = [u, *problem.likelihood(u)]
    draws = [np.broadcast_to(a, (count, *a.shape[1:])) for a in found]
    if d:
        density = np.full(draws[0].shape[:2], np.log(u.shape[1]))
        local, size = _local(problem, draws), DRAWS * (2 if d > 2 else 1)
        proposals = [(c, r, size // len(local)) for c, r in local]
        draws, density = _drawn(problem, draws, density, proposals, [])
        for _ in range(ROUNDS):
            new = (*_moments(draws[0], _tempered(draws[2] - density)), size)
            draws, density = _drawn(problem, draws, density, [new], proposals)
            proposals = [*proposals, new]
    else:
        density = np.zeros((count, 1))
    _, p, target, rate, error = draws
    return Sampled(family, series, p, target - density, rate, error, target.max(1))


Proposal = tuple[Floats, Floats, int]
"""Centre, root of the covariance, number of draws."""


@dataclass(frozen=True)
class _Problem:
    family: Family
    series: Series
    curve: Callable[[Floats], Floats]

    def likelihood(self, u: Floats) -> list[Floats]:
        """Parameters, log likelihoods, rates, errors."""
        p = self.family.prior(u, self.series.n)
        return [p, *_log_likelihood(self.series, self.curve(p))]

    def off(self, u: Floats) -> Floats:
        """Residuals at the best rate, each by the root of its points: (ladders, shapes, loads)."""
        f, y, c = self.curve(self.family.prior(u, self.series.n)), self.series.y[:, None], self.series.counts
        f = np.nan_to_num(np.maximum(f, 1e-9), posinf=1e9)
        if self.series.proportional:
            left = y - np.log(f)
            left = left - ((left @ c) / c.sum())[..., None]
        else:
            left = y - ((y * f) @ c / ((f * f) @ c))[..., None] * f
        return left * np.sqrt(c)


def _drawn(
    problem: _Problem, draws: list[Floats], density: Floats, new: list[Proposal], old: list[Proposal]
) -> tuple[list[Floats], Floats]:
    """``draws`` with those from ``new``, and the density of all proposals at each, times the draws."""
    us = []
    for at, (centre, root, count) in enumerate(new):
        density = np.logaddexp(density, problem.family.density(draws[0], centre, root) + np.log(count))
        z = _students(count, centre.shape[-1], len(old) + at)
        us.append(centre[:, None] + z @ np.swapaxes(root, 1, 2))
    u = np.concatenate(us, 1)
    outside = problem.family.outside(u)
    u = np.clip(u, 0.0, 1.0)
    found = [u, *problem.likelihood(u)]
    found[2] = np.where(outside, -np.inf, found[2])
    here = np.full(outside.shape, np.log(FIRST * (8 if u.shape[-1] > 2 else 1)))
    for centre, root, count in (*old, *new):
        here = np.logaddexp(here, problem.family.density(u, centre, root) + np.log(count))
    joined = [np.concatenate(pair, 1) for pair in zip(draws, found, strict=True)]
    return joined, np.concatenate([density, here], 1)


def _local(problem: _Problem, draws: list[Floats]) -> list[tuple[Floats, Floats]]:
    """Best shapes near the most likely draws (Levenberg and Marquardt's steps), with the root of the
    covariance by the curvature and the prior's."""
    d = draws[0].shape[-1]
    starts = STARTS * (2 if d > 2 else 1)
    order = np.argsort(-draws[2], axis=1)[:, : 4 * starts : 4]
    u = np.take_along_axis(draws[0], order[..., None], 1)
    off, own = problem.off(u), np.arange(d)
    damping = np.full(u.shape[:2], 1e-2)
    for _ in range(STEPS):
        g, a = _curvature(problem, u, off)
        a[..., own, own] *= 1 + damping[..., None]
        a[..., own, own] += 1e-12
        new = np.clip(u - np.linalg.solve(a, g[..., None])[..., 0], 1e-6, 1 - 1e-6)
        there = problem.off(new)
        before, after = (off**2).sum(-1), (there**2).sum(-1)
        better = after < before
        u, off = np.where(better[..., None], new, u), np.where(better[..., None], there, off)
        damping = np.where(better, damping / 5, damping * 5)
        if (np.abs(after - before) <= FLAT * before).all():
            break
    _, a = _curvature(problem, u, off)
    floor = problem.series.within[:, None] + problem.series.counts.sum() * SIZE_FLOOR**2
    variance = ((off**2).sum(-1) + floor) / max(problem.series.degrees - d, 1)
    a = a / variance[..., None, None]
    a[..., own, own] += 12.0
    root: Floats = np.linalg.cholesky(np.linalg.inv(a) * 1.3).astype(float)
    return [(u[:, i], root[:, i]) for i in range(u.shape[1])]


def _curvature(problem: _Problem, u: Floats, off: Floats) -> tuple[Floats, Floats]:
    """The gradient of the residuals' squares and the normal equations, halved."""
    ladders, starts, d = u.shape
    step, own = np.where(u > 0.5, -NUDGE, NUDGE), np.arange(d)
    there = np.repeat(u[:, :, None], d, axis=2)
    there[..., own, own] += step
    moved = problem.off(there.reshape(ladders, starts * d, d)).reshape(ladders, starts, d, -1)
    j = (moved - off[:, :, None]) / step[..., None]
    return (j @ off[..., None])[..., 0], j @ np.swapaxes(j, -1, -2)


def curve_of(name: str, n: Floats, first: float, last: float) -> Callable[[Floats], Floats]:
    """The model's curve at ``n``, for parameters of points that were measured from ``first`` to ``last``."""
    quick: Curve = power
    if name == "queue":
        quick = queue_table(tuple(n), first, 2 * last)
    elif name != POWER:
        quick = MODELS[name].curve if n.max() <= last else carried_on(MODELS[name], last)

    def curve(p: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return quick(n, p)

    return curve


def _log_likelihood(series: Series, f: Floats) -> list[Floats]:
    """Of shapes ``f`` (ladders or 1, draws, loads), rate and noise integrated out; best rates; their relative
    errors."""
    c, y, points = series.counts, series.y, series.counts.sum()
    sound = np.asarray(((f > 0) & np.isfinite(f)).all(-1))  # contention makes nonsense of loads below 1
    f = np.where(sound[..., None], f, 1.0)
    if series.proportional:
        g = np.log(f)
        level, off = (y @ c)[:, None] / points - (g @ c) / points, y - (y @ c)[:, None] / points
        g = g - (g @ c)[..., None] / points
        rss = ((off * off) @ c)[:, None] - 2 * (g @ (off * c)[:, :, None])[..., 0] + (g * g) @ c
        rate, size = np.exp(level), np.sqrt(points / series.scales)
    else:
        norm = (f * f) @ c
        rate = np.maximum((f @ (y * c)[:, :, None])[..., 0] / norm, 1e-12)
        rss = ((y * y) @ c)[:, None] - rate * rate * norm
        size = rate * np.sqrt(norm / series.scales)
    rss = np.maximum(rss, 0.0) + series.within[:, None] + points * SIZE_FLOOR**2
    total = -series.degrees / 2 * np.log(rss) - series.scales * np.log(size) + series.jacobian[:, None]
    total = np.where(sound, total, -np.inf)
    return [total, rate, np.sqrt(rss / max(series.degrees, 1) / series.scales) / size]


def _tempered(weight: Floats) -> Floats:
    """Weights to a power of at most 1 that leaves :data:`FEW` effective draws, normalised."""
    top = np.max(weight, axis=1, keepdims=True)
    shifted = np.where(np.isfinite(weight), weight - top, -1e300)
    low, high = np.full(len(weight), 1e-4), np.ones(len(weight))
    power = high.copy()
    for _ in range(12):
        w = np.exp(np.maximum(shifted * power[:, None], -700.0))
        enough = w.sum(1) ** 2 / (w * w).sum(1) >= FEW
        low, high = np.where(enough, power, low), np.where(enough, high, power)
        power = np.where(enough & (power == 1), 1.0, np.sqrt(low * high))
    w = np.exp(np.maximum(shifted * power[:, None], -700.0))
    return np.asarray(w / w.sum(1, keepdims=True))


def _moments(u: Floats, w: Floats) -> tuple[Floats, Floats]:
    """Centre and root of the covariance, a little widened."""
    centre = (w[:, None] @ u)[:, 0]
    off = u - centre[:, None]
    covariance = np.swapaxes(off, 1, 2) @ (off * w[..., None]) * 1.3
    own = np.arange(u.shape[-1])
    covariance[:, own, own] = covariance[:, own, own] * 1.001 + 1e-14
    return centre, np.linalg.cholesky(covariance).astype(float)


def _density(u: Floats, centre: Floats, root: Floats) -> Floats:
    """Log of the proposal's density."""
    d = u.shape[-1]
    z = (u - centre[:, None]) @ np.swapaxes(np.linalg.inv(root), 1, 2)
    size = special.gammaln((DEGREES + d) / 2) - special.gammaln(DEGREES / 2) - d / 2 * np.log(DEGREES * np.pi)
    size = size - np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1)
    return np.asarray(size[:, None] - (DEGREES + d) / 2 * np.log1p((z * z).sum(-1) / DEGREES))


@lru_cache(maxsize=32)
def uniform(count: int, d: int, shift: int = 0) -> Floats:
    """Points that fill the unit cube evenly: additive recurrence by the powers of the root of
    x^(d+1) = x + 1 (Roberts, The Unreasonable Effectiveness of Quasirandom Sequences (2018))."""
    root = 2.0
    for _ in range(40):
        root = (1 + root) ** (1 / (d + 1))
    steps = root ** -np.arange(1.0, d + 1)
    return np.asarray((0.5 + (np.arange(1, count + 1)[:, None] + shift * count) * steps) % 1.0)


@lru_cache(maxsize=64)
def _students(count: int, d: int, step: int) -> Floats:
    """Multivariate t."""
    u = uniform(count, d + 1, step + 1)
    u = np.clip(u, 1e-9, 1 - 1e-9)
    chi = 2 * special.gammaincinv(DEGREES / 2, u[:, d])
    return np.asarray(special.ndtri(u[:, :d]) / np.sqrt(chi / DEGREES)[:, None])
