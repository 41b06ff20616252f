"""Effects: comparable cells, quantities, and the ratio of two groups with its interval."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dbdyno.conclude.catalogue import sentence
from dbdyno.model.results.comparison import Basis, Effect
from dbdyno.model.results.session_time import is_limit
from dbdyno.model.schema.data_sources import costs
from dbdyno.model.schema.tables import ByCell, empty
from dbdyno.stats.estimates import Mean, students_quantile, students_tail, welch_degrees
from dbdyno.stats.significance import Test, rank_sum, signs
from dbdyno.stats.two_groups import Moments

Tables = Mapping[str, pl.DataFrame]
LIMITED = "it was limited by the client"
"""Why a comparison leaves out a measurement that the driver limited."""


class Key(NamedTuple):
    workload: str
    variant: str
    sessions: int
    rate_per_s: float | None = None
    """The rate of paced load. Cells of different rates are never compared."""


class CellFigures(NamedTuple):
    cell: str
    rates: dict[str, float | None]
    """Rates of the whole rung and costs, by name."""
    widths: Mapping[str, float] = MappingProxyType({})
    """Widths of the costs' own intervals, relative to the value."""
    counted_for: Mapping[str, str] = MappingProxyType({})
    """Whose work the costs hold that the engine counts, by name."""


class Cells(NamedTuple):
    """Usable cells by rung and repeat, and the other cells with the reason."""

    of: dict[Key, dict[int, CellFigures]]
    left_out: tuple[tuple[str, str], ...]

    def rungs(self, workload: str) -> list[tuple[int, float | None]]:
        """Returns pairs of sessions and rate, ascending."""
        pairs = {(k.sessions, k.rate_per_s) for k in self.of if k.workload == workload}
        return sorted(pairs, key=lambda r: (r[0], r[1] or 0.0))

    def workloads(self) -> list[str]:
        return list(dict.fromkeys(k.workload for k in self.of))


def cells_of(tables: Tables, *, limited: bool = False) -> Cells:
    """Returns the cells in ``windows`` and ``rates``, with their ``costs`` if there are any. Cells are left
    out if their window is invalid or the driver limited them. With ``limited`` the latter are kept, because
    the server's cost per call is valid for them."""
    usable: dict[Key, dict[int, CellFigures]] = {}
    left_out: list[tuple[str, str]] = []
    parts = ByCell(
        {
            "rates": tables["rates"].filter(pl.col("scope") == "rung"),
            "costs": tables.get("costs", empty("costs")),
        }
    )
    for w in tables["windows"].iter_rows(named=True):
        rates = dict(parts.table("rates", w["cell"]).select("name", "value").rows())
        reason = LIMITED if is_limit(rates) and not limited else ""
        if w["status"] == "invalid":
            reason = w["reason"] or "invalid"
        if reason:
            left_out.append((w["cell"], reason))
        else:
            key = Key(w["workload"], w["variant"], w["sessions"], w["rate_per_s"])
            amounts, widths, whose = _costs(parts.table("costs", w["cell"]))
            figures = CellFigures(w["cell"], rates | amounts, widths, whose)
            usable.setdefault(key, {})[w["repeat"]] = figures
    return Cells(usable, tuple(left_out))


def _costs(table: pl.DataFrame) -> tuple[dict[str, float | None], dict[str, float], dict[str, str]]:
    """Returns the costs of a cell that are no rates, the widths of their intervals, and whose work they hold,
    by name."""
    amounts: dict[str, float | None] = {}
    widths: dict[str, float] = {}
    counted_for: dict[str, str] = {}
    for row in table.select("per", "figure", *_AMOUNTS).iter_rows(named=True):
        own, behind = (costs.metric_of(row["figure"], row["per"], background=b) for b in (False, True))
        if own in COSTS:
            amounts[own] = row["value"]
            counted_for[own] = costs.counted_for(row["source"], row["background_status"])
            if row["value"] and None not in (row["low"], row["high"]):
                widths[own] = (row["high"] - row["low"]) / row["value"]
        # A small rest of two large figures says nothing of a difference, and neither does a lower bound.
        rest = (row["background_source"] or "").endswith(costs.LESS_SESSIONS)
        if not rest and not (row["background_status"] or "").startswith(costs.AT_LEAST):
            amounts[behind] = row["background"]
    return amounts, widths, counted_for


_AMOUNTS = ("value", "low", "high", "source", "background", "background_status", "background_source")


def known(cells: Mapping[int, CellFigures], metric: str) -> dict[int, float]:
    """Returns known values by repeat."""
    values = ((repeat, c.rates.get(metric)) for repeat, c in cells.items())
    return {repeat: v for repeat, v in values if v is not None}


def in_pairs(sides: Sequence[Mapping[int, float]]) -> list[dict[int, float]]:
    """Returns the values of the repeats that all sides know; those of each side if they have none in
    common."""
    both = set.intersection(*map(set, sides)) if sides else set[int]()
    return [{repeat: own[repeat] for repeat in sorted(both) or own} for own in sides]


def everywhere(groups: Iterable[Mapping[int, CellFigures]], metric: str) -> bool:
    """Returns whether the metric is known and above 0 in at least one cell of each group."""
    return all(any(v > 0 for v in known(g, metric).values()) for g in groups)


# -- from moments and a permutation test to an effect --

_ROUNDING = 1e-9  # relative spread that rounding of a sum of squares leaves although the values are equal


Floor = tuple[float, float]
"""Lower limits of the variances of the means of baseline and variant, from the variation within windows."""


def effect(m: Moments, test: Test | None, basis: Basis, floor: Floor | None, **sizes: int) -> Effect:
    """Returns the ratio with its interval; without an interval it has the reason."""
    known: dict[str, Any] = {"basis": basis, "difference": m.y - m.x, **sizes, **_tested(test)}
    if not (m.x > 0 and m.y > 0):
        return Effect(reason=no_interval("zero"), **known, **_by_difference(m))
    wide = m if floor is None else m.floored(*floor)
    known |= {"ratio": m.ratio, "degrees": m.degrees, "floored": wide is not m}
    if wide.variance(m.ratio) <= (_ROUNDING * max(m.x, m.y)) ** 2:
        return Effect(reason=no_interval("spread"), **known)
    known |= {"p": wide.p(), "std_err": wide.ratio * wide.log_std_err}
    if (ends := wide.interval()) is None:
        return Effect(reason=no_interval("unbounded"), **known)
    return Effect(low=ends[0], high=ends[1], **known)


def _by_difference(m: Moments) -> dict[str, float]:
    """Returns Student's interval and p of the difference, for a mean of 0, where there is no ratio."""
    error = math.sqrt(m.variance(1.0))
    half = students_quantile(m.degrees) * error
    p = students_tail((m.y - m.x) / error, m.degrees) if error else 1.0
    low, high = m.y - m.x - half, m.y - m.x + half
    return {"difference_low": low, "difference_high": high, "p": p, "degrees": m.degrees}


def exact_effect(
    baseline: Sequence[float], variant: Sequence[float], test: Test | None, basis: Basis
) -> Effect:
    """Returns the effect of two sides that do not vary, with at least two values each. It has no interval. If
    two values were equally likely, they would be divided between the sides like this with probability 2 ** (1
    - n - m), which is p."""
    (x, *_), (y, *_), n, m = baseline, variant, len(baseline), len(variant)
    return Effect(
        ratio=y / x if x > 0 and y > 0 else None,
        difference=y - x,
        exact=True,
        p=1.0 if x == y else 2.0 ** (1 - n - m),
        basis=basis,
        n_baseline=n,
        n_variant=m,
        reason=no_interval("same"),
        **_tested(test),
    )


def do_not_vary(*sides: Sequence[float]) -> bool:
    """Returns whether every side has at least two values, all equal."""
    return all(len(side) > 1 and min(side) == max(side) for side in sides)


def no_interval(case: str) -> str:
    """Returns why there is no interval, by a case of the catalogue's entry."""
    return sentence("no-interval", case=case)


def without(
    case: str, baseline: Sequence[float], variant: Sequence[float], test: Test | None, **known: Any
) -> Effect:
    """Returns the ratio and the permutation test, if any, without an interval. ``case`` is the reason for
    that."""
    x, y = (math.fsum(side) / len(side) if side else 0.0 for side in (baseline, variant))
    known |= {"difference": y - x} if baseline and variant else {}
    return Effect(
        ratio=y / x if x > 0 and y > 0 else None, reason=no_interval(case), **_tested(test), **known
    )


def _tested(test: Test | None) -> dict[str, Any]:
    return {} if test is None else {"p_permutation": test.p, "permutation": test.how, "least_p": test.least}


def start_up_factors(
    baseline_ns: float, variant_ns: float, errors_ns: tuple[float, float]
) -> tuple[float, float] | None:
    """Returns the range of factors of the ratio of two mean durations, if each duration may be shorter by up
    to its error. The error is the part of a shell's start-up that was not subtracted. None if the error may
    be a whole duration. Equal errors come from the same shell and are equal on both sides."""
    a, b = errors_ns
    if a >= baseline_ns or b >= variant_ns:
        return None
    reductions = {(0.0, 0.0), (a, b)} | ({(a, 0.0), (0.0, b)} if a != b else set())
    factors = [(variant_ns - y) / (baseline_ns - x) * baseline_ns / variant_ns for x, y in reductions]
    return min(factors), max(factors)


def with_start_up(e: Effect, baseline_ns: float, variant_ns: float, errors_ns: tuple[float, float]) -> Effect:
    """Returns ``e`` with its interval widened by :func:`start_up_factors`."""
    if not any(errors_ns) or e.low is None or e.high is None:
        return e
    factors = start_up_factors(baseline_ns, variant_ns, errors_ns)
    if factors is None:
        return e.model_copy(
            update={"low": None, "high": None, "std_err": None, "reason": no_interval("shell")}
        )
    return e.model_copy(update={"low": e.low * factors[0], "high": e.high * factors[1]})


# -- quantities: in which direction they are good, what floors their error --


class Metric(NamedTuple):
    name: str
    """The name in table ``rates``."""
    title: str
    unit: str
    """Title and unit have a slot ``{work}`` for the workload's work unit; the title has slots for nouns."""
    higher_is_better: bool
    within: str | None = None
    """The rate whose relative standard error within the window also applies to this metric."""
    resolution: float = 0.0
    """Relative width of the steps in which it is measured."""
    of_call: bool = True
    """True if the figure cannot be compared between calls of different size."""
    counted: bool = False
    """True if the figure is an exact count: equal repeats then mean that there is no noise."""

    @property
    def is_duration(self) -> bool:
        return self.name.startswith("response_")

    @property
    def rounding(self) -> float:
        return rounding(self.resolution)


def rounding(width: float) -> float:
    """Returns the standard deviation of rounding to steps of this width: that of a uniform distribution."""
    return width / math.sqrt(12)


_BUCKET = 0.001
"""Relative resolution of the histogram of response times: three significant digits."""

TICK = 0.0005
"""The scheduler's figures are up to one tick old: 4 ms (CONFIG_HZ=250) in windows of about 10 s."""
COUNTED = 1e-6
"""Relative resolution of counts and clock times: repeats that agree to this are equal."""

METRICS = (
    Metric("work_per_s", "{work} per second", "{work}/s", True, "calls_per_s", COUNTED, of_call=False),
    Metric("calls_per_s", "{~calls} per second", "calls/s", True, "calls_per_s", COUNTED),
    Metric("response_mean_ns", "{~response_time}, mean", "ns", False, "response_mean", COUNTED),
    Metric("response_p50_ns", "{~response_time}, median", "ns", False, None, _BUCKET),
    Metric("response_p95_ns", "{~response_time}, 95 %", "ns", False, None, _BUCKET),
    Metric("response_p99_ns", "{~response_time}, 99 %", "ns", False, None, _BUCKET),
    Metric("response_p999_ns", "{~response_time}, 99.9 %", "ns", False, None, _BUCKET),
    Metric("response_p9999_ns", "{~response_time}, 99.99 %", "ns", False, None, _BUCKET),
    Metric("cpu_per_call_ns", "{~server_cpu} of {~a_call}", "ns", False, None, TICK),
    Metric("cpu_per_work_ns", "{~server_cpu} of a {work}", "ns", False, None, TICK, of_call=False),
    Metric("client_cpu_per_call_ns", "{~client_cpu_of_a_call}", "ns", False, None, TICK),
    Metric("round_trips_per_call", "round trips of {~a_call}", "", False, None, COUNTED, counted=True),
)


def _cost(figure: costs.Figure, per: str, background: bool) -> Metric:
    timed = figure.unit == "ns"
    return Metric(
        costs.metric_of(figure.id, per, background=background),
        f"{figure.title} of {'{~a_call}' if per == costs.CALL else 'a {work}'}"
        f"{', background' if background else ''}",
        figure.unit if figure.unit in ("ns", "bytes") else "",
        False,
        None,
        TICK if timed else COUNTED,
        of_call=per == costs.CALL,
        counted=not timed,
    )


_OWN_TABLES = {m.name for m in METRICS}
COSTS = {
    m.name: m
    for m in (_cost(*one) for one in product(costs.FIGURES, costs.PER, (False, True)))
    if m.name not in _OWN_TABLES
}
"""Costs by name. They have a table together, and one of their own if they are asked for."""
BY_NAME = {m.name: m for m in METRICS} | COSTS
BY_TITLE = {
    costs.metric_of(re.sub(r"\W", "_", f.title.lower()), per, background=b): costs.metric_of(
        f.id, per, background=b
    )
    for f, per, b in product(costs.FIGURES, costs.PER, (False, True))
}
"""Names of costs by what tables call them: ``voluntary_switches_per_call``."""
RANKING = ("work_per_s", "calls_per_s")
"""Metrics for the ranking; the first that is known everywhere is used."""
DURATION = "response_mean_ns"
"""The metric that ranks commands from which the start-up of a shell was subtracted."""

_WITHIN = {
    "calls_per_s": ("calls_per_s", "calls_per_s_se"),
    "response_mean": ("response_mean_ns", "response_mean_se_ns"),
}


def within_of(metric: Metric, rates: dict[str, float | None]) -> float | None:
    """Returns the relative standard error of a window's own figure, from its rung's rates. None if
    unknown."""
    if metric.within is None:
        return None
    value, error = (rates.get(name) for name in _WITHIN[metric.within])
    return error / value if value and error is not None else None


# -- pairs of repeats of one block: what drifts from block to block is on both sides and cancels --

Pairs = Sequence[tuple[float, float]]
"""Pairs of baseline and variant from one block. Drift between blocks is on both sides and cancels."""


def effect_of_pairs(pairs: Pairs, floor: Floor | None = None) -> Effect:
    """Returns the ratio of means with the covariance of the pairs and n - 1 degrees of freedom.

    Pairs of two zeros say nothing of a ratio, so they are no observations of it: with a single other pair,
    the ratio of the means is that pair's, without any spread. A pair that outweighs the others has little
    spread around its own ratio, too; so the ratios of all pairs must differ from 1 as well.
    """
    n = len(pairs)
    sizes = {"n_baseline": n, "n_variant": n}
    sides = [x for x, _ in pairs], [y for _, y in pairs]
    observed = [p for p in pairs if any(p)] if all(map(any, sides)) else pairs
    if len(observed) < 2:
        case = "pairs" if n < 2 else "zeros"
        return without(case, sides[0], sides[1], None, basis="pairs", **sizes)
    moments = moments_of_pairs(observed).shrunk(len(observed) / n)
    of_means = effect(moments, signs([y - x for x, y in pairs]), "pairs", floor, **sizes)
    if of_means.ratio is None:
        return of_means
    return of_means.model_copy(update={"p_difference": _p_of_pairs(pairs)})


def _p_of_pairs(pairs: Pairs) -> float:
    """Returns Student's p of the logarithms of the pairs' ratios, or of their differences if a value is 0."""
    positive = all(x > 0 and y > 0 for x, y in pairs)
    changes = Mean.of([math.log(y / x) if positive else y - x for x, y in pairs])
    if not changes.std_err:
        return 0.0 if changes.value else 1.0
    return students_tail(changes.value / changes.std_err, changes.n - 1)


def moments_of_pairs(pairs: Pairs) -> Moments:
    """Returns the moments of at least two pairs."""
    x, y = np.asarray(pairs, dtype=float).T
    covariances = np.cov(x, y) / len(pairs)
    vxx, vxy, vyy = (float(covariances[i]) for i in ((0, 0), (0, 1), (1, 1)))
    return Moments(float(x.mean()), float(y.mean()), vxx, vyy, vxy, len(pairs) - 1)


# -- two independent samples --


def effect_of_samples(
    baseline: Sequence[float], variant: Sequence[float], floor: Floor | None = None
) -> Effect:
    """Returns the effect of two independent samples, with Welch's degrees of freedom, because each has its
    own variance."""
    sizes = {"n_baseline": len(baseline), "n_variant": len(variant)}
    test = rank_sum(baseline, variant)
    if min(sizes.values()) < 2:
        return without("samples", baseline, variant, test, **sizes)
    if floor is None and do_not_vary(baseline, variant):
        return exact_effect(baseline, variant, test, "samples")
    found_effect = effect(moments_of_samples(baseline, variant), test, "samples", floor, **sizes)
    by_difference = _by_difference(moments_of_samples(baseline, variant, 1.0))
    return found_effect.model_copy(update={"p_difference": by_difference["p"]})


def moments_of_samples(
    baseline: Sequence[float], variant: Sequence[float], ratio: float | None = None
) -> Moments:
    """Returns the moments of two samples of at least two values. Degrees of freedom hold for this ``ratio``
    of the means, by default the observed one; a sample that hardly varies adds none."""
    a, b = Mean.of(baseline), Mean.of(variant)
    vxx, vyy = (m.m2 / (m.n - 1) / m.n for m in (a, b))
    ratio = ratio or (b.value / a.value if a.value > 0 and b.value > 0 else 1.0)
    degrees = welch_degrees((vxx * ratio**2, a.n - 1), (vyy, b.n - 1))
    return Moments(a.value, b.value, vxx, vyy, 0.0, degrees)


# -- groups of cells: paired by repeat, as two samples, of single windows --

Group = Mapping[int, CellFigures]


def effect_between(
    baseline: Group,
    variant: Group,
    metric: Metric,
    paired: bool,
    errors_ns: tuple[float, float] = (0.0, 0.0),
) -> Effect:
    """Returns the effect between two groups of cells. With ``paired``, repeats of the same number belong to
    one block, and only repeats of both sides count. ``errors_ns`` is how much durations of either side may be
    shorter because of a shell's start-up."""
    uncorrected = _between(baseline, variant, metric, paired)
    if not metric.is_duration or not any(errors_ns):
        return uncorrected
    means = [Mean.of(known(g, metric.name).values()).value for g in (baseline, variant)]
    return with_start_up(uncorrected, means[0], means[1], errors_ns)


def _between(baseline: Group, variant: Group, metric: Metric, paired: bool) -> Effect:
    a, b = known(baseline, metric.name), known(variant, metric.name)
    if paired:
        common = sorted(a.keys() & b.keys())
        a, b = {r: a[r] for r in common}, {r: b[r] for r in common}
    if not a or not b:
        return Effect(n_baseline=len(a), n_variant=len(b), reason=no_interval("unknown"))
    if unlike := _counted_differently(baseline, variant, metric.name):
        return Effect(n_baseline=len(a), n_variant=len(b), reason=unlike)
    if len(a) == len(b) == 1:
        return _single(next(iter(a)), next(iter(b)), baseline, variant, metric)
    exact = metric.counted or not any((*a.values(), *b.values()))
    if exact and do_not_vary(list(a.values()), list(b.values())):
        return exact_effect(list(a.values()), list(b.values()), None, "pairs" if paired else "samples")
    floor = _floor(baseline, a, metric), _floor(variant, b, metric)
    if paired:
        return effect_of_pairs([(a[r], b[r]) for r in a], floor)
    return effect_of_samples(list(a.values()), list(b.values()), floor)


def _counted_differently(baseline: Group, variant: Group, name: str) -> str:
    """Returns that the engine counted other people's work, or the warm-up's; "" if it counted alike."""
    sides = [{c.counted_for.get(name, "") for c in group.values()} - {""} for group in (baseline, variant)]
    if any(whose.endswith(costs.WARM_UP) for whose in set.union(*sides)):
        return no_interval("warm-up")
    if sides[0] == sides[1]:
        return ""
    a, b = (" or ".join(sorted(side)) or "elsewhere" for side in sides)
    return sentence("no-interval", {"a": a, "b": b}, case="counting")


def _floor(group: Group, values: Mapping[int, float], metric: Metric) -> float:
    """Returns the variance of the mean of these values that follows from the variation within their windows,
    or from the steps in which they are measured."""
    errors = {
        r: max(
            within_of(metric, group[r].rates) or 0.0,
            metric.rounding,
            rounding(group[r].widths.get(metric.name, 0.0)),
        )
        for r in values
    }
    return math.fsum((v * errors[r]) ** 2 for r, v in values.items()) / len(values) ** 2


def _single(r: int, s: int, baseline: Group, variant: Group, metric: Metric) -> Effect:
    """Returns the effect for one repeat per side, from the variation within the windows. It is no interval of
    the effect between repeats, and it is labelled accordingly."""
    x, y = baseline[r].rates[metric.name] or 0.0, variant[s].rates[metric.name] or 0.0
    sizes = {"n_baseline": 1, "n_variant": 1}
    errors = [within_of(metric, c.rates) for c in (baseline[r], variant[s])]
    if metric.within is None or any(e is None for e in errors):
        ratio = y / x if x > 0 and y > 0 else None
        return Effect(ratio=ratio, reason=no_interval("one"), **sizes)
    vxx, vyy = ((v * (e or 0.0)) ** 2 for v, e in zip((x, y), errors, strict=True))
    # Neighbouring seconds are correlated: only the effective, independent ones count as degrees of freedom.
    seconds = min(c.rates.get("effective_bins") or 2 for c in (baseline[r], variant[s]))
    degrees = max(1, math.floor(seconds) - 1)
    window_effect = effect(
        Moments(x, y, vxx, vyy, 0.0, degrees), None, "within the window only", None, **sizes
    )
    return window_effect.model_copy(update={"p": None})
