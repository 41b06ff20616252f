"""Draws executions of commands: speed-up, grid of jobs and threads, Gantt chart, parallelism."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import polars as pl

from dbdyno.model.plan.parallel_axes import Axis, axes_of, counted
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.visible import visible
from dbdyno.model.units import NS_PER_S
from dbdyno.present.charts.chart import (
    HEIGHT,
    Group,
    Spec,
    channel,
    chart,
    coloured,
    encoded,
    layer,
    line_and_points,
    series_keys,
    time_unit,
    tips,
)
from dbdyno.present.commands import commands
from dbdyno.present.commands.commands import Grid
from dbdyno.present.document.document import Block, Chart, Key
from dbdyno.present.document.palette import var
from dbdyno.present.figures import figures
from dbdyno.present.figures.selection import Pick

_MOST_BARS = 600
"""Most executions in a Gantt chart; more bars would be too narrow to see."""
_MOST_SPOTS = 400
"""Most executions of a command that are drawn as points; more are drawn as this many quantiles."""
_MOST_DECADES = 2
_ROW = 56
"""Height of a command's row in pixels."""
_PERFECT, _AMDAHL = "perfect", "Amdahl's law"


def groups(results: Results) -> list[Group]:
    """Returns charts of the speed-up of one job, and of the grid of jobs and threads."""
    drawn = [*speed_ups(results), *(c for g in commands.grids(results) for c in heatmaps(g))]
    return [Group("", drawn)] if drawn else []


def speed_ups(results: Results) -> list[Chart]:
    """Returns charts of speed-up against the lowest number of threads, with Amdahl's law where it was
    fitted."""
    rows = [r for r in commands.rates(results) if r["job"] is None and r["mean_ns"]]
    lowest = min((r["sessions"] for r in rows), default=1)
    alone = {r["variant"]: r for r in rows if r["sessions"] == lowest}
    axes = axes_of(results.plan.variants, alone)
    return [c for n, axis in enumerate(axes) if (c := _speed_up(results, axis, alone, n))]


def _speed_up(results: Results, axis: Axis, alone: dict[str, Any], number: int) -> Chart | None:
    low, base = axis.points[0]
    name = axis.rest or "measured"
    points = [
        {
            "series": name,
            "n": n,
            "times": alone[base]["mean_ns"] / alone[v]["mean_ns"],
            "seconds": alone[v]["mean_ns"] / NS_PER_S,
        }
        for n, v in axis.points
    ]
    most = max(p["times"] for p in points)
    top = min(axis.points[-1][0], 1.5 * most * low)
    perfect = [{"series": _PERFECT, "n": n, "times": n / low} for n in (low, top)]
    law = _law(results, axis)
    labels = [name, _PERFECT, *([_AMDAHL] if law else [])]
    channels: Spec = {
        "x": channel("n:Q", title=axis.name, scale={"nice": False, "zero": False}),
        "y": channel("times:Q", title="times as fast", scale={"zero": True}),
        "color": coloured("series", labels),
    }
    tooltip = tips(("n:Q", "d", axis.name), ("times:Q", ".3~r", "times as fast"), ("seconds:Q", ".4~r", "s"))
    lines = [
        encoded(layer(r, "line", strokeDash=[6, 4], opacity=0.8), **channels) for r in (perfect, law) if r
    ]
    rest = f" ({axis.rest})" if axis.rest else ""
    return chart(
        f"speed-up-{number}",
        f"Speed-up of one job{rest}",
        f"Duration with {counted(axis.name, low)} over duration with more; dashed: the perfect line, and "
        "Amdahl's law where it was fitted.",
        [*lines, *line_and_points(points, 60, tooltip, **channels)],
        f"Speed-up of one job by {axis.name}",
        points,
        legend=series_keys(labels),
    )


def _law(results: Results, axis: Axis) -> list[Spec]:
    """Returns Amdahl's law as points, from the serial share that the claim states; empty without a fit."""
    claims = [c for c in results.findings if c.id == "speed-up" and c.case in ("serial", "cpus", "parallel")]
    share = next((c.slots["share"] for c in claims if c.subject in ("", axis.rest)), None)
    low, top = axis.points[0][0], axis.points[-1][0]
    if share is None:
        return []
    steps = [low + (top - low) * i / 40 for i in range(41)]
    first = share + (1 - share) / low
    return [{"series": _AMDAHL, "n": n, "times": first / (share + (1 - share) / n)} for n in steps]


def heatmaps(grid: Grid) -> list[Chart]:
    """Returns throughput and duration of an execution; equal total parallelism lies on a diagonal."""
    rows = [
        {
            "jobs": r["sessions"],
            "threads": r["value"],
            "total": r["sessions"] * r["value"],
            "rate": r["executions_per_s"],
            "seconds": r["mean_ns"] / NS_PER_S,
        }
        for r in grid.points
        if r["executions_per_s"] and r["mean_ns"]
    ]
    rest = f" ({grid.axis.rest})" if grid.axis.rest else ""
    kinds = (
        ("rate", f"Throughput{rest}", "executions per second", "blues"),
        ("seconds", f"Duration of an execution{rest}", "seconds", "oranges"),
    )
    return [_heatmap(rows, grid.axis.name, *kind) for kind in kinds] if rows else []


def _heatmap(rows: list[Spec], axis: str, column: str, title: str, unit: str, scheme: str) -> Chart:
    most = max(r[column] for r in rows)
    marked = [r | {"dark": r[column] > 0.6 * most} for r in rows]
    cells: Spec = {
        "x": channel("threads:O", title=f"{axis} of a job", axis={"labelAngle": 0}),
        "y": channel("jobs:O", title="jobs at once", sort="descending"),
    }
    tooltip = tips(
        ("jobs:O", "", "jobs at once"),
        ("threads:O", "", axis),
        ("total:Q", "d", "total parallelism"),
        (f"{column}:Q", ".4~r", unit),
    )
    colour = channel(f"{column}:Q", scale={"scheme": scheme, "domainMin": 0}, legend=None)
    texts = [
        encoded(
            layer([r for r in marked if r["dark"] == dark], "text", color=ink, fontSize=13),
            **cells,
            text=channel(f"{column}:Q", format=".3~r"),
        )
        for dark, ink in ((True, "#ffffff"), (False, "#1b2026"))
    ]
    caption = (
        f"{unit.capitalize()}. Combinations of the same total parallelism (jobs x {axis}) lie on a diagonal."
    )
    layers = [encoded(layer(marked, "rect"), **cells, color=colour, tooltip=tooltip), *texts]
    return chart(f"grid-{column}", title, caption, layers, f"{title} by jobs at once and {axis}", rows)


def executions(results: Results) -> list[Block]:
    """Returns a chart with a point per execution at the lowest number of jobs at once, a row per command;
    empty if nothing was executed."""
    rates = commands.rates(results)
    lowest = min((r["sessions"] for r in rates), default=0)
    several = len({r["variant"] for r in rates}) > 1
    cells = [c for c in results.plan.cells if c.sessions == lowest]
    frames = [
        results.of_cell("execution_times", c.id)
        .filter("measured")
        .with_columns(
            pl.lit(c.repeat).alias("repeat"),
            (pl.lit(c.variant) if several else pl.col("job")).alias("command"),
        )
        for c in cells
    ]
    every = pl.concat(frames) if frames else empty("execution_times")
    if every.is_empty():
        return []
    ok, failed = (every.filter((pl.col("outcome") == "ok") == well) for well in (True, False))
    names = list(dict.fromkeys(every["command"]))
    unit, factor = time_unit(float(every["duration_ns"].max() or 0))  # type: ignore[arg-type]
    points, crosses = (
        [p for name in names for p in _spots(frame.filter(pl.col("command") == name), factor)]
        for frame in (ok, failed)
    )
    medians = [
        {"command": visible(name), "value": float(known) / factor}  # type: ignore[arg-type]
        for name in names
        if (known := ok.filter(pl.col("command") == name)["duration_ns"].median()) is not None
    ]
    return [_strip_plot([visible(n) for n in names], points, crosses, medians, unit)]


def _spots(frame: pl.DataFrame, factor: float) -> list[Spec]:
    """Returns the executions of a command in the order of their duration, each shifted aside so that equal
    ones stay visible. Too many to be seen one by one are replaced by as many quantiles as fit."""
    rows = frame.sort("duration_ns").to_dicts()
    if len(rows) > _MOST_SPOTS:
        rows = [rows[n * (len(rows) - 1) // (_MOST_SPOTS - 1)] for n in range(_MOST_SPOTS)]
    # Multiples of the golden ratio modulo 1 spread evenly for any number of points (Weyl sequence).
    golden = (math.sqrt(5) - 1) / 2
    return [
        {
            "command": visible(r["command"]),
            "value": r["duration_ns"] / factor,
            "aside": n * golden % 1 - 0.5,
            "repeat": r["repeat"],
            "outcome": r["outcome"],
        }
        for n, r in enumerate(rows)
    ]


def _strip_plot(
    names: list[str], points: list[Spec], crosses: list[Spec], medians: list[Spec], unit: str
) -> Chart:
    drawn = [*points, *crosses]
    values = [p["value"] for p in drawn]
    log = min(values) > 0 and max(values) > 10**_MOST_DECADES * min(values)
    axis = f"duration, {unit}{' (logarithmic)' if log else ''}"
    scale: Spec = {"type": "log"} if log else {"zero": False}
    place: Spec = {
        "x": channel("value:Q", title=axis, scale=scale, axis={"format": ",~r"}),
        "y": channel("command:N", title=None, sort=names, axis={"labelLimit": 150}),
    }
    aside = {"yOffset": channel("aside:Q", scale={"domain": [-1, 1]})}
    tooltip = tips("command:N", ("value:Q", ".4~r", axis), "repeat:Q", "outcome:N")
    dots = layer(points, "point", filled=True, size=30, opacity=0.5)
    failed = layer(crosses, "point", shape="cross", filled=True, size=70, color=var("invalid"), opacity=1)
    median = layer(medians, "tick", color=var("text"), thickness=3, size=36)
    layers = [
        encoded(dots, **place, **aside, color=coloured("command", names), tooltip=tooltip),
        encoded(failed, **place, **aside, tooltip=tooltip),
        encoded(median, **place, tooltip=tips("command:N", ("value:Q", ".4~r", f"median, {unit}"))),
    ]
    caption = "A dot is an execution, a bar the median."
    shown = chart(
        "executions",
        "Every execution",
        f"{caption} A cross is an execution that failed." if crosses else caption,
        layers,
        f"Durations of single executions in {unit}, a row for each of {', '.join(names)}",
        [*drawn, *medians],
        wide=True,
        legend=[Key("failed", var("invalid"), "dot")] if crosses else (),
    )
    return _high(shown, len(names))


def _high(drawn: Chart, rows: int) -> Chart:
    """Returns the chart as high as its rows need."""
    return replace(drawn, spec={**drawn.spec, "height": max(_ROW * rows, 2 * _ROW)})


def over_time(results: Results, pick: Pick) -> list[Block]:
    """Returns the Gantt chart of a measurement, and the number of its tasks that were runnable over time."""
    if pick.cell is None:
        return []
    return [c for c in (gantt(results, pick), parallelism(results, pick)) if c]


def gantt(results: Results, pick: Pick) -> Chart | None:
    """Returns one bar per execution, one row per session; None if there are none or too many to tell
    apart."""
    frame = results.of_cell("execution_times", pick.cell or "").sort("start_s")
    if frame.is_empty() or len(frame) > _MOST_BARS:
        return None
    rows = [
        {
            "session": r["session"],
            "job": visible(r["job"]),
            "from": round(r["start_s"], 4),
            "to": round(r["end_s"], 4),
            "outcome": r["outcome"] if r["measured"] else f"{r['outcome']}, warm-up",
        }
        for r in frame.to_dicts()
    ]
    jobs = list(dict.fromkeys(r["job"] for r in rows))
    span: Spec = {
        "x": channel("from:Q", title="seconds since the start of the measurement", scale={"nice": False}),
        "x2": {"field": "to"},
        "y": channel("session:O", title="session"),
    }
    tooltip = tips(
        "job:N", ("from:Q", ".3f", "from second"), ("to:Q", ".3f", "to second"), ("outcome:N", "", "")
    )
    bars = layer(rows, "bar", cornerRadius=2, stroke=var("card"), strokeWidth=1)
    bad = layer([r for r in rows if not r["outcome"].startswith("ok")], "bar", color=var("invalid"))
    layers = [
        encoded(bars, **span, color=coloured("job", jobs), tooltip=tooltip),
        encoded(bad, **span, tooltip=tooltip),
    ]
    keys = [
        *series_keys(jobs, "fill"),
        *([Key("failed", var("invalid"), "fill")] if bad["data"]["values"] else []),
    ]
    shown = chart(
        f"gantt-{pick.key}",
        f"Executions over time, {pick.at}",
        "A bar is an execution, a row a session.",
        layers,
        "Executions over time by session",
        rows,
        legend=keys,
        wide=True,
    )
    sessions = frame["session"].n_unique()
    return _high(shown, sessions) if _ROW * sessions < HEIGHT else shown


def parallelism(results: Results, pick: Pick) -> Chart | None:
    """Returns tasks runnable, and asleep for a device, over time; the job is serial where it is one.

    None if there are fewer than two samples.
    """
    frame = results.tables.get("parallelism", empty("parallelism")).filter(pl.col("cell") == pick.cell)
    if len(frame) < 2:
        return None
    names = ("runnable", "waiting for a device")
    rows = [
        {"from": round(r["start_s"], 3), "to": round(r["end_s"], 3), "state": state, "tasks": r[column]}
        for r in frame.to_dicts()
        for state, column in zip(names, ("runnable", "disk"), strict=True)
        if r[column] or column == "runnable"
    ]
    paints = [var("run"), var("sleep-2")]
    bars = encoded(
        layer(rows, "bar"),
        x=channel("from:Q", title="seconds since the start of the measurement", scale={"nice": False}),
        x2={"field": "to"},
        y=channel("tasks:Q", title="tasks", stack="zero"),
        color=coloured("state", names, paints),
        tooltip=tips(("from:Q", ".2f", "from second"), ("tasks:Q", ".2f", "tasks, mean"), "state:N"),
    )
    one = [{"y": 1}]
    cpus = figures.usable_cpus(results)
    lines = [encoded(layer(one, "rule", color=var("muted"), strokeDash=[2, 3]), y=channel("y:Q"))]
    note = f"; {figures.cpus_text(cpus)} to run on" if cpus else ""
    return chart(
        f"parallelism-{pick.key}",
        f"Parallelism over time, {pick.at}",
        f"Tasks on a CPU or in the run queue, mean of the samples{note}. At the dotted line or below it, the "
        "job is serial.",
        [bars, *lines],
        "Tasks that were runnable over time",
        rows,
        wide=True,
        legend=[Key(n, p, "fill") for n, p in zip(names, paints, strict=True)],
    )
