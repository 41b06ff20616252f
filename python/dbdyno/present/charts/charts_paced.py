"""Draws charts of paced load against the rate at which calls become due, and lists its key figures."""

from __future__ import annotations

import math
from typing import Any

from dbdyno.model.results.results import Results
from dbdyno.model.units import counted, format_average, format_given, format_ns, format_rate
from dbdyno.present.charts.chart import (
    LETTERS,
    ROUNDED,
    channel,
    chart,
    coloured,
    encoded,
    layer,
    load_axis,
    response_lines,
    series_keys,
    tips,
)
from dbdyno.present.document.document import Chart, Key, KeyFigure, known
from dbdyno.present.document.palette import var
from dbdyno.present.figures import figures, tails
from dbdyno.present.figures.figures import Series
from dbdyno.present.figures.targets import Targets

_STATISTICS = {
    "response_p50_ns": ("median", "stat-p50", [1, 0]),
    "response_p95_ns": ("95 %", "stat-p95", [6, 3]),
    "response_p99_ns": ("99 %", "stat-p99", [2, 2]),
    "service_p99_ns": ("99 % of service times", "client", [8, 3, 2, 3]),
}


def delivered(results: Results, series: list[Series]) -> Chart | None:
    """Returns a chart of calls per second that succeeded against calls due, with the diagonal; None
    without data."""
    load = figures.load_of(results)
    rows = [r for s in series for r in _delivered_rows(results, s, load.column)]
    if not rows:
        return None
    labels = [s.label for s in series]
    y = channel("rate:Q", title="calls/s delivered", axis=LETTERS, scale={"zero": True})
    base = {"x": load_axis(load), "color": coloured("series", labels)}
    equal = layer(
        [{load.column: r[load.column], "rate": r["due"]} for r in rows],
        "line",
        strokeDash=[6, 4],
        strokeWidth=1.5,
        color=var("muted"),
    )
    measured = (("offered:Q", ROUNDED, "calls/s due"), ("rate:Q", ROUNDED, "calls/s delivered"))
    tooltip = tips("series:N", f"{load.column}:Q", *measured, ("left:Q", ",.0f", "left over"), "status:N")
    # Two repeats may have an infinite interval, which would flatten everything else on the axis.
    most = 1.2 * max(max(r["due"], r["rate"]) for r in rows)
    repeated = [{**r, "high": min(most, r["high"])} for r in rows if r["low"] is not None]
    return chart(
        "throughput",
        "Calls delivered against calls due",
        "On the dashed line all calls that became due were delivered; below it some were left over or dropped"
        + ("; bars are 95 % intervals over repeats." if repeated else "."),
        [
            encoded(equal, x=load_axis(load), y=y),
            encoded(layer(repeated, "rule", strokeWidth=2), **base, y=channel("low:Q"), y2={"field": "high"}),
            encoded(layer(rows, "line", strokeWidth=2.5, point={"size": 45}), **base, y=y, tooltip=tooltip),
        ],
        "Delivered calls per second against calls due per second",
        rows,
        legend=[*series_keys(labels), Key("all delivered", var("muted"), "dash")],
    )


def _delivered_rows(results: Results, series: Series, column: str) -> list[dict[str, Any]]:
    """Returns one row per rung with known rates; ``low`` and ``high`` are calls/s, None without repeats."""
    rows = []
    for r in figures.ladder(results, series).to_dicts():
        if r["calls_per_s"] is None or r["offered_per_s"] is None:
            continue
        low, high = figures.ends(r) or (None, None)
        rate = float(r["calls_per_s"])
        rows.append(
            {
                "series": series.label,
                column: r[column],
                "due": r["rate_per_s"],
                "offered": r["offered_per_s"],
                "rate": rate,
                "low": None if low is None else rate * low,
                "high": None if high is None else rate * high,
                "left": r["backlog_end"],
                "status": r["status"],
            }
        )
    return rows


def response(results: Results, series: list[Series]) -> Chart | None:
    """Returns a chart of percentiles of response times, counted from the due time, and of service times.

    None without a known percentile. Several series share two percentiles of response times.
    """
    load, one = figures.load_of(results), len(series) == 1
    shown = _STATISTICS if one else {n: _STATISTICS[n] for n in ("response_p50_ns", "response_p99_ns")}
    rows = [
        {"series": s.label, load.column: r[load.column], "statistic": name, "ns": float(ns)}
        for s in series
        for r in figures.ladder(results, s).to_dicts()
        for column, (name, *_) in shown.items()
        if (ns := r[column]) is not None and math.isfinite(ns)
    ]
    if not rows:
        return None
    return response_lines(
        rows,
        list(shown.values()),
        [s.label for s in series],
        "Response time of a call, from when it was due",
        "Service times count from the real start: where they stay short while response times rise, calls "
        "wait for a session. Where calls were left over, response times are lower bounds.",
        "against calls due per second: percentiles",
        load,
    )


DRAWN = delivered, response
"""The first chart and the last one of a paced run."""


def key_figures(results: Results, targets: Targets) -> list[KeyFigure]:
    """Returns key figures at the highest rate at which all calls were delivered.

    Without such a rate, they are those of the lowest measured rate.
    """
    capacity = {c.subject: c.slots.get("rate") for c in results.findings if c.id == "paced-capacity"}
    best_rate = max((float(v) for v in capacity.values() if v is not None), default=None)
    rungs = results.tables["rungs"].sort("rate_per_s", "sessions").to_dicts()
    rung = next((r for r in reversed(rungs) if r["rate_per_s"] == best_rate), rungs[0])
    rate_target, response_target = targets.named("throughput"), targets.named("response")
    stack_target, at = targets.named("stack-aas"), f"at {format_given(rung['rate_per_s'])}/s"
    if figures.load_of(results) == figures.SESSIONS:
        at += f", {counted(rung['sessions'], 'session')}"
    seconds = (("CPU WAIT", "runq_aas"), ("On a CPU", "run_aas"))
    slow, served = (known(rung[f"{name}_p99_ns"], format_ns) for name in ("response", "service"))
    return [
        KeyFigure("Delivered up to", known(best_rate, format_rate, "calls/s"), "", rate_target),
        KeyFigure(
            f"99 % of calls {at} within", slow, tails.note(slow, 0.99, "from when due"), response_target
        ),
        KeyFigure(
            f"99 % of them served {at} within",
            served,
            tails.note(served, 0.99, "from the real start"),
            response_target,
        ),
        *(
            KeyFigure(f"{name} {at}", known(rung[column], format_average, "s per second"), "", stack_target)
            for name, column in seconds
        ),
    ]
