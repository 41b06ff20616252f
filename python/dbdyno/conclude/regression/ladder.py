"""CPU per unit of work of a ladder, regime by regime."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import polars as pl

from dbdyno.conclude.catalogue import sentence
from dbdyno.conclude.regression.refusals import LEAST_RUNGS, note
from dbdyno.conclude.regression.regimes import Regime, regimes
from dbdyno.conclude.regression.regress import regress
from dbdyno.model.regression import REGRESSION_POINTS, Regression
from dbdyno.model.scaling import Estimate, Ladder

_NOISE = 0.05
"""Share of the variance of work that may be noise between repeats: it flattens the slope by as much."""


def cpu_per_work(
    ladder: Ladder,
    knees: Sequence[Estimate | float] | None = None,
    throttled: Collection[float] = (),
) -> tuple[Regression, ...]:
    """CPU (seconds per second) on throughput (units per second), one regression a regime, by load.

    ``knees``: loads where growth changes; ``None``: those of the ladder's best model with knees; ``()``:
    none. ``throttled``: loads at which a limit held the sessions: a regime of its own, as is what lies above
    the machine's CPUs. A line is never laid across them. Errors are HC3's: points are no time series.
    """
    points, notes = _usable(ladder)
    if points.is_empty():
        return (_refused(ladder, sentence("no-regression", case="no-cpu")),)
    found = regimes(replace(ladder, points=points), knees, throttled)
    return tuple(_regressed(ladder, r, notes) for r in found)


def _usable(ladder: Ladder) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Points with work and CPU; CPU is user and system where it alone is missing."""
    together = pl.coalesce("cpu", pl.col("cpu_user") + pl.col("cpu_system"))
    points = ladder.points.with_columns(cpu=together)
    kept = points.filter(pl.col("cpu").is_not_null(), pl.col("throughput").is_not_null())
    missing = len(points) - len(kept)
    said = {"missing": missing, "points": len(points)}
    return kept, ((note("missing", **said),) if missing else ())


def _regressed(ladder: Ladder, regime: Regime, notes: tuple[str, ...]) -> Regression:
    points = regime.points.sort("load", "repeat")
    split = points["cpu_user"].null_count() + points["cpu_system"].null_count() == 0
    made = regress(
        points["throughput"].to_numpy(),
        points["cpu"].to_numpy(),
        ordered=False,
        user=points["cpu_user"].to_numpy() if split else None,
        system=points["cpu_system"].to_numpy() if split else None,
        units=(work_unit(ladder.throughput_unit),),
        name=ladder.name,
        regime=regime.words,
    )
    marked = made.points.with_columns(load=points["load"], repeat=points["repeat"])
    apart = () if split else (note("no-split"),)
    few = points["load"].n_unique()
    refused = made.refused
    if refused is None and few < LEAST_RUNGS:
        refused = sentence("no-regression", {"loads": few}, case="few")
    said = (*notes, *regime.notes, *apart, *_flattened(points), *made.notes)
    parts = made.parts if refused is None else ()
    return replace(made, points=marked, notes=said, refused=refused, parts=parts)


def _flattened(points: pl.DataFrame) -> tuple[str, ...]:
    """Noise in the work itself lowers the slope (errors in variables: Fuller 1987, 1.1); repeats show it."""
    work = pl.col("throughput")
    within = points.group_by("load").agg(n=pl.len(), ss=work.var() * (pl.len() - 1)).filter(pl.col("n") > 1)
    degrees = int((within["n"] - 1).sum()) if len(within) else 0
    whole = points["throughput"].var()
    if not degrees or not isinstance(whole, float) or whole <= 0:
        return ()
    share = float(within["ss"].sum()) / degrees / whole
    if share < _NOISE:
        return ()
    return (note("noisy-work", share=share),)


def work_unit(throughput_unit: str) -> str:
    """``calls/s`` -> ``call``; ``LIO/s`` -> ``LIO``."""
    unit = throughput_unit.strip()
    if not unit.endswith("/s"):
        return unit or "work unit"
    unit = unit.removesuffix("/s")
    if unit.endswith("ies"):
        return f"{unit[:-3]}y"
    return unit.removesuffix("s") or "work unit"


def _refused(ladder: Ladder, why: str) -> Regression:
    empty = pl.DataFrame(schema=REGRESSION_POINTS)
    unit = work_unit(ladder.throughput_unit)
    return Regression(ladder.name, f"all {ladder.load_unit}", (unit,), 0, 0, "", (), empty, refused=why)
