"""Intervals of a fit's figures: by profile likelihood, or by repeats.

Profile likelihood: the range over which a figure can move while all other parameters are fitted again. The
limit is RSS (1 + t^2 / (n - k)), with t Student's two-sided 95 % quantile with n - k degrees of freedom:
Bates and Watts, Nonlinear Regression Analysis (1988), section 6.1.

Repeats: series are drawn with replacement, then the points within each of their loads. The hierarchical
bootstrap (Davison and Hinkley, Bootstrap Methods and their Application (1997), section 3.8) gives the
spread of a figure. Few series underestimate it, by sqrt((R - 1) / R), and Student's t with R - 1 degrees
of freedom replaces the normal quantile (Hesterberg, The American Statistician 69 (2015) 371, 5.2).
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
"""Largest number of steps towards an edge; about ten are needed. An edge that is not reached then does not
exist."""
GRID = 30
"""Number of places on each side at which the profile of a knee is computed, as it may have several
valleys."""
_GAIN = 1e-9

Places = NDArray[np.intp]
Flags = NDArray[np.bool_]
Interval = tuple[float | None, float | None]


@dataclass(frozen=True)
class Profiled:
    """Parameter ``at`` of ``model`` that is moved, starting from the minima (minima, parameters)."""

    model: Model
    minima: Floats
    at: int


def profiled(fitted: Fit, what: Derived) -> Profiled | None:
    """Returns ``what`` as a parameter; None if it is undefined at the best fit, or if its form of the
    model is."""
    if not np.isfinite(what.of(fitted.p)):
        return None
    if what.model is None or what.turned is None:
        return Profiled(fitted.model, fitted.minima, what.at)
    turned = what.turned(fitted.minima)
    known = np.asarray(np.isfinite(turned).all(1))
    return Profiled(what.model, turned[known], what.at) if known[0] else None


def intervals(fitted: Fit, wanted: list[Profiled]) -> list[Interval]:
    """Returns the 95 % interval of each figure. An end is None if it is unbounded."""
    factor = students_quantile(fitted.degrees) ** 2 / fitted.degrees
    return [edge for group in _by_model(wanted) for edge in _Edges(fitted, group, factor).intervals()]


def _by_model(wanted: list[Profiled]) -> list[list[Profiled]]:
    """Groups neighbours of the same model, which are solved at once."""
    groups: list[list[Profiled]] = []
    for w in wanted:
        if groups and groups[-1][0].model is w.model:
            groups[-1].append(w)
        else:
            groups.append([w])
    return groups


class _Edges:
    """Both edges of all figures of one model, searched together."""

    def __init__(self, fitted: Fit, wanted: list[Profiled], factor: float) -> None:
        self.fitted, self.model = fitted, wanted[0].model
        self.least = max(fitted.rss, len(fitted.n) * EXACT**2)
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
        self.last = np.zeros(edges)  # side of the last place: two on the same side are slow
        self.step = self._first_steps()
        self.warm = np.repeat(self.minima[None], edges, 0)
        self.live = np.ones(edges, dtype=bool)

    def _within(self, minima: Floats) -> Floats:
        """Drops valleys above the limit, which cannot contain an edge. Without kinks there is one valley."""
        if not any(q.is_kink for q in self.model.parameters):
            return minima[:1]
        rss = ((self.fitted.x - self.model.curve(self.fitted.n, minima)) ** 2).sum(1)
        keep = rss <= self.least + self.room
        keep[0] = True
        return np.asarray(minima[keep])

    def _first_steps(self) -> Floats:
        """Estimates the distance of the edges by the curvature."""
        slopes = central(self.model, self.fitted.n, self.minima[0])
        scale = np.sqrt((slopes**2).sum(0))
        scale = np.where(scale > 0, scale, 1.0)
        inverse = np.linalg.pinv((slopes / scale).T @ (slopes / scale), rcond=1e-10)
        guess = np.sqrt(np.maximum(np.diag(inverse), 0) * self.room) / scale
        size = np.abs(self.value)
        most = np.maximum(size, 1e-6) * np.where(self.side < 0, 0.7, 3.0)
        return np.asarray(np.clip(guess[self.at], 1e-9 * np.maximum(size, 1e-12), most))

    def intervals(self) -> list[Interval]:
        """Returns the intervals."""
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
        """Brackets the edges of knees, from the outermost place that is still inside."""
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
        """Returns the next values, and whether they are the bound: growing steps until an edge is
        bracketed, then regula falsi with Illinois' halving (Dowell and Jarratt, BIT 11 (1971) 168)."""
        a, b, fa, fb = self.inside[e], self.outside[e], self.f_inside[e], self.f_outside[e]
        proposed = a + self.side[e] * self.step[e]
        past = (proposed - self.bound[e]) * self.side[e] >= 0
        proposed = np.where(past, self.bound[e], proposed)
        between = (a * fb - b * fa) / (fb - fa)
        bracketed = np.isfinite(b)
        return np.where(bracketed, between, proposed), past & ~bracketed

    def _take(self, e: Places, values: Floats, at_bound: Flags) -> None:
        """Evaluates the proposed values and updates the brackets."""
        f, p = self._beyond(e, values)
        bracketed = np.isfinite(self.outside[e])
        out = f > 0
        grown = e[~out & ~bracketed]
        self.step[grown] *= np.clip(1.0 / np.maximum(f[~out & ~bracketed] + 1, 0.3), 1.5, 3.0)
        again_out, again_in = e[out & bracketed], e[~out & bracketed]
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
        """Returns sqrt(excess / limit) - 1, which is nearly linear so that secants converge fast, and the
        parameters."""
        start = self.warm[e].copy()
        start[np.arange(len(e)), :, self.at[e]] = values[:, None]
        held = np.zeros(start.shape, dtype=bool)
        held[np.arange(len(e)), :, self.at[e]] = True
        width = start.shape[2]
        p, rss = solve(
            self.model,
            self.fitted.n,
            self.fitted.x,
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
"""Least number of whole series for draws of repeats: two are too few for Student's t."""
DRAWS = 400


@dataclass(frozen=True)
class Drawn:
    """Parameters of each draw, (draws, parameters), throughput in the fit's unit."""

    p: Floats
    repeats: int

    @property
    def quantile(self) -> float:
        """Factor from a standard deviation over draws to half a 95 % interval."""
        r = self.repeats
        return students_quantile(r - 1) * float(np.sqrt(r / (r - 1)))

    def std_err(self, values: Floats) -> float:
        r = self.repeats
        return float(values.std(ddof=1) * np.sqrt(r / (r - 1)))

    def interval(self, value: float, values: Floats, log: bool = False) -> tuple[float, float]:
        """Returns the interval around ``value``; on a logarithmic scale if ``log``."""
        if log:
            half = self.quantile * np.log(values).std(ddof=1)
            return value * float(np.exp(-half)), value * float(np.exp(half))
        half = self.quantile * values.std(ddof=1)
        return value - float(half), value + float(half)


def means(series: Floats, seed: int, draws: int = DRAWS) -> Floats:
    """Returns the mean throughput at each load, of each draw: (draws, loads)."""
    chance = np.random.default_rng(seed)
    repeats, _, each = series.shape
    picked = series[chance.integers(0, repeats, (draws, repeats))]
    if each > 1:
        within = chance.integers(0, each, picked.shape)
        picked = np.take_along_axis(picked, within, axis=3)
    return np.asarray(picked.mean(axis=(1, 3)))


def drawn(fitted: Fit, series: Floats, seed: int) -> Drawn:
    """Fits the model to every draw. As every load has as many points, that is a fit to the means."""
    loads = np.unique(fitted.n)
    x = means(series, seed) / fitted.size
    minima = fitted.minima[: 3 if len(fitted.model.knees) else 1]
    start = np.tile(minima, (len(x), 1))
    p, rss = solve(tabled(fitted.model, loads), loads, np.repeat(x, len(minima), 0), start, gain=1e-7)
    best = rss.reshape(len(x), -1).argmin(1)
    return Drawn(p.reshape(len(x), len(minima), -1)[np.arange(len(x)), best], series.shape[0])
