"""Charts of a ladder and of the model that was fitted to it, with their marks and legend."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from dbdyno.model.analyses import Estimate, Scaling
from dbdyno.model.units import counted
from dbdyno.present import scaling_rows as rows
from dbdyno.present.chart import (
    HEIGHT,
    Chart,
    Key,
    Spec,
    channel,
    colours,
    cpu_mark,
    encoded,
    finished,
    layer,
    time_unit,
)
from dbdyno.present.palette import var

# The axis of loads, and what is marked on it: knees and peak with their intervals, cores, CPUs.

_WIDE_LADDER = 8
"""From this ratio of the highest load to the middle one on, loads are drawn on a logarithmic axis."""
_LINE = 15  # height of a label


def is_wide(scaling: Scaling) -> bool:
    loads = scaling.ladder.points["load"].unique()
    return float(loads.max() or 1) > _WIDE_LADDER * float(loads.median() or 1)  # type: ignore[arg-type]


def domain(scaling: Scaling, beyond: bool = True) -> tuple[float, float]:
    """Ends of the axis of loads; ``beyond``: as far as the curve goes."""
    loads = [*scaling.ladder.points["load"], *(scaling.curve["load"] if beyond else ())]
    low, high = min(loads), max(loads)
    return (0.9 * max(low, 0.5), 1.1 * high) if is_wide(scaling) else (0.0, high)


def load_axis(scaling: Scaling, beyond: bool = False) -> Spec:
    """Loads to scale; on a logarithmic axis, ticks at powers of two, where they would crowd at its foot."""
    first, last = domain(scaling, beyond)
    title = scaling.ladder.load_unit
    if not is_wide(scaling):
        axis = {"tickMinStep": 1, "format": "d", "labelOverlap": True}
        return channel("load:Q", title=title, axis=axis, scale={"domain": [first, last], "nice": False})
    ticks = [2**k for k in range(math.ceil(math.log2(first)), math.floor(math.log2(last)) + 1)]
    axis = {"values": ticks, "format": ",d", "labelOverlap": "greedy", "labelSeparation": 6}
    scale = {"type": "log", "base": 2, "domain": [first, last], "nice": False}
    return channel("load:Q", title=f"{title} (logarithmic)", axis=axis, scale=scale)


def _named(scaling: Scaling) -> Iterator[tuple[str, Estimate, str]]:
    """Knees and the peak that lie on the chart: name, where, colour."""
    fit = scaling.best
    if fit is None:
        return
    top = float(scaling.curve["load"].max() or 0)  # type: ignore[arg-type]
    many = len(fit.knees) > 1
    for n, knee in enumerate(fit.knees, start=1):
        if 0 < knee.value <= top:
            yield f"knee {n}" if many else "knee", knee, "runq"
    knees = [k.value for k in fit.knees]
    if fit.peak is not None and 0 < fit.peak.value <= top and fit.peak.value not in knees:
        yield "peak", fit.peak, "sleep-1"


def marks(scaling: Scaling) -> Iterator[Spec]:
    """A rule at each with its interval shaded; labels in lines of their own, turned inwards at the edge."""
    first, last = domain(scaling)
    for line, (name, at, paint) in enumerate(_named(scaling)):
        low, high = (min(max(v, first), last) for v in (at.low or first, at.high or last))
        label = f"{name}: {rows.number(at.value, 3)}"
        data = [{"load": at.value, "from": low, "to": high, "name": label}]
        if at.low is not None or at.high is not None:
            shade = layer(data, "rect", opacity=0.16, color=var(paint))
            yield encoded(shade, x=channel("from:Q"), x2={"field": "to"})
        yield encoded(layer(data, "rule", color=var(paint), strokeWidth=2), x=channel("load:Q"))
        inwards = _share(at.value, first, last, is_wide(scaling)) > 0.75
        side: dict[str, Any] = {"align": "right", "dx": -5} if inwards else {"align": "left", "dx": 5}
        for halo in (True, False):
            ink = (
                {"stroke": var("card"), "strokeWidth": 4, "color": var("card")}
                if halo
                else {"color": var(paint)}
            )
            text = layer(data, "text", fontSize=12, fontWeight=600, **side, **ink)
            yield encoded(text, x=channel("load:Q"), y={"value": 8 + _LINE * line}, text=channel("name:N"))


def _share(value: float, low: float, high: float, log: bool) -> float:
    """How far along the axis."""
    if log:
        value, low, high = (math.log(max(v, 1e-9)) for v in (value, low, high))
    return (value - low) / (high - low)


def machine_marks(scaling: Scaling) -> Iterator[Spec]:
    """Where cores and CPUs are all busy, if sessions were."""
    machine = scaling.ladder.machine
    first, last = domain(scaling)
    known = [("core", machine.cores), ("CPU", machine.cpus)]
    if machine.cores == machine.cpus:
        known = known[1:]
    for line, (name, count) in enumerate(known):
        if count is None or not first <= count <= last:
            continue
        data = [{"load": count, "name": counted(count, name)}]
        rule = layer(data, "rule", color=var("muted"), strokeDash=[2, 3], strokeWidth=1.5)
        yield encoded(rule, x=channel("load:Q"))
        inwards = _share(count, first, last, is_wide(scaling)) > 0.85
        side: dict[str, Any] = {"align": "right", "dx": -4} if inwards else {"align": "left", "dx": 4}
        text = layer(data, "text", color=var("muted"), fontSize=11, **side)
        yield encoded(
            text, x=channel("load:Q"), y={"value": HEIGHT - 8 - _LINE * line}, text=channel("name:N")
        )


def legend_of(scaling: Scaling) -> list[Key]:
    found = {name.split()[0]: paint for name, _, paint in _named(scaling)}
    return [Key(f"{name}, 95 % interval", var(paint), "fill", 0.5) for name, paint in found.items()]


def words(scaling: Scaling) -> str:
    told = [
        f"{name} at {rows.number(at.value, 3)}" + (f" ({rows.interval(at, 3)})" if rows.interval(at) else "")
        for name, at, _ in _named(scaling)
    ]
    return f"; {', '.join(told)}." if told else "."


_CPU = {
    "cpu": ("CPU", "stat-mean"),
    "cpu_user": ("CPU, user", "run-user"),
    "cpu_system": ("CPU, system", "run-system"),
    "cpu_wait": ("CPU WAIT", "runq"),
}


def charts(scaling: Scaling) -> list[Chart]:
    """Throughput, efficiency, response time, residuals, CPU: those that there is something to draw of."""
    if scaling.ladder.points.is_empty():
        return []
    made = (throughput(scaling), efficiency(scaling), response(scaling), residuals(scaling), cpu(scaling))
    return [c for c in made if c]


def throughput(scaling: Scaling) -> Chart:
    """Measured points, the fit with its band, perfect scaling, knees and peak."""
    unit, points = scaling.ladder.throughput_unit, _rows(scaling.ladder.points)
    within, beyond = _parts(scaling.curve)
    most = max(p["throughput"] for p in points)
    cap = 1.22 * max([most, *(r["throughput"] for r in within if r["throughput"] is not None)])
    y = _y("throughput", unit, {"domain": [0, cap], "nice": False}, "~s")
    x = load_axis(scaling, beyond=True)
    layers = [
        *machine_marks(scaling),
        encoded(_area([*within, *beyond]), x=x, y=channel("low:Q", title=unit), y2={"field": "high"}),
        _perfect(scaling, x),
        encoded(_line(within), x=x, y=y),
        encoded(_line(beyond, dash=(2, 3)), x=x, y=y),
        *marks(scaling),
        _points(points, x, y, "throughput", unit),
    ]
    best = scaling.best
    fitted = (
        []
        if best is None
        else [Key(best.title, var("series-1")), Key("95 % band of its mean", var("series-1"), "fill", 0.2)]
    )
    keys = [Key("measured", var("text"), "dot"), *fitted]
    keys += [Key("beyond the measured loads", var("series-1"), "dash")] if beyond else []
    return Chart(
        id="fit",
        title=f"Throughput, {unit}",
        caption="Measured against perfect scaling: the distance to the dashed line is what further "
        f"{scaling.ladder.load_unit} fail to deliver" + words(scaling),
        spec=finished(
            layers, f"Throughput in {unit} against {scaling.ladder.load_unit}, with the model's curve"
        ),
        legend=[*keys, Key("perfect scaling", var("muted"), "dash"), *legend_of(scaling)],
        wide=True,
        marks=len(points),
    )


def efficiency(scaling: Scaling) -> Chart | None:
    """Throughput per load over that of one session."""
    found = [r for r in _rows(scaling.residuals) if r["efficiency"] is not None]
    if not found:
        return None
    model = [
        {"load": r["load"], "efficiency": r["throughput"] / r["perfect"]}
        for r in _parts(scaling.curve)[0]
        if r["throughput"] is not None and r["perfect"]
    ]
    top = max(1.08, 1.05 * max(r["efficiency"] for r in found))
    y = _y("efficiency", "efficiency", {"domain": [0, top], "nice": False}, ".0%")
    x = load_axis(scaling)
    layers = [
        _level(1.0),
        encoded(_line(model), x=x, y=y),
        _points(found, x, y, "efficiency", "efficiency", ".1%"),
    ]
    return Chart(
        id="efficiency",
        title="Efficiency",
        caption="Throughput over that of perfect scaling: what each delivers, over what one does alone.",
        spec=finished(layers, f"Efficiency against {scaling.ladder.load_unit}"),
        legend=_two(scaling),
        marks=len(found),
    )


def response(scaling: Scaling) -> Chart | None:
    """Measured where there is one, else load over throughput; the model's curve."""
    points = _rows(scaling.ladder.points)
    measured = any(p["response_s"] is not None for p in points)
    think = scaling.ladder.think_s or 0.0
    found = [
        {"load": p["load"], "repeat": p["repeat"], "what": what, "time": seconds}
        for p in points
        for what, seconds in (
            ("mean", p["response_s"] if measured else p["load"] / p["throughput"] - think),
            ("95 %", p["response_p95_s"]),
        )
        if seconds is not None and seconds > 0
    ]
    if not found:
        return None
    model = [r for r in _parts(scaling.curve)[0] if r["response_s"] is not None and r["response_s"] > 0]
    unit, factor = time_unit(1e9 * max(f["time"] for f in found))
    for f in found:
        f["time"] *= 1e9 / factor
    drawn = [{"load": r["load"], "time": r["response_s"] * 1e9 / factor} for r in model]
    y = _y("time", f"response time, {unit}", {"type": "linear"}, "~s" if unit == "s" else "~f")
    x, names = load_axis(scaling), [n for n in ("mean", "95 %") if any(f["what"] == n for f in found)]
    paints = [var("text"), var("stat-p95")][: len(names)]
    dots = encoded(
        _points(found, x, y, "time", f"response time, {unit}", ",.4~r"),
        color=channel("what:N", scale=colours(names, paints), legend=None),
    )
    line = encoded(_line(drawn), x=x, y=y)
    keys = [Key(n if measured else "load / throughput", p, "dot") for n, p in zip(names, paints, strict=True)]
    return Chart(
        id="response-model",
        title="Response time",
        caption=_response_words(measured, think),
        spec=finished([line, dots], f"Response time in {unit} against {scaling.ladder.load_unit}"),
        legend=[*keys, *([Key(scaling.best.title, var("series-1"))] if scaling.best else [])],
        log=True,
        marks=len(found),
    )


def residuals(scaling: Scaling) -> Chart | None:
    """Measured less predicted, of the prediction."""
    found = [
        {**r, "share": r["residual"] / r["predicted"]}
        for r in _rows(scaling.residuals)
        if r["residual"] is not None and r["predicted"]
    ]
    if not found:
        return None
    most = max(0.01, 1.15 * max(abs(f["share"]) for f in found))
    x = load_axis(scaling)
    digits = ".1%" if most < 0.04 else ".0%"
    y = _y("share", "measured less predicted", {"domain": [-most, most], "nice": False}, f"+{digits}")
    layers = [_level(0.0), _points(found, x, y, "share", "residual", "+.2%")]
    return Chart(
        id="residuals",
        title="Residuals",
        caption=(rows.residual_words(scaling.best) if scaling.best else None)
        or "Measured less predicted: a wave says that the model has the wrong shape.",
        spec=finished(layers, f"Residuals in per cent against {scaling.ladder.load_unit}"),
        marks=len(found),
    )


def cpu(scaling: Scaling) -> Chart | None:
    """CPU used and waited for, where it was measured."""
    shown = [n for n in _CPU if not scaling.ladder.points[n].is_null().all()]
    if not shown:
        return None
    means = scaling.ladder.points.group_by("load").agg(pl.col(shown).mean()).sort("load")
    found = [
        {"load": r["load"], "what": _CPU[n][0], "cpus": r[n]}
        for r in _rows(means)
        for n in shown
        if r[n] is not None
    ]
    names, paints = [_CPU[n][0] for n in shown], [var(_CPU[n][1]) for n in shown]
    paint = channel("what:N", scale=colours(names, paints), legend=None)
    x = load_axis(scaling)
    y = _y("cpus", "CPUs", {"domainMin": 0}, "~s")
    base = {"x": x, "y": y, "color": paint}
    tip = [channel("load:Q"), channel("what:N"), channel("cpus:Q", format=".3~r", title="CPUs")]
    cpus = scaling.ladder.machine.cpus
    layers = [
        *(cpu_mark(cpus, "y") if cpus else []),
        encoded(layer(found, "line", strokeWidth=2), **base),
        encoded(layer(found, "point", filled=True, size=36, opacity=1), **base, tooltip=tip),
    ]
    return Chart(
        id="cpu",
        title="CPU and CPU WAIT",
        caption="CPU seconds per second that the work used, and that it waited in the run queue.",
        spec=finished(layers, f"CPU against {scaling.ladder.load_unit}"),
        legend=[Key(n, p) for n, p in zip(names, paints, strict=True)],
        marks=len(found),
    )


def _rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows in which what is not finite is unknown: JSON has no NaN."""
    floats = [n for n, t in frame.schema.items() if t.is_float()]
    return frame.with_columns(
        pl.when(pl.col(n).is_finite()).then(pl.col(n)).alias(n) for n in floats
    ).to_dicts()


def _parts(curve: pl.DataFrame) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The curve within the measured loads, and beyond them (with its last point within)."""
    found = sorted(_rows(curve), key=lambda r: r["load"])
    within, beyond = [r for r in found if not r["beyond"]], [r for r in found if r["beyond"]]
    return within, [*within[-1:], *beyond] if beyond else []


def _line(found: Sequence[dict[str, Any]], dash: tuple[int, int] = (1, 0)) -> Spec:
    """The model's curve."""
    return layer(found, "line", strokeWidth=2.5, strokeDash=list(dash), clip=True, color=var("series-1"))


def _area(found: Sequence[dict[str, Any]]) -> Spec:
    return layer(found, "area", opacity=0.2, clip=True, color=var("series-1"))


def _y(field: str, title: str, scale: Spec, form: str) -> Spec:
    return channel(f"{field}:Q", title=title, scale=scale, axis={"format": form})


def _points(
    found: Sequence[dict[str, Any]], x: Spec, y: Spec, field: str, title: str, form: str = ",.5~r"
) -> Spec:
    tip = [channel("load:Q"), channel(f"{field}:Q", format=form, title=title)]
    if len({r.get("repeat") for r in found}) > 1:
        tip.insert(1, channel("repeat:Q"))
    base = layer(found, "point", filled=True, size=46, opacity=0.9, color=var("text"))
    return encoded(base, x=x, y=y, tooltip=tip)


def _perfect(scaling: Scaling, x: Spec) -> Spec:
    """By the fit's throughput of one; without a fit there is none."""
    ends = [
        {"load": r["load"], "rate": r["perfect"]} for r in _rows(scaling.curve) if r["perfect"] is not None
    ]
    if ends and not is_wide(scaling):
        ends.insert(0, {"load": 0.0, "rate": 0.0})
    base = layer(ends, "line", strokeDash=[6, 4], strokeWidth=1.5, opacity=0.8, clip=True, color=var("muted"))
    return encoded(base, x=x, y=channel("rate:Q"))


def _level(value: float) -> Spec:
    base = layer([{"level": value}], "rule", color=var("muted"), strokeDash=[6, 4])
    return encoded(base, y=channel("level:Q"))


def _two(scaling: Scaling) -> list[Key]:
    best = scaling.best
    return [Key("measured", var("text"), "dot"), *([Key(best.title, var("series-1"))] if best else [])]


def _response_words(measured: bool, think: float) -> str:
    if measured:
        return "Measured, and as the model has it by Little's law: load over throughput, less the think time."
    less = f", less {think:g} s of think time" if think else ""
    return f"Not measured: load over throughput by Little's law{less}."
