"""Fits all models to a ladder: fits, the curve of the best one, residuals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from dbdyno.conclude.ladder.rungs import Rungs
from dbdyno.conclude.scaling import remarks
from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import CURVE, RESIDUALS, Estimate, Fitted, Ladder, Scaling
from dbdyno.stats.autocorrelation import durbin_watson
from dbdyno.stats.scaling.choose import ALPHA, Choice, Weighed, choose, straight_p
from dbdyno.stats.scaling.curves import Floats
from dbdyno.stats.scaling.figures import CURVATURE, PROFILE, REPEATS, Figure, Figures, band, figures
from dbdyno.stats.scaling.fit import EXACT, Fit, fit
from dbdyno.stats.scaling.intervals import LEAST, Drawn, drawn
from dbdyno.stats.scaling.models import MODELS, for_loads
from dbdyno.stats.scaling.points import FEWEST, Points

NEEDED = ("load", "throughput")
PLACES = 100  # points of the curve
REACH = 1.5
"""Multiple of the largest measured load up to which the curve is drawn."""


def points_of(ladder: Ladder) -> Points:
    """Returns the points below the load at which throughput breaks down. Raises :class:`UsageError` if a
    point cannot be used; none is left out silently."""
    frame = ladder.points
    if ladder.broken_from is not None:
        frame = frame.filter(pl.col("load") < ladder.broken_from)
    for name in NEEDED:
        if name not in frame.columns:
            raise UsageError(
                f"{ladder.name}: no column {name!r}", f"there are: {', '.join(frame.columns) or 'none'}"
            )
    if frame.is_empty():
        raise UsageError(f"{ladder.name}: no points", "a ladder needs a load and a throughput for every rung")
    columns = {name: _numbers(ladder.name, frame, name) for name in NEEDED}
    repeat = (
        frame["repeat"].fill_null(1).to_numpy().astype(float)
        if "repeat" in frame.columns
        else np.ones(len(frame))
    )
    order = np.lexsort((repeat, columns["load"]))
    return Points(columns["load"][order], columns["throughput"][order], repeat[order])


def _numbers(ladder: str, frame: pl.DataFrame, name: str) -> Floats:
    if not frame[name].dtype.is_numeric():
        raise UsageError(f"{ladder}: {name} is not a number but {frame[name].dtype}", "give numbers only")
    values = frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(bad):
        what = frame[name][int(bad[0])]
        raise UsageError(
            f"{ladder}: {name} of point {int(bad[0]) + 1} is {what if what is not None else 'missing'}",
            "it must be a number above 0: leave the point out, or measure it again",
        )
    return np.asarray(values, dtype=float)


def curve_table(best_fit: Fit, points: Points, ladder: Ladder, drawn: Drawn | None) -> pl.DataFrame:
    first, last = float(points.n.min()), float(points.n.max())
    loads = np.unique(np.concatenate([_curve_loads(min(1.0, first), REACH * last), points.loads]))
    x, low, high = band(best_fit, loads, drawn)
    return pl.DataFrame(
        {
            "load": loads,
            "throughput": x,
            "low": low,
            "high": high,
            "response_s": np.where(x > 0, loads / np.where(x > 0, x, 1.0) - (ladder.think_s or 0.0), np.nan),
            "perfect": loads * _reference_rate(ladder),
            "beyond": (loads < first) | (loads > last),
        },
        schema=CURVE,
    ).with_columns(pl.col("response_s").fill_nan(None))


def _curve_loads(low: float, high: float) -> Floats:
    """Returns loads of the curve: evenly spaced if the range is small, so that knees look sharp, else evenly
    by ratio."""
    if high / low > 64:
        return np.asarray(np.geomspace(low, high, PLACES))
    return np.asarray(np.linspace(low, high, PLACES))


def _reference_rate(ladder: Ladder) -> float:
    """Returns throughput per unit of load at the load that efficiency refers to."""
    rungs = Rungs.of(ladder)
    return rungs.each(rungs.first)


def residual_table(ladder: Ladder, best_fit: Fit | None) -> pl.DataFrame:
    """Returns a row per point, without a prediction where the model was not fitted."""
    points = points_of(replace(ladder, broken_from=None))
    until = math.inf if ladder.broken_from is None else ladder.broken_from
    predicted = None
    if best_fit is not None:
        curve = best_fit.model.curve(points.n, best_fit.p) * best_fit.size
        predicted = np.where(points.n < until, curve, np.nan)
    return pl.DataFrame(
        {
            "load": points.n,
            "repeat": points.repeat.astype(int),
            "throughput": points.x,
            "predicted": predicted,
            "residual": None if predicted is None else points.x - predicted,
            "efficiency": points.x / points.n / _reference_rate(ladder),
        },
        schema=RESIDUALS,
    ).with_columns(pl.col("predicted", "residual").fill_nan(None))


# -- the fits --

MIN_WEIGHT = 0.05
"""Weight from which on a model's intervals come from profiles or repeats; those of other models come from
curvature."""
EXPENSIVE = ("repairman",)
"""Models whose profile takes longer than all others together: it is computed only if the model is the
best."""
ALWAYS = ("amdahl", "usl")


@dataclass(frozen=True)
class _Case:
    """Properties that all fits of a ladder share."""

    ladder: Ladder
    points: Points
    seed: int
    bends: bool

    @property
    def repeated(self) -> bool:
        series = self.points.series
        return series is not None and len(series) >= LEAST

    def draws(self, model_fit: Fit) -> Drawn | None:
        series = self.points.series
        return drawn(model_fit, series, self.seed) if series is not None and self.repeated else None


def scale(ladder: Ladder, seed: int = 1, models: Sequence[str] | None = None) -> Scaling:
    names = tuple(MODELS) if models is None else tuple(models)
    for name in names:
        if name not in MODELS:
            raise UsageError(f"no model {name!r}", f"there are: {', '.join(MODELS)}")
    points = points_of(ladder)
    chosen = choose(points, names, ladder.think_s)
    p = straight_p(points.n, points.x, seed)
    case = _Case(ladder, points, seed, p is not None and p <= ALPHA)
    left_out, notes = remarks.left_out(chosen, len(points.loads)), remarks.plateaus(chosen)
    exact = _exact(chosen, points, names, ladder.think_s)
    if models is not None and not chosen.weighed and exact is None:
        chosen = Choice(tuple(Weighed(_any_fit(points, n, ladder.think_s), 0.0, 0.0) for n in names))
    if exact is not None:
        chosen, case = exact, replace(case, bends=exact.weighed[0].fit.model.name != "linear")
    unfit = remarks.unfit(chosen.weighed, case.bends) if models is None and exact is None else None
    if not chosen.weighed or unfit is not None:
        refused = (*([unfit] if unfit else []), *left_out)
        return Scaling(ladder, (), pl.DataFrame(schema=CURVE), residual_table(ladder, None), refused, notes)
    fits = tuple(_fitted(case, w, i == 0) for i, w in enumerate(chosen.weighed))
    best = chosen.weighed[0].fit
    named = {f.model: f for f in fits}
    refused = (
        *left_out,
        *remarks.below_the_bend(named.get("usl"), named.get("amdahl"), float(points.n.max())),
        *remarks.doubts(chosen.weighed),
        *([] if case.bends else [remarks.no_bend(p)]),
    )
    return Scaling(
        ladder,
        fits,
        curve_table(best, points, ladder, None if models is None else case.draws(best)),
        residual_table(ladder, best),
        tuple(refused),
        (*notes, *remarks.repeats(points)),
    )


ROUNDED = 5e-4
"""Largest relative residual that rounding explains."""


def _exact(chosen: Choice, points: Points, names: Sequence[str], think_s: float | None) -> Choice | None:
    """Returns a choice with the simplest model on whose curve all points lie, if the model fitted without a
    load also predicts that load. None if there is no such model or the choice by AICc is possible."""
    if not chosen.unfitted and len(points.loads) >= FEWEST:
        return None
    known = {w.fit.model.name: w.fit for w in chosen.weighed}
    weighed = [w for w in chosen.weighed if w.fit.model.name == "linear"]
    for name in sorted(names, key=lambda n: len(MODELS[n].parameters)):
        few = len(points.loads) < len(MODELS[name].parameters) + 2
        if few or name in ("one-knee", "two-knees") or (name == "repairman" and think_s == 0):
            continue  # a broken line passes through a few points of any kind, which would prove nothing
        candidate = known.get(name) or _any_fit(points, name, think_s)
        if _largest_residual(candidate, points) <= ROUNDED and _predicts_left_out(points, name, think_s):
            others = [replace(w, weight=0.0, weight_bic=0.0) for w in weighed if w.fit.model.name != name]
            return Choice((Weighed(candidate, 1.0, 1.0), *others), chosen.unfitted, chosen.plateaus)
    return None


def _largest_residual(model_fit: Fit, points: Points) -> float:
    """Returns the largest relative residual."""
    return float(np.abs(model_fit.model.curve(points.n, model_fit.p) * model_fit.size / points.x - 1).max())


def _predicts_left_out(points: Points, name: str, think_s: float | None) -> bool:
    """Returns whether the model fitted to the other loads predicts each load, to ten times the rounding."""
    for n in points.loads:
        keep = points.n != n
        rest = Points(points.n[keep], points.x[keep], points.repeat[keep])
        if _largest_residual(_any_fit(rest, name, think_s), points) > 10 * ROUNDED:
            return False
    return True


def _any_fit(points: Points, name: str, think_s: float | None) -> Fit:
    """Returns a fit for any number of points. With no more points than parameters it is one of the curves
    through them."""
    n, x = points.n, points.x
    if len(points.loads) == 1:  # one load determines no curve: assume linear growth to a second one
        n, x = np.append(n, 2 * n[:1]), np.append(x, 2 * x[:1])
    model_fit = fit(for_loads(MODELS[name], n, think_s), n, x)
    return replace(model_fit, n=points.n, x=points.x / model_fit.size)


def _without_intervals(model_fit: Fit) -> Figures:
    """Returns figures without intervals, for fits with no more points than parameters."""
    sizes = [model_fit.size if parameter.unit == "1/s" else 1.0 for parameter in model_fit.model.parameters]
    return Figures(
        [
            Figure(parameter.name, parameter.unit, float(value) * size, (None, None), None, "")
            for parameter, value, size in zip(model_fit.model.parameters, model_fit.p, sizes, strict=True)
        ]
    )


def _fitted(case: _Case, weighed: Weighed, is_best: bool) -> Fitted:
    model_fit = weighed.fit
    name = model_fit.model.name
    thorough = is_best or (weighed.weight >= MIN_WEIGHT and name not in EXPENSIVE) or name in ALWAYS
    draws = case.draws(model_fit) if thorough else None
    method = CURVATURE if not thorough else REPEATS if draws is not None else PROFILE
    estimates = figures(model_fit, method, draws) if model_fit.degrees > 0 else _without_intervals(model_fit)
    watson, p = _autocorrelation(model_fit, case.points.repeat)
    claimed = remarks.peak_claimed(estimates, case.bends)
    units = {"1/s": case.ladder.throughput_unit, "load": case.ladder.load_unit, "ratio": "ratio"}
    return Fitted(
        model=model_fit.model.name,
        title=model_fit.model.title,
        formula=model_fit.model.formula,
        cites=model_fit.model.cites,
        parameters=_parameters(case, model_fit, estimates, units),
        rss=model_fit.rss * model_fit.size**2,
        degrees=model_fit.degrees,
        r_squared=model_fit.r_squared,
        aic=model_fit.aic,
        aicc=model_fit.aicc,
        bic=model_fit.bic,
        weight=weighed.weight,
        weight_bic=weighed.weight_bic,
        peak=_estimate(estimates.peak, units, name="peak") if claimed else None,
        peak_throughput=_estimate(estimates.top, units) if claimed else None,
        knees=tuple(k for f in estimates.knees if (k := _estimate(f, units)) is not None)
        if _has_knees(case, model_fit)
        else (),
        durbin_watson=watson,
        autocorrelation_p=p,
        notes=tuple(remarks.fit_notes(model_fit, estimates, case.bends, p, not case.repeated)),
    )


def _autocorrelation(model_fit: Fit, repeat: Floats) -> tuple[float | None, float | None]:
    """Returns Durbin and Watson's d and its p value. Neighbours are points of one climb in the order of load;
    the basis is the model's tangent plane. (None, None) if the fit is exact or there are too few points."""
    if model_fit.rss <= len(model_fit.n) * EXACT**2 or model_fit.degrees < 1:
        return None, None
    order = np.lexsort((model_fit.n, repeat))
    free = [i for i, name in enumerate(model_fit.model.names) if name not in model_fit.at_bound]
    plane = np.linalg.qr(model_fit.slopes[:, free])[0]
    d, p = durbin_watson(
        (model_fit.x - model_fit.predicted)[order], plane[order], np.diff(repeat[order]) == 0
    )
    return (None, None) if np.isnan(d) else (d, p)


def _has_knees(case: _Case, model_fit: Fit) -> bool:
    bounded = {"servers", "knee"} & set(model_fit.at_bound)
    return case.bends and (not bounded or model_fit.model.name == "repairman")


def _parameters(
    case: _Case, model_fit: Fit, estimates: Figures, units: dict[str, str]
) -> tuple[Estimate, ...]:
    parameters = [
        replace(e, note=remarks.bound_note(model_fit, e.name))
        for f in estimates.parameters
        if (e := _estimate(f, units)) is not None
    ]
    think = case.ladder.think_s
    if model_fit.model.name == "repairman" and think:
        busy = parameters[0].value * think
        parameters.append(
            Estimate("think", busy / (1 - busy), "ratio", note=f"from the known think time of {think:g} s")
        )
    return tuple(parameters)


def _estimate(figure: Figure | None, units: dict[str, str], name: str | None = None) -> Estimate | None:
    if figure is None:
        return None
    low, high = figure.interval
    method = figure.method if low is not None or high is not None else ""
    unit = units[figure.unit]
    return Estimate(name or figure.name, figure.value, unit, low, high, method, figure.std_err)


def predict(scaling: Scaling, load: float, model: str | None = None) -> Estimate:
    """Returns throughput at ``load`` by the best fit, or by ``model``, with the 95 % band of its mean. Raises
    UsageError if the model was not fitted or the load is not above 0."""
    wanted = model or (scaling.best.model if scaling.best else None)
    if wanted is None or scaling.fit(wanted) is None:
        raise UsageError(f"{wanted or 'no model'} was not fitted", "; ".join(scaling.refused) or None)
    if not np.isfinite(load) or load <= 0:
        raise UsageError(f"{load:g} is not a load", "give a number above 0")
    ladder, points = scaling.ladder, points_of(scaling.ladder)
    model_fit = fit(for_loads(MODELS[wanted], points.n, ladder.think_s), points.n, points.x)
    series = points.series
    draws = drawn(model_fit, series, 1) if series is not None and len(series) >= LEAST else None
    x, low, high = (float(v[0]) for v in band(model_fit, np.array([float(load)]), draws))
    method = REPEATS if draws is not None else CURVATURE
    note = remarks.reach(float(points.n.min()), float(points.n.max()), load)
    return Estimate("throughput", x, ladder.throughput_unit, low, high, method, note=note)
