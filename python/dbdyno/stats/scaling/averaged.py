"""Figures and throughputs of a ladder, averaged over all models.

An interval of the model that happened to fit best ignores the choice, and is too narrow. So the models are
averaged, weighted by their probability given the data (Hoeting, Madigan, Raftery and Volinsky, Bayesian
Model Averaging: A Tutorial, Statistical Science 14 (1999) 382), and so are errors of constant size and
proportional errors. A knee is claimed if models with one have a probability of 95 %: odds of k to 1 in
favour of a false hypothesis occur in fewer than 1 of k ladders (Kass and Raftery, Journal of the American
Statistical Association 90 (1995) 773). The coverage of the intervals is simulated by ``python -m
benchmarks claims``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats import special
from dbdyno.stats.scaling import sampled as sampling
from dbdyno.stats.scaling.curves import Floats
from dbdyno.stats.scaling.models import MODELS
from dbdyno.stats.scaling.points import FARTHEST, Points
from dbdyno.stats.scaling.sampled import FAMILIES, Sampled, Series

SURE = 0.95
"""Least probability of a knee, a second one, or a law's parameters that are claimed."""
SURE_PEAK = 0.975
"""Least probability of a claimed peak, so that the upper end of its interval is finite."""
TAIL = 0.025
"""Tail probability of rates and throughputs at each end."""
SELECTED = 0.0125
"""Tail probability of figures that are claimed only if the models agree that they exist.

The other half of the error is spent on that choice."""
HULL = {"rate": 0.05, "knee": 0.05, "yield": 0.005, "peak": 0.005, "peak throughput": 0.005}
"""Tail probability of each further model that is not excluded and widens an interval."""
NEAR = 3.0
"""Largest difference in log likelihood to the most probable model of one that still widens intervals."""
KEPT, NEARBY = 4000, 400
"""Number of draws of all models together, and of each one that is not excluded."""
MOST_LOADS = 120
"""Largest number of loads; of more, neighbours are merged."""
DRIFTS = np.concatenate([[1.0], 1.5 * 2.0 ** np.arange(11)])
"""Factors on the variance between climbs by drift, relative to noise alone; the first is without drift."""
KNEED = ("plateau", "queue", "one-knee", "two-knees")
STEADY = ("linear", "amdahl", sampling.POWER)
"""Models without a knee and a peak."""


@dataclass(frozen=True)
class Claimed:
    """A figure after the choice of model, throughput in the unit of the points."""

    value: float
    low: float | None
    high: float | None
    claimed: bool
    probability: float
    """Probability that the figure exists."""
    why: str = ""
    """Reason why it is not claimed: no-knee | no-second-knee | no-peak | other-models."""


@dataclass(frozen=True)
class Averaged:
    """Draws from all models, all with equal weight; throughput in the unit of the points."""

    shares: dict[str, float]
    """Probability of each model."""
    proportional: float
    """Probability of proportional errors."""
    parameters: dict[str, Floats]
    """Parameters of each model's draws, (draws, parameters)."""
    near: dict[str, Floats]
    """Draws of each model with a knee or peak that is not excluded, however small its probability."""
    first: float
    last: float

    def throughput(self, loads: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns the median of the mean throughput at ``loads``, and its 95 % interval."""
        n = np.asarray(loads, dtype=float)
        curves = [
            sampling.curve_of(m, n, self.first, self.last)(p) for m, p in self.parameters.items() if len(p)
        ]
        low, middle, high = np.quantile(np.concatenate(curves), [TAIL, 0.5, 1 - TAIL], axis=0)
        return middle, low, high

    @cached_property
    def figures(self) -> dict[str, Claimed]:
        """Figures rate, sigma, kappa, knee, yield, knee2, yield2, peak, peak throughput."""
        return _figures(self)


def averaged(points: Points, names: Sequence[str] | None = None) -> Averaged:
    """Averages the models ``names`` (all if None); unknown names are ignored."""
    return averaged_all([points], names)[0]


def averaged_all(ladders: Sequence[Points], names: Sequence[str] | None = None) -> list[Averaged]:
    """Averages the models for each of ``many`` ladders, which have the same loads and repeats."""
    known = [f for f in FAMILIES if names is None or f.name in names]
    known = known if len(ladders[0].loads) > 1 else list(FAMILIES[:1])  # one load has no shape: the line only
    prepared = [_prepared(p) for p in ladders]
    laws = [_together([m.laws[i] for m in prepared]) for i in range(2)]
    drawn = [sampling.sampled(f, law) for law in laws for f in known]
    evidence = np.stack([s.log_evidence for s in drawn], 1)
    shares = np.exp(evidence - special.log_sum_exp(evidence, axis=1))
    return [_Ladder(i, m, drawn, shares[i]).averaged() for i, m in enumerate(prepared)]


# -- points as series --


@dataclass(frozen=True)
class _Prepared:
    size: float
    laws: tuple[Series, Series]
    drift: tuple[float, float] = (0.0, 0.0)
    """Sum of squares between climbs, under each law of the noise."""


def _prepared(points: Points) -> _Prepared:
    size = float(points.x.max())
    if points.series is not None and len(points.loads) > 1:
        return _climbs(points.loads, points.series / size, size)
    n, x = points.n, points.x / size
    if len(points.loads) > MOST_LOADS:
        place = np.unique(_group(n), return_inverse=True)[1]
        n = (np.bincount(place, n) / np.bincount(place))[place]
    loads, at, counts = np.unique(n, return_inverse=True, return_counts=True)
    laws = []
    for v in (x, np.log(x)):
        mean = np.bincount(at, v) / counts
        within = 0.0 if n is not points.n else float(((v - mean[at]) ** 2).sum())
        laws.append(_law(loads, mean, counts, within, 1, None if v is x else x))
    return _Prepared(size, (laws[0], laws[1]))


def _group(n: Floats) -> Floats:
    """Returns one number for loads that are close by ratio and by difference, as curves bend most at low
    loads."""
    first, last = n.min(), n.max()
    by_ratio, by_size = np.log(n / first) / np.log(last / first), (n - first) / (last - first)
    return np.asarray((by_ratio + by_size) * MOST_LOADS // 2)


def _climbs(loads: Floats, x: Floats, size: float) -> _Prepared:
    """Scales each climb to the mean of all: differences of climbs as a whole are drift and not noise.
    ``x``: (climbs, loads, points of a climb at a load)."""
    climbs, _, each = x.shape
    mean = x.mean(axis=(0, 2))
    weight = float(each * (mean * mean).sum())
    scale = np.maximum((x * mean[None, :, None]).sum(axis=(1, 2)) / weight, 1e-3)
    logs, laws, drift = np.log(x), [], []
    level = logs.mean(axis=(1, 2))
    for v, own, points, raw in (
        (x / (scale / scale.mean())[:, None, None], np.log(scale), weight, None),
        (logs - (level - level.mean())[:, None, None], level, each * len(loads), x),
    ):
        mean = v.mean(axis=(0, 2))
        within = float(((v - mean[None, :, None]) ** 2).sum())
        laws.append(_law(loads, mean, np.full(len(loads), climbs * each), within, climbs, raw))
        drift.append(points * float(((own - own.mean()) ** 2).sum()))
    return _Prepared(size, (laws[0], laws[1]), (drift[0], drift[1]))


def _law(
    loads: Floats, mean: Floats, counts: NDArray[np.intp], within: float, scales: int, raw: Floats | None
) -> Series:
    """Returns the ladder under one law of the noise. ``raw``: throughputs if ``mean`` is that of their
    logarithms, else None."""
    # Both laws must be densities of the throughput itself to be compared: dx = x d(log x).
    jacobian = 0.0 if raw is None else -float(np.log(raw).sum())
    return Series(
        loads,
        mean[None],
        counts.astype(float),
        np.array([within]),
        raw is not None,
        scales,
        np.array([jacobian]),
    )


def _together(laws: Sequence[Series]) -> Series:
    y, within, jacobian = (
        np.concatenate([getattr(s, part) for s in laws]) for part in ("y", "within", "jacobian")
    )
    return replace(laws[0], y=y, within=within, jacobian=jacobian)


# -- draws of one ladder --


@dataclass(frozen=True)
class _Ladder:
    """Ladder ``at`` of those that were sampled together."""

    at: int
    prepared: _Prepared
    drawn: Sequence[Sampled]
    shares: Floats

    def averaged(self) -> Averaged:
        names = dict.fromkeys(s.family.name for s in self.drawn)
        total = {name: float(sum(share for _, share in self._by_law(name))) for name in names}
        tops = {name: max(float(s.top[self.at]) for s, _ in self._by_law(name)) for name in names}
        least = tops[max(total, key=lambda name: total[name])] - NEAR
        near = [name for name in names if name not in STEADY and tops[name] >= least]
        proportional = sum(
            share for s, share in zip(self.drawn, self.shares, strict=True) if s.series.proportional
        )
        loads = self.drawn[0].series.n
        return Averaged(
            total,
            float(proportional),
            {name: self._draws(name, KEPT) for name in names},
            {name: self._draws(name, NEARBY / max(total[name], 1e-300)) for name in near},
            float(loads[0]),
            float(loads[-1]),
        )

    def _by_law(self, name: str) -> list[tuple[Sampled, float]]:
        """Returns the model's draws and probability under each law of the noise."""
        return [(s, p) for s, p in zip(self.drawn, self.shares, strict=True) if s.family.name == name]

    def _draws(self, name: str, count: float) -> Floats:
        return np.concatenate([self._parameters(s, round(count * share)) for s, share in self._by_law(name)])

    def _parameters(self, s: Sampled, count: int) -> Floats:
        """Returns ``count`` draws by their weights, each with its own rate."""
        if not count:
            return np.empty((0, s.p.shape[-1]))
        weight = np.exp(s.log_weight[self.at] - s.log_weight[self.at].max())
        at = _picked(weight, (np.arange(count) + 0.5) / count)
        u = sampling.uniform(count, 2)  # in an order that is independent of the draws
        t = special.students_below(max(s.series.degrees + s.series.scales - 1, 1), u[:, 0])
        rate, error = s.rate[self.at, at], s.error[self.at, at]
        if s.series.scales > 1:
            error = error * np.sqrt(self._drift(s, u[:, 1]))
        out = s.p[self.at, at].copy()
        more = np.exp(t * error) if s.series.proportional else np.maximum(1 + t * error, 1e-3)
        out[:, 0] = rate * more * self.prepared.size
        return np.asarray(out)

    def _drift(self, s: Sampled, u: Floats) -> Floats:
        """Draws the factor on the variance of the rate by drift between climbs: no drift is as probable as
        any of the other :data:`DRIFTS` together."""
        free, degrees = s.series.scales - 1, s.series.degrees
        squares = self.prepared.drift[int(s.series.proportional)]
        noise = float(s.series.within[self.at]) + degrees * sampling.SIZE_FLOOR**2
        log = -free / 2 * np.log(DRIFTS) - (degrees + free) / 2 * np.log(noise + squares / DRIFTS)
        log[0] += np.log(len(DRIFTS) - 1)
        return np.asarray(DRIFTS[_picked(np.exp(log - log.max()), u)])


def _picked(weight: Floats, u: Floats) -> NDArray[np.intp]:
    """Returns the places at which the cumulative share of ``weight`` reaches ``u``, 0..1."""
    return np.minimum(np.searchsorted(np.cumsum(weight) / weight.sum(), u), len(weight) - 1)


# -- figures --


def _figures(averaged_: Averaged) -> dict[str, Claimed]:
    p, empty = averaged_.parameters, np.empty((0, 5))
    amdahl, usl, two = (p.get(name, empty) for name in ("amdahl", "usl", "two-knees"))
    none = np.zeros(len(p.get("linear", empty)))
    rate = np.concatenate([v[:, 0] for v in p.values()])

    def claim(values: Floats, why: str, sure: float = SURE) -> Claimed:
        return _claim(values, len(rate), sure, why)

    out = {
        "rate": claim(rate, "", 0.0),
        "sigma": claim(np.concatenate([none, amdahl[:, 1], usl[:, 1]]), "other-models"),
        "kappa": claim(np.concatenate([none, 0 * amdahl[:, 1], usl[:, 2]]), "other-models"),
        "knee": claim(_knees(p, averaged_.last), "no-knee"),
        "yield": claim(_yields(p), "other-models"),
        "knee2": claim(two[:, 3], "no-second-knee"),
        "yield2": claim(two[:, 4], "no-second-knee"),
    }
    peaks = _peaks(p, averaged_)
    for name, values in zip(("peak", "peak throughput"), peaks, strict=True):
        out[name] = claim(values, "no-peak", SURE_PEAK)
    return _widened(averaged_, out)


def _widened(averaged_: Averaged, figures: dict[str, Claimed]) -> dict[str, Claimed]:
    """Widens intervals by models that the data do not exclude, though others have nearly all of the
    probability: few rungs leave open which shape a bend has."""
    out = dict(figures)
    for name, v in averaged_.near.items():
        peaks, tops = _peaks({name: v}, averaged_)
        more = {"rate": v[:, 0], "knee": _knees({name: v}, averaged_.last), "yield": _yields({name: v})}
        if len(peaks) > len(v) / 2:
            more |= {"peak": peaks, "peak throughput": tops}
        for figure, values in more.items():
            low, high = out[figure].low, out[figure].high
            if len(values) and low is not None and high is not None:
                ends = np.quantile(values, [HULL[figure], 1 - HULL[figure]])
                out[figure] = replace(
                    out[figure], low=min(low, float(ends[0])), high=max(high, float(ends[1]))
                )
    return out


def _knees(parameters: dict[str, Floats], last: float) -> Floats:
    """Returns the first knee of all draws with one among the measured loads."""
    knees = np.concatenate([np.empty(0), *(p[:, 1] for name, p in parameters.items() if name in KNEED)])
    return np.asarray(knees[knees <= last])


def _yields(parameters: dict[str, Floats]) -> Floats:
    """Returns the gain per unit of load after the first knee over that before; 0 for a plateau."""
    flat = np.zeros(len(parameters.get("plateau", ())))
    bent = (p[:, 2] for name, p in parameters.items() if name in ("one-knee", "two-knees"))
    return np.concatenate([flat, *bent])


def _peaks(parameters: dict[str, Floats], averaged_: Averaged) -> tuple[Floats, Floats]:
    """Returns load and throughput of the peak of all draws with one in reach. A peak below all measured
    loads counts at the first load."""
    peaks, tops = [np.empty(0)], [np.empty(0)]
    for name, p in parameters.items():
        model = MODELS.get(name)
        if model is not None and model.peak is not None and model.top is not None and len(p):
            at = model.peak.of(p)
            near = at <= FARTHEST * averaged_.last
            peaks.append(np.maximum(at[near], averaged_.first))
            below = model.curve(np.array([averaged_.first]), p[near])[:, 0]
            tops.append(np.where(at[near] < averaged_.first, below, model.top.of(p[near])))
    return np.concatenate(peaks), np.concatenate(tops)


def _claim(values: Floats, count: int, sure: float, why: str) -> Claimed:
    """Returns the figure by the draws that have it, of ``count`` in all."""
    share, tail = len(values) / count, SELECTED if why else TAIL
    if not len(values):
        return Claimed(np.nan, None, None, False, 0.0, why)
    low, middle, high = (float(v) for v in np.quantile(values, [tail, 0.5, 1 - tail]))
    return Claimed(middle, low, high, share >= sure, share, "" if share >= sure else why)
