"""One chart as the page takes it, and what all charts share. Loads Altair: imported only for a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import altair as alt
import polars as pl

from dbdyno.model.units import NS_PER_S
from dbdyno.present.document import Chart, Key
from dbdyno.present.figures import cpus_text
from dbdyno.present.palette import SERIES, var

__all__ = ["Chart", "Key"]
HEIGHT = 300
DASHES: tuple[tuple[int, ...], ...] = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")


def inline(frame: pl.DataFrame | Sequence[dict[str, Any]]) -> alt.NamedData:
    """Data inside the specification; NULL stays null and is not drawn.

    The rows travel as the name of the data set, one text, and :func:`finished` unpacks them: Altair checks
    and copies every cell of rows that it knows, again for every layer.
    """
    rows = frame.to_dicts() if isinstance(frame, pl.DataFrame) else list(frame)
    return alt.NamedData(name=json.dumps(rows, allow_nan=False))


def sessions_axis() -> alt.X:
    """Sessions to scale."""
    axis = alt.Axis(tickMinStep=1, format="d", labelOverlap=True)
    return alt.X("sessions:Q", title="sessions", axis=axis, scale=alt.Scale(domainMin=0, nice=True))


def rungs_axis() -> alt.X:
    """Sessions as steps of equal width: for bars."""
    axis = alt.Axis(labelAngle=0, labelOverlap="greedy", labelSeparation=8, ticks=False)
    return alt.X("sessions:O", title="sessions", axis=axis, scale=alt.Scale(type="band", paddingInner=0.15))


def colours(keys: Sequence[str], values: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(keys), range=list(values))


def series_scale(labels: Sequence[str]) -> alt.Scale:
    return colours(labels, [var(SERIES[i % len(SERIES)]) for i in range(len(labels))])


def series_keys(labels: Sequence[str]) -> list[Key]:
    return [Key(label, var(SERIES[i % len(SERIES)])) for i, label in enumerate(labels)]


def cpu_mark(cpus: float, axis: Literal["x", "y"]) -> list[alt.Chart]:
    """A rule where the server's CPUs are all busy, with its name."""
    data = inline([{"cpus": cpus, "name": cpus_text(cpus)}])
    rule = alt.Chart(data).mark_rule(color=var("muted"), strokeDash=[2, 3], strokeWidth=1.5)
    text = alt.Chart(data).mark_text(color=var("text" if axis == "y" else "muted"), align="left", fontSize=11)
    if axis == "x":
        rule = rule.encode(x=alt.X("cpus:Q"))
        text = text.encode(x=alt.X("cpus:Q"), text="name:N", y=alt.value(HEIGHT - 8))
        return [rule, _moved(text, dx=4)]
    rule = rule.encode(y=alt.Y("cpus:Q"))
    place = {"y": alt.Y("cpus:Q"), "text": "name:N", "x": alt.value(2)}
    halo = alt.Chart(data).mark_text(
        color=var("card"), stroke=var("card"), strokeWidth=4, align="left", fontSize=11
    )
    return [rule, *(_moved(t.encode(**place), dx=4, dy=-8) for t in (halo, text))]


def finished(layers: Sequence[alt.Chart], description: str) -> dict[str, Any]:
    """The layers as one specification as wide as its container."""
    chart = alt.layer(*layers).properties(width="container", height=HEIGHT, description=description)
    # Altair's JSON schema takes 0.5 s to load: the tests validate, the report does not.
    spec: dict[str, Any] = chart.to_dict(validate=False)
    for key in ("$schema", "config"):  # the page brings the theme; nothing may look like a thing to load
        spec.pop(key, None)
    texts: dict[str, str] = {}
    for part in (spec, *spec["layer"]):
        if "data" in part:
            part["data"]["name"] = texts.setdefault(part["data"]["name"], f"data-{len(texts)}")
    return {**spec, "datasets": {name: json.loads(text) for text, name in texts.items()}}


def time_unit(highest_ns: float) -> tuple[str, float]:
    """The unit that suits a time axis, and nanoseconds in it."""
    for unit, factor in (("s", float(NS_PER_S)), ("ms", 1e6), ("µs", 1e3)):
        if highest_ns >= 2 * factor:
            return unit, factor
    return "ns", 1.0


def _moved(text: alt.Chart, dx: int = 0, dy: int = 0) -> alt.Chart:
    text.mark.dx, text.mark.dy = dx, dy
    return text
