"""Draws variants that were measured at one load each: a line per variant in place of a ladder."""

from __future__ import annotations

import math
from typing import Any

from dbdyno.model.results.results import Results
from dbdyno.model.text.nouns import capital, fill, noun
from dbdyno.present.charts.chart import (
    LETTERS,
    ROUNDED,
    Spec,
    channel,
    chart,
    coloured,
    encoded,
    layer,
    time_unit,
    tips,
)
from dbdyno.present.document.document import Chart, Key
from dbdyno.present.document.palette import var
from dbdyno.present.figures import figures, headline
from dbdyno.present.figures.figures import Series
from dbdyno.present.run import rungs

_ROW_PX = 34
_STATISTICS = {"mean": ("mean", "stat-mean"), "p50": ("median", "stat-p50"), "p95": ("95 %", "stat-p95")}


def apply(results: Results, series: list[Series]) -> bool:
    """Returns whether these are several variants of one load each."""
    return len(series) > 1 and rungs.one_load(results)


def throughput(results: Results, series: list[Series]) -> Chart | None:
    """Returns the rate of each variant with its interval; None if no rate is known."""
    answers = [a for s in series if (a := headline.answer(results, s)) and a.peak]
    column = "work_per_s" if all(a.rate_column == "work_per_s" for a in answers) else "calls_per_s"
    rows = []
    for r in _rungs(results, series):
        rate, ends = r[column], figures.ends(r)
        if rate is not None:
            low, high = (rate * e for e in ends) if ends else (None, None)
            rows.append({"series": r["series"], "rate": rate, "low": low, "high": high})
    if not rows or not answers:
        return None
    unit = answers[0].unit if column == "work_per_s" else f"{noun('calls')}/s"
    most = max(r["rate"] for r in rows)
    # An interval of few repeats may be many times as long as the bars: it is cut at the edge of the chart.
    edge = 1.03 * min(1.5 * most, max(r["high"] or r["rate"] for r in rows))
    repeated = [{**r, "high": min(r["high"], edge)} for r in rows if r["low"] is not None]
    x = channel("rate:Q", title=unit, axis=LETTERS, scale={"domain": [0, edge], "nice": False})
    y = _names(series)
    ends_shown = [("low:Q", ROUNDED, "95 % from"), ("high:Q", ROUNDED, "95 % to")] if repeated else []
    tooltip = tips("series:N", ("rate:Q", ROUNDED, unit), *ends_shown)
    bars = layer(rows, "bar", color=var("series-1"), height={"band": 0.6})
    intervals = layer(repeated, "rule", color=var("text"), strokeWidth=2)
    layers = [
        encoded(bars, x=x, y=y, tooltip=tooltip),
        encoded(intervals, x=channel("low:Q"), x2={"field": "high"}, y=y),
    ]
    caption = "Lines are 95 % intervals over repeats." if repeated else "One repeat each: no intervals."
    return _tall(
        chart("throughput", f"Throughput, {unit}", caption, layers, f"Throughput in {unit} by variant", rows),
        len(rows),
    )


def response(results: Results, series: list[Series]) -> Chart | None:
    """Returns mean, median and 95th percentile of each variant; None if none is known."""
    rows: list[Spec] = [
        {"series": r["series"], "statistic": name, "ns": float(ns)}
        for r in _rungs(results, series)
        for key, (name, _) in _STATISTICS.items()
        if (ns := r[f"response_{key}_ns"]) is not None and math.isfinite(ns)
    ]
    if not rows:
        return None
    unit, factor = time_unit(max(r["ns"] for r in rows))
    for r in rows:
        r["time"] = r.pop("ns") / factor
    title = f"{noun('response_time')}, {unit}"
    paints = {n: var(p) for n, p in _STATISTICS.values() if any(r["statistic"] == n for r in rows)}
    dots = encoded(
        layer(rows, "point", filled=True, size=70, opacity=0.9),
        x=channel("time:Q", title=title, scale={"zero": True}),
        y=_names(series),
        color=coloured("statistic", paints, paints.values()),
        tooltip=tips("series:N", "statistic:N", ("time:Q", ",.3~r", title)),
    )
    drawn = chart(
        "response",
        fill("{~response_time_of_a_call:capital}"),
        fill("A mean far above the median: some {~calls} take much longer than the others."),
        [dots],
        f"{capital(noun('response_time'))} in {unit} by variant",
        rows,
        legend=[Key(n, paint, "dot") for n, paint in paints.items()],
    )
    return _tall(drawn, len(series))


def _rungs(results: Results, series: list[Series]) -> list[dict[str, Any]]:
    return [{**r, "series": s.label} for s in series for r in figures.ladder(results, s).to_dicts()]


def _names(series: list[Series]) -> Spec:
    axis = {"ticks": False, "labelLimit": 220, "labelPadding": 6}
    return channel("series:N", title=None, sort=[s.label for s in series], axis=axis)


def _tall(drawn: Chart, rows: int) -> Chart:
    """Sets the height by the number of rows."""
    drawn.spec["height"] = max(120, _ROW_PX * rows)
    return drawn
