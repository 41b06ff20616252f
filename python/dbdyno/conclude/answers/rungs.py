"""A ladder's rungs: what was measured at each load, and what the best fit says between them."""

from __future__ import annotations

import numpy as np
import polars as pl

from dbdyno.conclude import number_format as fmt
from dbdyno.model.claim import stops_scaling
from dbdyno.model.scaling import Estimate, Ladder, Scaling
from dbdyno.stats.knee import KNEE
from dbdyno.stats.knee import bend as bent
from dbdyno.stats.mean import Mean


def loads(ladder: Ladder) -> list[float]:
    """Measured loads, ascending."""
    return sorted(set(ladder.points["load"].to_list()))


def at(ladder: Ladder, load: float, column: str = "throughput", over: str | None = None) -> Estimate | None:
    """Mean over the repeats of a rung of ``column``, or of its ratio to ``over``; ``None``: not known."""
    rung = ladder.points.filter(pl.col("load") == load)
    value = pl.col(column) if over is None else pl.col(column) / pl.col(over)
    return fmt.estimate(column, rung.select(value.alias("v"))["v"].to_list())


def throughput(ladder: Ladder, load: float) -> float:
    found = at(ladder, load)
    assert found is not None  # of a load that was measured
    return found.value


def best_rung(ladder: Ladder) -> float:
    """The load with the largest mean throughput; of equal ones the lowest."""
    return max(loads(ladder), key=lambda n: (throughput(ladder, n), -n))


def reached(ladder: Ladder, share: float = 0.99) -> float:
    """The lowest load that delivers so much of the largest mean throughput."""
    top = throughput(ladder, best_rung(ladder))
    return next(n for n in loads(ladder) if throughput(ladder, n) >= share * top)


def fitted_at(scaling: Scaling, load: float) -> Estimate | None:
    """The best fit's throughput with its band, within the range of its curve; ``None`` without a fit."""
    curve = scaling.curve.sort("load") if scaling.curve.height else scaling.curve
    if scaling.best is None or curve.height < 2:
        return None

    def interpolated(column: str) -> float | None:
        known = curve.drop_nulls(column) if column in curve.columns else curve.clear()
        if known.is_empty() or not known["load"][0] <= load <= known["load"][-1]:
            return None
        return float(np.interp(load, known["load"].to_numpy(), known[column].to_numpy()))

    value = interpolated("throughput")
    if value is None:
        return None
    unit = scaling.ladder.throughput_unit
    return Estimate("throughput", value, unit, interpolated("low"), interpolated("high"), "band of the fit")


def alone(scaling: Scaling) -> tuple[Estimate, bool] | None:
    """Throughput of one session, and whether it was measured; else it is the best fit's."""
    ladder = scaling.ladder
    if (measured := at(ladder, 1.0)) is not None:
        return measured, True
    if (fitted := fitted_at(scaling, 1.0)) is not None:
        return fitted, False
    best = scaling.best
    rate = next((p for p in best.parameters if p.name in ("rate", "lambda")), None) if best else None
    return None if rate is None else (rate, False)


def knee(ladder: Ladder) -> Estimate | None:
    """The load beyond which one more brings less than half of what one brings at best; its interval are the
    nearest loads that are surely below and above. ``None``: growth does not end at the loads measured."""
    means = {n: Mean.of(ladder.points.filter(pl.col("load") == n)["throughput"]) for n in loads(ladder)}
    found = bent(means, KNEE)
    if found.at == max(means):
        return None
    return Estimate("knee", found.at, ladder.load_unit, found.low, found.high, "neighbouring loads")


def bend(scaling: Scaling) -> float | None:
    """Load from which on growth is less than it was: the knee; else the last load before efficiency is below
    :data:`~dbdyno.model.claim.GOOD_SCALING`. ``None``: none was measured."""
    measured = loads(scaling.ladder)
    if (found := knee(scaling.ladder)) is not None:
        return found.value
    if scaling.best is not None and scaling.best.model == "linear":
        return None
    bad = stops_scaling(list(efficiencies(scaling.ladder).values()))
    return None if bad is None else measured[bad - 1]


def efficiencies(ladder: Ladder) -> dict[float, float]:
    """By load: throughput per session against that at the lowest load."""
    each = {n: throughput(ladder, n) / n for n in loads(ladder)}
    first = next(iter(each.values()), 1.0)
    return {n: x / first for n, x in each.items()}
