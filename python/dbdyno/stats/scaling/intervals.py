"""Intervals of a fit's figures: by profile likelihood, or by repeats.

Profile likelihood: how far a figure can be moved while all others are fitted anew. The limit is
RSS (1 + t^2 / (n - k)), t Student's two-sided 95 % quantile with n - k degrees of freedom: Bates and Watts,
Nonlinear Regression Analysis (1988), section 6.1.

Repeats: series are drawn anew with replacement, then the points within each of their loads. The hierarchical
bootstrap (Davison and Hinkley, Bootstrap Methods and their Application (1997), section 3.8) gives the spread
of a figure. Few series show too little of it, by sqrt((R - 1) / R), and Student's t with R - 1 degrees of
freedom takes the place of the normal quantile (Hesterberg, The American Statistician 69 (2015) 371, 5.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats.estimates import students_quantile
from dbdyno.stats.scaling.curves import Floats
from dbdyno.stats.scaling.fit import EXACT, Fit, central, solve
from dbdyno.stats.scaling.models import Derived, Model, tabled

STEPS = 34
"""Most that are taken towards an edge; about ten are needed. After as many an edge that was not met is
none."""
GRID = 30
"""Places at which the profile of a knee is looked at, each way: it may have several valleys."""
_GAIN = 1e-9

Places = NDArray[np.intp]
Flags = NDArray[np.bool_]
Interval = tuple[float | None, float | None]


@dataclass(frozen=True)
class Profiled:
    """What is moved: parameter ``at`` of ``model``, from the minima (minima, parameters) on."""

    model: Model
    minima: Floats
    at: int


def profiled(found: Fit, what: Derived) -> Profiled | None:
    """``what`` as a parameter; None: it, or the model with it as one, is of no meaning at the best fit."""
    if not np.isfinite(what.of(found.p)):
        return None
    if what.model is None or what.turned is None:
        return Profiled(found.model, found.minima, what.at)
    turned = what.turned(found.minima)
    known = np.asarray(np.isfinite(turned).all(1))
    return Profiled(what.model, turned[known], what.at) if known[0] else None


def intervals(found: Fit, wanted: list[Profiled]) -> list[Interval]:
    """The 95 % interval of each figure. None: not bounded on that side."""
    factor = students_quantile(found.degrees) ** 2 / found.degrees
    return [edge for group in _by_model(wanted) for edge in _Edges(found, group, factor).intervals()]


def _by_model(wanted: list[Profiled]) -> list[list[Profiled]]:
    """Neighbours of the same model together: they are solved at once."""
    groups: list[list[Profiled]] = []
    for w in wanted:
        if groups and groups[-1][0].model is w.model:
            groups[-1].append(w)
        else:
            groups.append([w])
    return groups


class _Edges:
    """Both edges of all figures of one model, sought side by side."""

    def __init__(self, found: Fit, wanted: list[Profiled], factor: float) -> None:
        self.found, self.model = found, wanted[0].model
        self.least = max(found.rss, len(found.n) * EXACT**2)
        self.room = factor * self.least
        self.minima = self._within(wanted[0].minima)
        self.at = np.repeat([w.at for w in wanted], 2)
        self.side = np.tile([-1.0, 1.0], len(wanted))
        self.value = self.minima[0, self.at]
        self.bound = np.where(self.side < 0, self.model.low[self.at], self.model.high[self.at])
        parameters = [self.model.parameters[at] for at in self.at]
        self.kink = np.array([q.is_kink for q in parameters])
        self.open_at_bound = np.array(
            [q.is_kink or (q.is_knee and s > 0) for q, s in zip(parameters, self.side, strict=True)]
        )
        edges = len(self.at)
        self.inside, self.f_inside = self.value.copy(), np.full(edges, -1.0)
        self.outside, self.f_outside = np.full(edges, np.nan), np.full(edges, np.nan)
        self.last = np.zeros(edges)  # where the last place between the two lay: twice the same is slow
        self.step = self._first_steps()
        self.warm = np.repeat(self.minima[None], edges, 0)
        self.live = np.ones(edges, dtype=bool)

    def _within(self, minima: Floats) -> Floats:
        """Valleys above the limit cannot hold an edge; without kinks there is one."""
        if not any(q.is_kink for q in self.model.parameters):
            return minima[:1]
        rss = ((self.found.x - self.model.curve(self.found.n, minima)) ** 2).sum(1)
        keep = rss <= self.least + self.room
        keep[0] = True
        return np.asarray(minima[keep])

    def _first_steps(self) -> Floats:
        """How far the edges are, by the curvature."""
        slopes = central(self.model, self.found.n, self.minima[0])
        scale = np.sqrt((slopes**2).sum(0))
        scale = np.where(scale > 0, scale, 1.0)
        inverse = np.linalg.pinv((slopes / scale).T @ (slopes / scale), rcond=1e-10)
        guess = np.sqrt(np.maximum(np.diag(inverse), 0) * self.room) / scale
        size = np.abs(self.value)
        most = np.maximum(size, 1e-6) * np.where(self.side < 0, 0.7, 3.0)
        return np.asarray(np.clip(guess[self.at], 1e-9 * np.maximum(size, 1e-12), most))

    def intervals(self) -> list[Interval]:
        if self.kink.any():
            self._look_around()
        for _ in range(STEPS):
            e = np.flatnonzero(self.live)
            if not len(e):
                break
            self._take(e, *self._proposed(e))
        edges = [self._edge(i) for i in range(len(self.at))]
        return list(zip(edges[::2], edges[1::2], strict=True))

    def _look_around(self) -> None:
        """Brackets the edges of knees from the outermost place that is still inside."""
        for i in np.flatnonzero(self.kink):
            places = np.linspace(self.value[i], self.bound[i], GRID + 1)[1:]
            if abs(self.bound[i] - self.value[i]) <= 1e-9 * abs(self.value[i]):
                self.live[i] = False
                continue
            f, p = self._beyond(np.full(GRID, i), places)
            last = int(np.flatnonzero(f <= 0)[-1]) if (f <= 0).any() else -1
            if last >= 0:
                self.inside[i], self.f_inside[i], self.warm[i] = places[last], f[last], p[last]
            if last == GRID - 1:
                self.live[i] = False
            else:
                self.outside[i], self.f_outside[i] = places[last + 1], f[last + 1]

    def _proposed(self, e: Places) -> tuple[Floats, Flags]:
        """Next values, and whether they are the bound: steps that grow until an edge lies between two places,
        then regula falsi with Illinois' halving (Dowell and Jarratt, BIT 11 (1971) 168)."""
        a, b, fa, fb = self.inside[e], self.outside[e], self.f_inside[e], self.f_outside[e]
        there = a + self.side[e] * self.step[e]
        past = (there - self.bound[e]) * self.side[e] >= 0
        there = np.where(past, self.bound[e], there)
        between = (a * fb - b * fa) / (fb - fa)
        met = np.isfinite(b)
        return np.where(met, between, there), past & ~met

    def _take(self, e: Places, values: Floats, at_bound: Flags) -> None:
        f, p = self._beyond(e, values)
        met = np.isfinite(self.outside[e])
        out = f > 0
        grown = e[~out & ~met]
        self.step[grown] *= np.clip(1.0 / np.maximum(f[~out & ~met] + 1, 0.3), 1.5, 3.0)
        again_out, again_in = e[out & met], e[~out & met]
        self.f_inside[again_out[self.last[again_out] > 0]] /= 2
        self.f_outside[again_in[self.last[again_in] < 0]] /= 2
        self.last[again_out], self.last[again_in] = 1, -1
        self.outside[e[out]], self.f_outside[e[out]] = values[out], f[out]
        self.inside[e[~out]], self.f_inside[e[~out]], self.warm[e[~out]] = values[~out], f[~out], p[~out]
        close = np.abs(f) < 1e-6
        width = np.abs(self.outside[e] - self.inside[e])
        done = close | (at_bound & ~out) | (width <= 1e-9 * np.abs(self.inside[e]))
        self.inside[e[close]] = self.outside[e[close]] = values[close]
        self.live[e[done]] = False

    def _beyond(self, e: Places, values: Floats) -> tuple[Floats, Floats]:
        """sqrt of the excess over the limit's, less one (nearly straight: secants meet it soon), and
        where."""
        start = self.warm[e].copy()
        start[np.arange(len(e)), :, self.at[e]] = values[:, None]
        held = np.zeros(start.shape, dtype=bool)
        held[np.arange(len(e)), :, self.at[e]] = True
        width = start.shape[2]
        p, rss = solve(
            self.model,
            self.found.n,
            self.found.x,
            start.reshape(-1, width),
            held.reshape(-1, width),
            gain=_GAIN,
        )
        excess = np.maximum(rss.reshape(len(e), -1).min(1) - self.least, 0.0)
        return np.sqrt(excess / self.room) - 1, p.reshape(start.shape)

    def _edge(self, i: int) -> float | None:
        if np.isfinite(self.outside[i]):
            return float((self.inside[i] + self.outside[i]) / 2)
        bound = float(self.bound[i])
        return bound if not self.live[i] and not self.open_at_bound[i] and abs(bound) < 1e11 else None


LEAST = 3
"""Whole series from which on repeats are drawn: two are too few for Student's t."""
DRAWS = 400


@dataclass(frozen=True)
class Drawn:
    """Parameters of each draw, (draws, parameters), throughput in the fit's unit."""

    p: Floats
    repeats: int

    @property
    def quantile(self) -> float:
        """By what a standard deviation over draws becomes half a 95 % interval."""
        r = self.repeats
        return students_quantile(r - 1) * float(np.sqrt(r / (r - 1)))

    def std_err(self, values: Floats) -> float:
        r = self.repeats
        return float(values.std(ddof=1) * np.sqrt(r / (r - 1)))

    def interval(self, value: float, values: Floats, log: bool = False) -> tuple[float, float]:
        """Around ``value``; on the scale of logarithms where the figure is a size."""
        if log:
            half = self.quantile * np.log(values).std(ddof=1)
            return value * float(np.exp(-half)), value * float(np.exp(half))
        half = self.quantile * values.std(ddof=1)
        return value - float(half), value + float(half)


def means(series: Floats, seed: int, draws: int = DRAWS) -> Floats:
    """Mean throughput at each load, of each draw: (draws, loads)."""
    chance = np.random.default_rng(seed)
    repeats, _, each = series.shape
    picked = series[chance.integers(0, repeats, (draws, repeats))]
    if each > 1:
        within = chance.integers(0, each, picked.shape)
        picked = np.take_along_axis(picked, within, axis=3)
    return np.asarray(picked.mean(axis=(1, 3)))


def drawn(found: Fit, series: Floats, seed: int) -> Drawn:
    """The model fitted to every draw: with as many points at every load that is a fit to the means."""
    loads = np.unique(found.n)
    x = means(series, seed) / found.size
    minima = found.minima[: 3 if len(found.model.knees) else 1]
    start = np.tile(minima, (len(x), 1))
    p, rss = solve(tabled(found.model, loads), loads, np.repeat(x, len(minima), 0), start, gain=1e-7)
    best = rss.reshape(len(x), -1).argmin(1)
    return Drawn(p.reshape(len(x), len(minima), -1)[np.arange(len(x)), best], series.shape[0])
