"""Derives where differences of equal measurements come from, and the plans that follow. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dbdyno.account.making import makes
from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.plan import NoiseSpec, Plan
from dbdyno.model.results.comparison import LEAST_REPEATS
from dbdyno.model.results.ledger_rows import groups
from dbdyno.model.schema.data_sources.noise import (
    DRIFT,
    NEW_SESSIONS,
    REPEAT,
    RESTARTS,
    TABLES,
    WINDOWS,
    WITHIN,
)
from dbdyno.model.schema.tables import rows
from dbdyno.model.units import NS_PER_S, counted, parse_duration_ns
from dbdyno.stats.estimates import Mean, students_quantile
from dbdyno.stats.noise_budget import LEAST_CELLS, LEAST_FOR_DRIFT, LEAST_STARTS, Budget
from dbdyno.stats.variance_components import LongRun, Variance, excess, long_run, pooled, successive

DIFFERENCES = (0.1, 0.05, 0.02, 0.01, 0.005)
"""Differences that are always planned for."""
ALPHA = 0.05
_SOURCE = "driver, by the second"
_TABLES = tuple(t.name for t in TABLES)
_Row = dict[str, Any]


class _Cell(NamedTuple):
    """A measurement in its place."""

    start: int
    at_s: float
    end_s: float
    log_rate: float
    windows: list[float]
    """Logarithm of the throughput of each window."""
    seconds: list[float]
    """Relative throughput, report by report of the driver."""
    step_s: float


class _Levels(NamedTuple):
    """The mean squares of the levels of nesting. None where there are too few values."""

    within: LongRun | None
    windows: Variance | None
    cells: Variance | None
    starts: Variance | None
    drift: _Drift | None


class _Drift(NamedTuple):
    """Relative change of throughput over the whole measurement, with its 95 % interval."""

    change: float
    low: float
    high: float
    degrees: float

    @property
    def is_clear(self) -> bool:
        return self.low > 0 or self.high < 0


@makes(*_TABLES, stage="run")
def noise(
    windows: pl.DataFrame,
    rates: pl.DataFrame,
    over_time: pl.DataFrame,
    plan: Plan,
    environment: Environment | None = None,
) -> dict[str, Any]:
    """Returns the tables of the noise of each load; empty for other runs."""
    spec = plan.experiment.noise
    own = environment is None or environment.server.embedded
    made: dict[str, list[_Row]] = {name: [] for name in _TABLES}
    for head, cells in groups(windows) if spec is not None else ():
        assert spec is not None
        load = {name: head[name] for name in ("workload", "sessions")}
        measured = _cells(cells, rates, over_time, spec)
        levels = _levels(measured)
        made["noise"] += [load | row for row in _parts(levels, measured, spec, own)]
        budget = budget_of(levels, measured)
        if budget is not None:
            made["noise_budget"].append(load | budget.as_row())
            made["noise_plan"] += [load | row for row in plans(budget, spec.see)]
    return {name: rows(name, made[name]) for name in _TABLES}


def _cells(
    windows: Sequence[Mapping[str, Any]], rates: pl.DataFrame, over_time: pl.DataFrame, spec: NoiseSpec
) -> list[_Cell]:
    of_rung = rates.filter((pl.col("scope") == "rung") & (pl.col("name") == "calls_per_s"))
    rate = {c: v for c, v in of_rung.select("cell", "value").rows() if v}
    # A comparison leaves out what the client limited, so its noise is not that of comparisons.
    limited = set(rates.filter((pl.col("name") == "client_limits") & (pl.col("value") == 1))["cell"])
    window_s = parse_duration_ns(spec.window) / NS_PER_S
    cells = []
    for w in windows:
        if w["status"] == "invalid" or w["cell"] not in rate.keys() - limited:
            continue
        reports = over_time.filter((pl.col("cell") == w["cell"]) & (pl.col("calls") > 0))
        # Sessions over the mean duration of calls: a count of calls in a second is rounded at its ends.
        spent = pl.col("calls") * pl.col("response_mean_ns")
        middle = (pl.col("start_s") + pl.col("end_s")) / 2
        by_window = (
            reports.group_by(place=(middle / window_s).floor(), maintain_order=True)
            .agg(
                pl.col("calls").sum(), spent=spent.sum(), seconds=(pl.col("end_s") - pl.col("start_s")).sum()
            )
            .filter((pl.col("place") < spec.windows) & (pl.col("seconds") > window_s / 2))
        )
        seconds = [1 / v for v in reports["response_mean_ns"].to_list() if v]
        mean = sum(seconds) / len(seconds) if seconds else 1.0
        lengths = (reports["end_s"] - reports["start_s"]).to_list()
        cells.append(
            _Cell(
                (w["repeat"] - 1) // spec.per_start,
                w["t0_ns"] / NS_PER_S,
                w["t1_ns"] / NS_PER_S,
                math.log(rate[w["cell"]]),
                [math.log(c / s) for c, s in by_window.select("calls", "spent").rows() if s],
                [v / mean for v in seconds],
                sum(lengths) / len(lengths) if lengths else 1.0,
            )
        )
    return sorted(cells, key=lambda c: c.at_s)


def _by_start(cells: Sequence[_Cell]) -> list[list[_Cell]]:
    starts: dict[int, list[_Cell]] = {}
    for cell in cells:
        starts.setdefault(cell.start, []).append(cell)
    return list(starts.values())


def _levels(cells: Sequence[_Cell]) -> _Levels:
    starts = _by_start(cells)
    whole = [s for s in starts if len(s) > 1]
    neighbours = successive([[c.log_rate for c in s] for s in whole])
    means = [
        (sum(c.at_s for c in s) / len(s), sum(c.log_rate for c in s) / len(s)) for s in (whole or starts)
    ]
    by_start = len(means) >= LEAST_FOR_DRIFT
    drift = _drift(means if by_start else [(c.at_s, c.log_rate) for c in cells], _span_s(cells))
    return _Levels(
        long_run([c.seconds for c in cells]),
        pooled([c.windows for c in cells]),
        neighbours if len(cells) >= LEAST_CELLS else None,
        _of_starts(means, drift if by_start else None) if len(means) >= LEAST_STARTS else None,
        drift,
    )


def _span_s(cells: Sequence[_Cell]) -> float:
    return cells[-1].end_s - cells[0].at_s if cells else 0.0


def _drift(points: Sequence[tuple[float, float]], span_s: float) -> _Drift | None:
    """Returns the change along a straight line by least squares; None for too few points."""
    if len(points) < LEAST_FOR_DRIFT:
        return None
    at, value = np.asarray(points, dtype=float).T
    centred = at - at.mean()
    slope = float(centred @ value) / float(centred @ centred)
    left = value - value.mean() - slope * centred
    degrees = len(points) - 2
    error = math.sqrt(float(left @ left) / degrees / float(centred @ centred))
    half = students_quantile(degrees) * error
    return _Drift(slope * span_s, (slope - half) * span_s, (slope + half) * span_s, degrees)


def _of_starts(means: Sequence[tuple[float, float]], drift: _Drift | None) -> Variance:
    """Returns the variance of means of starts, about a straight line if there is a clear drift."""
    at, value = np.asarray(means, dtype=float).T
    if drift is None or not drift.is_clear:
        mean = Mean.of(value.tolist())
        return Variance(mean.m2 / (mean.n - 1), mean.n - 1)
    left = value - np.polyval(np.polyfit(at - at.mean(), value, 1), at - at.mean())
    return Variance(float(left @ left) / (len(means) - 2), len(means) - 2)


def _per_start(cells: Sequence[_Cell]) -> float:
    """Returns the harmonic mean of the measurements on a start, by which the variance of its mean is
    smaller."""
    sizes = [len(s) for s in _by_start(cells) if len(s) > 1] or [1]
    return len(sizes) / sum(1 / n for n in sizes)


def _windows_per_cell(cells: Sequence[_Cell]) -> float:
    counts = [len(c.windows) for c in cells if c.windows] or [1]
    return sum(counts) / len(counts)


def _step_s(cells: Sequence[_Cell]) -> float:
    return sum(c.step_s for c in cells) / len(cells) if cells else 1.0


def _parts(levels: _Levels, cells: Sequence[_Cell], spec: NoiseSpec, own: bool) -> list[_Row]:
    """Returns a row of table ``noise`` for each part. A level that was not measured has the reason. ``own``:
    dbdyno started the server."""
    window_s = parse_duration_ns(spec.window) / NS_PER_S
    starts = len({c.start for c in cells})
    within = levels.within.variance.times(_step_s(cells) / window_s) if levels.within is not None else None
    unknown = {
        WITHIN: "too few seconds",
        WINDOWS: "one window in a measurement" if spec.windows == 1 else "too few windows",
        NEW_SESSIONS: f"{counted(len(cells), 'measurement')} of {LEAST_CELLS} that it needs",
        RESTARTS: f"{counted(starts, 'start')} of {LEAST_STARTS} that it needs",
        DRIFT: f"{counted(len(cells), 'measurement')} of {LEAST_FOR_DRIFT} that it needs",
    }
    if spec.restarts == 0:
        why = "it was not restarted" if own else "dbdyno did not start this server"
        unknown[RESTARTS] = f"not measured: {why}"
    unknown[REPEAT] = unknown[NEW_SESSIONS]
    known: dict[str, _Row] = {}
    if within is not None:
        known[WITHIN] = _row(within.value, *within.interval95, within.degrees)
    if levels.windows is not None and within is not None and levels.windows.degrees >= 2:
        known[WINDOWS] = _row(*excess(levels.windows, within), levels.windows.degrees)
    of_windows = levels.windows if levels.windows is not None else within
    if levels.cells is not None:
        if of_windows is not None:
            below = of_windows.times(1 / _windows_per_cell(cells))
            known[NEW_SESSIONS] = _row(*excess(levels.cells, below), levels.cells.degrees)
        else:
            unknown[NEW_SESSIONS] = "the windows are not known"
        known[REPEAT] = _row(levels.cells.value, *levels.cells.interval95, levels.cells.degrees)
    if levels.starts is not None and levels.cells is not None and spec.restarts:
        below = levels.cells.times(1 / _per_start(cells))
        known[RESTARTS] = _row(*excess(levels.starts, below), levels.starts.degrees)
    if (drift := levels.drift) is not None:
        ends = sorted((abs(drift.low), abs(drift.high)))
        low = ends[0] if drift.is_clear else 0.0
        # A straight line of this height has this standard deviation about its mean.
        known[DRIFT] = _row(drift.change**2 / 12, low**2 / 12, ends[1] ** 2 / 12, drift.degrees)
    count = {
        WITHIN: sum(len(c.seconds) for c in cells),
        WINDOWS: sum(len(c.windows) for c in cells),
        RESTARTS: starts,
    }
    return [
        {"part": part, "values": count.get(part, len(cells)), "source": _SOURCE}
        | (known[part] | {"status": "ok"} if part in known else {"status": unknown[part]})
        for part in (WITHIN, WINDOWS, NEW_SESSIONS, RESTARTS, DRIFT, REPEAT)
    ]


def _row(value: float, low: float, high: float, degrees: float) -> _Row:
    deviations = (math.sqrt(v) for v in (value, low, high))
    return dict(zip(("deviation", "low", "high"), deviations, strict=True)) | {"degrees": degrees}


def budget_of(levels: _Levels, cells: Sequence[_Cell]) -> Budget | None:
    """Returns what comparisons are planned by; None if too little was measured."""
    if levels.cells is None or levels.cells.value <= 0:
        return None
    gaps = {False: [0.0], True: [0.0]}
    for before, cell in pairwise(cells):
        gaps[before.start != cell.start].append(cell.at_s - before.end_s)
    between, across = (float(np.median(g[1:] or g)) for g in (gaps[False], gaps[True]))
    step_s = _step_s(cells)
    second = Variance(0.0, 1.0) if levels.within is None else levels.within.variance.times(step_s)
    return Budget(
        levels.cells,
        float(np.median([c.end_s - c.at_s for c in cells])),
        second,
        step_s if levels.within is None else levels.within.steps * step_s,
        between,
        levels.starts,
        _per_start(cells),
        max(0.0, across - between) if levels.starts is not None else 0.0,
    )


def plans(budget: Budget, see: float) -> list[_Row]:
    """Returns the repeats for each difference, the largest first; with restarts if they were measured."""
    made: list[_Row] = []
    for restarts in (False, *([True] if budget.starts is not None else [])):
        for difference in sorted({*DIFFERENCES, see}, reverse=True):
            plan = budget.plan(difference, ALPHA, LEAST_REPEATS, restarts=restarts)
            row: _Row = {"difference": difference, "restarts": restarts, "source": _SOURCE}
            if plan is None:
                made.append(row | {"status": "more than 10,000 repeats"})
            else:
                times = {"repeats": plan.repeats, "measure_s": plan.length_s, "time_s": plan.time_s}
                made.append(row | times | {"status": "ok"})
    return made
