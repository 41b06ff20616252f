"""Regresses CPU on work for any arrays, and decides when no line can be drawn and what limits one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from dbdyno.conclude.catalogue import sentence
from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import PARTS, REGRESSION_POINTS, Estimate, Part, Regression
from dbdyno.model.units import format_ns, format_number, significant
from dbdyno.stats.autocorrelation import durbin_watson
from dbdyno.stats.estimates import positive_interval, students_quantile
from dbdyno.stats.least_squares import (
    Fit,
    Floats,
    autoregressive,
    bandwidth,
    breusch_pagan,
    cook,
    fixed_b,
    hc3,
    hc3_degrees,
    newey_west,
    ols,
    whitened,
)

LEAST_POINTS = 4
"""Points for one kind of work; each further kind needs one more."""
LEAST_RUNGS = 3
"""Different values of work: two cannot show whether a line fits."""
LEAST_SPREAD = 0.1
"""Least spread of work: (highest - lowest) / highest."""
MOST_CONDITION = 30.0
"""Largest condition number of the columns at unit length (Belsley, Kuh, Welsch 1980, Regression Diagnostics,
3.2)."""
_MUCH_LEVERAGE = 0.8
"""Leverage (weight of a point in its own prediction) from which on the point is named."""


def reason_before_fit(work: Floats, units: Sequence[str]) -> str | None:
    """Returns why no line can be drawn through points of this ``work``, (n, k); None if it can."""
    n, kinds = work.shape
    need = LEAST_POINTS + kinds - 1
    if n < need:
        return sentence("no-regression", {"points": n, "needed": need}, case="points")
    for column, unit in zip(work.T, units, strict=True):
        low, high = float(column.min()), float(column.max())
        if (high - low) / high < LEAST_SPREAD if high > 0 else True:
            values = {"low": low, "high": high, "unit": unit, "needed": LEAST_SPREAD}
            return sentence("no-regression", values, case="spread")
        if len(np.unique(column)) < LEAST_RUNGS:
            return sentence("no-regression", case="two")
    if condition(work) > MOST_CONDITION:
        return sentence("no-regression", {"units": " and ".join(units)}, case="collinear")
    return None


def condition(work: Floats) -> float:
    """Returns the condition number of the kinds of work, centred, at unit length: 1 if they are
    uncorrelated."""
    centred = work - work.mean(axis=0)
    values = np.linalg.svd(centred / np.linalg.norm(centred, axis=0), compute_uv=False)
    return float(values[0] / values[-1]) if values[-1] > 0 else math.inf


def reason_after_fit(part: Part) -> str | None:
    """Returns why the fitted line means nothing; None if it may be used."""
    for slope in part.slopes:
        if slope.value < 0:
            values = {"cost": format_ns(slope.value * 1e9), "unit": slope.name}
            sure = slope.high is not None and slope.high < 0
            return sentence("no-regression", values, case="negative" if sure else "unsure")
    return None


def notes(fit: Fit, parts: Sequence[Part], ordered: bool) -> Iterator[str]:
    total = parts[0]
    for slope in total.slopes:
        if slope.low is None or slope.low <= 0:
            yield note("no-cost", unit=slope.name)
    if total.background.value < 0:
        high = total.background.high
        yield note("background" if high is not None and high < 0 else "background-unsure")
    yield from _leverage(fit)
    yield from _neighbours(fit, ordered)


def note(case: str, **values: Any) -> str:
    return sentence("regression-note", values, case=case)


def _leverage(fit: Fit) -> Iterator[str]:
    """Yields a remark per point that pulls the line towards itself (Cook 1977: distances above 1 need a
    look)."""
    for n, (h, distance) in enumerate(zip(fit.leverage, cook(fit), strict=True)):
        if h > _MUCH_LEVERAGE or distance > 1:
            work = ", ".join(map(format_number, fit.x[n, 1:]))
            moved = f", Cook's distance {significant(distance, 2)}" if math.isfinite(distance) else ""
            yield note("leverage", work=work, leverage=h, cook=moved)


def _neighbours(fit: Fit, ordered: bool) -> Iterator[str]:
    if ordered and fit.rss > 0:
        r = float(fit.residuals[1:] @ fit.residuals[:-1]) / fit.rss
        if r > 0.6:
            yield note("neighbours", r=r)


# -- the regression --

_CURE = "finite numbers of equal length: work per second, CPU seconds per second"
_SUM = 0.02
"""Relative difference of user plus system from all CPU that gets a remark."""


def regress(
    work: ArrayLike,
    cpu: ArrayLike,
    ordered: bool = True,
    *,
    user: ArrayLike | None = None,
    system: ArrayLike | None = None,
    units: Sequence[str] = ("work unit",),
    lags: int | None = None,
    name: str = "",
    regime: str = "all points",
) -> Regression:
    """Fits CPU (seconds per second, (n,)) to work (per second, (n,) or (n, kinds)) by least squares.

    With ``ordered``, rows are windows in time at equal distances. Errors are Newey and West's with fixed-b
    critical values, or those of a first-order autoregression where these are wider (not with ``lags``).
    Otherwise rows are a cross section, with HC3 errors and Student's t. User and system are regressed on the
    same work, so their slopes and backgrounds add up to those of their sum. Raises :class:`UsageError` if
    arrays are not numbers, differ in length or are negative.
    """
    rows = _matrix(work, units)
    parts = _cpu(rows, cpu, user, system)
    regression = _empty(rows, parts["cpu"], name, regime, units)
    refused = reason_before_fit(rows, units)
    if refused is not None:
        return replace(regression, refused=refused)
    x = np.column_stack([np.ones(len(rows)), rows])
    fits = {part: ols(x, y) for part, y in parts.items()}
    return _with_fits(regression, fits, _Errors(len(rows), x.shape[1], ordered, lags), ordered)


class _Errors:
    """Computes errors: variances, the critical value, and the name of the method."""

    def __init__(self, n: int, k: int, ordered: bool, lags: int | None) -> None:
        self.ordered = ordered
        self.automatic = lags is None
        width = bandwidth(n) if lags is None else lags + 1
        if not 1 <= width < n:
            raise UsageError(f"{lags} lags of {n} points", f"0 to {n - 2}, or None: automatic")
        self.lags = width - 1
        self.students = students_quantile(n - k)
        self.critical = fixed_b(width / n)
        white = ", prewhitened" if lags is None else ""
        west = f"Newey-West, {self.lags} lags{white}, fixed-b {significant(self.critical)}"
        either = f"the wider of {west} and of a first-order autoregression"
        self.method = either if lags is None else west
        if not ordered:
            self.method = "HC3, Student's t, degrees of freedom by Bell and McCaffrey"

    def _errors(self, fit: Fit) -> tuple[Floats, Floats]:
        """Returns standard errors and half widths of the intervals of all coefficients."""
        if not self.ordered:
            errors = np.sqrt(np.diag(hc3(fit)))
            return errors, errors * [students_quantile(d) for d in hc3_degrees(fit).tolist()]
        if not self.automatic:
            errors = np.sqrt(np.maximum(0.0, np.diag(newey_west(fit, self.lags))))
            return errors, self.critical * errors
        errors, other = (np.sqrt(v) for v in (whitened(fit, self.lags), autoregressive(fit)))
        halves = self.critical * errors, self.students * other
        return np.where(halves[0] >= halves[1], errors, other), np.maximum(*halves)

    def estimates(self, fit: Fit, names: Sequence[str], units: Sequence[str]) -> Iterator[Estimate]:
        for name, unit, *figures in zip(names, units, fit.beta, *self._errors(fit), strict=True):
            value, error, half = map(float, figures)
            if math.isfinite(error):
                yield Estimate(name, value, unit, value - half, value + half, self.method, error)
            else:
                yield Estimate(name, value, unit, note=note("single"))


def _with_fits(regression: Regression, fits: Mapping[str, Fit], errors: _Errors, ordered: bool) -> Regression:
    parts = tuple(_part(name, fit, errors, regression.work_units) for name, fit in fits.items())
    total = fits["cpu"]
    # An exact fit leaves rounding only, whose pattern is no evidence of anything.
    if total.rss <= 1e-24 * float(total.y @ total.y):
        d = p = bp = None
    else:
        neighbours = _in_order(total, ordered)
        watson = durbin_watson(neighbours.residuals, neighbours.basis)
        d, p, bp = (_known(v) for v in (*watson, breusch_pagan(total)))
    regression = replace(
        regression,
        degrees=total.degrees,
        method=errors.method,
        durbin_watson=d,
        autocorrelation_p=p,
        breusch_pagan_p=bp,
        points=regression.points.with_columns(
            predicted=total.x @ total.beta,
            residual=total.residuals,
            leverage=total.leverage,
            cook=pl.Series(cook(total)).fill_nan(None),
        ),
    )
    refused = reason_after_fit(parts[0])
    if refused is not None:
        return replace(regression, refused=refused)
    values = (*_sum_remark(fits), *notes(total, parts, ordered), *_doubts(p, bp, ordered))
    return replace(regression, parts=parts, notes=(*regression.notes, *values))


def _in_order(fit: Fit, ordered: bool) -> Fit:
    """Returns the fit in time order if ``ordered``, else in the order of work, where correlated neighbours
    show that the line bends."""
    if ordered:
        return fit
    order = np.argsort(fit.x[:, 1], kind="stable")
    return fit._replace(x=fit.x[order], y=fit.y[order], residuals=fit.residuals[order])


def _doubts(p: float | None, bp: float | None, ordered: bool) -> Iterator[str]:
    if p is not None and p < 0.05 and not ordered:
        yield note("curved", p=p)
    if bp is not None and bp < 0.05 and not ordered:
        yield note("uneven", p=bp)


def _part(name: str, fit: Fit, errors: _Errors, work_units: Sequence[str]) -> Part:
    names = [f"{name} background", *work_units]
    units = ["CPU seconds/s", *(f"CPU seconds/{u}" for u in work_units)]
    background, *slopes = errors.estimates(fit, names, units)
    sd = math.sqrt(fit.rss / fit.degrees)
    return Part(name, tuple(slopes), background, _known(fit.r_squared), sd)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _sum_remark(fits: Mapping[str, Fit]) -> Iterator[str]:
    if len(fits) == len(PARTS):
        cpu, parts = fits["cpu"].y, fits["user"].y + fits["system"].y
        off = float(np.max(np.abs(parts - cpu)) / np.max(cpu)) if np.max(cpu) > 0 else 0.0
        if off > _SUM:
            yield note("not-a-sum", share=off)


def _matrix(work: ArrayLike, units: Sequence[str]) -> Floats:
    rows = _numbers(work, "work")
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.shape[1] != len(units):
        raise UsageError(f"work of shape {rows.shape} with {len(units)} units", "one unit a column of work")
    return rows


def _numbers(values: ArrayLike, what: str) -> Floats:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise UsageError(f"{what} is not all numbers", _CURE) from e
    if not np.isfinite(array).all():
        raise UsageError(f"{what} has values that are not finite", f"leave these points out; {_CURE}")
    if (array < 0).any():
        raise UsageError(f"{what} has negative values", f"rates cannot be negative; {_CURE}")
    return array


def _cpu(rows: Floats, cpu: ArrayLike, user: ArrayLike | None, system: ArrayLike | None) -> dict[str, Floats]:
    given = {"cpu": cpu, "user": user, "system": system}
    arrays = {name: _numbers(values, name) for name, values in given.items() if values is not None}
    for name, values in arrays.items():
        if values.shape != (len(rows),):
            raise UsageError(f"{len(rows)} points of work, {name} of shape {values.shape}", _CURE)
    return arrays


def _empty(rows: Floats, cpu: Floats, name: str, regime: str, units: Sequence[str]) -> Regression:
    columns = {"work": rows[:, 0], "cpu": cpu}
    points = pl.DataFrame({k: columns.get(k) for k in REGRESSION_POINTS}, schema=REGRESSION_POINTS)
    return Regression(
        name, regime, tuple(units), len(rows), 0, "", (), points, ratio=_ratio(rows[:, 0], cpu, units[0])
    )


def _ratio(work: Floats, cpu: Floats, unit: str) -> Estimate | None:
    """Returns all CPU over all work, with the error of a ratio estimator (Cochran 1977, Sampling Techniques,
    6.4)."""
    n, total = len(work), float(work.sum())
    if total <= 0:
        return None
    value = float(cpu.sum()) / total
    named = Estimate("all CPU over all work", value, f"CPU seconds/{unit}", note="background included")
    if n < 2:
        return named
    off = cpu - value * work
    error = math.sqrt(n * float(off @ off) / (n - 1)) / total
    low, high = (positive_interval(value, error, n - 1) if value > 0 else None) or (None, None)
    return replace(named, low=low, high=high, std_err=error, method="ratio estimator, t on logarithms")
