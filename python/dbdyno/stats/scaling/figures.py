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
"""Load: below it a drawn peak counts as there."""


@dataclass(frozen=True)
class Figure:
    """A value with its interval, throughput in the unit of the points."""

    name: str
    unit: str
    """1/s, load or ratio."""
    value: float
    interval: Interval
    std_err: float | None
    method: str


@dataclass
class Figures:
    parameters: list[Figure] = field(default_factory=list)
    knees: list[Figure] = field(default_factory=list)
    peak: Figure | None = None
    top: Figure | None = None


def figures(found: Fit, how: str, drawn: Drawn | None = None) -> Figures:
    """``how``: one of the methods; ``drawn`` for that by repeats."""
    model = found.model
    own = [own_parameter(i, q.name) for i, q in enumerate(model.parameters)]
    wanted: list[tuple[Derived, str]] = [(d, q.unit) for d, q in zip(own, model.parameters, strict=True)]
    wanted += [(k, "load") for k in model.knees]
    wanted += [(d, u) for d, u in ((model.peak, "load"), (model.top, "1/s")) if d is not None]
    wanted = [(d, u) for d, u in wanted if d not in (model.peak, model.top) or _has_peak(found)]
    wanted = [(d, u) for d, u in wanted if np.isfinite(d.of(found.p))]
    if how == REPEATS and drawn is not None:
        edges = [_by_repeats(found, drawn, d, u) for d, u in wanted]
    elif how == PROFILE:
        edges = _by_profile(found, [d for d, _ in wanted])
    else:
        edges = [_by_curvature(found, d) for d, _ in wanted]
    made = [_figure(found, d, u, e, how, drawn) for (d, u), e in zip(wanted, edges, strict=True)]
    return _sorted(found, made)


def _has_peak(found: Fit) -> bool:
    return found.model.peak is not None and bool(0 < found.model.peak.of(found.p) < np.inf)


def _sorted(found: Fit, made: list[Figure]) -> Figures:
    count = len(found.p)
    rest = made[count:]
    knees = rest[: len(found.model.knees)]
    last = rest[len(knees) :]
    peak, top = (last[0], last[1]) if len(last) == 2 else (None, None)
    if peak is not None and knees:  # growth turns at a knee: that knee is the peak
        peak = next((k for k in knees if k.value == peak.value), peak)
    return Figures(made[:count], sorted(knees, key=lambda k: k.value), peak, top)


def _figure(found: Fit, what: Derived, unit: str, edge: Interval, how: str, drawn: Drawn | None) -> Figure:
    size = found.size if unit == "1/s" else 1.0
    low, high = (None if e is None else e * size for e in edge)
    if how == REPEATS and drawn is not None:
        values = what.of(drawn.p)
        error = drawn.std_err(values) if np.isfinite(values).all() else None
    else:
        error = _error(found, what)
    held = what.at != BY_CURVATURE and what.model is None and found.model.names[what.at] in found.at_bound
    error = None if error is None or held else error * size
    return Figure(what.name, unit, float(what.of(found.p)) * size, (low, high), error, how)


def _error(found: Fit, what: Derived) -> float | None:
    """By the delta method."""
    slopes = []
    for i, v in enumerate(found.p):
        step = 1e-5 * max(abs(v), 1e-9)
        up, down = found.p.copy(), found.p.copy()
        up[i], down[i] = v + step, v - step
        slopes.append((what.of(up) - what.of(down)) / (2 * step))
    g = np.array(slopes, dtype=float)
    free = np.array([name not in found.at_bound for name in found.model.names])
    if not np.isfinite(g[free]).all():
        return None
    g = np.where(free, g, 0.0)
    return float(np.sqrt(max(g @ found.covariance @ g, 0.0)))


def _by_curvature(found: Fit, what: Derived) -> Interval:
    error = _error(found, what)
    if error is None or (what.at != BY_CURVATURE and what.model is None and error == 0):
        return None, None
    half = students_quantile(found.degrees) * error
    value = float(what.of(found.p))
    return _within(found, what, value - half, value + half)


def _by_profile(found: Fit, wanted: list[Derived]) -> list[Interval]:
    """Parameters first: a peak of which they do not say that there is one is not looked for."""
    own = [d for d in wanted if d.model is None and d.at != BY_CURVATURE]
    places = sorted({d.at for d in own})
    asked = [Profiled(found.model, found.minima, at) for at in places]
    edges = dict(zip(places, intervals(found, asked), strict=True))
    open_peak = found.model.name == "usl" and not edges[2][0]
    turned = [
        d
        for d in wanted
        if d.model is not None and not (open_peak and d in (found.model.peak, found.model.top))
    ]
    sought = [(d, p) for d in turned if (p := profiled(found, d)) is not None]
    more = dict(zip([d.name for d, _ in sought], intervals(found, [p for _, p in sought]), strict=True))
    return [_edge(found, d, edges, more) for d in wanted]


def _edge(found: Fit, what: Derived, edges: dict[int, Interval], more: dict[str, Interval]) -> Interval:
    if what.at == BY_CURVATURE:
        return _by_curvature(found, what)
    return edges[what.at] if what.model is None else more.get(what.name, (None, None))


def _by_repeats(found: Fit, drawn: Drawn, what: Derived, unit: str) -> Interval:
    """Sizes on the scale of logarithms; a peak, which may be at infinity, by the inverse of its square."""
    values, value = what.of(drawn.p), float(what.of(found.p))
    if what is found.model.peak:
        values = np.maximum(values, LEAST_PEAK)
        low, high = drawn.interval(value**-2, values**-2.0)
        return high**-0.5, (low**-0.5 if low > 0 else None)
    if what is found.model.top:
        low, high = drawn.interval(1 / value, 1 / values)
        return 1 / high, (1 / low if low > 0 else None)
    low, high = drawn.interval(value, values, log=unit != "ratio" and bool((values > 0).all()))
    return _within(found, what, low, high)


def _within(found: Fit, what: Derived, low: float, high: float) -> Interval:
    """Kept to the parameter's bounds; at the last load a knee has no upper one."""
    if what.at == BY_CURVATURE or what.model is not None:
        return low, high
    q = found.model.parameters[what.at]
    above = None if q.is_knee and high >= q.high else min(high, q.high)
    return (None if q.is_kink and low <= q.low else max(low, q.low)), above


def band(found: Fit, loads: Floats, drawn: Drawn | None = None) -> tuple[Floats, Floats, Floats]:
    """Throughput at ``loads`` with the 95 % band of its mean, in the unit of the points."""
    model = replace(found.model, curve=carried_on(found.model, float(found.n.max())))
    x = model.curve(loads, found.p)
    if drawn is not None:
        curves = model.curve(loads, drawn.p)
        half = drawn.quantile * curves.std(axis=0, ddof=1)
    else:
        free = [i for i, name in enumerate(found.model.names) if name not in found.at_bound]
        slopes = central(model, loads, found.p)[:, free]
        covariance = found.covariance[np.ix_(free, free)]
        half = np.sqrt(np.maximum(np.einsum("ki,ij,kj->k", slopes, covariance, slopes), 0))
        half = half * students_quantile(max(found.degrees, 1))
    return x * found.size, np.maximum(x - half, 0) * found.size, (x + half) * found.size
