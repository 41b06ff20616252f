"""Draws the charts of a report in reading order, and those of throughput, response time and single
sessions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from typing import Any

import polars as pl

from dbdyno.model.plan.kinds import PHASES, kind_of
from dbdyno.model.results.results import Results
from dbdyno.model.schema.quantiles import CALLS_ABOVE, fewest_calls
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.nouns import at_once, capital, fill, noun
from dbdyno.model.units import format_rate
from dbdyno.present.charts import charts_paced, charts_time
from dbdyno.present.charts.chart import (
    LETTERS,
    ROUNDED,
    Group,
    Spec,
    channel,
    chart,
    coloured,
    cpu_mark,
    encoded,
    layer,
    load_axis,
    number,
    response_lines,
    rungs_axis,
    series_keys,
    time_unit,
    tips,
)
from dbdyno.present.document.document import Chart, Key
from dbdyno.present.document.palette import SERIES, var
from dbdyno.present.figures import efficiency, figures, headline
from dbdyno.present.figures.figures import Series, of_series, series_of
from dbdyno.present.run import phases, variant_charts

_STATISTICS = {"mean": "mean", "p50": "median", "p95": "95 %", "p99": "99 %"}
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
_BINS = 48
_QUARTILES = 5  # least sessions whose middle half is worth a box
_DISTANCE = "The distance to the dashed line is what each further"
_CPU_LIMIT = ("cpu_limit_per_s", "cpu_limit_low", "cpu_limit_high")
_POINTS = 200  # most points of a rung: more sessions are thinned by rank, extremes kept


def main(results: Results) -> list[Group]:
    """Returns the first charts by workload: throughput beside session time, then response times."""
    if kind_of(results.plan).among((PHASES,)):
        return [g for g in [Group("", phases.charts(results))] if g.charts]
    series = series_of(results)
    paced = figures.is_paced(results)
    groups = []
    for workload in dict.fromkeys(s.workload for s in series):
        of_workload = [s for s in series if s.workload == workload]
        if variant_charts.apply(results, of_workload):
            drawn = [draw(results, of_workload) for draw in _BY_VARIANT]
            groups.append(_group(workload if len(series) > len(of_workload) else "", drawn))
            continue
        first, last = charts_paced.DRAWN if paced else (throughput, response)
        measures: list[charts_time.Measure] = ["aas"] if paced or len(series) > 1 else ["aas", "share"]
        stacks = [(s, charts_time.time_stacks(results, s, *measures)) for s in of_workload]
        of_time = [_titled(each_stack[0], s, series) for s, each_stack in stacks]
        shares = [share for _, each_stack in stacks for share in each_stack[1:]]
        drawn = [first(results, of_workload), *of_time, last(results, of_workload), *shares]
        groups.append(_group(workload if len(series) > len(of_workload) else "", drawn))
    return [g for g in groups if g.charts]


_BY_VARIANT = (variant_charts.throughput, charts_time.variant_stack, variant_charts.response)


def durations(results: Results) -> list[Group]:
    """Returns distributions of the calls' durations at the top rung, by workload: all variants, then each
    one."""
    series = series_of(results)
    groups = []
    for workload in dict.fromkeys(s.workload for s in series):
        of_workload = [s for s in series if s.workload == workload]
        own = [_titled(distribution(results, s), s, series) for s in of_workload]
        groups.append(
            _group(
                workload if len(series) > len(of_workload) else "", [percentiles(results, of_workload), *own]
            )
        )
    return [g for g in groups if g.charts]


def each(results: Results, draw: Callable[[Results, Series], Chart | None]) -> list[Group]:
    """Returns one group with a chart per variant that has something to show; empty without any."""
    series = series_of(results)
    group = _group("", [_titled(draw(results, s), s, series) for s in series])
    return [group] if group.charts else []


def _titled(drawn: Chart | None, series: Series, every: list[Series]) -> Chart | None:
    """Adds the label of the series to the title if there are several."""
    return replace(drawn, title=f"{drawn.title}: {series.label}") if drawn and len(every) > 1 else drawn


def _group(heading: str, drawn: Iterable[Chart | None]) -> Group:
    return Group(heading, [c for c in drawn if c])


def throughput(results: Results, series: list[Series]) -> Chart | None:
    """Returns the rate against sessions, with the line of perfect scaling from the lowest rung of each
    series.

    None if no rate is known.
    """
    answers = [a for s in series if (a := headline.answer(results, s)) and a.peak]
    if not answers:
        return None
    column = "work_per_s" if all(a.rate_column == "work_per_s" for a in answers) else "calls_per_s"
    unit = answers[0].unit if column == "work_per_s" else f"{noun('calls')}/s"
    rows = [r for s in series for r in _rates(results, s, column)]
    if not rows:
        return None
    repeated = [r for r in rows if r["low"] is not None]
    top, most = max(r["sessions"] for r in rows), 1.5 * max(r["rate"] for r in rows)
    # Two repeats may have an infinite interval, which would flatten everything else on the axis.
    cap = 1.18 * max(min(most, r["high"] or r["rate"]) for r in rows)
    limits = _cpu_limits(results, series, column, top, most)
    cap = max([cap, *(min(most, 1.03 * r["limit"]) for r in limits)])
    labels = [s.label for s in series]
    base = {"x": load_axis(), "color": coloured("series", labels)}
    y = channel("rate:Q", title=unit, axis=LETTERS, scale={"domain": [0, cap], "nice": False})
    start = {s.label: n for s in series if (n := efficiency.reference(results, s)) is not None}
    ideal, alike = _perfect(rows, start, top, cap), set(start.values())
    perfect_from = at_once(str(alike.pop())) if len(alike) == 1 else "the lowest load"
    paint = var("muted") if len(labels) > 1 else var(SERIES[0])
    perfect = layer(ideal, "line", strokeDash=[6, 4], strokeWidth=1.5, opacity=0.75)
    intervals = layer([{**r, "high": min(cap, r["high"])} for r in repeated], "rule", strokeWidth=2)
    ends = [("low:Q", ROUNDED, "95 % from"), ("high:Q", ROUNDED, "95 % to")] if repeated else []
    tooltip = tips(
        *(["series:N"] if len(labels) > 1 else []),
        "sessions:Q",
        ("rate:Q", ROUNDED, unit),
        *ends,
        *([("scaling:Q", ".1%", "of perfect scaling")] if ideal else []),
        "status:N",
    )
    measured = layer(rows, "line", strokeWidth=2.5, point={"size": 45})
    band = layer([{**r, "high": min(r["high"], cap)} for r in limits], "area", opacity=0.12)
    limit = layer([r for r in limits if r["limit"] <= cap], "line", strokeWidth=1.5)
    bound = tips("series:N", ("limit:Q", ROUNDED, f"CPU limit, {unit}"))
    return chart(
        "throughput",
        f"Throughput, {unit}",
        " ".join(
            [
                *([f"{_DISTANCE} {noun('single')} fails to deliver."] if ideal else []),
                *(["Bars are 95 % intervals over repeats."] if repeated else []),
            ]
        )
        + _limit_note(results, series, column, unit, drawn={r["series"] for r in limits}),
        [
            *([encoded(band, **base, y=channel("low:Q"), y2={"field": "high"})] if limits else []),
            *(
                [encoded(limit, **base, y=channel("limit:Q"), strokeDash={"value": [2, 3]}, tooltip=bound)]
                if limits
                else []
            ),
            *cpu_mark(figures.usable_cpus(results, series), "x", top),
            *([encoded(perfect, **base, y=y, detail=channel("series:N"))] if ideal else []),
            encoded(intervals, **base, y=channel("low:Q"), y2={"field": "high"}),
            encoded(measured, **base, y=y, tooltip=tooltip),
        ],
        f"Throughput in {unit} against {noun('at_once')}"
        + (", with the line of perfect scaling" if ideal else ""),
        rows,
        legend=[
            *(series_keys(labels) if len(labels) > 1 else [Key("measured", var(SERIES[0]))]),
            *([Key(f"perfect scaling from {perfect_from}", paint, "dash")] if ideal else []),
            *([Key("CPU limit, with its error", paint, "dots")] if limits else []),
        ],
    )


def _limit_note(results: Results, series: list[Series], column: str, unit: str, drawn: Set[str]) -> str:
    """Returns what the dotted line is, and the limits that lie too far above the chart to be drawn."""
    above = [
        f"{format_rate(ends[0])} {unit}" + (f" ({one.label})" if len(series) > 1 else "")
        for one in series
        if one.label not in drawn and (ends := _cpu_limit(results, one, column))
    ]
    return (fill(" No more {~calls} fit into the CPUs than the level dotted line.") if drawn else "") + (
        f" The CPU limit is above the chart: {', '.join(above)}." if above else ""
    )


def _cpu_limits(
    results: Results, series: list[Series], column: str, top: float, most: float
) -> list[dict[str, Any]]:
    """Returns the ends of a horizontal line for each series: the calls, or their work, whose CPU time at the
    lowest load fits into the CPUs. Lines whose band lies above the chart are left out."""
    rows: list[dict[str, Any]] = []
    for one in series:
        if (ends := _cpu_limit(results, one, column)) is None:
            continue
        limit, low, high = ends
        if low < most:
            name = f"{one.label}: CPU limit"  # of the series in a workbook
            line = {"series": one.label, "label": name, "limit": limit, "low": low, "high": high}
            rows += [{**line, "sessions": n} for n in (0, top)]
    return rows


def _cpu_limit(results: Results, series: Series, column: str) -> tuple[float, float, float] | None:
    """Returns the CPU limit of a series with its ends, in calls or their work per second; None if it is
    unknown."""
    bounds = of_series(results.tables.get("bounds", empty("bounds")), series).drop_nulls("cpu_limit_per_s")
    lowest = figures.ladder(results, series).filter(pl.col("calls_per_s") > 0).sort("sessions").head(1)
    if bounds.is_empty() or lowest.is_empty():
        return None
    size = lowest[column][0] / lowest["calls_per_s"][0]  # work of a call
    limit, low, high = (size * v for v in bounds.select(*_CPU_LIMIT).row(0))
    return limit, low, high


def _rates(results: Results, series: Series, column: str) -> list[dict[str, Any]]:
    rows = figures.ladder(results, series).filter(pl.col(column).is_not_null()).to_dicts()
    return [
        {
            "series": series.label,
            "sessions": r["sessions"],
            "rate": (rate := float(r[column])),
            "low": None if (ends := figures.ends(r)) is None else rate * ends[0],
            "high": None if ends is None else rate * ends[1],
            "scaling": r["scaling"],
            "status": r["status"],
        }
        for r in rows
    ]


def _perfect(rows: list[Spec], start: Mapping[str, int], top: float, cap: float) -> list[Spec]:
    """Returns the line from the origin through the rung that efficiency refers to, up to the edge of the
    chart; none for a series without one. ``start``: its number of sessions by series."""
    ends = []
    for r in rows:
        if r["rate"] > 0 and r["sessions"] == start.get(r["series"]):
            slope = r["rate"] / r["sessions"]
            ends += [
                {"series": r["series"], "sessions": n, "rate": slope * n} for n in (0, min(top, cap / slope))
            ]
    return ends


def response(results: Results, series: list[Series]) -> Chart | None:
    """Returns mean, median, 95th and 99th percentile of the calls' durations; None if none is known."""
    one = len(series) == 1
    # With several series, more than two lines each would hide one another.
    shown = _STATISTICS if one else {k: _STATISTICS[k] for k in ("mean", "p95")}
    rows = [r for s in series for r in _responses(results, s, shown)]
    if not rows:
        return None
    names, dashes = list(shown.values()), _DASHES[: len(shown)]
    return response_lines(
        rows,
        [(name, f"stat-{s}", dash) for s, name, dash in zip(shown, names, dashes, strict=True)],
        [s.label for s in series],
        fill("{~response_time_of_a_call:capital}"),
        fill(
            "If the mean grows with the {~at_once}, {~calls} queue. If p95 grows faster, some {~calls} wait "
            "much longer."
        ),
        fill("against {~at_once}: mean and percentiles"),
    )


def _responses(results: Results, series: Series, shown: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"series": series.label, "sessions": r["sessions"], "statistic": name, "ns": float(ns)}
        for r in figures.ladder(results, series).to_dicts()
        for key, name in shown.items()
        if (ns := r[f"response_{key}_ns"]) is not None and math.isfinite(ns)
    ]


def _durations(results: Results, series: Series) -> tuple[str, pl.DataFrame]:
    """Returns the name of the top rung that has a histogram, and its buckets (low_ns, high_ns, count).

    Buckets are summed over all repeats. Without a histogram the name is empty and there are no rows.
    """
    frame, load = results.tables["histogram"], figures.load_of(results)
    missing = [c for c in ("workload", "variant", load.column) if c not in frame.columns]
    if missing and "cell" in frame.columns:
        frame = frame.join(results.tables["windows"].select("cell", *missing), on="cell", how="inner")
    known = {"workload", "variant", load.column} <= set(frame.columns)
    of_ladder = of_series(frame, series).filter(pl.col("count") > 0) if known else frame.clear()
    if of_ladder.is_empty():
        return "", of_ladder
    top = of_ladder[load.column].max()
    buckets = (
        of_ladder.filter(pl.col(load.column) == top).group_by("low_ns", "high_ns").agg(pl.col("count").sum())
    )
    return figures.load_text(load, number(top)), buckets.sort("low_ns")


def distribution(results: Results, series: Series) -> Chart | None:
    """Returns the number of calls by duration at the top rung, on a logarithmic axis; None without a
    histogram."""
    top, buckets = _durations(results, series)
    if buckets.is_empty():
        return None
    unit, factor = time_unit(number(buckets["high_ns"].max()))
    rows = _bins(buckets, factor)
    drawn = encoded(
        layer(rows, "bar", color=var("stat-p50"), stroke=var("card"), strokeWidth=0.5),
        x=channel("low:Q", title=f"{noun('response_time')}, {unit}", scale={"type": "log", "nice": False}),
        x2={"field": "high"},
        y=channel("calls:Q", title=noun("calls")),
        y2={"datum": 0},
        tooltip=[
            *tips(("low:Q", ",.4~r", f"from, {unit}"), ("high:Q", ",.4~r", f"to, {unit}")),
            channel("calls:Q", format=",", title=noun("calls")),
        ],
    )
    return chart(
        "distribution",
        f"Durations of {noun('calls')} {noun('at')} {top}",
        fill(
            "More than one hill may be {~calls} of several kinds, for example those that met a free CPU and "
            "those that queued."
        ),
        [drawn],
        f"Number of {noun('calls')} by {noun('response_time')} {noun('at')} {top}",
        rows,
    )


def _bins(buckets: pl.DataFrame, factor: float) -> list[dict[str, Any]]:
    """Counts calls in bins of equal width on a logarithmic axis; a bucket belongs to the bin of its
    middle."""
    low = max(1.0, number(buckets["low_ns"].min()))
    high = max(low, number(buckets["high_ns"].max())) + 1
    step = math.log(high / low) / _BINS
    middle = ((pl.col("low_ns") + pl.col("high_ns")) / 2).clip(low)
    place = ((middle / low).log() / step).floor().clip(0, _BINS - 1).cast(pl.Int64)
    counts = buckets.group_by(place.alias("bin")).agg(pl.col("count").sum()).sort("bin")
    ends = [low * math.exp(b * step) / factor for b in range(_BINS + 1)]
    return [{"low": ends[b], "high": ends[b + 1], "calls": calls} for b, calls in counts.rows()]


def percentiles(results: Results, series: list[Series]) -> Chart | None:
    """Returns response time against percentile at the top rung, with a stretched tail (as HdrHistogram
    plots it)."""
    measured = [(s, *_durations(results, s)) for s in series]
    measured = [f for f in measured if not f[2].is_empty()]
    if not measured:
        return None
    unit, factor = time_unit(max(number(b["high_ns"].max()) for _, _, b in measured))
    rows = [r for s, _, buckets in measured for r in _curve(buckets, factor, s.label)]
    highest = max(r["inverse"] for r in rows)
    label_expression = "datum.value <= 1 ? '0 %' : format(100 * (1 - 1 / datum.value), '.7~g') + ' %'"
    decades = [10.0**i for i in range(1, 10) if 10.0**i <= highest]
    ticks = [1, 2, *([4] if highest < 100 else []), *decades]
    axis = {"values": ticks, "labelExpr": label_expression, "labelOverlap": "greedy"}
    scale = {"type": "log", "domain": [1, max(highest, 2)], "nice": False}
    title, labels = f"{noun('response_time')}, {unit}", [s.label for s in series]
    drawn = encoded(
        layer(rows, "line", interpolate="step-before", strokeWidth=2, point={"size": 12}),
        x=channel("inverse:Q", title=f"percentile of {noun('calls')}", axis=axis, scale=scale),
        y=channel("time:Q", title=title, scale={"type": "linear"}),
        color=coloured("series", labels),
        tooltip=tips("series:N", ("percent:Q", ".6~g", "percentile"), ("time:Q", ",.4~r", title)),
    )
    at = " and ".join(dict.fromkeys(top for _, top, _ in measured))
    return chart(
        "percentiles",
        f"Percentiles {noun('at')} {at}",
        fill("Read upwards from a percentile: that share of the {~calls} took no longer."),
        [drawn],
        f"{capital(noun('response_time'))} in {unit} by percentile {noun('at')} {at}",
        rows,
        legend=series_keys(labels) if len(series) > 1 else (),
        log=True,
    )


def _curve(buckets: pl.DataFrame, factor: float, label: str) -> list[dict[str, Any]]:
    """Returns about 150 points at most: upper end of a bucket, and 1 / (1 - share of calls up to it).

    The curve ends where there are too few calls for the quantile.
    """
    total = int(buckets["count"].sum())
    fastest = number(buckets["low_ns"].min()) / factor
    rows: list[dict[str, Any]] = [{"series": label, "inverse": 1.0, "percent": 0.0, "time": fastest}]
    counted = 0
    for high_ns, count in buckets.select("high_ns", "count").rows():
        counted += count
        inverse = total / max(1, total - counted)
        if total < fewest_calls(counted / total if counted < total else 1 - CALLS_ABOVE / (2 * total)):
            break
        if inverse >= rows[-1]["inverse"] * 1.06:
            percent = 100.0 * counted / total
            rows.append({"series": label, "inverse": inverse, "percent": percent, "time": high_ns / factor})
    return rows


def spread(results: Results, series: Series) -> Chart | None:
    """Returns each session's rate relative to the mean of its rung.

    None for paced load, where the share of a session is a matter of chance, and for single sessions.
    """
    if figures.is_paced(results):
        return None
    rates = of_series(results.tables["rates"], series).filter(
        (pl.col("scope") == "session") & (pl.col("name") == "calls_per_s") & pl.col("value").is_not_null()
    )
    relative = rates.with_columns((pl.col("value") / pl.col("value").mean().over("cell")).alias("relative"))
    relative = relative.filter(pl.col("relative").is_finite())
    if relative.is_empty() or relative["sessions"].max() == 1:
        return None
    points = _thinned(relative)
    ends = [min(0.98, number(points["relative"].min())), max(1.02, number(points["relative"].max()))]
    scale = {"zero": False, "domain": ends}
    strip = encoded(
        layer(points, "point", filled=True, size=18, opacity=0.55, color=var("stat-p50")),
        x=rungs_axis(),
        y=channel("relative:Q", title="rate, of the mean", axis={"format": ".1~%"}, scale=scale),
        tooltip=tips(
            "sessions:O",
            "session:Q",
            "repeat:Q",
            ("value:Q", ROUNDED, f"{noun('calls')}/s"),
            ("relative:Q", ".1%", "of the mean"),
        ),
    )
    return chart(
        "spread",
        f"Rates of single {noun('slots')}",
        f"Point: one {noun('slot')}. Box: middle half of the {noun('slots')}; a long box means unequal "
        "service.",
        [*_boxes(relative), strip],
        f"Rate of each {noun('slot')} relative to the mean at its load",
        points,
    )


def _boxes(relative: pl.DataFrame) -> list[Spec]:
    """Returns quartiles and median of the rungs that have enough sessions."""
    value = pl.col("relative")
    quartiles = {"q1": value.quantile(0.25), "median": value.median(), "q3": value.quantile(0.75)}
    boxes = relative.group_by("sessions").agg(**quartiles, n=pl.len())
    boxes = boxes.filter(pl.col("n") >= _QUARTILES).sort("sessions")
    box = layer(boxes, "bar", color=var("stat-p50"), opacity=0.3)
    middle = layer(boxes, "tick", color=var("text"), thickness=2, orient="horizontal")
    return [
        encoded(box, x=rungs_axis(), y=channel("q1:Q"), y2={"field": "q3"}),
        encoded(middle, x=rungs_axis(), y=channel("median:Q")),
    ]


def _thinned(rates: pl.DataFrame) -> pl.DataFrame:
    """Returns at most ``_POINTS`` sessions per rung, evenly by rank, including the extremes."""
    ranked = rates.sort("sessions", "relative").with_columns(
        pl.int_range(pl.len()).over("sessions").alias("rank"), pl.len().over("sessions").alias("n")
    )
    step = (pl.col("n") / _POINTS).ceil().cast(pl.Int64)
    keep = (pl.col("rank") % step == 0) | (pl.col("rank") == pl.col("n") - 1)
    return ranked.filter(keep).select("sessions", "session", "repeat", "value", "relative")
