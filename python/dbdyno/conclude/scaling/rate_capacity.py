"""Concludes from a ladder of rates: throughput follows the rate up to the capacity; this describes it
beyond."""

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
    """Rates of a ladder, per second."""

    best: float  # highest rate that was delivered, 0 if none
    missed: tuple[float, ...]  # rates that were not delivered, ascending

    @property
    def over(self) -> tuple[float, ...]:
        return tuple(r for r in self.missed if r > self.best)


def scaling_by_rate(ladder: Ladder, results: Measured, model: str | None = None) -> Scaling:
    """Returns the capacity and its curve, without a model of sessions. Raises UsageError if a ``model`` was
    requested."""
    if model is not None:
        raise no_model(ladder)
    from dbdyno.model.results.raw import LEFT_OUT  # loads the models of runs

    of_ladder = (pl.col("workload") == ladder.workload) & (pl.col("variant") == ladder.variant)
    usable = of_ladder & ~pl.col("status").is_in(LEFT_OUT) & pl.col("rate_per_s").is_not_null()
    rates = _rates(results.tables["rungs"].filter(usable).to_dicts())
    points = ladder.points.select("load", "throughput").rows()
    over = [Delivered(rate, value) for rate, value in points if rate in rates.over]
    if not points:
        return Scaling(ladder, (), pl.DataFrame(schema=CURVE), pl.DataFrame(schema=RESIDUALS))
    limit = capacity(over) if over else None
    answer = _claim(limit, rates, [rate for rate, _ in points])
    level = answer.value if limit is not None and limit.kind in ("level", "single") else None
    paragraph = claim("paragraph", {"words": answer.text})
    return Scaling(
        _without_response(ladder, rates),
        (),
        _curve(ladder, level),
        _residuals(ladder, level, limit is None),
        answers=(answer, paragraph),
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


def _claim(limit: Capacity | None, rates: _Rates, loads: Sequence[float]) -> Claim:
    lower = next((r for r in rates.missed if r < rates.best), None)
    values: dict[str, Any] = {"best": rates.best, "lower": lower, "top": max(loads)}
    values |= {"points": len(loads), "rates": len(set(loads)), "least_left": LEFT_OVER}
    parts = ["uneven"] if lower is not None else []
    if limit is None:
        return claim("rate-capacity", values, case="none", parts=parts)
    high = (
        None if limit.high is None else max(limit.high, rates.best)
    )  # the best rate was delivered: a lower bound
    value = Estimate("capacity", limit.value, "calls/s", limit.low, high, "Student's t" if high else "")
    used = sorted({p.rate for p in limit.points})
    last_values = [p.value for p in limit.points if p.rate == used[-1]]
    last_mean = sum(last_values) / len(last_values)
    values |= {
        "rate": fmt.rate(value.value, "calls/s") + fmt.rate_spread(value),
        "first": used[0],
        "top": used[-1],
    }
    values |= {"there": fmt.rate(last_mean, "calls/s"), "less": 1 - last_mean / limit.value}
    values |= {"points": len(limit.points), "rates": len(used)}
    if limit.kind == "level" and limit.change is not None:
        values |= dict(zip(("least", "most"), (fmt.signed(max(-1.0, v)) for v in limit.change), strict=True))
        parts.insert(0, "stays" if max(map(abs, limit.change)) <= LEVEL else "unsure")
    if limit.kind == "falls" and limit.low is None:
        parts.insert(0, "no-interval")
    return claim("rate-capacity", values, value, case=limit.kind, parts=parts)


def _curve(ladder: Ladder, level: Estimate | None) -> pl.DataFrame:
    """Returns the smaller of rate and capacity, with the capacity's interval; empty if throughput has no
    single level."""
    if level is None:
        return pl.DataFrame(schema=CURVE)
    loads = pl.Series(
        sorted({*ladder.points["load"], *(v for v in (level.low, level.value, level.high) if v)})
    )
    columns = {"load": loads, "perfect": loads, "throughput": loads.clip(upper_bound=level.value)}
    for name, end in (("low", level.low), ("high", level.high)):
        columns[name] = loads.clip(upper_bound=end) if end is not None else pl.Series([None] * len(loads))
    nothing = {"response_s": [None] * len(loads), "beyond": [False] * len(loads)}
    return pl.DataFrame({**columns, **nothing}, schema_overrides=CURVE).select(list(CURVE))


def _residuals(ladder: Ladder, level: Estimate | None, all_delivered: bool) -> pl.DataFrame:
    """Returns residuals; ``efficiency`` is the delivered share of the rate. ``whole`` means that all rates
    were delivered."""
    rate = pl.col("load")
    predicted = (
        pl.min_horizontal(rate, pl.lit(level.value)) if level is not None else rate if all_delivered else None
    )
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
    """Returns the ladder without response times at rates that were not delivered: there the backlog and with
    it the response time grow for as long as the load lasts."""
    endless = pl.col("load").is_in(rates.missed)
    times = [
        pl.when(endless).then(None).otherwise(pl.col(name)).alias(name)
        for name in ("response_s", "response_p95_s")
    ]
    return replace(ladder, points=ladder.points.with_columns(times))
