"""Draws the shapes that could have produced the points, with their probability: by importance sampling, for
each model under each law of the noise.

A shape is a curve at rate 1. The priors: all models are equally probable, a knee is anywhere between two
rungs, a loss by contention has any size from nothing to all. Rate and noise have the usual scale-free priors,
and are integrated in closed form. Up to four numbers in a unit cube remain. They are drawn about the best
shapes and by the moments of earlier draws (Cappe, Guillin, Marin and Robert, Population Monte Carlo, Journal
of Computational and Graphical Statistics 13 (2004) 907), all weighted by the mixture of their proposals (Owen
and Zhou, Journal of the American Statistical Association 95 (2000) 135), from fixed low-discrepancy points,
so that the same ladder always has the same result.

The first axis of arrays is the ladder: many ladders with the same loads are sampled at once, as
simulations need it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats import special
from dbdyno.stats.scaling.curves import Floats, power
from dbdyno.stats.scaling.models import MODELS, Curve, carried_on, queue_table

POWER = "power"
"""A law without a knee that is averaged with the models, as piecewise lines follow it well."""
SIZE_FLOOR = 1e-3
"""Least error of a throughput, as a share of the largest one."""
SMALL = 0.2
"""Loss below which the prior is uniform, and above which it is uniform in the logarithm."""
LEAST_BEND = 0.95
"""Largest gain after a knee, as a share of that before."""
FALLING = 0.3
"""Prior probability that throughput falls after a knee."""
FIRST, DRAWS, ROUNDS = 512, 256, 1
STARTS, STEPS, NUDGE = 4, 10, 1e-5
FLAT = 1e-3
"""Relative gain in squares below which the search stops."""
DEGREES = 5
"""Degrees of freedom of the proposals, Student's t: their tails must be heavier than the target's."""
FEW = 40
"""Least number of effective draws for the moments of a proposal."""


@dataclass(frozen=True)
class Series:
    """Ladders of the same loads in units of their largest throughput, under one law of the noise."""

    n: Floats
    """Distinct loads, (loads,), ascending."""
    y: Floats
    """Mean throughput, or mean of its logarithm, (ladders, loads)."""
    counts: Floats
    """Number of points at each load, (loads,)."""
    within: Floats
    """Sum of squares of the points about ``y``, (ladders,)."""
    proportional: bool
    """Whether errors are proportional: the logarithm has errors of constant size."""
    scales: int
    """Number of fitted rates: one, or one per climb."""
    jacobian: Floats
    """Logarithm of the Jacobian from throughput to the scale of ``y``, (ladders,)."""

    @property
    def degrees(self) -> int:
        return int(self.counts.sum()) - self.scales


@dataclass(frozen=True)
class Family:
    """The shapes of a model. ``prior`` converts points in the unit cube to parameters at rate 1."""

    name: str
    size: int
    prior: Callable[[Floats, Floats], Floats]
    ascending: int = 0
    """How many of the first numbers are sorted; all their orders are equivalent."""

    def outside(self, u: Floats) -> NDArray[np.bool_]:
        disorder = (np.diff(u[..., : self.ascending], axis=-1) < 0).any(-1)
        return np.asarray(((u < 0) | (u > 1)).any(-1) | disorder)

    def density(self, u: Floats, centre: Floats, root: Floats) -> Floats:
        """Returns the log density of a proposal over that of the prior."""
        return np.asarray(_density(u, centre, root) - math.lgamma(self.ascending + 1))

    def even(self, count: int) -> Floats:
        """Returns points that fill the prior evenly."""
        u = uniform(count, self.size).copy()
        u[:, : self.ascending] = np.sort(u[:, : self.ascending], axis=1)
        return u


def _loss(u: Floats, most: float) -> Floats:
    return np.asarray(SMALL * np.expm1(u * np.log1p(max(most, 1e-9) / SMALL)))


def _place(u: Floats, loads: Floats) -> Floats:
    """Returns loads such that each interval between neighbours has the same probability."""
    return np.interp(u * (len(loads) - 1), np.arange(len(loads)), loads)


def _sigma(u: Floats, n: Floats) -> Floats:
    span = max(n[-1] - 1, 1e-3)
    return np.asarray(np.minimum(_loss(u, span) / span, 1.0))


def _kappa(u: Floats, n: Floats) -> Floats:
    return np.asarray(_loss(u, 4 * n[-1] ** 2) / n[-1] ** 2)


def _fall(u: Floats, reached: Floats, rest: Floats) -> Floats:
    """Returns slopes with which ``reached`` falls to any share of it at the last load, ``rest`` further
    on."""
    return -np.clip(1 - u, 0.0, 0.98) * reached / np.maximum(rest, 1e-9)


def _after(u: Floats, most: Floats, reached: Floats, rest: Floats) -> Floats:
    up = most * (u - FALLING) / (1 - FALLING)
    return np.where(u < FALLING, _fall(u / FALLING, reached, rest), up)


def _one_knee(u: Floats, n: Floats) -> Floats:
    knee = _place(u[..., 0], n[:-1])
    after = _after(u[..., 1], np.full_like(knee, LEAST_BEND), knee, n[-1] - knee)
    return _stack(knee, after)


def _two_knees(u: Floats, n: Floats) -> Floats:
    """Returns parameters of two knees. The second number is the load at which growth without loss would
    reach the throughput of the second knee: if that is well known and the knees are not, the possible
    region is nearly a box."""
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
    """Draws of one family under one law; the first axes are (ladders, draws)."""

    family: Family
    series: Series
    p: Floats
    """Parameters at rate 1."""
    log_weight: Floats
    """Log of the importance weight; -inf outside the prior."""
    rate: Floats
    """Best rate of each draw, in units of the largest throughput."""
    error: Floats
    """Relative standard error of the rate, without drift."""
    top: Floats
    """Largest log likelihood, (ladders,)."""

    @property
    def log_evidence(self) -> Floats:
        return np.asarray(special.log_sum_exp(self.log_weight, axis=1)[:, 0])


def sampled(family: Family, series: Series) -> Sampled:
    """Draws from the posterior of ``family``: first over the whole prior, then about the best shapes by
    the curvature there, then by the moments of all draws so far."""
    n, count, d = series.n, len(series.y), family.size
    problem = _Problem(family, series, curve_of(family.name, n, float(n[0]), float(n[-1])))
    u = family.even(FIRST * (8 if d > 2 else 1) if d else 1)[None]
    first = [u, *problem.likelihood(u)]
    draws = [np.broadcast_to(a, (count, *a.shape[1:])) for a in first]
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
        """Returns parameters, log likelihoods, rates, errors."""
        p = self.family.prior(u, self.series.n)
        return [p, *_log_likelihood(self.series, self.curve(p))]

    def off(self, u: Floats) -> Floats:
        """Returns residuals at the best rate, each times the root of its number of points: (ladders,
        shapes, loads)."""
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
    """Adds draws from ``new`` proposals. Returns all draws, and at each the density of all proposals times
    their numbers of draws."""
    us = []
    for at, (centre, root, count) in enumerate(new):
        density = np.logaddexp(density, problem.family.density(draws[0], centre, root) + np.log(count))
        z = _students(count, centre.shape[-1], len(old) + at)
        us.append(centre[:, None] + z @ np.swapaxes(root, 1, 2))
    u = np.concatenate(us, 1)
    outside = problem.family.outside(u)
    u = np.clip(u, 0.0, 1.0)
    drawn = [u, *problem.likelihood(u)]
    drawn[2] = np.where(outside, -np.inf, drawn[2])
    own_density = np.full(outside.shape, np.log(FIRST * (8 if u.shape[-1] > 2 else 1)))
    for centre, root, count in (*old, *new):
        own_density = np.logaddexp(own_density, problem.family.density(u, centre, root) + np.log(count))
    joined = [np.concatenate(pair, 1) for pair in zip(draws, drawn, strict=True)]
    return joined, np.concatenate([density, own_density], 1)


def _local(problem: _Problem, draws: list[Floats]) -> list[tuple[Floats, Floats]]:
    """Returns the best shapes near the most likely draws (Levenberg and Marquardt's steps), each with the
    root of the covariance by the curvature and the prior."""
    d = draws[0].shape[-1]
    starts = STARTS * (2 if d > 2 else 1)
    order = np.argsort(-draws[2], axis=1)[:, : 4 * starts : 4]
    u = np.take_along_axis(draws[0], order[..., None], 1)
    off, diagonal = problem.off(u), np.arange(d)
    damping = np.full(u.shape[:2], 1e-2)
    for _ in range(STEPS):
        g, a = _curvature(problem, u, off)
        a[..., diagonal, diagonal] *= 1 + damping[..., None]
        a[..., diagonal, diagonal] += 1e-12
        new = np.clip(u - np.linalg.solve(a, g[..., None])[..., 0], 1e-6, 1 - 1e-6)
        trial_off = problem.off(new)
        before, after = (off**2).sum(-1), (trial_off**2).sum(-1)
        better = after < before
        u, off = np.where(better[..., None], new, u), np.where(better[..., None], trial_off, off)
        damping = np.where(better, damping / 5, damping * 5)
        if (np.abs(after - before) <= FLAT * before).all():
            break
    _, a = _curvature(problem, u, off)
    floor = problem.series.within[:, None] + problem.series.counts.sum() * SIZE_FLOOR**2
    variance = ((off**2).sum(-1) + floor) / max(problem.series.degrees - d, 1)
    a = a / variance[..., None, None]
    # The uniform prior on the unit cube has a variance of 1/12 per number: its precision is added.
    a[..., diagonal, diagonal] += 12.0
    root: Floats = np.linalg.cholesky(np.linalg.inv(a) * 1.3).astype(float)
    return [(u[:, i], root[:, i]) for i in range(u.shape[1])]


def _curvature(problem: _Problem, u: Floats, off: Floats) -> tuple[Floats, Floats]:
    """Returns half the gradient of the sum of squares, and the normal equations."""
    ladders, starts, d = u.shape
    step, diagonal = np.where(u > 0.5, -NUDGE, NUDGE), np.arange(d)
    nudged = np.repeat(u[:, :, None], d, axis=2)
    nudged[..., diagonal, diagonal] += step
    moved = problem.off(nudged.reshape(ladders, starts * d, d)).reshape(ladders, starts, d, -1)
    j = (moved - off[:, :, None]) / step[..., None]
    return (j @ off[..., None])[..., 0], j @ np.swapaxes(j, -1, -2)


def curve_of(name: str, n: Floats, first: float, last: float) -> Callable[[Floats], Floats]:
    """Returns the model's curve at ``n``, for parameters of points measured from ``first`` to ``last``."""
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
    """Returns log likelihoods of shapes ``f`` (ladders or 1, draws, loads) with rate and noise integrated
    out; best rates; and their relative errors."""
    c, y, points = series.counts, series.y, series.counts.sum()
    sound = np.asarray(
        ((f > 0) & np.isfinite(f)).all(-1)
    )  # contention gives negative throughput at loads below 1
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
    """Returns normalised weights to a power of at most 1 that leaves :data:`FEW` effective draws."""
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
    """Returns the centre and the root of the covariance, slightly widened."""
    centre = (w[:, None] @ u)[:, 0]
    off = u - centre[:, None]
    covariance = np.swapaxes(off, 1, 2) @ (off * w[..., None]) * 1.3
    diagonal = np.arange(u.shape[-1])
    covariance[:, diagonal, diagonal] = covariance[:, diagonal, diagonal] * 1.001 + 1e-14
    return centre, np.linalg.cholesky(covariance).astype(float)


def _density(u: Floats, centre: Floats, root: Floats) -> Floats:
    """Returns the log density of a proposal (multivariate t)."""
    d = u.shape[-1]
    z = (u - centre[:, None]) @ np.swapaxes(np.linalg.inv(root), 1, 2)
    size = math.lgamma((DEGREES + d) / 2) - math.lgamma(DEGREES / 2) - d / 2 * np.log(DEGREES * np.pi)
    size = size - np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1)
    return np.asarray(size[:, None] - (DEGREES + d) / 2 * np.log1p((z * z).sum(-1) / DEGREES))


@lru_cache(maxsize=32)
def uniform(count: int, d: int, shift: int = 0) -> Floats:
    """Returns points that fill the unit cube evenly: additive recurrence by the powers of the root of
    x^(d+1) = x + 1 (Roberts, The Unreasonable Effectiveness of Quasirandom Sequences (2018))."""
    root = 2.0
    for _ in range(40):
        root = (1 + root) ** (1 / (d + 1))
    steps = root ** -np.arange(1.0, d + 1)
    return np.asarray((0.5 + (np.arange(1, count + 1)[:, None] + shift * count) * steps) % 1.0)


@lru_cache(maxsize=64)
def _students(count: int, d: int, step: int) -> Floats:
    """Returns draws of a multivariate t."""
    u = uniform(count, d + 1, step + 1)
    u = np.clip(u, 1e-9, 1 - 1e-9)
    chi = 2 * special.gamma_quantile(DEGREES / 2, u[:, d])
    return np.asarray(special.normal_below(u[:, :d]) / np.sqrt(chi / DEGREES)[:, None])
