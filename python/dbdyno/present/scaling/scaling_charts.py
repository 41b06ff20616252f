"""Draws a ladder and the model that was fitted to it, with marks and legend."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from dbdyno.model.results.analyses import Estimate, Fitted, Scaling
from dbdyno.model.text.nouns import capital
from dbdyno.model.units import counted, format_p, format_plain
from dbdyno.present.charts.chart import (
    HEIGHT,
    LETTERS,
    WHOLE,
    Spec,
    channel,
    chart,
    coloured,
    cpu_mark,
    encoded,
    label,
    layer,
    legible,
    line_and_points,
    rule,
    time_unit,
    tips,
)
from dbdyno.present.document.document import Chart, Key
from dbdyno.present.document.palette import var
from dbdyno.present.figures.figures import interval, number

# The axis of loads and its marks: knees and peak with their intervals, cores, CPUs.

_WIDE_LADDER = 8
"""Least ratio of the highest load to the median load for a logarithmic axis."""
_DEPENDENT = 0.05
"""Level of significance of the autocorrelation of residuals."""
_LINE = 15  # height of a label in pixels


def is_wide(scaling: Scaling) -> bool:
    loads = scaling.ladder.points["load"].unique()
    return float(loads.max() or 1) > _WIDE_LADDER * float(loads.median() or 1)  # type: ignore[arg-type]


def domain(scaling: Scaling, beyond: bool = True) -> tuple[float, float]:
    """Returns the ends of the axis of loads; ``beyond`` extends it to the end of the curve."""
    loads = [*scaling.ladder.points["load"], *(scaling.curve["load"] if beyond else ())]
    low, high = min(loads), max(loads)
    return (0.9 * max(low, 0.5), 1.1 * high) if is_wide(scaling) else (0.0, high)


def load_axis(scaling: Scaling, beyond: bool = False) -> Spec:
    """Returns the axis of loads. A logarithmic one has ticks at powers of two, so that they do not crowd."""
    first, last = domain(scaling, beyond)
    title = scaling.ladder.load_unit
    if not is_wide(scaling):
        axis = {**WHOLE, "labelOverlap": True}
        return channel("load:Q", title=title, axis=axis, scale={"domain": [first, last], "nice": False})
    ticks = [2**k for k in range(math.ceil(math.log2(first)), math.floor(math.log2(last)) + 1)]
    axis = {"values": ticks, "format": ",d", "labelOverlap": "greedy", "labelSeparation": 6}
    scale = {"type": "log", "base": 2, "domain": [first, last], "nice": False}
    return channel("load:Q", title=f"{title} (logarithmic)", axis=axis, scale=scale)


def _marked_loads(scaling: Scaling) -> Iterator[tuple[str, Estimate, str]]:
    """Yields name, load and colour of knees and the peak that are on the chart."""
    fit = scaling.best
    if fit is None:
        return
    top = float(scaling.curve["load"].max() or 0)  # type: ignore[arg-type]
    many = len(fit.knees) > 1
    for n, knee in enumerate(fit.knees, start=1):
        if 0 < knee.value <= top:
            yield f"knee {n}" if many else "knee", knee, "runq"
    knees = [k.value for k in fit.knees]
    if (peak := fit.peak) is not None and not peak.note and 0 < peak.value <= top and peak.value not in knees:
        yield "peak", peak, "sleep-1"


def marks(scaling: Scaling) -> Iterator[Spec]:
    """Yields a rule and label per knee and peak, with its interval shaded."""
    first, last = domain(scaling)
    at = {"x": channel("load:Q")}
    for line, (name, load, paint) in enumerate(_marked_loads(scaling)):
        low, high = (min(max(v, first), last) for v in (load.low or first, load.high or last))
        name = f"{name}: {number(load.value, 3)}"
        data = [{"load": load.value, "from": low, "to": high, "name": name}]
        if load.low is not None or load.high is not None:
            shade = layer(data, "rect", opacity=0.16, color=var(paint))
            yield encoded(shade, x=channel("from:Q"), x2={"field": "to"})
        yield rule(data, at, paint)
        place = {**at, "y": {"value": 8 + _LINE * line}}
        side = _side(scaling, load.value, 0.75, 5)
        yield from legible(data, place, paint, fontSize=12, fontWeight=600, **side)


def _side(scaling: Scaling, load: float, edge: float, gap: int) -> Spec:
    """Returns the alignment of a label: right of its rule, or left of it beyond ``edge`` of the axis."""
    ends = (load, *domain(scaling))
    value, low, high = (math.log(max(v, 1e-9)) for v in ends) if is_wide(scaling) else ends
    inwards = (value - low) / (high - low) > edge
    return {"align": "right", "dx": -gap} if inwards else {"align": "left", "dx": gap}


def machine_marks(scaling: Scaling) -> Iterator[Spec]:
    """Yields rules at the number of cores and of CPUs, for loads in sessions."""
    machine = scaling.ladder.machine
    first, last = domain(scaling)
    known = [("core", machine.cores), ("CPU", machine.cpus)]
    if machine.cores == machine.cpus:
        known = known[1:]
    for line, (name, count) in enumerate(known):
        if count is None or not first <= count <= last:
            continue
        data = [{"load": count, "name": counted(count, name)}]
        at = {"x": channel("load:Q")}
        yield rule(data, at, "muted", (2, 3))
        place = {**at, "y": {"value": HEIGHT - 8 - _LINE * line}}
        yield label(data, place, "muted", fontSize=11, **_side(scaling, count, 0.85, 4))


def legend_of(scaling: Scaling) -> list[Key]:
    """Returns entries of the legend for knees and the peak, and for their intervals."""
    keys: dict[str, Key] = {}
    for name, load, paint in _marked_loads(scaling):
        name = name.split()[0]
        keys[name] = Key(name, var(paint))
        if load.low is not None or load.high is not None:
            keys[f"{name}, 95 % interval"] = Key(f"{name}, 95 % interval", var(paint), "fill", 0.16)
    return list(keys.values())


def caption_end(scaling: Scaling) -> str:
    """Returns the end of a caption, with the loads of knees and the peak."""
    texts = [
        f"{name} at {number(at.value, 3)}" + (f" ({interval(at, 3)})" if interval(at) else "")
        for name, at, _ in _marked_loads(scaling)
    ]
    return f"; {', '.join(texts)}." if texts else "."


_CPU = {
    "cpu": ("CPU", "stat-mean"),
    "cpu_user": ("CPU, user", "run-user"),
    "cpu_system": ("CPU, system", "run-system"),
    "cpu_wait": ("CPU WAIT", "runq"),
}


def charts(scaling: Scaling) -> list[Chart]:
    """Returns charts of throughput, efficiency, response time, residuals and CPU, as far as there is data."""
    if scaling.ladder.points.is_empty():
        return []
    drawn = (throughput(scaling), efficiencies(scaling), response(scaling), residuals(scaling), cpu(scaling))
    return [c for c in drawn if c]


def throughput(scaling: Scaling) -> Chart:
    """Returns the measured points, the fit with its band, perfect scaling, knees and peak."""
    unit, load_unit = scaling.ladder.throughput_unit, scaling.ladder.load_unit
    points, best = _rows(scaling.ladder.points), scaling.best
    within, *beyond = _parts(scaling.curve)
    most = max(r["throughput"] for r in (*points, *within) if r["throughput"] is not None)
    outliers = [  # at the upper edge where they are beyond it: the axis is that of the others
        {"load": n, "throughput": min(x, 1.18 * most), "name": number(x, 3)}
        for n, x in scaling.ladder.outliers
    ]
    drawn = [r for part in (within, *beyond) for r in part if r["low"] is not None]
    y = _y("throughput", unit, {"domain": [0, 1.22 * most], "nice": False}, LETTERS)
    x = load_axis(scaling, beyond=True)
    band = layer(drawn, "area", opacity=0.2, clip=True, color=var("series-1"))
    ends = _perfect(scaling)
    ink = {"strokeDash": [6, 4], "strokeWidth": 1.5, "opacity": 0.8, "clip": True, "color": var("muted")}
    layers = [
        *machine_marks(scaling),
        encoded(band, x=x, y=channel("low:Q", title=unit), y2={"field": "high"}),
        encoded(layer(ends, "line", **ink), x=x, y=channel("rate:Q")),
        _line(within, x, y),
        *(_line(part, x, y, dash=(2, 3)) for part in beyond),
        *marks(scaling),
        _points(points, x, y, unit),
        *_rings(outliers, x, y),
    ]
    legend = [Key("measured", var("text"), "dot")]
    if best is not None:
        legend += [Key(best.title, var("series-1"))]
        legend += [Key("95 % band of its mean", var("series-1"), "fill", 0.2)] if drawn else []
    legend += [Key("beyond the loads fitted", var("series-1"), "dash")] if any(beyond) else []
    legend += [Key("perfect scaling", var("muted"), "dash")] if ends else []
    legend += [Key("ring: outlier, left out", var("text"), "dot", 0.5)] if outliers else []
    return chart(
        "fit",
        f"Throughput, {unit}",
        "Measured against perfect scaling: the distance to the dashed line is what further "
        f"{load_unit} fail to deliver" + caption_end(scaling),
        layers,
        f"Throughput in {unit} against {load_unit}, with the model's curve",
        points,
        legend=[*legend, *legend_of(scaling)],
        wide=True,
    )


def efficiencies(scaling: Scaling) -> Chart | None:
    """Returns throughput relative to perfect scaling, with the model's curve; None if no efficiency is
    known."""
    measured = [r for r in _rows(scaling.residuals) if r["efficiency"] is not None]
    if not measured:
        return None
    model = [
        {"load": r["load"], "efficiency": r["throughput"] / r["perfect"]}
        for r in _parts(scaling.curve)[0]
        if r["throughput"] is not None and r["perfect"]
    ]
    load_unit = scaling.ladder.load_unit
    first = reference_load(scaling)
    full = "at the lowest load" if first is None else f"at {first}"
    top = max(1.08, 1.05 * max(r["efficiency"] for r in measured))
    y = _y("efficiency", "efficiency", {"domain": [0, top], "nice": False}, ".0%")
    x = load_axis(scaling)
    fitted = [Key(scaling.best.title, var("series-1"))] if scaling.best else []
    return chart(
        "efficiency",
        "Efficiency",
        f"Throughput in proportion to the {load_unit}; 100 %: all deliver as much as {full}.",
        [_level(1.0), _line(model, x, y), _points(measured, x, y, "efficiency", ".1%")],
        f"Efficiency against {scaling.ladder.load_unit}",
        measured,
        legend=[Key("measured", var("text"), "dot"), *fitted, Key("perfect scaling", var("muted"), "dash")],
    )


def response(scaling: Scaling) -> Chart | None:
    """Returns response times against load with the model's curve; None without any.

    Unmeasured response times are computed by Little's law: load over throughput.
    """
    points = _rows(scaling.ladder.points)
    measured = any(p["response_s"] is not None for p in points)
    think = scaling.ladder.think_s or 0.0
    times = [
        {"load": p["load"], "repeat": p["repeat"], "what": what, "time": seconds}
        for p in points
        for what, seconds in (
            ("mean", p["response_s"] if measured else p["load"] / p["throughput"] - think),
            ("95 %", p["response_p95_s"]),
        )
        if seconds is not None and seconds > 0
    ]
    if not times:
        return None
    model = [r for r in _parts(scaling.curve)[0] if r["response_s"] is not None and r["response_s"] > 0]
    unit, factor = time_unit(1e9 * max(f["time"] for f in times))
    for f in times:
        f["time"] *= 1e9 / factor
    drawn = [{"load": r["load"], "time": r["response_s"] * 1e9 / factor} for r in model]
    name, title = scaling.ladder.time_name, f"{scaling.ladder.time_name}, {unit}"
    y = _y("time", title, {"type": "linear"}, LETTERS)
    x, names = load_axis(scaling), [n for n in ("mean", "95 %") if any(f["what"] == n for f in times)]
    paints = [var("text"), var("stat-p95")][: len(names)]
    dots = encoded(_points(times, x, y, title, ",.4~r"), color=coloured("what", names, paints))
    keys = [Key(n if measured else "load / throughput", p, "dot") for n, p in zip(names, paints, strict=True)]
    less = f", less {think:g} s of think time" if think else ""
    return chart(
        "response-model",
        capital(name),
        ("Measured; the line is the model's load over throughput (Little's law)." if drawn else "Measured.")
        if measured
        else f"Not measured: load over throughput by Little's law{less}.",
        [_line(drawn, x, y), dots],
        f"{capital(name)} in {unit} against {scaling.ladder.load_unit}",
        times,
        legend=[*keys, *([Key(scaling.best.title, var("series-1"))] if scaling.best else [])],
        log=True,
    )


def residuals(scaling: Scaling) -> Chart | None:
    """Returns residuals relative to the prediction; None without a fit."""
    shares = [
        {**r, "share": r["residual"] / r["predicted"]}
        for r in _rows(scaling.residuals)
        if r["residual"] is not None and r["predicted"]
    ]
    if not shares:
        return None
    most = max(0.01, 1.15 * max(abs(f["share"]) for f in shares))
    digits = "+.1%" if most < 0.04 else "+.0%"
    y = _y("share", "measured less predicted", {"domain": [-most, most], "nice": False}, digits)
    return chart(
        "residuals",
        "Residuals",
        (residual_words(scaling.best) if scaling.best else None)
        or "Measured less predicted: a wave says that the model has the wrong shape.",
        [_level(0.0), _points(shares, load_axis(scaling), y, "residual", "+.2%")],
        f"Residuals in per cent against {scaling.ladder.load_unit}",
        shares,
        legend=[Key("measured less predicted", var("text"), "dot"), Key("no residual", var("muted"), "dash")],
    )


def residual_words(fit: Fitted) -> str | None:
    """Returns a sentence on whether the residuals are independent; None without a Durbin-Watson statistic."""
    if fit.durbin_watson is None or not math.isfinite(fit.durbin_watson):
        return None
    p = fit.autocorrelation_p
    statistic = f"Durbin-Watson of the residuals: {number(fit.durbin_watson, 3)} (2: independent)"
    if p is None:
        return f"{statistic}."
    related = "correlated" if p < _DEPENDENT else "not visibly correlated"
    return f"{statistic}, p = {format_p(p)}: residuals of neighbouring loads are {related}."


def cpu(scaling: Scaling) -> Chart | None:
    """Returns CPU used and CPU WAIT; None if neither was measured."""
    shown = {n: words for n, words in _CPU.items() if not scaling.ladder.points[n].is_null().all()}
    if not shown:
        return None
    means = scaling.ladder.points.group_by("load").agg(pl.col(list(shown)).mean()).sort("load")
    values = [
        {"load": r["load"], "what": name, "cpus": r[n]}
        for r in _rows(means)
        for n, (name, _) in shown.items()
        if r[n] is not None
    ]
    paints = {name: var(paint) for name, paint in shown.values()}
    lines = line_and_points(
        values,
        36,
        tips("load:Q", "what:N", ("cpus:Q", ".3~r", "CPUs")),
        x=load_axis(scaling),
        y=_y("cpus", "CPUs", {"domainMin": 0}, LETTERS),
        color=coloured("what", paints, paints.values()),
    )
    return chart(
        "cpu",
        "CPU and CPU WAIT",
        "CPU seconds per second that the work used, and that it waited in the run queue.",
        [*cpu_mark(scaling.ladder.machine.cpus, "y"), *lines],
        f"CPU against {scaling.ladder.load_unit}",
        values,
        legend=[Key(n, p) for n, p in paints.items()],
    )


def _rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Returns rows with None for values that are not finite, because JSON has no NaN."""
    floats = [n for n, t in frame.schema.items() if t.is_float()]
    return frame.with_columns(
        pl.when(pl.col(n).is_finite()).then(pl.col(n)).alias(n) for n in floats
    ).to_dicts()


def _parts(curve: pl.DataFrame) -> list[list[dict[str, Any]]]:
    """Returns the curve within the fitted loads, below them, and above them.

    The outer parts include the adjacent point within.
    """
    points = sorted(_rows(curve), key=lambda r: r["load"])
    within = [r for r in points if not r["beyond"]]
    if not within:
        return [[], [], []]
    first, last = within[0], within[-1]
    below, above = (
        [r for r in points if r["load"] < first["load"]],
        [r for r in points if r["load"] > last["load"]],
    )
    return [within, [*below, first] if below else [], [last, *above] if above else []]


def _perfect(scaling: Scaling) -> list[dict[str, Any]]:
    """Returns perfect scaling from the load that efficiency refers to, along the whole axis."""
    measured = scaling.residuals.drop_nulls("efficiency")
    if measured.is_empty():
        return []
    one = measured.select(pl.col("throughput") / pl.col("load") / pl.col("efficiency")).to_series()[0]
    low, high = domain(scaling)
    return [{"load": n, "rate": one * n} for n in (low, high)]


def _line(rows: Sequence[Spec], x: Spec, y: Spec, dash: tuple[int, int] = (1, 0)) -> Spec:
    """Returns the curve of the model."""
    ink = {"strokeWidth": 2.5, "strokeDash": list(dash), "clip": True, "color": var("series-1")}
    return encoded(layer(rows, "line", **ink), x=x, y=y)


def _rings(rows: Sequence[Spec], x: Spec, y: Spec) -> Iterator[Spec]:
    """Yields rings for measurements that are left out of the fit, with their figures."""
    if rows:
        yield encoded(layer(rows, "point", size=60, color=var("text")), x=x, y=y)
        yield from legible(rows, {"x": x, "y": y}, "text", fontSize=11, align="left", dx=8)


def _y(field: str, title: str, scale: Spec, labels: str | Spec) -> Spec:
    axis = {"format": labels} if isinstance(labels, str) else labels
    return channel(f"{field}:Q", title=title, scale=scale, axis=axis)


def _points(rows: Sequence[Spec], x: Spec, y: Spec, title: str, form: str = ",.5~r") -> Spec:
    """Returns a point per measurement, at the column of axis ``y``."""
    repeated = len({r.get("repeat") for r in rows}) > 1
    tooltip = tips("load:Q", *(["repeat:Q"] if repeated else []), (f"{y['field']}:Q", form, title))
    base = layer(rows, "point", filled=True, size=46, opacity=0.9, color=var("text"))
    return encoded(base, x=x, y=y, tooltip=tooltip)


def _level(value: float) -> Spec:
    base = layer([{"level": value}], "rule", color=var("muted"), strokeDash=[6, 4])
    return encoded(base, y=channel("level:Q"))


def reference_load(scaling: Scaling) -> str | None:
    """Returns the load that efficiency in an analysis of scaling refers to, with its unit; None if that is
    the lowest. It is another if the lowest one delivers less per session beyond noise."""
    means = scaling.residuals.group_by("load").agg(pl.col("efficiency").mean()).drop_nulls().sort("load")
    of_one = means.filter((pl.col("efficiency") - 1).abs() < 1e-9)["load"]
    if of_one.is_empty() or means["load"][0] in of_one or scaling.ladder.by_rate:
        return None
    return f"{format_plain(of_one[0])} {scaling.ladder.load_unit}"
