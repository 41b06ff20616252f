"""Charts of how calls and sessions differ: durations at the top rung, rates of single sessions."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from dbdyno.model.results import Results
from dbdyno.present.chart import (
    Chart,
    Spec,
    channel,
    encoded,
    finished,
    layer,
    number,
    rungs_axis,
    series_keys,
    series_scale,
    time_unit,
)
from dbdyno.present.charts_rate import durations
from dbdyno.present.figures import Series, of_series
from dbdyno.present.palette import var

BINS = 48
QUARTILES = 5  # fewer sessions have no middle half worth a box
POINTS = 200  # of a rung: more sessions are thinned by rank, extremes kept


def distribution(results: Results, series: Series) -> Chart | None:
    """How long the calls of the top rung took: counts over time on a logarithmic axis."""
    top, buckets = durations(results, series)
    if buckets.is_empty():
        return None
    unit, factor = time_unit(number(buckets["high_ns"].max()))
    rows = _bins(buckets, factor)
    x = channel("low:Q", title=f"response time, {unit}", scale={"type": "log", "nice": False})
    tooltip = [
        channel("low:Q", format=",.4~r", title=f"from, {unit}"),
        channel("high:Q", format=",.4~r", title=f"to, {unit}"),
        channel("calls:Q", format=","),
    ]
    bars = layer(rows, "bar", color=var("stat-p50"), stroke=var("card"), strokeWidth=0.5)
    drawn = encoded(
        bars, x=x, x2={"field": "high"}, y=channel("calls:Q", title="calls"), y2={"datum": 0}, tooltip=tooltip
    )
    return Chart(
        id="distribution",
        title=f"Durations of calls at {top} sessions",
        caption="More than one hill says that calls fall into kinds, for example those that found a free CPU "
        "and those that queued.",
        spec=finished([drawn], f"Number of calls by response time at {top} sessions"),
        marks=len(rows),
    )


def percentiles(results: Results, series: list[Series]) -> Chart | None:
    """Response time against percentile at the top rung, the tail stretched (as HdrHistogram plots it)."""
    found = [(s, *durations(results, s)) for s in series]
    found = [f for f in found if not f[2].is_empty()]
    if not found:
        return None
    unit, factor = time_unit(max(number(b["high_ns"].max()) for _, _, b in found))
    rows = [r for s, _, buckets in found for r in _curve(buckets, factor, s.label)]
    words = "datum.value <= 1 ? '0 %' : format(100 * (1 - 1 / datum.value), '.7~g') + ' %'"
    highest = max(r["inverse"] for r in rows)
    axis = {"values": _decades(highest), "labelExpr": words, "labelOverlap": "greedy"}
    scale = {"type": "log", "domain": [1, max(highest, 2)], "nice": False}
    tooltip = [
        channel("series:N"),
        channel("percent:Q", format=".6~g", title="percentile"),
        channel("time:Q", format=",.4~r", title=f"response time, {unit}"),
    ]
    line = layer(rows, "line", interpolate="step-before", strokeWidth=2, point={"size": 12})
    labels = [s.label for s in series]
    drawn = encoded(
        line,
        x=channel("inverse:Q", title="percentile of calls", axis=axis, scale=scale),
        y=channel("time:Q", title=f"response time, {unit}", scale={"type": "linear"}),
        color=channel("series:N", scale=series_scale(labels), legend=None),
        tooltip=tooltip,
    )
    tops = sorted({top for _, top, _ in found})
    at = " and ".join(str(t) for t in tops)
    return Chart(
        id="percentiles",
        title=f"Percentiles at {at} sessions",
        caption="Read upwards from a percentile: so long, at most, did that share of the calls take.",
        spec=finished([drawn], f"Response time in {unit} by percentile at {at} sessions"),
        legend=series_keys(labels) if len(series) > 1 else (),
        log=True,
        marks=len(rows),
    )


def spread(results: Results, series: Series) -> Chart | None:
    """Each session's rate against the mean of its rung."""
    rates = of_series(results.tables["rates"], series).filter(
        (pl.col("scope") == "session") & (pl.col("name") == "calls_per_s") & pl.col("value").is_not_null()
    )
    relative = rates.with_columns((pl.col("value") / pl.col("value").mean().over("cell")).alias("relative"))
    relative = relative.filter(pl.col("relative").is_finite())
    if relative.is_empty():
        return None
    points = _thinned(relative)
    tooltip = [
        channel("sessions:O"), channel("session:Q"), channel("repeat:Q"),
        channel("value:Q", format=".4~s", title="calls/s"),
        channel("relative:Q", format=".1%", title="of the mean"),
    ]  # fmt: skip
    ends = [min(0.98, number(points["relative"].min())), max(1.02, number(points["relative"].max()))]
    y = channel(
        "relative:Q",
        title="rate, of the rung's mean",
        axis={"format": ".1~%"},
        scale={"zero": False, "domain": ends},
    )
    strip = layer(points, "point", filled=True, size=18, opacity=0.55, color=var("stat-p50"))
    return Chart(
        id="spread",
        title="Rates of single sessions",
        caption="Each point is a session, a box holds the middle half of five or more: long is unfair.",
        spec=finished(
            [*_boxes(relative), encoded(strip, x=rungs_axis(), y=y, tooltip=tooltip)],
            "Rate of each session relative to the mean of its rung",
        ),
        marks=len(points),
    )


def _boxes(relative: pl.DataFrame) -> list[Spec]:
    """Quartiles and median of the rungs that have enough sessions."""
    value = pl.col("relative")
    boxes = (
        relative.group_by("sessions")
        .agg(
            value.quantile(0.25).alias("q1"),
            value.median().alias("median"),
            value.quantile(0.75).alias("q3"),
            pl.len().alias("n"),
        )
        .filter(pl.col("n") >= QUARTILES)
        .sort("sessions")
    )
    if boxes.is_empty():
        return []
    box = layer(boxes, "bar", color=var("stat-p50"), opacity=0.3)
    middle = layer(boxes, "tick", color=var("text"), thickness=2, orient="horizontal")
    return [
        encoded(box, x=rungs_axis(), y=channel("q1:Q"), y2={"field": "q3"}),
        encoded(middle, x=rungs_axis(), y=channel("median:Q")),
    ]


def _bins(buckets: pl.DataFrame, factor: float) -> list[dict[str, Any]]:
    """Calls in bins of equal width on a logarithmic axis; a bucket belongs to the bin of its middle."""
    low, high = max(1.0, number(buckets["low_ns"].min())), number(buckets["high_ns"].max()) + 1
    step = math.log(high / low) / BINS
    middle = ((pl.col("low_ns") + pl.col("high_ns")) / 2).clip(low)
    found = (
        buckets.with_columns(
            ((middle / low).log() / step).floor().clip(0, BINS - 1).cast(pl.Int64).alias("bin")
        )
        .group_by("bin")
        .agg(pl.col("count").sum().alias("calls"))
        .sort("bin")
    )
    return [
        {
            "low": low * math.exp(b * step) / factor,
            "high": low * math.exp((b + 1) * step) / factor,
            "calls": calls,
        }
        for b, calls in found.rows()
    ]


def _curve(buckets: pl.DataFrame, factor: float, label: str) -> list[dict[str, Any]]:
    """At most about 150 points: time (a bucket's upper end) and 1 / (1 - share of calls at or below)."""
    total = int(buckets["count"].sum())
    fastest = number(buckets["low_ns"].min()) / factor
    rows: list[dict[str, Any]] = [{"series": label, "inverse": 1.0, "percent": 0.0, "time": fastest}]
    seen = 0
    for high_ns, count in buckets.select("high_ns", "count").rows():
        seen += count
        inverse = total / max(1, total - seen)
        last = seen == total
        if not last and inverse < rows[-1]["inverse"] * 1.06:
            continue
        percent = 100.0 * seen / total
        rows.append({"series": label, "inverse": inverse, "percent": percent, "time": high_ns / factor})
    return rows


def _decades(highest: float) -> list[float]:
    decades = [10.0**i for i in range(1, 10) if 10.0**i <= highest]
    return [1, 2, *([4] if highest < 100 else []), *decades]


def _thinned(rates: pl.DataFrame) -> pl.DataFrame:
    """At most POINTS sessions of each rung, evenly by rank, the extremes among them."""
    ranked = rates.sort("sessions", "relative").with_columns(
        pl.int_range(pl.len()).over("sessions").alias("rank"), pl.len().over("sessions").alias("n")
    )
    step = (pl.col("n") / POINTS).ceil().cast(pl.Int64)
    keep = (pl.col("rank") % step == 0) | (pl.col("rank") == pl.col("n") - 1)
    return ranked.filter(keep).select("sessions", "session", "repeat", "value", "relative")
