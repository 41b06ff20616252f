"""Charts of a ladder and of the model that was fitted to it. Loads Altair: imported only for a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from dbdyno.model.scaling import Scaling
from dbdyno.present import scaling_marks as marking
from dbdyno.present import scaling_rows as rows
from dbdyno.present.chart import (
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
from dbdyno.present.scaling_marks import is_wide, load_axis

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
        *marking.machine_marks(scaling),
        encoded(_area([*within, *beyond]), x=x, y=channel("low:Q", title=unit), y2={"field": "high"}),
        _perfect(scaling, x),
        encoded(_line(within), x=x, y=y),
        encoded(_line(beyond, dash=(2, 3)), x=x, y=y),
        *marking.marks(scaling),
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
        f"{scaling.ladder.load_unit} fail to deliver" + marking.words(scaling),
        spec=finished(
            layers, f"Throughput in {unit} against {scaling.ladder.load_unit}, with the model's curve"
        ),
        legend=[*keys, Key("perfect scaling", var("muted"), "dash"), *marking.keys(scaling)],
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
