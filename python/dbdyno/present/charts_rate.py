"""Charts of throughput and response time."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from dbdyno.model.results import Results
from dbdyno.present import figures, headline
from dbdyno.present.chart import (
    DASHES,
    Chart,
    Key,
    Spec,
    channel,
    colours,
    cpu_mark,
    encoded,
    finished,
    layer,
    series_keys,
    series_scale,
    sessions_axis,
    time_unit,
)
from dbdyno.present.figures import Series
from dbdyno.present.palette import var

_STATISTICS = {"mean": "mean", "p50": "median", "p95": "95 %", "p99": "99 %"}


def throughput(results: Results, series: list[Series]) -> Chart | None:
    """Rate against sessions, with the line of perfect scaling from each series' lowest rung."""
    found = [a for s in series if (a := headline.answer(results, s)) and a.peak]
    if not found:
        return None
    column = "work_per_s" if all(a.rate_column == "work_per_s" for a in found) else "calls_per_s"
    unit = next(iter(a.unit for a in found)) if column == "work_per_s" else "calls/s"
    rows = [r for s in series for r in _rates(results, s, column)]
    if not rows:
        return None
    repeated = any(r["low"] is not None for r in rows)
    cap = 1.18 * max(r["high"] or r["rate"] for r in rows)
    labels = [s.label for s in series]
    colour = channel("series:N", scale=series_scale(labels), legend=None)
    y = channel("rate:Q", title=unit, axis={"format": "~s"}, scale={"domain": [0, cap], "nice": False})
    cpus = figures.usable_cpus(results)
    top = max(r["sessions"] for r in rows)
    layers = [
        *(cpu_mark(cpus, "x") if cpus and cpus <= top else []),
        encoded(
            _perfect(rows, labels, cap), x=sessions_axis(), y=y, color=colour, detail=channel("series:N")
        ),
        *([encoded(_intervals(rows), x=sessions_axis(), color=colour)] if repeated else []),
        encoded(_measured(rows, unit), x=sessions_axis(), y=y, color=colour),
    ]
    legend = [*series_keys(labels), Key("perfect scaling", var("muted"), "dash")]
    return Chart(
        id="throughput",
        title=f"Throughput, {unit}",
        caption="The distance to the dashed line is what each further session fails to deliver"
        + ("; bars are 95 % intervals over repeats." if repeated else "."),
        spec=finished(layers, f"Throughput in {unit} against sessions, with the line of perfect scaling"),
        legend=legend,
        marks=len(rows),
    )


def response(results: Results, series: list[Series]) -> Chart | None:
    """Mean, median, 95th and 99th percentile of the calls' durations."""
    one = len(series) == 1
    shown = _STATISTICS if one else {k: _STATISTICS[k] for k in ("mean", "p95")}  # more lines hide each other
    rows = [r for s in series for r in _responses(results, s, shown)]
    if not rows:
        return None
    unit, factor = time_unit(max(r["ns"] for r in rows))
    for r in rows:
        r["time"] = r.pop("ns") / factor
    y = channel("time:Q", title=f"response time, {unit}", scale={"type": "linear"})
    tooltip = [
        channel("series:N"), channel("sessions:Q"), channel("statistic:N"),
        channel("time:Q", format=",.3~r", title=f"response time, {unit}"),
    ]  # fmt: skip
    names = list(shown.values())
    marks = [var(f"stat-{s}") for s in shown]
    dash = channel(
        "statistic:N",
        scale={"domain": names, "range": [list(d) for d in DASHES[: len(names)]]},
        legend=None,
    )
    scale = colours(names, marks) if one else series_scale([s.label for s in series])
    colour = channel("statistic:N" if one else "series:N", scale=scale, legend=None)
    detail = [channel("series:N"), channel("statistic:N")]
    base = {"x": sessions_axis(), "y": y, "color": colour, "detail": detail}
    layers = [
        encoded(layer(rows, "line", strokeWidth=2), **base, strokeDash=dash),
        encoded(layer(rows, "point", filled=True, size=30, opacity=1), **base, tooltip=tooltip),
    ]
    legend = [Key(n, m, "line" if n == "mean" else "dash") for n, m in zip(names, marks, strict=True)]
    if not one:
        legend = [*series_keys([s.label for s in series]), *(Key(n, var("muted"), "dash") for n in names[1:])]
    return Chart(
        id="response",
        title="Response time of a call",
        caption="A mean that rises in step with the sessions says that calls queue; percentiles that leave "
        "the mean behind say that some wait much longer than others.",
        spec=finished(layers, f"Response time in {unit} against sessions: mean and percentiles"),
        legend=legend,
        log=True,
        marks=len(rows),
    )


def _rates(results: Results, series: Series, column: str) -> list[dict[str, Any]]:
    rows = []
    for r in figures.ladder(results, series).to_dicts():
        if r[column] is None:
            continue
        rate = float(r[column])
        low, high = (rate * end for end in ends) if (ends := figures.ends(r)) else (None, None)
        rows.append(
            {
                "series": series.label,
                "sessions": r["sessions"],
                "rate": rate,
                "low": low,
                "high": high,
                "scaling": r["scaling"],
                "status": r["status"],
            }
        )
    return rows


def _perfect(rows: list[dict[str, Any]], labels: list[str], cap: float) -> Spec:
    """From the origin through the lowest rung, to where it leaves the chart."""
    ends = []
    top = max(r["sessions"] for r in rows)
    for label in labels:
        mine = [r for r in rows if r["series"] == label and r["rate"] > 0]
        if mine:
            slope = mine[0]["rate"] / mine[0]["sessions"]
            x = min(top, cap / slope)
            ends += [
                {"series": label, "sessions": 0, "rate": 0},
                {"series": label, "sessions": x, "rate": slope * x},
            ]
    return layer(ends, "line", strokeDash=[6, 4], strokeWidth=1.5, opacity=0.75)


def _intervals(rows: list[dict[str, Any]]) -> Spec:
    known = [r for r in rows if r["low"] is not None]
    return encoded(layer(known, "rule", strokeWidth=2), y=channel("low:Q"), y2={"field": "high"})


def _measured(rows: list[dict[str, Any]], unit: str) -> Spec:
    tooltip = [
        channel("series:N"), channel("sessions:Q"), channel("rate:Q", format=".4~s", title=unit),
        channel("scaling:Q", format=".1%", title="of perfect scaling"), channel("status:N"),
    ]  # fmt: skip
    if any(r["low"] is not None for r in rows):
        bounds = (("low", "95 % from"), ("high", "95 % to"))
        tooltip[3:3] = [channel(f"{f}:Q", format=".4~s", title=t) for f, t in bounds]
    return encoded(layer(rows, "line", strokeWidth=2.5, point={"size": 45}), tooltip=tooltip)


def _responses(results: Results, series: Series, shown: dict[str, str]) -> list[dict[str, Any]]:
    frame = figures.ladder(results, series)
    return [
        {
            "series": series.label,
            "sessions": r["sessions"],
            "statistic": name,
            "ns": float(r[f"response_{key}_ns"]),
        }
        for r in frame.to_dicts()
        for key, name in shown.items()
        if r[f"response_{key}_ns"] is not None and math.isfinite(r[f"response_{key}_ns"])
    ]


def durations(results: Results, series: Series) -> tuple[int, pl.DataFrame]:
    """Top rung of the series that has a histogram; its buckets (low_ns, high_ns, count) over all repeats."""
    frame = results.tables["histogram"]
    empty = pl.DataFrame(schema={"low_ns": pl.Int64, "high_ns": pl.Int64, "count": pl.Int64})
    if "sessions" not in frame.columns and "cell" in frame.columns:
        keys = results.tables["windows"].select("cell", "workload", "variant", "sessions")
        frame = frame.join(keys, on="cell", how="inner")
    if not {"workload", "variant", "sessions"} <= set(frame.columns):
        return 0, empty
    mine = figures.of_series(frame, series).filter(pl.col("count") > 0)
    if mine.is_empty():
        return 0, empty
    top = mine["sessions"].max()
    buckets = mine.filter(pl.col("sessions") == top).group_by("low_ns", "high_ns").agg(pl.col("count").sum())
    return int(top), buckets.sort("low_ns")  # type: ignore[arg-type]
