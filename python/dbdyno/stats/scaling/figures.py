"""Figures of a fit with their intervals: parameters, knees, peak."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dbdyno.stats.estimates import students_quantile
from dbdyno.stats.scaling.curves import Floats
from dbdyno.stats.scaling.fit import Fit, central
from dbdyno.stats.scaling.intervals import Drawn, Interval, Profiled, intervals, profiled
from dbdyno.stats.scaling.models import BY_CURVATURE, Derived, carried_on, own_parameter

PROFILE = "profile likelihood"
REPEATS = "bootstrap of repeats"
CURVATURE = "Student's t, curvature"
LEAST_PEAK = 1e-6
"""Least load of a drawn peak; lower ones are raised to it."""


@dataclass(frozen=True)
class Figure:
    """A value with its interval, throughput in the unit of the points."""

    name: str
    unit: str
    """Unit: 1/s, load or ratio."""
    value: float
    interval: Interval
    std_err: float | None
    method: str


@dataclass
class Figures:
    """All figures of a fit."""

    parameters: list[Figure] = field(default_factory=list)
    knees: list[Figure] = field(default_factory=list)
    peak: Figure | None = None
    top: Figure | None = None


def figures(fitted: Fit, how: str, drawn: Drawn | None = None) -> Figures:
    """Returns all figures of a fit. ``how``: one of the methods; ``drawn``: the draws for that by repeats."""
    model = fitted.model
    own = [own_parameter(i, q.name) for i, q in enumerate(model.parameters)]
    wanted: list[tuple[Derived, str]] = [(d, q.unit) for d, q in zip(own, model.parameters, strict=True)]
    wanted += [(k, "load") for k in model.knees]
    wanted += [(d, u) for d, u in ((model.peak, "load"), (model.top, "1/s")) if d is not None]
    wanted = [(d, u) for d, u in wanted if d not in (model.peak, model.top) or _has_peak(fitted)]
    wanted = [(d, u) for d, u in wanted if np.isfinite(d.of(fitted.p))]
    if how == REPEATS and drawn is not None:
        edges = [_by_repeats(fitted, drawn, d, u) for d, u in wanted]
    elif how == PROFILE:
        edges = _by_profile(fitted, [d for d, _ in wanted])
    else:
        edges = [_by_curvature(fitted, d) for d, _ in wanted]
    figures_ = [_figure(fitted, d, u, e, how, drawn) for (d, u), e in zip(wanted, edges, strict=True)]
    return _arranged(fitted, figures_)


def _has_peak(fitted: Fit) -> bool:
    return fitted.model.peak is not None and bool(0 < fitted.model.peak.of(fitted.p) < np.inf)


def _arranged(fitted: Fit, figures_: list[Figure]) -> Figures:
    count = len(fitted.p)
    rest = figures_[count:]
    knees = rest[: len(fitted.model.knees)]
    last = rest[len(knees) :]
    peak, top = (last[0], last[1]) if len(last) == 2 else (None, None)
    if peak is not None and knees:  # if growth turns at a knee, that knee is the peak
        peak = next((k for k in knees if k.value == peak.value), peak)
    return Figures(figures_[:count], sorted(knees, key=lambda k: k.value), peak, top)


def _figure(fitted: Fit, what: Derived, unit: str, edge: Interval, how: str, drawn: Drawn | None) -> Figure:
    size = fitted.size if unit == "1/s" else 1.0
    low, high = (None if e is None else e * size for e in edge)
    if how == REPEATS and drawn is not None:
        values = what.of(drawn.p)
        error = drawn.std_err(values) if np.isfinite(values).all() else None
    else:
        error = _error(fitted, what)
    at_bound = (
        what.at != BY_CURVATURE and what.model is None and fitted.model.names[what.at] in fitted.at_bound
    )
    error = None if error is None or at_bound else error * size
    return Figure(what.name, unit, float(what.of(fitted.p)) * size, (low, high), error, how)


def _error(fitted: Fit, what: Derived) -> float | None:
    """Returns the standard error by the delta method; None if the figure has no finite derivative."""
    slopes = []
    for i, v in enumerate(fitted.p):
        step = 1e-5 * max(abs(v), 1e-9)
        up, down = fitted.p.copy(), fitted.p.copy()
        up[i], down[i] = v + step, v - step
        slopes.append((what.of(up) - what.of(down)) / (2 * step))
    g = np.array(slopes, dtype=float)
    free = np.array([name not in fitted.at_bound for name in fitted.model.names])
    if not np.isfinite(g[free]).all():
        return None
    g = np.where(free, g, 0.0)
    return float(np.sqrt(max(g @ fitted.covariance @ g, 0.0)))


def _by_curvature(fitted: Fit, what: Derived) -> Interval:
    error = _error(fitted, what)
    if error is None or (what.at != BY_CURVATURE and what.model is None and error == 0):
        return None, None
    half = students_quantile(fitted.degrees) * error
    value = float(what.of(fitted.p))
    return _within(fitted, what, value - half, value + half)


def _by_profile(fitted: Fit, wanted: list[Derived]) -> list[Interval]:
    """Returns intervals by profile. Parameters come first: a peak is not profiled if they leave open
    whether it exists."""
    own = [d for d in wanted if d.model is None and d.at != BY_CURVATURE]
    places = sorted({d.at for d in own})
    asked = [Profiled(fitted.model, fitted.minima, at) for at in places]
    edges = dict(zip(places, intervals(fitted, asked), strict=True))
    open_peak = fitted.model.name == "usl" and not edges[2][0]
    turned = [
        d
        for d in wanted
        if d.model is not None and not (open_peak and d in (fitted.model.peak, fitted.model.top))
    ]
    sought = [(d, p) for d in turned if (p := profiled(fitted, d)) is not None]
    more = dict(zip([d.name for d, _ in sought], intervals(fitted, [p for _, p in sought]), strict=True))
    return [_edge(fitted, d, edges, more) for d in wanted]


def _edge(fitted: Fit, what: Derived, edges: dict[int, Interval], more: dict[str, Interval]) -> Interval:
    if what.at == BY_CURVATURE:
        return _by_curvature(fitted, what)
    return edges[what.at] if what.model is None else more.get(what.name, (None, None))


def _by_repeats(fitted: Fit, drawn: Drawn, what: Derived, unit: str) -> Interval:
    """Returns the interval by repeats. Sizes are on a logarithmic scale; a peak, which may be at infinity,
    is on the scale of its inverse square."""
    values, value = what.of(drawn.p), float(what.of(fitted.p))
    if what is fitted.model.peak:
        values = np.maximum(values, LEAST_PEAK)
        low, high = drawn.interval(value**-2, values**-2.0)
        return high**-0.5, (low**-0.5 if low > 0 else None)
    if what is fitted.model.top:
        low, high = drawn.interval(1 / value, 1 / values)
        return 1 / high, (1 / low if low > 0 else None)
    low, high = drawn.interval(value, values, log=unit != "ratio" and bool((values > 0).all()))
    return _within(fitted, what, low, high)


def _within(fitted: Fit, what: Derived, low: float, high: float) -> Interval:
    """Clips an interval to the parameter's bounds. A knee at the last load has no upper end."""
    if what.at == BY_CURVATURE or what.model is not None:
        return low, high
    q = fitted.model.parameters[what.at]
    above = None if q.is_knee and high >= q.high else min(high, q.high)
    return (None if q.is_kink and low <= q.low else max(low, q.low)), above


def band(fitted: Fit, loads: Floats, drawn: Drawn | None = None) -> tuple[Floats, Floats, Floats]:
    """Returns throughput at ``loads`` with the 95 % band of its mean, in the unit of the points."""
    model = replace(fitted.model, curve=carried_on(fitted.model, float(fitted.n.max())))
    x = model.curve(loads, fitted.p)
    if drawn is not None:
        curves = model.curve(loads, drawn.p)
        half = drawn.quantile * curves.std(axis=0, ddof=1)
    else:
        free = [i for i, name in enumerate(fitted.model.names) if name not in fitted.at_bound]
        slopes = central(model, loads, fitted.p)[:, free]
        covariance = fitted.covariance[np.ix_(free, free)]
        half = np.sqrt(np.maximum(np.einsum("ki,ij,kj->k", slopes, covariance, slopes), 0))
        half = half * students_quantile(max(fitted.degrees, 1))
    return x * fitted.size, np.maximum(x - half, 0) * fitted.size, (x + half) * fitted.size
