"""A ladder in, what all models say of it out: fits, the curve of the best one, residuals."""

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
PLACES = 100
REACH = 1.5
"""Times the largest measured load up to which the curve is drawn."""


def points_of(ladder: Ladder) -> Points:
    """Up to where throughput breaks down. Raises :class:`UsageError` where a point is of no use; nothing is
    left out silently."""
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


def curve_table(found: Fit, points: Points, ladder: Ladder, drawn: Drawn | None) -> pl.DataFrame:
    first, last = float(points.n.min()), float(points.n.max())
    loads = np.unique(np.concatenate([_places(min(1.0, first), REACH * last), points.loads]))
    x, low, high = band(found, loads, drawn)
    return pl.DataFrame(
        {
            "load": loads,
            "throughput": x,
            "low": low,
            "high": high,
            "response_s": np.where(x > 0, loads / np.where(x > 0, x, 1.0) - (ladder.think_s or 0.0), np.nan),
            "perfect": loads * _each(ladder),
            "beyond": (loads < first) | (loads > last),
        },
        schema=CURVE,
    ).with_columns(pl.col("response_s").fill_nan(None))


def _places(low: float, high: float) -> Floats:
    """Evenly on a line where the loads are few, so that knees are drawn sharply; else evenly by ratio."""
    if high / low > 64:
        return np.asarray(np.geomspace(low, high, PLACES))
    return np.asarray(np.linspace(low, high, PLACES))


def _each(ladder: Ladder) -> float:
    """Throughput per unit of load at the load that efficiency refers to."""
    rungs = Rungs.of(ladder)
    return rungs.each(rungs.first)


def residual_table(ladder: Ladder, found: Fit | None) -> pl.DataFrame:
    """A row for each point; without a prediction where the model was not fitted."""
    points = points_of(replace(ladder, broken_from=None))
    until = math.inf if ladder.broken_from is None else ladder.broken_from
    predicted = None
    if found is not None:
        curve = found.model.curve(points.n, found.p) * found.size
        predicted = np.where(points.n < until, curve, np.nan)
    return pl.DataFrame(
        {
            "load": points.n,
            "repeat": points.repeat.astype(int),
            "throughput": points.x,
            "predicted": predicted,
            "residual": None if predicted is None else points.x - predicted,
            "efficiency": points.x / points.n / _each(ladder),
        },
        schema=RESIDUALS,
    ).with_columns(pl.col("predicted", "residual").fill_nan(None))


# -- the fits --

MIN_WEIGHT = 0.05
"""Weight from which on a model's intervals are by profile or repeats; others have them by curvature."""
EXPENSIVE = ("repairman",)
"""Its profile takes longer than all others together: sought where it is the best."""
ALWAYS = ("amdahl", "usl")


@dataclass(frozen=True)
class _Case:
    """What all fits of a ladder share."""

    ladder: Ladder
    points: Points
    seed: int
    bends: bool

    @property
    def repeated(self) -> bool:
        series = self.points.series
        return series is not None and len(series) >= LEAST

    def draws(self, found: Fit) -> Drawn | None:
        series = self.points.series
        return drawn(found, series, self.seed) if series is not None and self.repeated else None


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
"""Largest relative residual of points that lie on a model's curve but for rounding."""


def _exact(chosen: Choice, points: Points, names: Sequence[str], think_s: float | None) -> Choice | None:
    """The simplest model on whose curve all points lie, and each would if it were not among them, first;
    ``None``: there is none, or the choice among models needs no such rule."""
    if not chosen.unfitted and len(points.loads) >= FEWEST:
        return None
    known = {w.fit.model.name: w.fit for w in chosen.weighed}
    weighed = [w for w in chosen.weighed if w.fit.model.name == "linear"]
    for name in sorted(names, key=lambda n: len(MODELS[n].parameters)):
        few = len(points.loads) < len(MODELS[name].parameters) + 2
        if few or name in ("one-knee", "two-knees") or (name == "repairman" and think_s == 0):
            continue  # a broken line goes through few points whatever they are
        found = known.get(name) or _any_fit(points, name, think_s)
        if _off(found, points) <= ROUNDED and _foretold(points, name, think_s):
            others = [replace(w, weight=0.0, weight_bic=0.0) for w in weighed if w.fit.model.name != name]
            return Choice((Weighed(found, 1.0, 1.0), *others), chosen.unfitted, chosen.plateaus)
    return None


def _off(found: Fit, points: Points) -> float:
    """Largest relative residual."""
    return float(np.abs(found.model.curve(points.n, found.p) * found.size / points.x - 1).max())


def _foretold(points: Points, name: str, think_s: float | None) -> bool:
    """Whether the model fitted to the others has each load, to ten times the rounding."""
    for n in points.loads:
        keep = points.n != n
        rest = Points(points.n[keep], points.x[keep], points.repeat[keep])
        if _off(_any_fit(rest, name, think_s), points) > 10 * ROUNDED:
            return False
    return True


def _any_fit(points: Points, name: str, think_s: float | None) -> Fit:
    """However few the points are: with no more of them than parameters one of the curves through them."""
    n, x = points.n, points.x
    if len(points.loads) == 1:  # with a second load as on a straight line
        n, x = np.append(n, 2 * n[:1]), np.append(x, 2 * x[:1])
    found = fit(for_loads(MODELS[name], n, think_s), n, x)
    return replace(found, n=points.n, x=points.x / found.size)


def _bare(found: Fit) -> Figures:
    """Without intervals: there are no more points than parameters."""
    sizes = [found.size if q.unit == "1/s" else 1.0 for q in found.model.parameters]
    return Figures(
        [
            Figure(q.name, q.unit, float(v) * size, (None, None), None, "")
            for q, v, size in zip(found.model.parameters, found.p, sizes, strict=True)
        ]
    )


def _fitted(case: _Case, weighed: Weighed, is_best: bool) -> Fitted:
    found = weighed.fit
    name = found.model.name
    worth = is_best or (weighed.weight >= MIN_WEIGHT and name not in EXPENSIVE) or name in ALWAYS
    draws = case.draws(found) if worth else None
    how = CURVATURE if not worth else REPEATS if draws is not None else PROFILE
    made = figures(found, how, draws) if found.degrees > 0 else _bare(found)
    watson, p = _autocorrelation(found, case.points.repeat)
    claimed = remarks.peak_claimed(made, case.bends)
    shown = {"1/s": case.ladder.throughput_unit, "load": case.ladder.load_unit, "ratio": "ratio"}
    return Fitted(
        model=found.model.name,
        title=found.model.title,
        formula=found.model.formula,
        cites=found.model.cites,
        parameters=_parameters(case, found, made, shown),
        rss=found.rss * found.size**2,
        degrees=found.degrees,
        r_squared=found.r_squared,
        aic=found.aic,
        aicc=found.aicc,
        bic=found.bic,
        weight=weighed.weight,
        weight_bic=weighed.weight_bic,
        peak=_estimate(made.peak, shown, name="peak") if claimed else None,
        peak_throughput=_estimate(made.top, shown) if claimed else None,
        knees=tuple(k for f in made.knees if (k := _estimate(f, shown)) is not None)
        if _kneed(case, found)
        else (),
        durbin_watson=watson,
        autocorrelation_p=p,
        notes=tuple(remarks.fit_notes(found, made, case.bends, p, not case.repeated)),
    )


def _autocorrelation(found: Fit, repeat: Floats) -> tuple[float | None, float | None]:
    """Durbin and Watson's d and its p. Neighbours are the points of one climb in the order of load; the basis
    is that of the model's tangent plane. None: the fit is exact, or there are too few points."""
    if found.rss <= len(found.n) * EXACT**2 or found.degrees < 1:
        return None, None
    order = np.lexsort((found.n, repeat))
    free = [i for i, name in enumerate(found.model.names) if name not in found.at_bound]
    plane = np.linalg.qr(found.slopes[:, free])[0]
    d, p = durbin_watson((found.x - found.predicted)[order], plane[order], np.diff(repeat[order]) == 0)
    return (None, None) if np.isnan(d) else (d, p)


def _kneed(case: _Case, found: Fit) -> bool:
    held = {"servers", "knee"} & set(found.at_bound)
    return case.bends and (not held or found.model.name == "repairman")


def _parameters(case: _Case, found: Fit, made: Figures, shown: dict[str, str]) -> tuple[Estimate, ...]:
    out = [
        replace(e, note=remarks.bound_note(found, e.name))
        for f in made.parameters
        if (e := _estimate(f, shown)) is not None
    ]
    think = case.ladder.think_s
    if found.model.name == "repairman" and think:
        spent = out[0].value * think
        out.append(
            Estimate("think", spent / (1 - spent), "ratio", note=f"from the known think time of {think:g} s")
        )
    return tuple(out)


def _estimate(figure: Figure | None, shown: dict[str, str], name: str | None = None) -> Estimate | None:
    if figure is None:
        return None
    low, high = figure.interval
    method = figure.method if low is not None or high is not None else ""
    unit = shown[figure.unit]
    return Estimate(name or figure.name, figure.value, unit, low, high, method, figure.std_err)


def predict(scaling: Scaling, load: float, model: str | None = None) -> Estimate:
    """Throughput at ``load`` by the best fit, or that of ``model``, with the 95 % band of its mean."""
    wanted = model or (scaling.best.model if scaling.best else None)
    if wanted is None or scaling.fit(wanted) is None:
        raise UsageError(f"{wanted or 'no model'} was not fitted", "; ".join(scaling.refused) or None)
    if not np.isfinite(load) or load <= 0:
        raise UsageError(f"{load:g} is not a load", "give a number above 0")
    ladder, points = scaling.ladder, points_of(scaling.ladder)
    found = fit(for_loads(MODELS[wanted], points.n, ladder.think_s), points.n, points.x)
    series = points.series
    draws = drawn(found, series, 1) if series is not None and len(series) >= LEAST else None
    x, low, high = (float(v[0]) for v in band(found, np.array([float(load)]), draws))
    method = REPEATS if draws is not None else CURVATURE
    note = remarks.reach(float(points.n.min()), float(points.n.max()), load)
    return Estimate("throughput", x, ladder.throughput_unit, low, high, method, note=note)
