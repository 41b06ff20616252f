"""The models as data: parameters with units and bounds, formula, citation, peak and knees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from dbdyno.stats.scaling import curves
from dbdyno.stats.scaling.curves import Floats

Curve = Callable[[Floats, Floats], Floats]
BY_CURVATURE = -1
"""Index of a figure that is not a parameter of any form of its model, so that the curvature gives its
interval."""
TABLE = 80
"""Number of knots of the queue's splines."""


@dataclass(frozen=True)
class Parameter:
    """A parameter, its unit and its bounds."""

    name: str
    unit: str
    low: float
    high: float
    is_knee: bool = False
    """Whether it is a load at which growth changes; then the fit starts from each measured load."""
    is_kink: bool = False
    """Whether the curve bends sharply there, so that the sum of squares may have several valleys."""


@dataclass(frozen=True)
class Derived:
    """A figure that follows from the parameters. ``of`` computes it for parameters of shape (...,
    parameters).

    ``model`` is the same model with this figure as its parameter ``at`` in place of another, for its
    profile; ``turned`` converts the parameters. Both are None if the figure is the parameter ``at`` of the
    model itself.
    """

    name: str
    of: Callable[[Floats], Floats]
    at: int
    model: Model | None = None
    turned: Callable[[Floats], Floats] | None = None


@dataclass(frozen=True)
class Model:
    """A family of curves."""

    name: str
    title: str
    formula: str
    cites: str
    parameters: tuple[Parameter, ...]
    curve: Curve
    quick: Curve | None = None
    """The same to six digits for fixed loads, if the curve itself is slow."""
    peak: Derived | None = None
    top: Derived | None = None
    """Load and size of the largest throughput; infinite if the parameters give none."""
    knees: tuple[Derived, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    @cached_property
    def low(self) -> Floats:
        return np.array([p.low for p in self.parameters])

    @cached_property
    def high(self) -> Floats:
        return np.array([p.high for p in self.parameters])


_RATE = Parameter("rate", "1/s", 0.0, np.inf)
_SIGMA = Parameter("sigma", "ratio", 0.0, 1.0)
_SERVERS = Parameter("servers", "load", 1.0, np.inf, is_knee=True)
_KINK = replace(_SERVERS, is_kink=True)
_THINK = Parameter("think", "ratio", 0.0, np.inf)
_KNEE = Parameter("knee", "load", 0.0, np.inf, is_knee=True, is_kink=True)
_KNEE2 = replace(_KNEE, name="knee2")
_YIELD = Parameter("yield", "ratio", -np.inf, 1.0)
_YIELD2 = replace(_YIELD, name="yield2")


def _usl_peak(p: Floats) -> Floats:
    """sqrt((1 - sigma) / kappa): Gunther (2007), equation 4.33."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(p[..., 2] > 0, np.sqrt((1 - p[..., 1]) / p[..., 2]), np.inf))


def _usl_top(p: Floats) -> Floats:
    peak = np.minimum(_usl_peak(p), 1e150)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(curves.usl(peak[..., None], p)[..., 0])


def _usl_turned(p: Floats) -> Floats:
    return np.stack([_usl_top(p), p[..., 1], np.minimum(_usl_peak(p), 1e12)], axis=-1)


def _segment_peak(p: Floats) -> Floats:
    """Returns the last knee before growth turns to loss; infinite if it never does."""
    peak = np.where(p[..., 2] < 0, p[..., 1], np.inf)
    if p.shape[-1] == 5:
        peak = np.where((p[..., 2] >= 0) & (p[..., 4] < 0), p[..., 3], peak)
    return np.asarray(peak)


def _top_of(curve: Curve) -> Callable[[Floats], Floats]:
    return lambda p: np.asarray(curve(np.minimum(_segment_peak(p), 1e150)[..., None], p)[..., 0])


def own_parameter(at: int, name: str) -> Derived:
    """Returns a parameter as a figure."""
    return Derived(name, lambda p: p[..., at], at)


def _saturation(p: Floats) -> Floats:
    """Returns servers (1 + think), the load at which rate N meets the capacity (Kleinrock, Queueing
    Systems II (1976), section 4.12)."""
    return np.asarray(p[..., 1] * (1 + p[..., 2]))


_BY_PEAK = Model(
    "usl",
    "",
    "",
    "",
    (Parameter("top", "1/s", 0.0, np.inf), _SIGMA, Parameter("peak", "load", 1e-6, 1e12)),
    curves.usl_by_peak,
)
_BY_KNEE = Model(
    "repairman",
    "",
    "",
    "",
    (_RATE, Parameter("knee", "load", 1.0, np.inf), _THINK),
    curves.repairman_by_knee,
)


def tabled(model: Model, n: Floats) -> Model:
    """Returns the queue's model with :func:`queue_table` as quick curve; other models unchanged."""
    if model.name != "queue":
        return model
    return replace(model, quick=queue_table(tuple(n), model.low[1], model.high[1]))


@lru_cache(maxsize=8)
def queue_table(loads: tuple[float, ...], low: float, high: float) -> Curve:
    """Returns M/M/c at fixed loads, by splines over the logarithm of the servers between ``low`` and
    ``high``, as the curve itself is slow."""
    places = np.linspace(np.log(low) - 1e-3, np.log(high) + 1e-3, TABLE)
    values = curves.queue(np.array(loads), np.stack([np.ones(TABLE), np.exp(places)], axis=-1))
    bent = _bends(values)

    def curve(_: Floats, p: Floats) -> Floats:
        z = (np.log(p[..., 1]) - places[0]) / (places[1] - places[0])
        i = np.minimum(np.maximum(z.astype(int), 0), TABLE - 2)
        b = (z - i)[..., None]
        a = 1 - b
        line = a * values[i] + b * values[i + 1]
        return np.asarray(p[..., 0, None] * (line + (a**3 - a) * bent[i] + (b**3 - b) * bent[i + 1]))

    return curve


def _bends(values: Floats) -> Floats:
    """Returns second derivatives, over six, of the cubic spline through ``values`` (places, ...) at unit
    distances. Its third derivative is continuous at the second and the last but one knot (not-a-knot, the
    default of scipy.interpolate, whose import takes longer than all fits of a ladder)."""
    m = len(values)
    left, right = np.zeros((m, m)), np.zeros_like(values)
    inner = np.arange(1, m - 1)
    left[inner, inner - 1] = left[inner, inner + 1] = 1
    left[inner, inner] = 4
    right[inner] = values[:-2] - 2 * values[1:-1] + values[2:]
    left[0, :3] = left[-1, -3:] = 1, -2, 1
    return np.asarray(np.linalg.solve(left, right))


STEEPEST = -3.0
"""Steepest assumed fall of throughput, as a power of the load."""


def carried_on(model: Model, last: float) -> Curve:
    """Returns ``model``'s curve with a falling line continued beyond the load ``last`` as a power of the
    load with the same slope there. A line would end below 0."""
    if model.name not in ("one-knee", "two-knees"):
        return model.curve

    def curve(n: Floats, p: Floats) -> Floats:
        before, end = np.moveaxis(model.curve(np.array([last * (1 - 1e-6), last]), p), -1, 0)[..., None]
        end = np.maximum(end, 1e-12)
        power = np.clip((end - before) / end * 1e6, STEEPEST, 0.0)
        falling = end * (np.maximum(n, last) / last) ** power
        return np.asarray(np.where((n > last) & (power < 0), falling, model.curve(n, p)))

    return curve


def _known_think(think_s: float) -> Curve:
    """Returns the repairman's curve by rate and servers for a known Z: Z / S = Z rate / (1 - Z rate)."""

    def curve(n: Floats, p: Floats) -> Floats:
        return curves.repairman(n, with_think(p, think_s))

    return curve


def with_think(p: Floats, think_s: float) -> Floats:
    """Converts (rate, servers) to (rate, servers, think). ``think_s`` in seconds, rate below 1 / think_s."""
    spent = np.minimum(p[..., 0] * think_s, 1 - 1e-9)
    return np.stack([p[..., 0], p[..., 1], spent / (1 - spent)], axis=-1)


MODELS: dict[str, Model] = {
    m.name: m
    for m in (
        Model("linear", "a straight line", "rate N", "", (_RATE,), curves.linear),
        Model(
            "amdahl",
            "Amdahl's law",
            "rate N / (1 + sigma (N - 1))",
            "Amdahl, AFIPS 30 (1967) 483",
            (_RATE, _SIGMA),
            curves.amdahl,
        ),
        Model(
            "usl",
            "the Universal Scalability Law",
            "rate N / (1 + sigma (N - 1) + kappa N (N - 1))",
            "Gunther, Guerrilla Capacity Planning (2007)",
            (_RATE, _SIGMA, Parameter("kappa", "ratio", 0.0, np.inf)),
            curves.usl,
            peak=Derived("peak", _usl_peak, 2, _BY_PEAK, _usl_turned),
            top=Derived("peak throughput", _usl_top, 0, _BY_PEAK, _usl_turned),
        ),
        Model(
            "plateau",
            "a plateau",
            "rate min(N, servers)",
            "Denning and Buzen, Computing Surveys 10 (1978) 225",
            (_RATE, _KINK),
            curves.plateau,
            knees=(own_parameter(1, "knee"),),
        ),
        Model(
            "queue",
            "a queue M/M/c",
            "N = a + C(c, a) a / (c - a), a = X / rate, C: Erlang's delay formula",
            "Kleinrock, Queueing Systems I (1975), 3.5",
            (_RATE, _SERVERS),
            curves.queue,
            knees=(own_parameter(1, "knee"),),
        ),
        Model(
            "repairman",
            "the machine-repairman model M/M/c//N",
            "busy servers / S, S = 1 / (rate (1 + think)), think = Z / S",
            "Kleinrock, Queueing Systems I (1975), 3.8",
            (_RATE, _SERVERS, _THINK),
            curves.repairman,
            knees=(
                Derived(
                    "knee",
                    _saturation,
                    1,
                    _BY_KNEE,
                    lambda p: np.stack([p[..., 0], _saturation(p), p[..., 2]], -1),
                ),
            ),
        ),
        Model(
            "one-knee",
            "growth with one knee",
            "rate (min(N, knee) + yield max(N - knee, 0))",
            "Muggeo, Statistics in Medicine 22 (2003) 3055",
            (_RATE, _KNEE, _YIELD),
            curves.one_knee,
            peak=Derived("peak", _segment_peak, BY_CURVATURE),
            top=Derived("peak throughput", _top_of(curves.one_knee), BY_CURVATURE),
            knees=(own_parameter(1, "knee"),),
        ),
        Model(
            "two-knees",
            "growth with two knees",
            "rate (min(N, knee) + yield (min(N, knee2) - knee) + yield2 (N - knee2)), terms below 0 left out",
            "Muggeo, Statistics in Medicine 22 (2003) 3055",
            (_RATE, _KNEE, _YIELD, _KNEE2, _YIELD2),
            curves.two_knees,
            peak=Derived("peak", _segment_peak, BY_CURVATURE),
            top=Derived("peak throughput", _top_of(curves.two_knees), BY_CURVATURE),
            knees=(own_parameter(1, "knee"), own_parameter(3, "knee2")),
        ),
    )
}


def for_loads(model: Model, n: Floats, think_s: float | None = None) -> Model:
    """Returns the model with knees limited to the range that the loads ``n`` can show, and with a known
    think time. A knee at or beyond the last load but one (servers: the last) was not observed; a queue
    bends before all its servers are busy."""
    loads = np.unique(n)
    last = {"servers": loads[-1] * (4 if model.name == "queue" else 1), "knee": loads[-2], "knee2": loads[-2]}
    parameters = tuple(
        replace(p, low=max(p.low, min(loads[0], last[p.name])), high=last[p.name]) if p.is_knee else p
        for p in model.parameters
    )
    if model.name == "queue":
        return tabled(replace(model, parameters=parameters), n)
    if model.name != "repairman" or not think_s:
        return replace(model, parameters=parameters)
    rate = replace(parameters[0], high=(1 - 1e-9) / think_s)
    knee = Derived("knee", lambda p: _saturation(with_think(p, think_s)), BY_CURVATURE)
    return replace(model, parameters=(rate, parameters[1]), curve=_known_think(think_s), knees=(knee,))
