"""A ladder of rates: what is delivered follows the rate up to the capacity, and what it does beyond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.ladder.ladders import Measured, Row
from dbdyno.conclude.run.paced import LEFT_OVER, delivered
from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import CURVE, RESIDUALS, Estimate, Ladder, Scaling
from dbdyno.model.results.claim import Claim
from dbdyno.stats.capacity import LEVEL, Capacity, Delivered, capacity


class _Rates(NamedTuple):
    """Figures of a ladder, per second."""

    best: float  # the highest that is delivered, 0: none
    missed: tuple[float, ...]  # those that are not, ascending

    @property
    def over(self) -> tuple[float, ...]:
        return tuple(r for r in self.missed if r > self.best)


def scaling_by_rate(ladder: Ladder, results: Measured, model: str | None = None) -> Scaling:
    """The capacity, and the curve that it makes, without any model of sessions. Raises UsageError: a
    ``model`` was asked for."""
    if model is not None:
        raise no_model(ladder)
    from dbdyno.model.results.raw import LEFT_OUT  # loads the models of runs

    mine = (pl.col("workload") == ladder.workload) & (pl.col("variant") == ladder.variant)
    usable = mine & ~pl.col("status").is_in(LEFT_OUT) & pl.col("rate_per_s").is_not_null()
    rates = _rates(results.tables["rungs"].filter(usable).to_dicts())
    points = ladder.points.select("load", "throughput").rows()
    over = [Delivered(rate, value) for rate, value in points if rate in rates.over]
    if not points:
        return Scaling(ladder, (), pl.DataFrame(schema=CURVE), pl.DataFrame(schema=RESIDUALS))
    found = capacity(over) if over else None
    told = _claim(found, rates, [rate for rate, _ in points])
    level = told.value if found is not None and found.kind in ("level", "single") else None
    paragraph = claim("paragraph", {"words": told.text})
    return Scaling(
        _without_response(ladder, rates),
        (),
        _curve(ladder, level),
        _residuals(ladder, level, found is None),
        answers=(told, paragraph),
    )


def no_model(ladder: Ladder) -> UsageError:
    return UsageError(
        f"{ladder.name}: no model is fitted to rates",
        "what is delivered is the rate, up to the capacity; models need numbers of sessions without a rate",
    )


def _rates(rungs: Sequence[Row]) -> _Rates:
    kept = {float(r["rate_per_s"]): delivered(r) for r in rungs}
    best = max((rate for rate, whole in kept.items() if whole), default=0.0)
    return _Rates(best, tuple(sorted(rate for rate, whole in kept.items() if not whole)))


def _claim(found: Capacity | None, rates: _Rates, loads: Sequence[float]) -> Claim:
    lower = next((r for r in rates.missed if r < rates.best), None)
    said: dict[str, Any] = {"best": rates.best, "lower": lower, "top": max(loads)}
    said |= {"points": len(loads), "rates": len(set(loads)), "least_left": LEFT_OVER}
    parts = ["uneven"] if lower is not None else []
    if found is None:
        return claim("rate-capacity", said, case="none", parts=parts)
    high = None if found.high is None else max(found.high, rates.best)  # so much was delivered
    value = Estimate("capacity", found.value, "calls/s", found.low, high, "Student's t" if high else "")
    used = sorted({p.rate for p in found.points})
    there = [p.value for p in found.points if p.rate == used[-1]]
    after = sum(there) / len(there)
    said |= {
        "rate": fmt.rate(value.value, "calls/s") + fmt.rate_spread(value),
        "first": used[0],
        "top": used[-1],
    }
    said |= {"there": fmt.rate(after, "calls/s"), "less": 1 - after / found.value}
    said |= {"points": len(found.points), "rates": len(used)}
    if found.kind == "level" and found.change is not None:
        said |= dict(zip(("least", "most"), (fmt.signed(max(-1.0, v)) for v in found.change), strict=True))
        parts.insert(0, "stays" if max(map(abs, found.change)) <= LEVEL else "unsure")
    if found.kind == "falls" and found.low is None:
        parts.insert(0, "no-interval")
    return claim("rate-capacity", said, value, case=found.kind, parts=parts)


def _curve(ladder: Ladder, level: Estimate | None) -> pl.DataFrame:
    """The smaller of rate and capacity with its interval; empty where there is no one level."""
    if level is None:
        return pl.DataFrame(schema=CURVE)
    loads = pl.Series(
        sorted({*ladder.points["load"], *(v for v in (level.low, level.value, level.high) if v)})
    )
    found = {"load": loads, "perfect": loads, "throughput": loads.clip(upper_bound=level.value)}
    for name, end in (("low", level.low), ("high", level.high)):
        found[name] = loads.clip(upper_bound=end) if end is not None else pl.Series([None] * len(loads))
    nothing = {"response_s": [None] * len(loads), "beyond": [False] * len(loads)}
    return pl.DataFrame({**found, **nothing}, schema_overrides=CURVE).select(list(CURVE))


def _residuals(ladder: Ladder, level: Estimate | None, whole: bool) -> pl.DataFrame:
    """``whole``: all rates are delivered; ``efficiency`` is the share of the rate that is."""
    rate = pl.col("load")
    predicted = pl.min_horizontal(rate, pl.lit(level.value)) if level is not None else rate if whole else None
    return (
        ladder.points.select(
            "load",
            "repeat",
            "throughput",
            predicted=pl.lit(None, pl.Float64) if predicted is None else predicted,
            efficiency=pl.col("throughput") / rate,
        )
        .with_columns(residual=pl.col("throughput") - pl.col("predicted"))
        .select(list(RESIDUALS))
    )


def _without_response(ladder: Ladder, rates: _Rates) -> Ladder:
    """Response times at rates that are not delivered grow as long as the load goes on: they are no figure."""
    endless = pl.col("load").is_in(rates.missed)
    times = [
        pl.when(endless).then(None).otherwise(pl.col(name)).alias(name)
        for name in ("response_s", "response_p95_s")
    ]
    return replace(ladder, points=ladder.points.with_columns(times))
